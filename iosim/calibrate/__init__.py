"""Measures a GPU into a hardware file."""
