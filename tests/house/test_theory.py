"""The numbers of docs/conventions.md: each phrase is on the page, and the program agrees with it."""

import json
import re

import pytest
from click.testing import CliRunner
from paths import DOCS

import iosim
from iosim.commands.cli import main
from iosim.hardware import load
from iosim.tuning.least import tune
from iosim.units import parse_registers

TEXT = re.sub(r"\s+", " ", (DOCS / "conventions.md").read_text())


def one(schedule, N, d, M=None, **options):
    return iosim.count(N=N, d=d, M=M, schedules=[schedule], **options).results[0]


def constant(schedule, tiles):
    """The total traffic over N^2 d^2 / M, for an M with d^2 << M << Nd."""
    return one(schedule, 2**24, 64, f"{2**19}el", tiles=tiles).ratio_to_order


def fits(d, M):
    return one("flash1", 2**20, d, f"{M}el", tiles="paper").fits


def mask_row(*args):
    result = CliRunner().invoke(main, ["plot", "--picture", "mask", "--mask", *map(str, args), "--json"])
    return json.loads(result.stdout)


def first_fit(d, step=64):
    """The least M, in steps from d^2, for which the tiles fit there and at the next two multiples of 8."""
    return next(M for M in range(d * d, 20 * d * d, step) if fits(d, M) and fits(d, M + 8) and fits(d, M + 16))


CLAIMS = {
    "12 for flash1 with the paper's tiles": lambda: constant("flash1", "paper") == pytest.approx(12, rel=0.03),
    "6 for the best flash1 that fits": lambda: constant("flash1", "best") == pytest.approx(6, rel=0.03),
    "4 for the best flash2 that fits": lambda: constant("flash2", "best") == pytest.approx(4, rel=0.03),
    "`3*Br*d + 4*Br`": lambda: (
        one("flash1", 64, 8, tiles="16x64").total == 2 * 64 * 8 + 4 * (3 * 16 * 8 + 4 * 16)
    ),
    "standard attention moves `4N^2 + 4Nd`": lambda: one("standard", 512, 32, tiles="1x1").total == 4 * 512**2 + 4 * 512 * 32,
    "about a tie with standard attention at small d": lambda: (
        one("flash1", 2**16, 8, "256el", tiles="paper").ratio_to_standard == pytest.approx(3 / 4 + 1 / 8, rel=0.01)
    ),
    "`1.25*M + 2d` at M = 4d^2": lambda: all(
        one("flash1", 2**16, d, f"{4 * d * d}el", tiles="paper").sram_peak_words == 5 * d * d + 2 * d for d in (64, 128)
    ),
    "fit only from about M = 8d^2 + 8d": lambda: all(
        first_fit(d) == pytest.approx(8 * d * d + 8 * d, rel=0.01) for d in (64, 128)
    ),
    "Below M = 4d + 3 no tile at all fits": lambda: all(
        one("flash2", 99, d, f"{4 * d + 3}el").fits and one("flash2", 99, d, f"{4 * d + 2}el").total is None
        for d in (1, 8, 64)
    ),
    "with little SRAM tiled standard attention (`standard-square`) beats both flash schedules": lambda: all(
        one("standard-square", 8192, 128, "4096el").total < one(name, 8192, 128, "4096el", tiles="best").total
        for name in ("flash1", "flash2")
    ),
    "The leading constants at M = d^2 are 12 against 4": lambda: (
        one("flash1", 2**20, 64, f"{64**2}el", tiles="paper").total / one("standard", 2**20, 64, f"{64**2}el").total
        == pytest.approx(12 / 4, rel=0.05)
    ),
    "Tc = 1, costs `5Nd + 4N`": lambda: one("flash1", 100, 16, tiles="7x100").total == 5 * 100 * 16 + 4 * 100,
    "Under M, `standard-tiled` moves more": lambda: (
        one("standard-tiled", 8192, 128, "64KB").total > one("standard", 8192, 128, "64KB").total
    ),
    "At Br = d that is half of the standard `4N^2`, at Br = d/2 it saves nothing": lambda: (
        2 * 8192**2 * 128 // 128 * 2 == 4 * 8192**2
        and one("flash2", 2**20, 128, tiles="128x64").ratio_to_standard == pytest.approx(1 / 2, rel=0.01)
        and one("flash2", 2**20, 128, tiles="64x64").ratio_to_standard == pytest.approx(1, rel=0.01)
        and one("flash2", 2**20, 128, tiles="1x64").ratio_to_standard > 50
    ),
    "density `(T+1)/(2T)`": lambda: all(
        mask_row("causal", "--N", 16 * T, "--tiles", "16x16")["tile_density"] == pytest.approx((T + 1) / (2 * T))
        for T in (1, 5, 16)
    ),
    "`(Tc*(2w+1) - w*(w+1)) / Tc^2` for w < Tc": lambda: all(
        mask_row(f"window:{w}b", "--N", 8 * T, "--tiles", "8x8")["tile_density"]
        == pytest.approx((T * (2 * w + 1) - w * (w + 1)) / T**2)
        for T, w in ((8, 2), (16, 4), (5, 4))
    ),
    "A stride gives density 1/stride only if it divides the number of tiles": lambda: (
        mask_row("strided:2b", "--N", 40, "--tiles", "8x8")["tile_density"] == pytest.approx(0.52)
        and mask_row("strided:2b", "--N", 32, "--tiles", "8x8")["tile_density"] == pytest.approx(0.5)
    ),
    "At N = 8192, d = 128 and 16 KiB, for example, that is 549453824 words, and the search finds 414187520": lambda: (
        [b.words for b in iosim.count(8192, 128, "16KB").bounds if b.name == "attainable"] == [549453824]
        and [b.words for b in tune(8192, 128, "16KB").bounds if b.name == "attainable"] == [414187520]
    ),
}  # fmt: skip

CONVENTIONS = {
    "`K`, `KB` and `KiB` all mean 1024": lambda: (
        len({iosim.count(N=9, d=1, M=m, schedules=["flash2"]).M_bytes for m in ("7K", "7kb", "7KiB", "7168")}) == 1
    ),
    "`51200el` is a number of words": lambda: iosim.count(N=9, d=1, M="51200el", dtype="fp32").M_bytes == 4 * 51200,
    "Below M = 4d + 3 words not even 1x1 fits": CLAIMS["Below M = 4d + 3 no tile at all fits"],
    "which needs Nd + d + 1 words of SRAM": lambda: one("standard", 100, 16, tiles="1x1").sram_peak_words == 1617,
    "`--elementwise K` adds K passes that read and write the N x Nk scores": lambda: (
        one("standard", 99, 8, tiles="1x1", elementwise=3).total == one("standard", 99, 8, tiles="1x1").total + 6 * 99**2
    ),
    "`--count-init` adds these `Nd + 2N` writes": lambda: (
        one("flash1", 99, 8, tiles="8x8", count_init=True).writes == one("flash1", 99, 8, tiles="8x8").writes + 99 * 10
    ),
    "LSE, unless `--lse` asks for it (N more writes)": lambda: (
        one("flash2", 99, 8, tiles="8x8", lse=True).writes == one("flash2", 99, 8, tiles="8x8").writes + 99
    ),
    "`--N 1 --Nk 8192 --mask 'causal&window:255'` sees the last 256 keys": lambda: (
        one("block-sparse-q", 1, 8, Nk=8192, mask="causal & window:255", tiles="1x1").tensors["K"]["reads"] == 256 * 8
        and one("block-sparse-q", 1, 8, Nk=8192, mask="window:255 & causal", tiles="1x256").total == 2 * 257 * 8
        and one("block-sparse-q", 1, 8, Nk=8192, mask="window:255 & ~window:254", tiles="1x1").total == 4 * 8
    ),
    "`causal` and `window:W` are aligned there as in FlashAttention": lambda: (
        one("block-sparse-q", 64, 8, mask="causal & window:3", tiles="1x1").tensors["K"]["reads"]
        == 8 * sum(min(4, x + 1) for x in range(64))
    ),
    "`--registers 64K` lets tiles live in 64K registers of 4 bytes (`256KB` means the same)": lambda: (
        parse_registers("64K") == parse_registers("256KB") == 4 * 65536
    ),
    "In one SRAM it needs 279552 B, more than the 232448 B that a thread block has": lambda: (
        (one("flash2", 8192, 128, tiles="128x176", acc_dtype="fp32").sram_peak_bytes, load("H100").sram_bytes)
        == (279552, 232448)
    ),
    "it needs 212992 B of shared memory and 156672 B of registers, and fits": lambda: (
        lambda r: (r.smem_peak_bytes, r.register_peak_bytes, r.fits) == (212992, 156672, True)
    )(one("flash2", 8192, 128, M="227KB", tiles="128x176", acc_dtype="fp32", register_bytes=262144, stages=2)),
    "the shared memory is `Br*d + stages*2*Bc*d` words": lambda: (
        one("flash2", 512, 64, tiles="48x80", register_bytes=2**30, stages=3).smem_peak_bytes
        == 2 * (48 * 64 + 3 * 2 * 80 * 64)
    ),
    "the registers are `Br*d + Br*Bc + 2*Br` words": lambda: (
        one("flash2", 512, 64, tiles="48x80", register_bytes=2**30, stages=3).register_peak_bytes
        == 2 * (48 * 64 + 48 * 80 + 2 * 48)
    ),
    "A hardware preset sets M to the shared memory that one block may use": lambda: (
        preset_memory() == load("H100").shared_memory_per_block_bytes
    ),
}  # fmt: skip


def preset_memory():
    result = CliRunner().invoke(main, ["count", "--N", "64", "--d", "8", "--hardware", "H100", "--json"])
    return json.loads(result.stdout)["sram"]["M_bytes"]


@pytest.mark.parametrize("phrase", CLAIMS)
def test_theory(phrase):
    assert phrase in TEXT
    assert CLAIMS[phrase]()


@pytest.mark.long
@pytest.mark.parametrize("d", [64, 128])
def test_the_first_fit_at_every_multiple_of_8(d):
    assert first_fit(d, step=8) == pytest.approx(8 * d * d + 8 * d, rel=0.01)


@pytest.mark.parametrize("phrase", CONVENTIONS)
def test_conventions(phrase):
    assert phrase in TEXT
    assert CONVENTIONS[phrase]()
