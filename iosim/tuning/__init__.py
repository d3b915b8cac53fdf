"""Least traffic over schedules and tiles, for one M or for all.

Read in this order: thread_blocks.py counts the blocks of a tiling. curve.py finds the least traffic at every M.
least.py answers `iosim tune`, and tables.py shows its answers. sides.py compares two choices of schedules and
tiles, and crossover.py answers `iosim crossover`.
"""
