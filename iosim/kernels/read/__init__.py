"""From what a user gives, a file, a script, or a launch with its arguments, to a compiled kernel.

In reading order: kernel_file.py finds the kernels of a file, and script.py catches the launches of a script. kernel.py
has one kernel and a launch of it, launch_texts.py and arguments.py a launch that is given as texts. compile.py calls
Triton, and ttir.py reads the code that it makes.
"""
