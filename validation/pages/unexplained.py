"""The parts of not-explained.md: what lies farther off than it should, by schedule."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from validation.pages.errors import FAR, at_the_edge, big, off_the_edge, ours
from validation.pages.text import Row, about, by_schedule, explained, extent, link, others, read, table

FEW_QUERIES = 256  # a launch with no more queries has few tiles

# The reasons that the page gives for launches slower than predicted, each with the launches that have it.
REASONS: dict[str, Callable[[Row], bool]] = {
    "single words": lambda r: r["schedule"] == "standard-tiled" and int(r["Nk"]) % 8 > 0,
    "few tiles": lambda r: r["schedule"] in ("standard-tiled", "attention-2pass") and int(r["N"]) <= FEW_QUERIES,
    "a mask of two parts": lambda r: r["schedule"] in ("block-sparse", "block-sparse-q") and "|" in r["mask"],
    "a single row": lambda r: r["schedule"] == "split-kv" and int(r["N"]) == 1,
}


def far(rows: list[Row], name: str) -> list[float]:
    """Ratios predicted / measured that are too far from 1."""
    return [float(r[name]) for r in rows if r[name] and abs(float(r[name]) - 1) > FAR]


def all_rows(folder: Path) -> list[Row]:
    """Rows of our kernels and of PyTorch's, those by their own name."""
    return read(folder, "rows.csv") + [{**r, "schedule": r["kernel"]} for r in explained(folder)]


def reasons_of(r: Row) -> list[str]:
    """The reasons that the page gives for the time of a launch; none if it is faster than predicted."""
    return [name for name, has in REASONS.items() if float(r["time_ratio"]) < 1 and has(r)]


def far_in_time(folder: Path) -> list[Row]:
    """The launches whose time is too far off."""
    return [r for r in all_rows(folder) if far([r], "time_ratio")]


def without_reason(folder: Path) -> list[Row]:
    """The launches whose time is too far off, and for which the page gives no reason."""
    return [r for r in far_in_time(folder) if not reasons_of(r)]


def claim(folder: Path) -> str:
    """The claim, of every GPU that was measured."""
    return "\n".join(f"- {claim_of(one)}" for one in (folder, *others(folder)))


def claim_of(folder: Path) -> str:
    rows = all_rows(folder)
    wrong = sum(r.get("ok", "True") != "True" for r in rows) + sum(r.get("explains", "True") != "True" for r in rows)
    dram, time = len(far(big(rows), "dram_ratio")), len(far_in_time(folder))
    return (
        f"**{about(folder)['name']}, {len(rows)} launches.** {len(ours(folder))} are the shapes of "
        f"[predictions](predictions.md), {len(explained(folder))} are [PyTorch's fused kernels]"
        "(other-peoples-kernels.md). Words, and bytes read between SM and L2, are explained in "
        f"{len(rows) - wrong if wrong else 'all'} of them. DRAM bytes are more than {FAR:.0%} off in {dram}. Time is "
        f"more than {FAR:.0%} off in {time}; for {len(without_reason(folder))} of these no reason is known."
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


def reasons(folder: Path) -> str:
    """How many launches have a reason, and how many have none, on every GPU that was measured."""
    return "\n".join(f"- {reasons_on(one)}" for one in (folder, *others(folder)))


def reasons_on(folder: Path) -> str:
    off, unknown = far_in_time(folder), without_reason(folder)
    first = [reasons_of(r)[0] for r in off if reasons_of(r)]
    counts = ", ".join(f"{name} {first.count(name)}" for name in REASONS if name in first)
    fast = sum(float(r["time_ratio"]) > 1 for r in unknown)
    return (f"{about(folder)['name']}: {len(first)} of the {len(off)} launches have a reason ({counts}). No reason is "
            f"known for {len(unknown)}: {fast} are faster than predicted, {len(unknown) - fast} slower.")  # fmt: skip


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
            f"- Far off, with data that are clearly smaller or larger than the L2: {single}.")  # fmt: skip


def shape(r: Row) -> str:
    return f"`{r['schedule']}` with N = {r['N']}, d = {r['d']}, {r['heads']} heads, mask `{r['mask']}`"


PARTS: dict[str, Callable[[Path], str]] = {
    "claim": claim,
    "schedules": schedules,
    "reasons": reasons,
    "rows": rows,
    "bytes": dram,
}
