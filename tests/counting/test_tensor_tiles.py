"""The note on tiles that tensor cores cannot use: where it is said, and where it would be noise."""

import re

import pytest

from iosim import SCHEDULES, Attention, count
from iosim.core.problem import DENSE
from iosim.counting.notes import suits_tensor_cores, tile_notes
from iosim.schedules import applies

SIZES = ("--N", 8192, "--d", 128)
TRY, PAPER = "try --tile-multiple 16", "--paper-model"
SAID = {
    "count": ("count", *SIZES, "--M", "100KB", "--tiles", "best"),
    "count, best": ("count", *SIZES, "--hardware", "t4", "--tiles", "best", PAPER),
    "tune": ("tune", *SIZES, "--M", "100KB"),
    "tune, another multiple": ("tune", *SIZES, "--M", "100KB", "--tile-multiple", 8),
    "roofline, no rates": ("roofline", *SIZES, "--hardware", "a100-80gb", PAPER),
    "roofline, rates": ("roofline", *SIZES, "--hardware", "h100", "--schedule", "standard-tiled", PAPER),
    "roofline, fp8": ("roofline", *SIZES, "--hardware", "mi300x", "--dtype", "fp8", PAPER),
    "two phases": ("roofline", *SIZES, "--hardware", "a100-80gb", "--decode", PAPER),
    "two families": ("count", *SIZES, "--M", "100KB", "--tiles", "best", "--schedule", "flash2,state-fused"),
    "packed queries": ("tune", "--N", 1, "--Nk", 8192, "--d", 128, "--heads", 8, "--kv-heads", 1, "--gqa", "pack", "--M",
                       "100KB"),
}  # fmt: skip


@pytest.mark.parametrize("name", SAID)
def test_one_line_names_the_tiles_and_the_option(name, iosim, ask):
    line = SAID[name]
    (note,) = re.findall("^note: (tensor cores .*)$", iosim(*line).stderr, re.MULTILINE)
    assert TRY in note and note in ask(*line)["notes"] and len(note) < 140
    tiles = re.findall(r"(\d+)x(\d+)", note)
    assert len(tiles) == (2 if name == "two families" else 1) and all(any(int(n) % 16 for n in x) for x in tiles)
    other = [x for x in line if x not in ("--tile-multiple", 8, 1)]
    assert "tensor cores" not in iosim(*other, "--tile-multiple", 16).stderr, "the advice helps"


@pytest.mark.parametrize("d, M", [(64, 64), (64, 200), (64, 1535), (64, 1536), (16, 3000)])
def test_it_is_said_where_tiles_of_multiples_fit(d, M, iosim, ask):
    """The least tiles of 16 take 1536 bytes: three of 256 words."""
    line = ("tune", "--N", 1024, "--d", d, "--M", M)
    fits = any(result["fits"] for result in ask(*line, "--tile-multiple", 16)["results"])
    assert (TRY in iosim(*line).stderr) == fits == (M >= 1536)


NOT_SAID = {
    "multiples": ("count", *SIZES, "--M", "100KB", "--tiles", "best", "--tile-multiple", 48),
    "wide types": ("tune", *SIZES, "--M", "100KB", "--dtype", "fp32"),
    "short rows": ("tune", "--N", 8192, "--d", 8, "--M", "100KB"),
    "own rules": ("count", *SIZES, "--M", "100KB"),
    "own tiles": ("count", *SIZES, "--tiles", "100x1"),
    "own tiles on a GPU": ("roofline", *SIZES, "--tiles", "100x1", "--hardware", "a100-80gb"),
    "one query": ("count", "--N", 1, "--Nk", 8192, "--d", 128, "--M", "100KB", "--tiles", "best"),
    "one query a head": ("tune", "--N", 1, "--Nk", 8192, "--d", 128, "--heads", 8, "--kv-heads", 1, "--M", "100KB"),
    "one query on a GPU": ("roofline", "--N", 1, "--Nk", 8192, "--d", 128, "--hardware", "b200"),
    "whole axes": ("count", "--N", 12, "--Nk", 100, "--d", 64, "--M", "100KB", "--tiles", "best"),
    "no product": ("tune", *SIZES, "--M", "100KB", "--schedule", "softmax-3pass"),
    "no tiles": ("tune", *SIZES, "--M", "8MB", "--schedule", "standard"),
    "a GPU": ("roofline", *SIZES, "--hardware", "a100-80gb"),
    "nothing fits": ("tune", *SIZES, "--M", "100", "--schedule", "flash2"),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_SAID)
def test_nothing_is_said_where_it_is_no_fault(name, iosim):
    found = iosim(*NOT_SAID[name])
    assert found.exit_code == 0 and "tensor cores" not in found.stderr


FEW = ({"N": 500}, {"N": 5, "Nk": 300}, {"N": 12}, {"N": 1, "Nk": 300})
ABOUT = [(name, more) for name in SCHEDULES for more in FEW if applies(SCHEDULES[name], Attention(d=32, **more))]


@pytest.mark.parametrize("name, more", ABOUT, ids=str)
def test_every_schedule(name, more):
    """No multiple of 16 is a fault, and no tile of one query row, unless rows are summed over keys."""
    problem = Attention(d=32, **more)
    for multiple in (1, 16):
        (found,) = count(d=32, M="8KB", schedules=name, tile_multiple=multiple, **more).results[-1:]
        notes = tile_notes([(problem, found)])
        untiled = found.tiling != "best" or not found.flops or problem.N == 1
        if untiled or multiple == 16 or (found.Br >= problem.N and found.Bc >= problem.Nk):
            assert notes == []
        elif problem.N == 500 and SCHEDULES[name].family in ("attention", "backward"):
            assert bool(notes) == any(n % 16 and n < 500 for n in (found.Br, found.Bc)), (found.Br, found.Bc)


@pytest.mark.parametrize("N, Br, Bc, suits", [
    (8192, 128, 64, True), (8192, 410, 16, False), (8192, 16, 1, False), (8192, 8, 16, False), (8, 8, 16, True),
    (8, 4, 16, False), (8, 16, 16, True), (1, 1, 3, True), (100, 100, 16, True), (100, 50, 16, False),
])  # fmt: skip
def test_which_tiles_suit(N, Br, Bc, suits):
    """Multiples of 16, and tiles of all queries however few. A single query makes no product of matrices."""
    assert suits_tensor_cores(Attention(N, 64, Nk=8192), "flash2", Br, Bc) == suits


def test_a_mask_changes_nothing():
    """Of its tiles, too; the walk that looks at products counts none of them."""
    for mask in ("causal", "window:100"):
        found = count(4096, 64, "64KB", schedules="block-sparse-q", mask=mask, tiles="best")
        assert found.problem.mask is not DENSE and any("tensor cores" in note for note in found.notes)
