"""Least traffic over schedules and tiles, for one M or for all."""
