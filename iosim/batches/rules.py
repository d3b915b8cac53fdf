"""What published libraries do with a batch, as launches: a way for each of counting/libraries.py. Imports NumPy.

Their block tables are not counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..core.problem import DENSE, narrowed
from ..counting.libraries import Choice, Library, lacks, vllm_cascades
from ..masks.strips import reach
from ..schedules import SCHEDULES
from ..schedules.decode import PAGE_SIZE, SPLITS
from .cascade import LEVEL, merge
from .launches import Launch, part_of_keys, rows
from .shapes import shapes

if TYPE_CHECKING:
    from ..core.problem import Attention
    from ..core.tiling import Tiling
    from ..core.typing import Size
    from .asked import Batch


def without(library: Library) -> Callable[[Batch], str]:
    """Why a library cannot run a batch, or its rule says nothing about it."""

    def fails(batch: Batch) -> str:
        if batch.mask is not DENSE and batch.packed_mask is None:
            return lacks(batch.problem) or f"it has no mask as {batch.mask}"
        blind = library.counts_sms and not batch.multiprocessors
        return lacks(batch.problem) or ("its rule needs the multiprocessors of --hardware" if blind else "")

    return fails


def given(batch: Batch) -> Attention:
    """The problem of a request as a library is given it: with its window, whether it hides keys or not. Another mask is
    dense where no key is hidden."""
    return narrowed(batch.problem, mask=batch.problem.mask if windowed(batch) else batch.mask)


def windowed(batch: Batch) -> bool:
    """Whether the mask is a window."""
    return reach(batch.problem.mask)[0] is not None


def launches_of(library: Library) -> Callable[[Batch], list[Launch]]:
    """The launches of a library for a batch."""

    def launches(batch: Batch) -> list[Launch]:
        return [replace(one, of_library=True) for one in by_its_rule(batch)]

    def by_its_rule(batch: Batch) -> list[Launch]:
        sms = batch.multiprocessors or 0  # of a rule that counts none
        choice = library.choose(given(batch), batch.shapes, sms)
        options: dict[str, Size] = {} if batch.problem.divided else {**library.options}
        prefix = common_prefix(batch) if library.name == "vLLM" and not windowed(batch) else 0
        if vllm_cascades(batch.problem, batch.shapes, sms, prefix):
            return over_prefix(batch, choice.tiles, options, prefix)
        return in_shares(batch, choice, options)

    return launches


def in_shares(batch: Batch, choice: Choice, options: dict[str, Size]) -> list[Launch]:
    """The launches of requests with a number of shares each: those with one share store O at once."""
    splits = np.broadcast_to(choice.splits, batch.shapes.new.shape)
    several, launches = splits > 1, []
    if several.any():
        more = {**options, SPLITS.name: splits[several]}
        part = batch.shapes.picked(several)
        launches.append(Launch(SCHEDULES["split-kv"], part, choice.packs, more, choice.tiles, share=part_of_keys))
    if not several.all():
        launches += rows(batch, choice.packs, batch.shapes.picked(~several), choice.tiles, options)
    return launches


def over_prefix(batch: Batch, tiles: Tiling, options: dict[str, Size], prefix: int) -> list[Launch]:
    """The launches of a cascade over a prefix that all requests have in common."""
    packs = batch.group > 1
    rest = [(one.new, one.tokens - prefix) for one in batch.requests]
    left = shapes(rest, [one.times for one in batch.requests], batch.shape_of)
    whole = shapes([(batch.new_tokens, prefix)], [1], [-1])
    return [
        Launch(LEVEL, whole, packs, options, tiles, sees_all=True),
        Launch(LEVEL, left, packs, options, tiles),
        replace(merge(2, {batch.new_tokens: 1}, packs, options), tiles=tiles),
    ]


def common_prefix(batch: Batch) -> int:
    """Tokens that all requests have in common, in whole pages."""
    every = sum(node.tokens for node in batch.tree.shared if len(node.users) == len(batch.requests))
    page = int(batch.problem[PAGE_SIZE])
    return every // page * page
