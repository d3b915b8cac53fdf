"""Nsight Compute: runs of it, and the counters read from its files."""
