"""Studies that build on counts: roofline, training, memory, checks, and what is known of each schedule."""
