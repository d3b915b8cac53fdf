"""Kernels written by hand for Hopper, which move the words of their schedules."""
