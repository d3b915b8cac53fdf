"""Tiles with a time: what `iosim tune --by time` compares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..core.problem import Attention
    from ..hardware import Hardware

SIZES = (16, 32, 48, 64, 80, 96, 128, 192, 256)  # sizes of a candidate's tiles
Progress = Callable[[float], None]
"""A function that is called with the share of the work that is done."""


@dataclass(frozen=True)
class TimedTiles:
    """Tiles of a schedule: seconds, what limits them, SM bytes and thread blocks. `chosen_by` is time, traffic, or the
    name of a publication.

    The limit is memory or a kind of operation. `operations` are those outside of products.
    """

    schedule: str
    chosen_by: str
    Br: int
    Bc: int
    seconds: float
    bound_by: str
    sm_bytes: int
    blocks: int
    operations: int = 0

    @property
    def tiles(self) -> str:
        """The tiles as `--tiles` takes them."""
        return f"{self.Br}x{self.Bc}"


@dataclass(frozen=True)
class FastestTiles:
    """The fastest tiles of one schedule, and those of least traffic; None if none fit.

    `candidates` is the number of tilings compared. `least_seconds` is the least time of all candidates, where tiles
    near it are chosen for another reason.
    """

    fastest: TimedTiles
    least: TimedTiles | None
    candidates: int
    least_seconds: float = inf


@dataclass(frozen=True)
class FastestAnswer:
    """The answer of `iosim tune --by time`: the schedules, fastest first, and the reasons why others have no
    time.

    Times are bounds, beside those of published tiles.
    `split` is a schedule that splits the keys and takes less time, with its number of splits, if the first one has
    fewer blocks than the GPU has multiprocessors.
    """

    problem: Attention
    hardware: Hardware
    results: list[FastestTiles]
    not_predicted: dict[str, str]
    published: list[TimedTiles] = field(default_factory=list)
    split: tuple[int, TimedTiles] | None = None

    @property
    def least_seconds(self) -> float:
        """The least time of all tiles that were compared, published ones too; inf without any."""
        times = [seconds for one in self.results for seconds in (one.fastest.seconds, one.least_seconds)]
        return min([*times, *(tiles.seconds for tiles in self.published)], default=inf)


def share_of_all(progress: Progress, done: int, schedules: int, share: float) -> None:
    """Call `progress` with the share of the work on all schedules, after `done` of them and a share of the next."""
    progress((done + share) / schedules)


def sizes_up_to(length: int) -> tuple[int, ...]:
    """The sizes below the length of an axis, and the first that holds it all."""
    return SIZES[: sum(size < length for size in SIZES) + 1]
