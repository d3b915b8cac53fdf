"""The parts of docs/hardware/not-explained.md: what lies farther off than it should, by schedule."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from validation.pages.errors import FAR, at_the_edge, big, off_the_edge
from validation.pages.text import Row, about, by_schedule, explained, extent, link, others, read, table


def far(rows: list[Row], name: str) -> list[float]:
    """Ratios predicted / measured that are too far from 1."""
    return [float(r[name]) for r in rows if r[name] and abs(float(r[name]) - 1) > FAR]


def all_rows(folder: Path) -> list[Row]:
    """Rows of our kernels and of PyTorch's, those by their own name."""
    return read(folder, "rows.csv") + [{**r, "schedule": r["kernel"]} for r in explained(folder)]


def claim(folder: Path) -> str:
    """The claim, of every GPU that was measured."""
    return "\n".join(f"- {claim_of(one)}" for one in (folder, *others(folder)))


def claim_of(folder: Path) -> str:
    rows = all_rows(folder)
    wrong = sum(r.get("ok", "True") != "True" for r in rows) + sum(r.get("explains", "True") != "True" for r in rows)
    dram, time = len(far(big(rows), "dram_ratio")), len(far(rows, "time_ratio"))
    return (
        f"**{about(folder)['name']}, {len(rows)} launches.** Words, or bytes read between SM and L2, are not explained "
        f"in {wrong}. DRAM bytes are more than {FAR:.0%} off in {dram}. Time is more than {FAR:.0%} off in {time}."
    )


def schedules(folder: Path) -> str:
    """A row a schedule of which something is far off."""
    rows: list[dict[str, object]] = []
    for name, part in by_schedule(all_rows(folder)).items():
        time, dram = far(part, "time_ratio"), far(big(part), "dram_ratio")
        if time or dram:
            rows.append({"kernel": name, "shapes": len(part), "time far off": len(time),
                         "slower than predicted": sum(x < 1 for x in time),
                         "faster than predicted": sum(x > 1 for x in time),
                         "predicted / measured": extent(time), "DRAM far off": len(dram)})  # fmt: skip
    return table(rows)


def rows(folder: Path) -> str:
    """Where the rows are."""
    return (f"The columns `time_ratio` and `dram_ratio` of {link(folder, 'rows.csv')} and "
            f"{link(folder, 'torch_rows.csv')} are predicted over measured.")  # fmt: skip


def dram(folder: Path) -> str:
    """The shapes whose DRAM bytes are too far off: first those at the edge of the L2, then each other one."""
    far_off = [r for r in big(all_rows(folder)) if far([r], "dram_ratio")]
    edge, others_off = at_the_edge(far_off), off_the_edge(far_off)
    ratios = [float(r["dram_ratio"]) for r in edge]
    few = f"{1 - max(ratios):.0%} to {1 - min(ratios):.0%}"
    single = "; ".join(f"{shape(r)}, {1 - float(r['dram_ratio']):.0%} too few" for r in others_off)
    gpu = about(folder)["name"].split()[1]
    return (f"- On the {gpu} the single figure is {few} too low for {len(edge)} such "
            f"shapes: it can be {1 / min(ratios):.0f} times too small.\n"
            f"- Far off, although iosim does not take it to fill the L2: {single}.")  # fmt: skip


def shape(r: Row) -> str:
    return f"`{r['schedule']}` with N = {r['N']}, d = {r['d']}, {r['heads']} heads, mask `{r['mask']}`"


PARTS: dict[str, Callable[[Path], str]] = {"claim": claim, "schedules": schedules, "rows": rows, "bytes": dram}
