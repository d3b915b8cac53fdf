"""Lines of what is proven: the floor, below which no traffic lies, and the order of Theorem 2, whose constant is
unknown."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ..counting.bounds import floor_of, order_of
from .chart import ChartLine

if TYPE_CHECKING:
    from ..core.problem import Attention

    Place = tuple[float, Attention, int | None]  # (x, the problem there, M in bytes)

FLOOR, ORDER = "floor", "N²d²/M (order only)"


def floor_label(family: str) -> str:
    """The label of the floor of a family. With a state it has two classes, which `iosim bounds` says in full."""
    return "K or S, of their classes" if family == "state" else FLOOR


def floor_line(places: Iterable[Place], family: str, *values: str) -> list[ChartLine]:
    """The line of the floor of a family, where it is known; none if it never is. `values` tell it from others."""
    return line(", ".join([floor_label(family), *values]), "floor", floor_of, places, family)


def order_line(places: Iterable[Place], family: str) -> list[ChartLine]:
    """The line of the order, where it holds (d^2 <= M <= Nd, no mask); none if it never does."""
    return line(ORDER, "order", order_of, places, family)


def line(
    label: str,
    kind: str,
    words_of: Callable[[Attention, int | None, str], float | None],
    places: Iterable[Place],
    family: str,
) -> list[ChartLine]:
    """The line of the words of a bound, if there are any."""
    found = {x: float(words) for x, problem, M_bytes in places if (words := words_of(problem, M_bytes, family))}
    return [ChartLine.of(label, found, kind, key=kind)] if found else []
