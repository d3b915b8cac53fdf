"""Operators of FlagGems."""

import flag_gems
import torch
from calls import attempt


def floats(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.float16)


x, w = floats(512, 1024), floats(1024)
OPS = flag_gems.ops
CALLS = [
    lambda: OPS.softmax(x, 1), lambda: OPS.mm(x, floats(1024, 256)), lambda: OPS.layer_norm(x, [1024], w, w),
    lambda: OPS.sum(x), lambda: OPS.mean(x), lambda: OPS.argmax(x, 1), lambda: OPS.cumsum(x, 1), lambda: OPS.gelu(x),
    lambda: OPS.add(x, x), lambda: OPS.log_softmax(x, 1), lambda: OPS.addmm(w[:256], x, floats(1024, 256)),
    lambda: OPS.bmm(floats(4, 64, 64), floats(4, 64, 64)), lambda: OPS.amax(x, 1), lambda: OPS.dropout(x, 0.5, True),
    lambda: OPS.triu(x), lambda: OPS.rms_norm(x, [1024], w),
]  # fmt: skip
for ask in CALLS:
    attempt(ask)
