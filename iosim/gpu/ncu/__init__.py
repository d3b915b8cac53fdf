"""Nsight Compute: how it is run, and what it counted."""
