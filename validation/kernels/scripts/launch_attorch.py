"""A training step of attorch's layers."""

import attorch
import torch
from calls import attempt


def floats(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.float32).requires_grad_()


def step(layer, *values):
    found = layer.cuda()(*values)
    (found[0] if isinstance(found, tuple) else found).float().square().mean().backward()


def targets(rows, classes):
    return torch.randint(0, classes, (rows,), device="cuda")


LAYERS = [
    lambda: (attorch.Linear(256, 512, act_func="gelu"), floats(128, 256)),
    lambda: (attorch.LayerNorm(512), floats(128, 512)),
    lambda: (attorch.RMSNorm(512), floats(128, 512)),
    lambda: (attorch.Softmax(dim=1), floats(128, 512)),
    lambda: (attorch.GELU(), floats(128, 512)),
    lambda: (attorch.GLU(), floats(128, 512)),
    lambda: (attorch.Dropout(0.5), floats(128, 512)),
    lambda: (attorch.BatchNorm2d(16), floats(8, 16, 14, 14)),
    lambda: (attorch.Conv2d(8, 16, 3), floats(8, 8, 14, 14)),
    lambda: (attorch.CrossEntropyLoss(), floats(128, 100), targets(128, 100)),
    lambda: (attorch.NLLLoss(), floats(128, 100), targets(128, 100)),
    lambda: (attorch.MSELoss(), floats(128, 100), floats(128, 100)),
    lambda: (attorch.MultiheadAttention(128, 4), *[floats(2, 128, 128)] * 3),
]
for make in LAYERS:
    attempt(lambda: step(*make()))  # noqa: B023
