"""The table of docs/floors.md, section 14: the least traffic of all schedules over the floor. Under a mask flash2 has its
short query tile last or first, whichever moves less.

`python tests/counting/test_best_known.py` writes it.
"""

import sys
from operator import attrgetter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "helpers"))
from paths import DOCS

from iosim import SCHEDULES, tune

PAGE = DOCS / "floors.md"
MARK = "<!-- best known -->"
d = 64
SIZES = ("3 words", "0.05", "0.17", "0.5", "1", "2", "4", "8", "16", "32", "64", "N d")
CASES = {
    "dense": {"N": 8192},
    "dense, N = 512": {"N": 512},
    "`causal`": {"N": 8192, "mask": "causal"},
    "`causal`, N = 512": {"N": 512, "mask": "causal"},
    "`causal&window:1024`": {"N": 8192, "mask": "causal&window:1024"},
    "dv = 4d": {"N": 8192, "dv": 256},
    "dv = 4d, N = 512": {"N": 512, "dv": 256},
    "decoding, 16 heads on one KV head": {"N": 1, "Nk": 8192, "heads": 16, "kv_heads": 1, "gqa": "pack"},
    "backward": {"N": 8192},
    "backward, an add counted once": {"N": 8192},
    "backward, N = 512": {"N": 512},
    "backward, dv = 4d": {"N": 8192, "dv": 256},
    "backward, dv = 4d, N = 512": {"N": 512, "dv": 256},
    "backward, `causal`": {"N": 8192, "mask": "causal"},
}


def words_of(size, N):
    """The M of a column in words; None beyond N d."""
    M = {"3 words": 3, "N d": N * d}.get(size) or int(float(size) * d * d)
    return None if max(N, 512) * d < M else M


def cell(label, size):
    """The least ratio to the floor of all schedules and tiles that fit."""
    options = CASES[label]
    M = words_of(size, options.get("Nk", options["N"]))
    if M is None:
        return "-"
    names = [name for name, s in SCHEDULES.items() if s.family == "backward"] if label.startswith("backward") else ()
    ratio = attrgetter("ratio_to_floor_with_adds" if "add" in label else "ratio_to_floor")
    places = ("last", "first") if "mask" in options and not names else ("last",)
    found = [tune(d=d, M=f"{M}el", schedules=names, short_tile=place, **options) for place in places]
    ratios = [ratio(r) for one in found for r in one.results if r.fits]
    return f"{min(ratios):.2f}" if ratios else "-"


def table():
    """{case: {size: cell}} of the page."""
    head, _, *rows = (line.strip("| ").split(" | ") for line in PAGE.read_text().split(MARK)[1].strip().splitlines())
    assert head[1:] == list(SIZES)
    return {label: dict(zip(SIZES, cells, strict=True)) for label, *cells in rows}


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize("label", CASES)
def test_best_known_over_floor(label, every):
    """The short test computes the column of d^2."""
    for size, said in table()[label].items():
        if every or size == "1":
            assert cell(label, size) == said, size


def test_what_the_page_says_of_backward_passes():
    """Beyond 64 d^2 few passes are left."""
    rows = [table()[label] for label in ("backward", "backward, dv = 4d")]
    assert max(float(said) for row in rows for size, said in row.items() if said != "-" and size != "N d") <= 1.75
    assert "within 1.75 of the floor, for dv = d and for dv = 4d" in " ".join(PAGE.read_text().split())


def main():
    before, _, after = PAGE.read_text().split(MARK)
    rows = [["d = 64, M / d^2", *SIZES], ["---"] * (len(SIZES) + 1)]
    rows += [[label, *(cell(label, size) for size in SIZES)] for label in CASES]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines[1] = "|" + "|".join(rows[1]) + "|"
    PAGE.write_text(MARK.join([before, "\n" + "\n".join(lines) + "\n", after]))


if __name__ == "__main__":
    main()
