"""The answer of `iosim verify` without a GPU: schedules run on NumPy arrays and judged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..answer import Pieces, Row, Table, numbered
from ..core.tiling import MORE_SIZES, parse_tiles
from ..counting.asked import asked
from ..counting.count import default_schedules
from ..counting.run import check_sizes, one_tiling
from ..schedules import find_all
from ..units import parse_bytes, parse_count
from .judged_runs import check_columns, run_checks
from .online_softmax import PIECE, softmax_pieces

if TYPE_CHECKING:
    from ..core.problem import Attention
    from ..core.tiling import TilesAsked
    from ..schedules.registry import SchedulesAsked

ABSOLUTE = "error_: the largest absolute error of the outputs, whose inputs are random numbers of about 1"


@dataclass(frozen=True, repr=False)
class Checks(Table):
    """The answer of `verify` on the CPU: a row for each schedule."""

    ok: bool = True
    """Whether every schedule and every piece of online softmax is right."""

    def summary(self) -> str:
        return f"{super().summary()}, {'all ok' if self.ok else 'not all ok'}"


def check_problem(
    p: Attention,
    tiles: TilesAsked | None,
    schedules: SchedulesAsked,
    seed: int | str,
    begin: Callable[[str], None] = lambda name: None,
    M: str | None = None,
) -> Checks:
    """The checks of schedules on a problem. `begin` is called with the name of each before it runs. With M, or with
    the tiles `best`, they have the best tiles that fit."""
    chosen, seed = find_all(schedules), parse_count(seed, "--seed", least=0)
    best = tiles == "best" or (tiles is None and M is not None)
    if best:
        M_bytes = None if M is None else parse_bytes(M, p.word_bytes)
        found = [
            run_checks(p, one_tiling(one, "best", 0, p, M_bytes), [one], seed, begin)
            for one in chosen or default_schedules(p.packed)
        ]
        rows, right = [row for some, _ in found for row in some], all(ok for _, ok in found)
    else:
        tiling = None if tiles is None else parse_tiles(tiles, more=MORE_SIZES)
        if tiling is not None:
            for schedule in chosen or default_schedules(p.packed):
                check_sizes(schedule, tiling)
        rows, right = run_checks(p, tiling, chosen, seed, begin)
    parts = softmax_pieces()
    ok = right and all(bool(part["ok"]) for part in parts)
    columns = check_columns(p.dtype)
    wrong = [f"{row['check']}: {row['faults']}" for row in rows if not row["ok"]]
    text: Pieces = [agreement(rows), "", Table(columns, rows), ABSOLUTE, *wrong, "", Table(PIECE, parts)]
    return Checks(columns, rows, asked(p), {"checks": rows, "pieces": parts, "ok": right}, text, ok=ok)


def agreement(rows: Sequence[Row]) -> str:
    """The sentence on how many runs are right."""
    wrong = sum(not row["ok"] for row in rows)
    if not wrong:
        return f"All that ran is right: {numbered(len(rows), 'schedule')} with the expected output, words and SRAM."
    return f"{wrong} of {numbered(len(rows), 'schedule')} {'is' if wrong == 1 else 'are'} wrong."
