"""From what a user gives, a file, a script, or a launch with its arguments, to a compiled kernel.

In reading order: user_code.py runs a user's file and finds kernels or launches in it. kernel.py has one kernel and a
launch of it, launch_texts.py and arguments.py a launch that is given as texts. compile.py calls Triton, and ttir.py
reads the code that it makes.
"""
