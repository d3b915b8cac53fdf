"""The names of all schedules, and the files that have them. A file is imported when one of its names is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..asked_modules import answers
from ..core.options import OF_STATE
from ..core.problem import narrowed
from ..options import expect
from .registry import SCHEDULES, Schedule, applies, distinct, find, find_all, reads_cache, register, require

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..core.problem import Attention
    from ..core.typing import Size

# The schedules that `count` shows if none is asked for.
CORE = ("standard", "standard-tiled", "flash1", "flash2", "block-sparse", "block-sparse-q")
# Those that it shows if --rule is given.
WITH_STATE = ("state-fused", "state-split", "state-tiles", "state-saved")

FILES = {
    "standard": ("standard", "standard-tiled"),
    "flash": ("flash1", "flash2", "block-sparse", "block-sparse-q", "local-gather"),
    "pinned": ("flash2-pinned",),
    "memory_efficient": ("memory-efficient", "flash2-one-room"),
    "decode": ("split-kv", "paged", "paged-split-kv"),
    "backward": ("standard-bwd", "flash1-bwd", "block-sparse-bwd"),
    "backward_lse": ("flash2-bwd", "block-sparse-q-bwd", "flash2-bwd-second-pass"),
    "backward_stored": ("flash2-bwd-stored-ds",),
    "backward_stored_both": ("flash2-bwd-stored-p-ds",),
    "backward_panels": ("flash2-bwd-panels",),
    "backward_small": ("small-cache-bwd", "small-cache-bwd-q"),
    "small_cache": ("small-cache", "small-cache-q", "standard-square"),
    "online_softmax": ("softmax-3pass", "softmax-3pass-code", "softmax-2pass", "attention-3pass", "attention-2pass"),
    "matmul": ("matmul-naive", "matmul-tiled", "matmul-tiled-a", "matmul-tiled-b"),
    "selected": ("selected", "selected-keys-outside"),
    "indexer": ("indexer",),
    "cache_write": ("cache-write",),
    "state_forward": ("state-fused", "state-split", "state-tiles"),
    "state_saved": ("state-saved",),
    "state_decode": ("state-decode", "state-ring"),
    "state_verify": ("state-verify",),
    "state_backward": ("state-bwd",),
    "state_backward_saved": ("state-bwd-saved",),
}  # their order in lists
SCHEDULES.expect(FILES)

OPTIONS = {
    "standard": ("elementwise",),
    "flash": ("short_tile",),
    "decode": ("splits", "page_size"),
    "selected": ("top_k", "key_block"),
    "state": (
        *("rule", "chunk", "state_columns", "key_heads", "initial_state", "final_state", "state_dtype"),
        *("normalise", "features", "padding", "ring"),
        *("drafts", "accepted", "rollback"),
    ),
}  # that these files declare, in the order of lists
for _file, _names in OPTIONS.items():
    expect(f"{__name__}.{_file}", _names)


def family_of(problem: Attention[Size]) -> str:
    """The family of a question that names no schedule: softmax attention or, with --rule, attention with a state."""
    return "state" if dict(problem.own).get(OF_STATE) else "attention"


def with_rule(problem: Attention, schedules: Sequence[Schedule]) -> Attention:
    """The problem with the rule of linear attention, if all schedules have a state and no rule is given."""
    plain = family_of(problem) == "state" or not all(schedule.reads(OF_STATE) for schedule in schedules)
    return problem if plain else narrowed(problem, **{OF_STATE: "linear"})


def usual(with_state: bool) -> tuple[str, ...]:
    """The schedules of a question that names none, about attention or, if --rule is given, attention with a state."""
    return WITH_STATE if with_state else CORE


__all__ = [
    "CORE",
    "FILES",
    "SCHEDULES",
    "WITH_STATE",
    "Schedule",
    "applies",
    "distinct",
    "family_of",
    "find",
    "find_all",
    "reads_cache",
    "register",
    "require",
    "usual",
]

answers(__name__)
