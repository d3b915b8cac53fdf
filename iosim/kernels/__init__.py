"""Kernels written in Triton: the words that a launch moves, counted from the compiler's own code, without a GPU.

In reading order: read/ takes a file or a script to a compiled kernel, while pretend/ stands in for a GPU and for
packages. walk/ counts what the compiled kernel requests. explain.py makes the answer: words by ways.py, the time by
seconds.py, the nearest schedule by nearest.py, notes by notes.py. launches.py asks for launches that are given as texts
or by a script.
"""
