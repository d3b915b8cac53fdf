"""Notes on a launch whose words show that the kernel solves another problem than the one given with --as attention."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ..core.problem import DENSE, TENSORS, Attention
from ..gpu.profile.explain import ways
from ..masks import parse_mask
from .nearest import Nearest, counted, tiles_name

if TYPE_CHECKING:
    from .ways import Way


def other_sizes(tensors: Mapping[str, Mapping[str, Way]], problem: Attention) -> list[str]:
    """A note if distinct words of Q, K, V or O are not those of the problem. A mask may hide words of Q, K and V."""
    found = []
    for name in ("Q", "K", "V", "O"):
        each = tensors.get(name, {})
        if not each or any(way.unplaced_words for way in each.values()) or (name == "V" and problem.latent):
            continue
        kinds = ("writes", "atomics") if name == "O" else ("reads",)
        own = max(each[kind].distinct_words - each[kind].outside_words for kind in kinds)
        words = words_of(name, problem)
        if own > words or (own < words and (name == "O" or problem.mask is DENSE)):
            found.append(f"{name} {own:,} / {words:,}")
    if not found:
        return []
    which = "; ".join(found)
    return [f"--as attention: distinct words differ from the problem's (in the launch / of the problem): {which}"]


def words_of(name: str, problem: Attention) -> int:
    """The words of a tensor over all heads."""
    rows, words = problem.shape(TENSORS[name])
    return rows * words * problem.batch * (problem.kv_heads if TENSORS[name].shared else problem.heads)


def hidden_by_causal(found: Nearest, problem: Attention, products: Collection[tuple[int, int]]) -> list[str]:
    """A note if no schedule with the kernel's tiles has its words without a mask, and one has them with a causal
    mask."""
    own = found.equal and found.tiles in map(tiles_name, products)
    if own or problem.mask is not DENSE or problem.gqa == "pack":
        return []
    causal = replace(problem, mask=parse_mask("causal"))
    for schedule, p in ways(causal):
        for pair in products:
            if counted(schedule, p, pair) == found.kernel:
                name = f"{schedule.name} {tiles_name(pair)}"
                return [f"with --causal the words are those of {name}: is the kernel causal?"]
    return []
