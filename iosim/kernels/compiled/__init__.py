"""Models that `torch.compile` compiles: what Inductor launches in a step, counted without a GPU.

code.py reads the code that Inductor writes, without running it, and folder.py finds it. inductor.py has the kernels in
it, steps.py counts each launch, and step.py has the answer.
"""
