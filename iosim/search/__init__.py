"""The search for the tiles that move least and fit.

In reading order: best.py is the search at one M. pairs.py is that of schedules in which two tile sizes share the SRAM,
at one M and at every M.
"""
