"""Least traffic over schedules and tiles, for one M or for all.

Read in this order: curve.py finds the least traffic at every M.
least.py searches for `iosim tune`; its answers are in best.py for one M, and in every_M.py for all. sides.py compares
several schedules and their tiles, and where.py says where a statement is true.
"""
