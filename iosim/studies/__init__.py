"""Questions that build on counts: roofline, training, memory, checks."""
