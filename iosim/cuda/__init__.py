"""The machine that writes CUDA. It needs no GPU."""
