"""The short query tile of flash2 first: words of the page, and closed forms against a table of all pairs."""

import re
from itertools import pairwise

import numpy as np
import pytest
from paths import DOCS

from iosim import Attention, Tiling, count, tune
from iosim.masks import parse_mask

PAGE = (DOCS / "schedules" / "forward.md").read_text()
ROWS = re.findall(r"^\| (\d+) d\^2 \| ([\d,]+) \| ([\d,]+) \| ([\d.]+) % \|$", PAGE, re.M)
MASKS = ["causal", "~causal", "window:5", "causal&window:3", "global:2|strided:5", "causal&(chunk:7|sink:2)", "causal:b",
         "documents:20,11,9&causal", "strided:3&causal"]  # fmt: skip


def words(M, place):
    return count(8192, 64, M, tiles="best", schedules="flash2", mask="causal", short_tile=place)["flash2"]


@pytest.mark.parametrize("share, last, first, less", ROWS)
def test_the_table_of_the_page(share, last, first, less):
    before, after = (words(f"{int(share) * 64**2}el", place).total for place in ("last", "first"))
    assert (f"{before:,}", f"{after:,}", f"{1 - after / before:.1%}") == (last, first, f"{less}%")


def test_the_keys_of_tiles_that_end_at_the_end():
    """With T tiles of Br rows causal reads T N - Br T (T-1)/2 rows of K and V: N = 8192, Br = 4001, T = 3. Published
    kernels read the rows up to Br, 2 Br and N."""
    found = {place: count(8192, 64, tiles="4001x1", schedules="flash2", mask="causal", short_tile=place)["flash2"]
             for place in ("last", "first")}  # fmt: skip
    assert found["first"].tensors["K"]["reads"] == 64 * (3 * 8192 - 4001 * 3) == 64 * (190 + 4191 + 8192)
    assert found["last"].tensors["K"]["reads"] == 64 * (4001 + 8002 + 8192)
    assert found["first"].sram_peak_words == found["last"].sram_peak_words


def test_tune_takes_the_option():
    M = f"{128 * 64**2}el"
    one, other = (tune(8192, 64, M, mask="causal", schedules="flash2", short_tile=place) for place in ("last", "first"))
    assert (one.results[0].total, other.results[0].total) == (3_145_856, 2_657_920)


@pytest.mark.parametrize("mask", MASKS)
def test_counts_are_those_of_the_table(mask):
    """Every number of rows in a tile, as numbers and, where the mask can, as arrays, with fewer, as many and more queries
    than keys."""
    for N, Nk in ((17, 40), (40, 40)) if "documents" in mask else ((17, 40), (40, 40), (40, 17)):
        p = Attention(N, 4, Nk=Nk, mask=parse_mask(mask))
        sizes = [(Br, Bc) for Br in range(1, N + 2) for Bc in (1, 3, 7)]
        found = [p.mask.bind(p, Tiling(*size)).short_first() for size in sizes]
        for bound in found:
            expected, table = bound.table_counts(bound.table), bound.table
            assert bound._counts == expected
            starts = [*range(-(-N % bound.rows_q), N, bound.rows_q), N]
            seen = bound.visible(0, N, 0, Nk)
            for line, (start, end) in zip(table, pairwise(starts), strict=True):
                keys = np.logical_or.reduceat(seen[max(0, start) : end].any(axis=0), range(0, Nk, bound.rows_k))
                assert (line == keys).all()
        if p.mask.counts_arrays and not p.mask.tile_units and "documents" not in mask:
            many = p.mask.bind(p, Tiling(*map(np.array, zip(*sizes, strict=True)))).short_first()
            for r in (False, True):
                assert many.rows(r).tolist() == [one.rows(r) for one in found]
                for c in (False, True):
                    assert many.pairs(r, c).tolist() == [one.pairs(r, c) for one in found]
