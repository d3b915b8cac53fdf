"""Launches of flash-linear-attention: every operation that takes queries, keys and values, forwards and backwards."""

import importlib
import inspect
import pkgutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import fla.ops
import torch
from calls import B, D, H, T, call, made

WORD = (B, T, H, D)
NUMBER = (B, T, H)
SHAPES = {
    **dict.fromkeys(("q", "k", "v", "r", "w", "u2", "a", "b", "gk", "gv", "f", "s", "p", "kk"), WORD),
    **dict.fromkeys(("g", "beta", "alpha", "log_alpha", "decay", "i"), NUMBER),
    "u": (H, D), "x": (B, T, D),
}  # fmt: skip


def functions():
    """The operations of the package that its folders offer."""
    for found in pkgutil.iter_modules(fla.ops.__path__):
        try:
            module = importlib.import_module(f"fla.ops.{found.name}")
        except Exception as error:
            print(found.name, error, file=sys.stderr)
            continue
        for name, value in list(vars(module).items()):
            if (
                inspect.isfunction(value)
                and value.__module__.startswith("fla.ops")
                and "naive" not in name
                and not name.startswith("_")
            ):
                yield value


for function in functions():
    names = set(inspect.signature(function).parameters)
    if names & {"q", "x", "r"}:
        shapes = dict(SHAPES)
        for other in ({}, {"g": WORD, "beta": NUMBER}, {"g": WORD, "beta": WORD}):
            call(function, {**shapes, **other}, scale=D**-0.5)

from fla.ops.gla import chunk_gla  # noqa: E402
from fla.ops.nsa import parallel_nsa  # noqa: E402
from fla.ops.path_attn import parallel_path_attn  # noqa: E402
from fla.ops.rwkv6 import chunk_rwkv6  # noqa: E402
from fla.ops.rwkv7.channel_mixing import channel_mixing_rwkv7  # noqa: E402
from fla.ops.ttt import chunk_ttt_linear  # noqa: E402

WIDE = dict.fromkeys(("q", "k", "v", "g", "r", "w"), (B, T, H, 512))
call(chunk_gla, WIDE)
call(chunk_rwkv6, WIDE | {"u": (H, 512)})
GATES = dict.fromkeys(("g_cmp", "g_slc", "g_swa"), (B, T, 64))
call(parallel_nsa, SHAPES | GATES | {"q": (B, T, 64, D)}, block_counts=8)
call(
    parallel_path_attn,
    SHAPES,
    g=made(NUMBER, torch.float32),
    w=made(WORD, torch.float32),
    beta=made(NUMBER, torch.float32),
)
call(chunk_ttt_linear, SHAPES | {"w": (H, D), "b": (H, D), "eta": (B, T, H, 1)})
call(channel_mixing_rwkv7, {"x": (B, T, 1024), "x_prev": (B, 1024), "x_k": (1024,), "key_weight": (1024, 4096),
                            "value_weight": (4096, 1024)})  # fmt: skip
import fla.ops.rwkv7.fused_k_update as update  # noqa: E402

for name in ("fused_k_rwkv7", "k_update"):
    if hasattr(update, name):
        call(getattr(update, name), {"k": (B, 4096, 1024), "a": (B, 4096, 1024), "ka": (1024,)})
