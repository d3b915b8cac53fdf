"""Kernels written by hand for Hopper, with the word counts of their schedules."""
