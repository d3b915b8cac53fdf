"""Explanations of attention kernels that somebody else wrote, by schedules and tiles."""
