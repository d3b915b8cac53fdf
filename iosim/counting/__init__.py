"""Counts, sweeps and bounds."""
