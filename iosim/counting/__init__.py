"""Counts, sweeps, bounds and floors.

In reading order: count.py answers `iosim count`. bounds.py and floors.py hold what is proven. columns.py and report.py
show a count. sweep_axes.py reads a sweep, and sweep.py counts it with floor_arrays.py. given.py reads
the options of a command line.
"""
