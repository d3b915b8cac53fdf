"""Attention with a state in flash-linear-attention 0.6.0, in chunks of 64 tokens and in steps of decoding.

The variable CALL names some of CALLS; without it all are made.
"""

import os
import sys

for _part in ("fla.layers", "fla.models"):
    sys.modules[_part] = None  # the package is imported without its models, which need others

import torch  # noqa: E402
from triton.runtime import autotuner  # noqa: E402

N, HEADS, D, BATCH = 8192, 16, 128, 128


def first_only(make=autotuner.Autotuner.__init__):
    """Let a kernel have its first configuration alone, as `iosim explain` does without --tune."""

    def made(self, fn, arg_names, configs, *more, **options):
        make(self, fn, arg_names, configs[:1], *more, **options)

    autotuner.Autotuner.__init__ = made


first_only()
from fla.ops import delta_rule, gated_delta_rule, gla, kda, linear_attn, retention, simple_gla  # noqa: E402


def tokens(*shape, dtype=torch.bfloat16):
    """Words of which none is large: keys of length about 1, so that no state grows."""
    return torch.randn(*shape, device="cuda", dtype=dtype) * D**-0.5


def rows(batch=1, length=N, gates=(), beta=False):
    """Arguments for so many tokens. `gates` are the words of a log decay, in fp32."""
    found = {name: tokens(batch, length, HEADS, D) for name in "qkv"}
    if gates != ():
        found["g"] = -tokens(batch, length, HEADS, *gates, dtype=torch.float32).abs()
    if beta:
        found["beta"] = tokens(batch, length, HEADS).sigmoid()
    return {**found, "output_final_state": True}


def step(**gates):
    """Arguments for one token of each of many sequences, with their states."""
    return {**rows(BATCH, 1, **gates), "initial_state": tokens(BATCH, HEADS, D, D, dtype=torch.float32)}


SCALAR, DIAGONAL, PLAIN = [], [D], {"normalize": False}
CALLS = {
    "gdn": lambda: (gated_delta_rule.chunk_gated_delta_rule, rows(gates=SCALAR, beta=True)),
    "deltanet": lambda: (delta_rule.chunk_delta_rule, rows(beta=True)),
    "simple-gla": lambda: (simple_gla.chunk_simple_gla, rows(gates=SCALAR)),
    "retention": lambda: (retention.chunk_retention, rows()),
    "linear": lambda: (linear_attn.chunk_linear_attn, {**rows(), **PLAIN}),
    "linear-fused": lambda: (linear_attn.fused_chunk_linear_attn, {**rows(), **PLAIN}),
    "kda": lambda: (kda.chunk_kda, rows(gates=DIAGONAL, beta=True)),
    "gla": lambda: (gla.chunk_gla, rows(gates=DIAGONAL)),
    "gdn-decode": lambda: (gated_delta_rule.fused_recurrent_gated_delta_rule, step(gates=SCALAR, beta=True)),
    "linear-decode": lambda: (linear_attn.fused_recurrent_linear_attn, {**step(), **PLAIN}),
}

if __name__ == "__main__":
    for name in os.environ.get("CALL", " ".join(CALLS)).split():
        function, given = CALLS[name]()
        with torch.no_grad():
            function(**given)
