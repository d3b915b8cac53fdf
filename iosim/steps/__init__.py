"""Tile steps: each a Python function, with its CUDA in the file of the same name."""
