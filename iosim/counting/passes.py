"""A forward and a backward schedule together, and what stays in HBM between them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..core.problem import TENSORS, Attention, mask_matters
from ..errors import InputError, suggestion
from ..schedules import SCHEDULES, Schedule, find_all
from ..schedules.registry import FA1, FA2

if TYPE_CHECKING:
    from ..schedules.registry import SchedulesAsked


class Combination(NamedTuple):
    """A forward and a backward schedule, and the tensors kept in HBM between them beside Q, K, V.

    If `recomputed`, the whole forward pass runs again before the backward pass. If `unfused`, mask and dropout may be
    passes of their own over the scores.
    """

    name: str
    forward: str
    backward: str
    stored: tuple[str, ...]
    source: str
    recomputed: bool = False
    unfused: bool = False

    def stored_bytes(self, p: Attention) -> dict[str, int]:
        """The bytes of each tensor that is kept, of a problem."""
        return {name: p.whole_bytes(TENSORS[name]) for name in self.stored}


COMBINATIONS = (
    Combination("standard", "standard", "standard-bwd", ("S", "P"), f"{FA1}, Algorithms 0 and 3", unfused=True),
    Combination("checkpointing", "standard", "standard-bwd", (), "Chen et al. 2016 (arXiv 1604.06174)", True, True),
    Combination("flash1", "flash1", "flash1-bwd", ("O", "l", "m"), f"{FA1}, Algorithms 1 and 4"),
    Combination("flash2", "flash2", "flash2-bwd", ("O", "LSE"), f"{FA2}, Algorithms 1 and 2"),
    Combination("flash2-second-pass", "flash2", "flash2-bwd-second-pass", ("O", "LSE"), f"{FA2}, without atomic adds"),
    Combination("block-sparse", "block-sparse", "block-sparse-bwd", ("O", "l", "m"), f"{FA1}, Algorithm 5"),
    Combination("block-sparse-q", "block-sparse-q", "block-sparse-q-bwd", ("O", "LSE"), f"{FA2}, with a mask"),
)


class UnfusedPass(NamedTuple):
    """The cost of an unfused operation on the scores.

    `forward` and `backward` are numbers of passes, each with one read and one write of N x Nk words. `mask_bytes` are
    the bytes a score of a mask that the forward pass writes and the backward pass reads.
    """

    forward: int
    backward: int
    mask_bytes: int
    why: str


UNFUSED = {
    "scale": UnfusedPass(1, 1, 0, "S / sqrt(d) by itself; its gradient is scaled as well"),
    "mask-add": UnfusedPass(1, 0, 0, "S + mask; the gradient of a sum goes through unchanged"),
    "mask-fill": UnfusedPass(1, 1, 0, "S with -inf filled in; the gradient has zeros filled in"),
    "dropout": UnfusedPass(1, 1, 1, "P dropped; a boolean mask is kept for the gradient"),
}


def distinct_ways(p: Attention) -> list[Combination]:
    """The combinations without those that move the words of an earlier one."""

    def key(c: Combination) -> tuple[object, ...]:
        passes = SCHEDULES[c.forward], SCHEDULES[c.backward]
        return (*((s.text, mask_matters(s, p)) for s in passes), c.stored)

    found: dict[tuple[object, ...], Combination] = {}
    for c in COMBINATIONS:
        found.setdefault(key(c), c)
    return list(found.values())


def combinations_of(p: Attention, names: str | Iterable[str], schedules: SchedulesAsked) -> list[Combination]:
    """The combinations of these names, or of these schedules in either pass; without any, all that differ."""
    if names != ():
        known = {c.name: c for c in COMBINATIONS}
        return [known[name] for name in dict.fromkeys(known_names("--combination", names, known))]
    asked = [s.name for s in find_all(schedules)]
    found = [c for c in COMBINATIONS if c.forward in asked or c.backward in asked]
    if asked and not found:
        raise InputError("--schedule", ", ".join(asked), ", ".join(dict.fromkeys(c.forward for c in COMBINATIONS)))
    return found or distinct_ways(p)


def backward_schedules(p: Attention, schedules: SchedulesAsked) -> Sequence[Schedule]:
    """The schedules of a backward pass: those named, each forward one replaced by those that belong to it; without
    names, all that differ."""
    named = find_all(schedules)
    own = {c.forward: [b.backward for b in COMBINATIONS if b.forward == c.forward] for c in COMBINATIONS}
    names = [name for s in named for name in own.get(s.name, [s.name])] or [c.backward for c in distinct_ways(p)]
    return [SCHEDULES[name] for name in dict.fromkeys(names)]


def known_names(option: str, texts: str | Iterable[str], known: Collection[str]) -> list[str]:
    """The names of `a,b`, or of several such texts. Raises InputError for one that is not known."""
    names = [name.strip() for text in ([texts] if isinstance(texts, str) else texts) for name in text.split(",")]
    for name in names:
        if name not in known:
            raise InputError(option, name, ", ".join(known), suggestion(name, known))
    return names
