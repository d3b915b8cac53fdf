"""Measures a GPU into a hardware file.

In reading order: gpu.py measures the whole GPU and writes the file. steps.py measures the tile steps of generated
kernels, whose texts are in step_texts.py; loop.py measures what they cost beyond that in a real loop.
"""
