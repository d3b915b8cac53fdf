"""Counts the kernels of drawn.csv a second time, by Triton's own interpreter, argument by argument.

    PYTHONPATH=. python validation/kernels/interpreted_drawn.py FOLDER [PACKAGE...] > interpreted_drawn.csv

FOLDER is that of drawn.py, and PyTorch is needed as there. PACKAGE is fla or another of drawn.py; without one, all.
Every kernel that drawn.csv counts has a row for each argument and way (reads, writes, atomics). The launch is the one
that drawn.py counts, on the first programs of its grid (`programs` of `grid_programs`), since the interpreter runs one
program at a time. Launches of tutorials and of Dao-AILab's file have the sizes of `small` in launches.toml. Each kernel
is interpreted in a process of its own.

`verdict` is one of these:

- `same`: both count the same words, and the same distinct words.
- `fewer`: iosim counts fewer, since the compiler merges, moves or removes loads. Where the compiler must keep each load
  (`each_load_kept`), iosim counts the words of the interpreter. `why` has the lines of these loads.
- `different`: neither of the two. That is a mistake of iosim or of this script, and exit code 1.
- `not run`: `why` says why the interpreter has no answer.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path

import drawn
from interpreted import Asked, Uninterpreted, Words, each_load_kept, interpreted, words_of
from listed import listed, ready

from iosim.errors import IosimError
from iosim.kernels.explain import Explained
from iosim.kernels.read.arguments import as_tensor, read_grid
from iosim.kernels.read.compile import Compilation
from iosim.kernels.read.kernel import STAGES, WARPS, Kernel
from iosim.kernels.read.script import Caught
from iosim.kernels.walk.walk import walk

HERE = Path(__file__).parent
COLUMNS = ["package", "file", "kernel", "programs", "grid_programs", "argument", "way", "words", "distinct_words",
           "iosim_words", "iosim_distinct_words", "verdict", "why"]  # fmt: skip
MOST_PROGRAMS = ((4, 2, 2), (1, 16, 1), (1, 1, 1))  # on each axis: the next if the last move no word or take too long
LIMIT_SECONDS = 90

Row = dict[str, object]


@dataclass(frozen=True)
class Small:
    """A launch with few programs."""

    asked: Asked
    kernel: Kernel
    grid_programs: int
    """The programs of the launch as it was caught."""
    explained: Callable[[], Explained]

    @property
    def programs(self) -> int:
        return prod(self.asked.grid)

    def lines(self) -> dict[tuple[str, ...], int]:
        """The words of each line: {(argument, way, line): words}."""
        made = Compilation(self.kernel, self.asked.values, "sm_90", WARPS, STAGES)
        return {key: r.words for key, r in walk(made.code, made.launch(self.asked.grid), by_line=True).requests.items()}


def small_launches(launches: list[tuple[str, Caught]]) -> Iterator[Small]:
    """The caught launch that drawn.py counts, on fewer and fewer programs."""
    script, launch = next((pair for pair in launches[:3] if counts(pair[1])), ("", None))
    if launch is None:
        raise Uninterpreted(f"{len(launches)} launches, and none is counted in its first configuration")
    chosen = launch.kernel.choices(launch.arguments)[0]
    values = launch.completed(chosen)
    whole = read_grid(launch.grid(values) if callable(launch.grid) else launch.grid)
    tensors = {name: value if (t := as_tensor(value, name)) is None else t for name, value in values.items()}
    path = launch.kernel.function.fn.__code__.co_filename
    for most in MOST_PROGRAMS:
        x, y, z = (min(n, m) for n, m in zip(whole, most, strict=True))
        asked = Asked(path, launch.kernel.name, (x, y, z), tensors, launch.kernel.constants,
                      str(HERE / "scripts" / f"{script}.py"))  # fmt: skip
        yield Small(asked, launch.kernel, prod(whole), partial(drawn.first, launch, asked.grid))


def counts(launch: Caught) -> bool:
    """Whether iosim has an answer for a launch."""
    try:
        drawn.first(launch)
    except IosimError:
        return False
    return True


def rows_of(launches: Iterator[Small], row: Row, folder: Path) -> list[Row]:
    """The rows of one kernel."""
    why = ""
    for small in launches:
        if not words_of(small.explained()):
            why = why or "these programs move no word"
            continue
        row = {**row, "programs": small.programs, "grid_programs": small.grid_programs}
        try:
            found = interpreted(small.asked, LIMIT_SECONDS)
        except Uninterpreted as error:
            why = why or str(error).replace(str(folder) + "/", "")
            continue
        return compared(small, found, row, folder)
    return [{**row, "verdict": "not run", "why": why}]


def compared(small: Small, found: Words, row: Row, folder: Path) -> list[Row]:
    """A row for each argument and way."""
    said = words_of(small.explained())
    with each_load_kept():
        kept = said if said == found else words_of(small.explained())
    less = missing_lines(small) if kept != said else {}
    rows = []
    for name, way in sorted({(n, w) for words in (found, said) for n, ways in words.items() for w in ways}):
        a, b, c = (words.get(name, {}).get(way, [0, 0]) for words in (found, said, kept))
        verdict = "same" if a == b else "fewer" if a == c else "different"
        why = "; ".join(less.get((name, way), [])).replace(str(folder) + "/", "") if verdict == "fewer" else ""
        rows.append({**row, "argument": name, "way": way, "words": a[0], "distinct_words": a[1],
                     "iosim_words": b[0], "iosim_distinct_words": b[1], "verdict": verdict, "why": why})  # fmt: skip
    return rows


def missing_lines(small: Small) -> dict[tuple[str, str], list[str]]:
    """The lines of loads of which the compiler leaves fewer words than the kernel has: {(argument, way): texts}."""
    left = small.lines()
    with each_load_kept():
        kept = small.lines()
    found: dict[tuple[str, str], list[str]] = {}
    for (name, way, line), words in kept.items():
        if (rest := left.get((name, way, line), 0)) < words:
            found.setdefault((name, way), []).append(f"{line}: {words - rest} words less")
    return found


def of_package(folder: Path, package: str) -> list[Row]:
    """The rows of a package's kernels."""
    with open(HERE / "drawn.csv") as file:
        wanted = [row for row in csv.DictReader(file) if row["package"] == package and row["answer"] == "counted"]
    caught = drawn.launches_of(folder, package) if package in drawn.SCRIPTS else {}
    rows = []
    for each in wanted:
        start = time.perf_counter()
        row: Row = {name: each[name] for name in ("package", "file", "kernel")}
        launches = small_launches(caught[each["file"], each["kernel"]]) if caught else of_list(folder, each)
        rows += rows_of(launches, row, folder)
        verdicts = sorted({str(r["verdict"]) for r in rows if r["kernel"] == each["kernel"]})
        print(each["file"], each["kernel"], verdicts, f"{time.perf_counter() - start:.0f} s", file=sys.stderr)
    return rows


def of_list(folder: Path, row: dict[str, str]) -> Iterator[Small]:
    """A launch of launches.toml with its small sizes."""
    for one in listed(folder, small=True):
        if (f"{row['package']}/{one.file}", one.kernel) == (row["file"], row["kernel"]):
            launch = ready(one)[0]
            asked = Asked(one.path, one.kernel, launch.grid, launch.values, launch.kernel.constants)
            yield Small(asked, launch.kernel, prod(launch.grid), partial(launch.explained, resources=False))
            return


def main() -> int:
    """Print a row for each kernel, argument and way. Each package has a process of its own, as in drawn.py."""
    folder = Path(sys.argv[1]).resolve()
    if sys.argv[2:3] == ["--package"]:
        sys.path.insert(0, str(folder))
        os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
        Path(sys.argv[4]).write_text(json.dumps(of_package(folder, sys.argv[3])))
        return 0
    rows: list[Row] = []
    for package in sys.argv[2:] or drawn.DRAWN:
        with tempfile.NamedTemporaryFile() as file:
            command = [sys.executable, "-W", "ignore", __file__, str(folder), "--package", package, file.name]
            subprocess.run(command, check=True, stdout=sys.stderr)
            rows += json.loads(Path(file.name).read_text())
    writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    verdicts = [row["verdict"] for row in rows]
    print(", ".join(f"{verdicts.count(v)} {v}" for v in ("same", "fewer", "different", "not run")), file=sys.stderr)
    return int("different" in verdicts)


if __name__ == "__main__":
    sys.exit(main())
