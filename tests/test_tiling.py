"""The best tiles against figures from an independent exhaustive search (N = 8192, d = 128), and rules as stated."""

import pytest

from iosim import count

BEST = [  # M, acc_dtype, multiple, Br x Bc, total words
    ("64KB", "fp16", 16, (96, 16), 182_452_224),
    ("128KB", "fp16", 16, (224, 16), 79_691_776),
    ("228KB", "fp16", 16, (400, 16), 46_137_344),
    ("64KB", "fp32", 16, (64, 16), 270_532_608),
    ("128KB", "fp32", 16, (144, 16), 121_634_816),
    ("228KB", "fp32", 16, (256, 16), 69_206_016),
]


@pytest.mark.parametrize("M, acc, multiple, tiles, total", BEST)
def test_best_tiles_for_matrix_instructions(M, acc, multiple, tiles, total):
    result = count(8192, 128, M, acc_dtype=acc, schedules=["flash2"], tiles="best", tile_multiple=multiple)["flash2"]
    assert ((result.Br, result.Bc), result.total) == (tiles, total)


def test_the_accumulator_decides_what_fits():
    """100 KiB: 42 query tiles with 2-byte accumulators, 64 with 4-byte ones, R = Nd + 2 N d Tr, W = Nd, fp16."""
    for acc, tiles in (("fp16", 42), ("fp32", 64)):
        result = count(8192, 128, "100KB", acc_dtype=acc, schedules=["flash2"])["flash2"]
        assert result.total_bytes == 2 * 8192 * 128 * (2 + 2 * tiles)


def test_standard_with_tiles_that_fit():
    """64 KiB: 33 query tiles in both products, 4 N^2 + N d (2 + 2 * 33) words."""
    result = count(8192, 128, "64KB", schedules=["standard-tiled"])["standard-tiled"]
    assert result.fits and result.total == 4 * 8192**2 + 8192 * 128 * (2 + 2 * 33)


def test_nothing_fits_below_4d_plus_3_words():
    for words, fits in ((4 * 16 + 2, False), (4 * 16 + 3, True)):
        for name in ("flash1", "flash2"):
            result = count(64, 16, f"{words}el", schedules=[name], tiles="best")[name]
            assert result.fits is fits and (result.total is None) is not fits


def test_without_an_M_what_needs_it_is_absent():
    result = count(64, 16, tiles="8x4", schedules=["flash1"])["flash1"]
    assert (
        result.fits is None and result.ratio_to_bound is None and result.total == 2 * 64 * 16 + 16 * 64 * (3 * 16 + 4)
    )


def test_best_is_refused_where_the_mask_counts_tiles(iosim):
    args = ["--N", 64, "--d", 16, "--M", "4KB", "--mask", "window:2b", "--schedule", "block-sparse-q"]
    result = iosim("count", *args, "--tiles", "best")
    assert result.exit_code == 2 and "--tiles" in result.stderr and result.stdout == ""
    assert iosim("count", *args).exit_code == 0
