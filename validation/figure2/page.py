"""Writes the measured parts of fig2-middle.md and fig2-right.md in validation/sources from figure2.csv.

What stands between `<!-- figure2 -->` and `<!-- end figure2 -->` is replaced; a page without them gets a section at its
end. `falls` and `proportional` decide from the rows whether the statements of the paper hold.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import correlation

from iosim.errors import MissingError
from validation.pages.text import read, table

PAPERS = Path(__file__).parents[2] / "validation" / "sources"
TOLERANCE = 0.10  # of a time over the share of active tiles, where the two are called proportional
NOISE = 0.05  # of a time: less is not called faster than the fastest
FLAT = 1.25  # times the best: beyond it larger blocks cost more, which is not what the figure shows
Row = dict[str, str]

HOW = """\
`PYTHONPATH=. python3 validation/figure2/measure.py validation/FOLDER` generates kernels from the schedules and times
them on a GPU. With `--page` it writes the tables and verdicts below from `figure2.csv`. Neither the kernels nor the
GPU are those of the paper. Bytes are simulated, between SM and L2."""
MIDDLE = f"""
## Measured

{HOW}

One tile size does not change the words: Br of flash1, and Bc of flash2. It is 64, or the largest that fits. A rank
correlation of 1 means that more bytes always took more time. The page looks for the first block whose time is within
{NOISE:.0%} of the best. Up to that block, traffic is taken to limit the time; from there on, something else.

<!-- figure2 -->
<!-- end figure2 -->
"""
RIGHT = f"""
## Measured

{HOW}

The problem has N = 4096, d = 64, 16 heads, batch 8, and fp16 with fp32 accumulators. Tiles are 64x128, because 64x256
do not fit in the backward pass. Of the matrix products of the backward pass, only S runs on tensor cores.

s is the share of active tiles. Time is called proportional to s if time over dense time is within {TOLERANCE:.0%} of s.
The constant c is chosen so that at the smallest s the time over dense time is `s + (1 - s) c`. A part c of the dense
time then does not shrink with s.

<!-- figure2 -->
<!-- end figure2 -->
"""


def series(rows: list[Row], panel: str) -> dict[tuple[str, str], list[Row]]:
    """Rows of a panel that were timed, by schedule and accumulator, in the order of the file."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row["panel"] == panel and row["ms"]:
            found.setdefault((row["schedule"], row["acc_dtype"]), []).append(row)
    return found


def ranks(values: list[float]) -> list[float]:
    """The place of each value in ascending order, from 0. Equal values share the mean of their places."""
    ordered = sorted(values)
    return [ordered.index(x) + (ordered.count(x) - 1) / 2 for x in values]


def rank_correlation(x: list[float], y: list[float]) -> float:
    """Spearman's rank correlation; 0 if one side never changes."""
    if len(set(x)) < 2 or len(set(y)) < 2:
        return 0.0
    return correlation(ranks(x), ranks(y))


def times(rows: list[Row]) -> list[float]:
    return [float(row["ms"]) for row in rows]


def tiles(row: Row) -> str:
    return f"{row['Br']}x{row['Bc']}"


# ---------------------------------------------------------------- middle


def middle(rows: list[Row]) -> str:
    found = series(rows, "middle").values()
    return "\n\n".join([table([middle_row(row) for part in found for row in part]), *map(falls, found)])


def middle_row(row: Row) -> dict[str, str]:
    moved, ms = float(row["sm_bytes"]), float(row["ms"])
    return {"schedule": row["schedule"], "accumulators": row["acc_dtype"], "tiles": tiles(row),
            "words": row["words"], "GB": f"{moved / 1e9:.2f}", "ms": f"{ms:.3f}", "TB/s": f"{moved / ms / 1e9:.2f}",
            "TFLOP/s": f"{float(row['flops']) / ms / 1e9:.1f}"}  # fmt: skip


def falls(rows: list[Row]) -> str:
    """Whether time falls with the bytes, step by step, up to the first block whose time is as good as the best."""
    rows = sorted(rows, key=lambda row: -int(row["sm_bytes"]))
    moved, ms = [float(row["sm_bytes"]) for row in rows], times(rows)
    turn = next(n for n, time in enumerate(ms) if time <= min(ms) * (1 + NOISE))
    steps = all(after < before for before, after in pairwise(ms[: turn + 1]))
    text = f"`{rows[0]['schedule']}`, {rows[0]['acc_dtype']}: rank correlation {rank_correlation(moved, ms):.2f}"
    if not turn:
        return f"{text}; no block with fewer bytes is faster than {tiles(rows[0])}. The statement **does not hold**."
    text += (
        f". From {tiles(rows[0])} to {tiles(rows[turn])} the bytes fall to 1/{moved[0] / moved[turn]:.2f} and the time "
    )
    text += f"falls to 1/{ms[0] / ms[turn]:.2f}, {'at every step' if steps else 'but not at every step'}. "
    verdict = "**holds**" if steps else "**does not hold**"
    if turn + 1 == len(rows):
        return (
            f"{text}No larger block fits, so no other limit was seen. For the measured blocks the statement {verdict}."
        )
    later = [time / ms[turn] for time in ms[turn + 1 :]]
    if steps and max(later) > FLAT:
        verdict = f"**holds up to {tiles(rows[turn])}**, and some larger blocks are slower"
    text += f"From there to {tiles(rows[-1])} the bytes fall to 1/{moved[turn] / moved[-1]:.2f}, but the time is "
    return f"{text}{min(later):.2f} to {max(later):.2f} times as long. The statement {verdict}."


# ---------------------------------------------------------------- right


def right(rows: list[Row]) -> str:
    parts = [right_part(forward, backward) for forward, backward in passes(rows)]
    rows_of_all = [row for part in parts for row in part[0]]
    return "\n\n".join([table(rows_of_all), *(text for part in parts for text in part[1])])


def passes(rows: list[Row]) -> list[tuple[list[Row], list[Row]]]:
    """(forward, backward) of each schedule, at the densities where both were timed."""
    found = {name: part for (name, _), part in series(rows, "right").items()}
    pairs = [(found[name], found[f"{name}-bwd"]) for name in found if f"{name}-bwd" in found]
    both = []
    for ahead, back in pairs:
        shared = {r["mask"] for r in ahead} & {r["mask"] for r in back}
        both.append(tuple([r for r in part if r["mask"] in shared] for part in (ahead, back)))
    return [(a, b) for a, b in both if any(float(r["density"]) == 1 for r in a)]


def right_part(forward: list[Row], backward: list[Row]) -> tuple[list[dict[str, str]], list[str]]:
    """Table rows and verdicts of a schedule."""
    shares = [float(row["density"]) for row in forward]
    sides = {"forward": times(forward), "backward": times(backward)}
    sides["both"] = [a + b for a, b in zip(*sides.values(), strict=True)]
    words = [int(a["words"]) + int(b["words"]) for a, b in zip(forward, backward, strict=True)]
    dense = shares.index(1.0)
    rows = [
        {"schedule": row["schedule"], "s": f"{share:.4f}", "words of both / dense": f"{words[n] / words[dense]:.4f}",
         **{f"{name} ms": f"{ms[n]:.3f}" for name, ms in sides.items() if name != "both"},
         **{f"{name} / dense": f"{ms[n] / ms[dense]:.4f}" for name, ms in sides.items()}}
        for n, (row, share) in enumerate(zip(forward, shares, strict=True))
    ]  # fmt: skip
    return rows, [proportional(forward[0]["schedule"], name, shares, ms) for name, ms in sides.items()]


def proportional(schedule: str, side: str, shares: list[float], ms: list[float]) -> str:
    """Whether time over dense time is the share s. Also the constant c: at the smallest share it is s + (1 - s) c."""
    dense = ms[shares.index(1.0)]
    ratios = [time / dense / share for share, time in zip(shares, ms, strict=True)]
    least = min(shares)
    c = (ms[shares.index(least)] / dense - least) / (1 - least) if least < 1 else 0.0
    verdict = "**holds**" if max(abs(r - 1) for r in ratios) <= TOLERANCE else "**does not hold**"
    return (f"`{schedule}`, {side}: rank correlation with s {rank_correlation(shares, ms):.2f}; "
            f"(time / dense time) / s is {min(ratios):.2f} to {max(ratios):.2f}; c = {c:.4f}. "
            f"The statement that time is proportional to s {verdict}.")  # fmt: skip


# ---------------------------------------------------------------- the pages

PAGES: dict[str, tuple[str, Callable[[list[Row]], str]]] = {
    "fig2-middle.md": (MIDDLE, middle),
    "fig2-right.md": (RIGHT, right),
}


def measured(folder: Path, name: str) -> str:
    """The device, the tables, the verdicts, and what failed."""
    rows = read(folder, "figure2.csv")
    panel = [row for row in rows if PAGES[name][1].__name__ == row["panel"]]
    if not panel:
        raise MissingError(f"{folder / 'figure2.csv'} has no rows for {name}: measure on a GPU first")
    where = f"{panel[0]['device']}, {panel[0]['date']}; `validation/{folder.name}/figure2.csv`."
    failed = [f"Failed: {row['schedule']} {tiles(row)} {row['acc_dtype']} {row['mask']}: {row['failed']}."
              for row in panel if row["failed"]]  # fmt: skip
    checked = [row for row in panel if row["error"]]
    right_ones = sum(float(row["error"]) <= float(row["allowed_error"]) for row in checked)
    outputs = f"Outputs within what is allowed against float64: {right_ones} of {len(checked)}."
    return "\n\n".join([where, PAGES[name][1](rows), outputs, *failed])


def filled(text: str, folder: Path, name: str) -> str:
    """A page with its measured part made anew."""
    if "<!-- figure2 -->" not in text:
        text = text.rstrip("\n") + "\n" + PAGES[name][0]
    part = f"<!-- figure2 -->\n{measured(folder, name)}\n<!-- end figure2 -->"
    return re.sub(r"<!-- figure2 -->\n.*?<!-- end figure2 -->", lambda _: part, text, flags=re.S)


def write(folder: Path) -> None:
    for name in PAGES:
        page = PAPERS / name
        page.write_text(filled(page.read_text(encoding="utf-8"), folder, name), encoding="utf-8")
