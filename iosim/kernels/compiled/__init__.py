"""Models that `torch.compile` compiles: what Inductor launches in a step, counted without a GPU.

capture.py lets PyTorch compile a script for a GPU that is not there, and keeps the code that Inductor writes. code.py
reads that code without running it, and finds what was left behind elsewhere. inductor.py has the kernels in it,
steps.py counts each launch, and step.py has the answer.
"""
