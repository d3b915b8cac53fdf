"""Tensor parallelism beside the schemes that divide tokens: each GPU has all tokens of some heads."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .counted import best_split, counted
from .schedules import PASSES, heads_divide

if TYPE_CHECKING:
    from ..core.problem import Attention
    from .counted import LinkResult, Machines

NAME = "tensor parallel"


def by_heads(p: Attention, gpus: Machines, passes: str) -> LinkResult | None:
    """The row of heads that are split over all GPUs, which then send nothing in attention: the count of one GPU with
    its heads. None if the heads do not divide, or if several GPUs would add up the gradients of a KV head."""
    P = gpus.ranks
    shared = passes != "forward" and p.kv_heads % P
    if P == 1 or not heads_divide(p, P) or shared:
        return None
    own = replace(p, heads=p.heads // P, kv_heads=max(1, p.kv_heads // P))
    scheme = PASSES[passes]["ring"]
    one = counted(best_split(scheme, scheme.splits(own, 1), gpus._replace(ranks=1, node=1)))
    none = 0 if gpus.nodes > 1 else None
    one = replace(one, node_words=none, network_bytes=none, flops=P * one.flops)
    return replace(one, schedule=NAME, split=f"heads {P}", layout="heads")


def line_on_heads(p: Attention, gpus: Machines) -> str:
    """The sentence on the row."""
    each = p.heads // gpus.ranks
    whose = f"{each} query heads" if each > 1 else "one query head"
    return (
        f"Heads split over {gpus.ranks} GPUs (tensor parallel): 0 words in attention, where each GPU has all tokens of "
        f"{whose} from the start; no floor of divided tokens is one for it."
    )
