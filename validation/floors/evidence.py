"""Compares the floors of docs/floors.md with the exact least cost of tiny instances and with a search over orders.

`python validation/floors/evidence.py [--short] [--only exact|backward|orders]` compiles the programs with g++, runs
every instance, writes a row each and fails if any cost is below its floor. README.md says what the rows show.
"""

import argparse
import csv
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import by_hand

HERE = Path(__file__).parent
FIELDS = [
    "search",
    "N",
    "Nk",
    "d",
    "dv",
    "M",
    "mask",
    "cost",
    "found",
    "words",
    "floor",
    "compulsory",
    "ratio",
    "states_or_start",
]


@dataclass(frozen=True)
class Instance:
    """One attention head: sizes, memory, which pairs are visible, and what is counted."""

    N: int
    Nk: int
    d: int
    dv: int
    M: int
    cost: str  # "reads", "total", or "adds": reads, writes and adds
    mask: str = "dense"  # dense, causal, causal+1, window:W, sparse:PERCENT; mla is dense with V in K

    backward: bool = False  # of the gradients; then two keys or more, and mask is dense, or stored if P is at the start

    def visible(self) -> list[list[bool]]:
        """The matrix of visible pairs."""
        return [[sees(self.mask, i, j) for j in range(self.Nk)] for i in range(self.N)]

    def arguments(self) -> list[str]:
        """The arguments that programs take after their own."""
        if self.backward:
            return ["stored"] if self.mask == "stored" else []
        rows = ",".join("".join("01"[s] for s in row) for row in self.visible())
        return [rows if self.mask not in ("dense", "mla") else "dense", *(["mla"] if self.mask == "mla" else [])]


def sees(mask: str, i: int, j: int) -> bool:
    """Whether query i sees key j."""
    kind, _, number = mask.partition(":")
    if kind == "causal+1":
        return j <= i + 1
    if kind == "window":
        return abs(i - j) <= int(number)
    if kind == "sparse":
        return j < 2 or (i * 7919 + j * 104729 + i * j * 31) % 100 < int(number)
    return True


def floors(x: Instance) -> tuple[int, int]:
    """The theorem's floor and the compulsory one, for what the instance counts."""
    counted = "reads" if x.cost == "reads" else "total"  # a floor on R + W holds for R + W + A
    if x.backward:
        pairs, must = x.N * x.Nk, x.d * (x.N + x.Nk) + x.dv * (x.Nk + x.N)
        written = x.d * (x.N + x.Nk) + x.dv * x.Nk
        found = by_hand.backward(pairs, x.N, x.Nk, x.d, x.dv, x.M)
        return found[counted], must + (written if counted == "total" else 0)
    visible = x.visible()
    pairs, rows = sum(map(sum, visible)), sum(any(r) for r in visible)
    must = by_hand.compulsory(visible, x.d, x.dv)
    if x.mask == "mla":
        must["reads"] -= x.Nk * x.dv
    which = by_hand.mla if x.mask == "mla" else by_hand.best
    least = which(pairs, rows, x.d, x.dv, x.M)[counted]
    return least, must["reads"] + (must["writes"] if counted == "total" else 0)


def tiny(short: bool) -> Iterator[Instance]:
    """Instances for the exact search."""
    shapes = [(2, 2, 1, 1), (2, 3, 1, 1), (3, 2, 1, 1), (2, 2, 1, 2), (2, 2, 2, 1)]
    more = [(3, 3, 1, 1), (2, 2, 2, 2), (2, 3, 2, 1), (3, 2, 2, 1), (2, 3, 1, 2), (3, 2, 1, 2)]
    for shape in shapes[:2] if short else shapes + more:
        for M in (2, 3) if short else (2, 3, 4, 5):
            for cost in ("reads", "total"):
                yield Instance(*shape, M, cost)
    if short:
        return
    for mask, shape in (("causal+1", (3, 3, 1, 1)), ("sparse:40", (3, 3, 1, 1)), ("causal+1", (2, 3, 1, 2))):
        for M in (2, 3, 4):
            for cost in ("reads", "total"):
                yield Instance(*shape, M, cost, mask)
    for shape in ((2, 2, 1, 1), (2, 3, 1, 1), (2, 2, 2, 1), (2, 2, 2, 2)):
        for M in (2, 3, 4):
            for cost in ("reads", "total"):
                yield Instance(*shape, M, cost, "mla")
    for shape in (*shapes, (3, 3, 1, 1)):
        for M in (2, 3, 4):
            yield Instance(*shape, M, "adds")
    for M in (2, 3, 4):
        yield Instance(3, 3, 1, 1, M, "adds", "causal+1")


def backward(short: bool) -> Iterator[Instance]:
    """Instances for the exact search of the backward pass."""
    for shape in [(1, 2, 1, 1)] if short else [(1, 2, 1, 1), (2, 2, 1, 1), (1, 2, 2, 1), (1, 2, 1, 2), (1, 3, 1, 1)]:
        for M in (3, 4) if short else (2, 3, 4, 5):
            for cost in ("reads", "total", "adds"):
                yield Instance(*shape, M, cost, backward=True)
    if short:
        yield Instance(1, 2, 1, 1, 3, "total", "stored", backward=True)
        return
    for shape in [(1, 2, 2, 2), (1, 2, 1, 3), (1, 2, 3, 1), (1, 2, 2, 3), (1, 2, 3, 2)]:
        for M in (3, 4, 6, 8, 10):
            for cost in ("total", "adds"):
                yield Instance(*shape, M, cost, backward=True)
    for shape in [(1, 2, 1, 1), (2, 2, 1, 1), (1, 2, 2, 2), (1, 2, 1, 3), (1, 2, 3, 1)]:
        for M in (2, 3, 4, 6):
            for cost in ("total", "adds"):
                yield Instance(*shape, M, cost, "stored", backward=True)


def larger(short: bool) -> Iterator[Instance]:
    """Instances for the search over orders; nearly all have a floor above compulsory."""
    if short:
        for cost in ("reads", "total"):
            yield Instance(12, 12, 1, 1, 4, cost)
        return
    for cost in ("reads", "total"):
        for n in (16, 32):
            for M in (2, 3, 4, 6, 8, 12, 16, 20, 24):
                yield Instance(n, n, 1, 1, M, cost)
        for n, d, M in ((64, 1, 8), (64, 1, 16), (64, 1, 24), (64, 2, 16), (64, 2, 24), (96, 4, 80), (96, 1, 12)):
            yield Instance(n, n, d, d, M, cost)
        for d, dv in ((2, 2), (2, 1), (1, 2), (3, 1), (1, 3)):
            for M in (4, 8, 12, 16, 24):
                yield Instance(20, 20, d, dv, M, cost)
        for mask in ("causal+1", "window:4", "sparse:30"):
            for M in (3, 6, 12):
                yield Instance(32, 32, 1, 1, M, cost, mask)
        for d, dv in ((1, 1), (2, 1), (2, 2)):
            for M in (4, 8, 16, 24):
                yield Instance(24, 24, d, dv, M, cost, "mla")


def build(name: str, folder: Path, optimised: str = "-O3") -> str:
    """The path of a program, compiled with g++."""
    out = folder / name
    subprocess.run(["g++", optimised, "-std=c++17", "-o", str(out), str(HERE / f"{name}.cpp")], check=True)
    return str(out)


def ask(program: str, x: Instance, *numbers: int) -> list[str]:
    """The words that a program prints about an instance."""
    sizes = [str(n) for n in (x.N, x.Nk, x.d, x.dv, x.M)]
    command = [program, *sizes, x.cost, *map(str, numbers), *x.arguments()]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


def row(search: str, x: Instance, found: str, words: int, note: str) -> dict[str, object]:
    """One row of the CSV. `ratio` is the words found over the larger floor; empty if the search reached its limit."""
    floor, must = floors(x)
    ratio = "" if found == "at-least" else f"{words / max(floor, must):.3f}"
    values = (search, x.N, x.Nk, x.d, x.dv, x.M, x.mask, x.cost, found, words, floor, must, ratio, note)
    return dict(zip(FIELDS, values, strict=True))


def rows(
    short: bool, limit: Callable[[Instance], int], work: int, only: str | None = None, part: slice = slice(None)
) -> Iterator[dict[str, object]]:
    """All rows, as they are found; of one search if `only` names it. `part` says which instances of each search.
    `limit` says how many states an exact search may have."""
    with tempfile.TemporaryDirectory() as folder:
        names = ("pebble", "pebble_backward", "adversary")
        pebble, gradients, adversary = (build(name, Path(folder)) for name in names)
        for x in list(tiny(short))[part] if only in (None, "exact") else ():
            found, words, states = ask(pebble, x, limit(x))
            yield row("exact", x, found, int(words), states)
        for x in list(backward(short))[part] if only in (None, "backward") else ():
            found, words, states = ask(gradients, x, limit(x))
            yield row("backward", x, found, int(words), states)
        for x in list(larger(short))[part] if only in (None, "orders") else ():
            events = sum(map(sum, x.visible())) * (x.d + x.dv)
            tries = [ask(adversary, x, max(200, work // events), seed) for seed in (1, 2)]
            words, start = min(tries, key=lambda found: int(found[0]))
            yield row("orders", x, "reached", int(words), start)


def most_states(x: Instance) -> int:
    """The most states that the kept search of an instance has."""
    return 4_000_000 if x.backward and (x.d + x.dv > 3 or x.mask == "stored") else 700_000


def below(r: dict[str, object]) -> bool:
    """Whether a row contradicts a floor: a cost that some run reaches is under it."""
    return r["found"] != "at-least" and int(str(r["words"])) < max(int(str(r["floor"])), int(str(r["compulsory"])))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--only", choices=["exact", "backward", "orders"])
    parser.add_argument("--limit", type=int, help="states of an exact search (default: those of the kept rows)")
    parser.add_argument("--work", type=int, default=2_000_000, help="events that a search over orders simulates")
    parser.add_argument("--out", default=str(HERE / "results.csv"))
    given = parser.parse_args()
    broken = 0
    with open(given.out, "w", newline="") as file:
        table = csv.DictWriter(file, FIELDS, lineterminator="\n")
        table.writeheader()
        for r in rows(given.short, lambda x: given.limit or most_states(x), given.work, given.only):
            table.writerow(r)
            file.flush()
            if below(r):
                broken += 1
                print("below the floor:", r)
    print(f"{broken} rows below a floor")
    return broken > 0


if __name__ == "__main__":
    sys.exit(main())
