"""validation/figure2/page.py finds out from the rows whether FlashAttention's statements hold; pages say what was measured."""

import csv

import pytest
from paths import VALIDATION

from validation.figure2 import measure as figure2
from validation.figure2 import page

FOLDERS = sorted(path.parent for path in VALIDATION.glob("*/figure2.csv"))


def blocks(*ms):
    """Rows whose bytes halve, with these times."""
    return [{"schedule": "x", "acc_dtype": "fp32", "Br": "64", "Bc": str(16 << n), "sm_bytes": str(2**40 >> n),
             "ms": str(t)} for n, t in enumerate(ms)]  # fmt: skip


@pytest.mark.parametrize(
    "ms, found",
    [
        (
            (8, 4, 2, 2.5, 3),
            [
                "0.60",
                "64x16 to 64x64",
                "the bytes fall to 1/4.00 and the time falls to 1/4.00",
                "From there to 64x256 the bytes fall to 1/4.00",
                "1.25 to 1.50",
                "**holds up to 64x64**, and some larger blocks are slower",
            ],
        ),
        ((8, 4, 2, 2.02, 1.99), ["64x16 to 64x64", "0.99 to 1.01", "at every step", "**holds**."]),
        ((8, 9, 2, 3), ["not at every step", "**does not hold**"]),
        ((8, 7, 6, 5), ["correlation 1.00", "No larger block fits", "For the measured blocks", "**holds**"]),
        ((8, 9, 6, 5), ["No larger block fits", "**does not hold**"]),
        ((1, 2, 3, 4), ["correlation -1.00", "no block with fewer bytes is faster", "**does not hold**"]),
    ],
)
def test_whether_time_falls_until_something_else_binds(ms, found):
    text = page.falls(blocks(*ms))
    assert all(part in text for part in found), text
    assert page.falls(blocks(*ms)[::-1]) == text, "in any order"


@pytest.mark.parametrize(
    "ms, found",
    [
        ([8, 4, 2, 1], ["with s 1.00", "1.00 to 1.00", "c = 0.0000", "**holds**"]),
        ([8, 4, 2, 1.09], ["1.00 to 1.09", "**holds**"]),
        ([8, 4, 2, 1.12], ["1.00 to 1.12", "**does not hold**"]),
        ([8, 4, 1.7, 1], ["0.85 to 1.00", "**does not hold**"]),
        ([1.0, 0.55, 0.325, 0.2125], ["1.00 to 1.70", "c = 0.1000", "**does not hold**"]),
    ],
)
def test_whether_time_is_proportional(ms, found):
    text = page.proportional("x", "forward", [1, 1 / 2, 1 / 4, 1 / 8], ms)
    assert all(part in text for part in found), text


def test_rank_correlation():
    """1 - 6 sum of squared differences / (n (n^2 - 1)) without ties; ties share their mean place."""
    assert page.ranks([30, 10, 20, 10]) == [3, 0.5, 2, 0.5]
    assert page.rank_correlation([1, 2, 3, 4, 5], [2, 1, 4, 3, 5]) == pytest.approx(1 - 6 * 4 / (5 * 24))
    assert page.rank_correlation([1, 2, 3], [7, 7, 7]) == 0


# ---------------------------------------------------------------- what was measured


def test_the_pages_say_what_was_measured():
    """A page has a section only if there is a measurement. It says exactly what the CSV gives."""
    for name in page.PAGES:
        text = (page.PAPERS / name).read_text(encoding="utf-8")
        if FOLDERS:
            assert page.filled(text, FOLDERS[-1], name) == text, (
                f"{name}: run validation/figure2/measure.py FOLDER --page"
            )
        assert text.count("<!-- figure2 -->") == bool(FOLDERS)


@pytest.mark.skipif(not FOLDERS, reason="figure2.csv was not measured")
@pytest.mark.parametrize("step", [10, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: p.name)
def test_the_measured_rows_are_those_of_today(folder, step):
    """Words and bytes of each row are those of today's model: of every tenth row, or of all."""
    with open(folder / "figure2.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    each = [(panel, job) for panel, forward, back in figure2.jobs() for job in (forward, back) if job]
    assert len(rows) == len(each)
    for row, (panel, job) in zip(rows[::step], each[::step], strict=True):
        new = figure2.described(panel, job)
        for name in ("schedule", "Br", "Bc", "mask", "density", "words", "sm_bytes", "flops", "smem_bytes"):
            assert str(new[name]) == row[name], (name, row)
        if row["ms"]:
            assert float(row["ms"]) > 0 and float(row["error"]) <= float(row["allowed_error"]), row
