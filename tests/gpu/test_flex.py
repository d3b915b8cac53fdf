"""Masks for PyTorch's FlexAttention: the same pairs are visible as in iosim's own masks. PyTorch is made up."""

import sys
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from iosim.core.problem import Attention
from iosim.core.tiling import Tiling
from iosim.errors import InputError
from iosim.gpu import flex
from iosim.gpu.jobs import job_from_json, torch_job
from iosim.masks import parse_mask

MASKS = ("causal", "causal&window:5", "window:0", "~causal|global:3", "strided:4&~window:2", "dense&causal",
         "causal&(window:3|sink:2)", "chunk:4|dilated:2:3", "sink:3")  # fmt: skip
FLEX = "torch.nn.attention.flex_attention"


def visible(p):
    return p.mask.bind(p, Tiling(4, 4)).visible(0, p.N, 0, p.Nk)


@pytest.mark.parametrize("N, Nk", [(13, 13), (13, 21), (1, 9)])
@pytest.mark.parametrize("mask", MASKS)
def test_the_same_pairs_are_visible(mask, N, Nk):
    p = Attention(N, 4, Nk=Nk, mask=parse_mask(mask))
    found = flex.predicate(p.mask.expr, Nk - N)(np.arange(N)[:, None], np.arange(Nk)[None])
    assert (np.broadcast_to(found, (N, Nk)) == visible(p)).all()


@pytest.mark.parametrize("mask", ["window:2b", "causal|global:1b"])
def test_masks_of_tiles_are_refused(mask):
    with pytest.raises(InputError, match="computed from positions"):
        flex.predicate(parse_mask(mask).expr, 0)


def test_a_call_has_its_block_mask_and_its_groups(monkeypatch):
    calls, own = [], ModuleType(FLEX)

    def blocks(holds, batch, heads, N, Nk, device):
        assert (batch, heads, device) == (None, None, "cuda")
        return holds(0, 0, np.arange(N)[:, None], np.arange(Nk)[None])

    own.create_block_mask = blocks
    own.flex_attention = lambda q, k, v, block_mask, enable_gqa: calls.append((block_mask, enable_gqa))
    for name in ("torch", "torch.nn", "torch.nn.attention"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, FLEX, own)
    torch = SimpleNamespace(
        _dynamo=SimpleNamespace(reset=lambda: None), compile=lambda f, dynamic: f, no_grad=nullcontext
    )
    masked = Attention(4, 2, Nk=6, heads=2, kv_heads=1, mask=parse_mask("causal&window:1"))
    for p in (masked, Attention(4, 2)):
        flex.compiled(torch, p)("q", "k", "v")
    assert (calls[0][0] == visible(masked)).all() and calls[0][1] and calls[1] == (None, False)


def test_a_job_of_flexattention_travels():
    job = torch_job("torch-flex", Attention(64, 16, lse=True, mask=parse_mask("causal")))
    assert job_from_json(job.to_json()) == job and not job.problem.lse
