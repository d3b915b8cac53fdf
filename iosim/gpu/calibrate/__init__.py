"""Measures a GPU into a hardware file.

In reading order: gpu.py measures the whole GPU and writes the file. steps.py measures the tile steps of generated
kernels, with the schedules in step_texts.py. loop.py measures the extra time of the steps in a real loop.
"""
