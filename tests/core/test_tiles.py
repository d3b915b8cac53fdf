"""Tiles as users give them: each way is read as the same value, and its text reads back."""

import pytest

from iosim import InputError, Tiling, count
from iosim.core.tiling import RULES, read_tiles, tiles_text

GIVEN = ["128x64", "128X64", (128, 64), [128, 64], ("128", 64), Tiling(128, 64)]


@pytest.mark.parametrize("given", GIVEN, ids=str)
def test_each_way_is_the_same_tiling(given):
    assert read_tiles(given) == Tiling(128, 64) and tiles_text(read_tiles(given)) == "128x64"


@pytest.mark.parametrize("given", [None, *RULES])
def test_rules_stay_as_they_are(given):
    assert read_tiles(given) is given


@pytest.mark.parametrize(
    "tiling", [Tiling(1, 1), Tiling(3, 5, depth=7), Tiling(2, 2, rows_s=4), Tiling(9, 8, rows_o=1, cols_o=2)]
)
def test_the_text_of_a_tiling_reads_back(tiling):
    assert read_tiles(tiles_text(tiling)) == tiling


@pytest.mark.parametrize(
    "given", ["128", "axb", "0x4", (1,), (1, 2, 3), (0, 4), 128, "8x8/depth", "8x8/deep=2"], ids=str
)
def test_what_cannot_be_read_is_refused(given):
    with pytest.raises(InputError, match="--backward-tiles"):
        read_tiles(given, "--backward-tiles")


@pytest.mark.parametrize("given", ["8x8/depth=2", Tiling(8, 8, depth=2)], ids=str)
def test_sizes_that_a_schedule_lacks_are_refused_wherever_they_are_given(given):
    """Also for one of several schedules; a schedule without tiles takes any."""
    with pytest.raises(InputError, match="found '8x8/depth=2'; allowed: Br x Bc$"):
        count(N=16, d=8, tiles=given, schedules="flash2")
    assert count(16, 8, tiles=given, schedules="standard")["standard"].Br is None
    assert count(16, 8, tiles=given, schedules="matmul-tiled")["matmul-tiled"].more_tiles == {"depth": 2}
