"""Studies that build on counts: times on a GPU, memory, caches and traces."""
