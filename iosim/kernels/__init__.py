"""Kernels written in Triton: the words that a launch moves, counted from the compiler's own code, without a GPU."""
