"""The machine that writes CUDA. It needs no GPU.

In reading order: machine.py turns a schedule into a program of kernels (program.py). record.py keeps the statements of
the schedule. plan.py decides on threads, and places blocks in shared memory. write.py writes a kernel; it takes
barriers from barriers.py, C expressions from expressions.py and tables of the mask from mask_tables.py. warp_split.py
says how the kernels divide tiles among warps.
"""
