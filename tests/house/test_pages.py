"""The tables of the pages of docs/schedules hold."""

import re

import pytest
from paths import DOCS

import iosim

PAGES = DOCS / "schedules"


def rows_of(name, columns):
    """The rows of the page's table with this number of columns, as strings, the header first."""
    lines = [line for line in (PAGES / f"{name}.md").read_text().splitlines() if line.startswith("|")]
    cells = [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if len(row) == columns and not row[0].startswith("---")]


def test_the_table_of_small_caches():
    header, *rows = [row for row in rows_of("forward", 7) if row[0] == "M" or row[0].isdigit()]
    assert len(rows) == 7
    for M, share, *stated in rows:
        found = iosim.count(8192, 128, f"{M}el", tiles="best", schedules=header[2:])
        assert [f"{found[name].total / 1e6:.1f}" for name in header[2:]] == stated
        assert float(share) == int(M) / 128**2


def test_the_crossings_of_small_caches():
    """10 % below a stated share of d^2 the first schedule moves less; 10 % above it the second does."""
    header, *rows = [
        row for row in rows_of("forward", 4) if row[0].isdigit() or row[1].startswith("small-cache-q beats")
    ]
    assert len(rows) == 3
    for width, *shares in rows:
        pairs = [("small-cache", "small-cache-q"), ("small-cache", "flash2"), ("small-cache-q", "flash2")]
        for (below, above), share in zip(pairs, shares, strict=True):
            for factor in (0.9, 1.1):
                M = int(factor * float(share.split()[0]) * int(width) ** 2)
                found = iosim.count(8192, int(width), f"{M}el", schedules=[below, above])
                assert (found[below].total < found[above].total) is (factor < 1), (width, below, above, factor)


def test_every_schedule_has_a_page():
    """Every schedule is the title of a page of docs/schedules, or stands in one as code."""
    titles = [line for page in PAGES.glob("*.md") for line in page.read_text().splitlines() if line[:1] == "#"]
    pages = {name for title in titles for name in re.split(r"[#:, ]+", title)}
    texts = "".join(page.read_text() for page in PAGES.glob("*.md"))
    assert [name for name in iosim.SCHEDULES if name not in pages and f"`{name}`" not in texts] == []


def test_one_room_moves_a_seventh_less():
    found = iosim.count(8192, 128, "64KB", tiles="best", tile_multiple=16, schedules=["flash2", "flash2-one-room"])
    assert [r.Br for r in found.results] == [96, 112]
    assert found["flash2-one-room"].total / found["flash2"].total == pytest.approx(6 / 7, abs=0.01)
