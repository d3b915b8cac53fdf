"""Pages of memory that are in use in part: how they fill the sets of an L2, by hand and as an H200 measured it."""

import csv
import sys
from statistics import NormalDist, mean

import numpy as np
import pytest
from paths import VALIDATION

from iosim.gpu.predict import l2_capacity_bytes, l2_sides
from iosim.hardware import read
from iosim.l2 import Heads, Trace
from iosim.lru import APART, MIDDLES, WAYS, Cache, pages_of, rooms_of
from iosim.problem import Attention

NONE = [np.empty(0, np.int64)] * 2


@pytest.mark.parametrize("load, fits", [(0.5, 0.99), (0.75, 0.84), (1.0, 0.5), (1.25, 0.16), (1.5, 0.03)])
def test_lines_by_chance_find_room_as_often_as_the_members_have_it(load, fits):
    """Lines dealt to sets of 16 ways by chance, as many as fill the cache `load` times: a line is kept between two turns
    if its set got no more than it has ways. The members' room is normal, of mean 1 and deviation sqrt(1 / 16)."""
    sets, rng = 20_000, np.random.default_rng(1)
    lines = rng.integers(sets, size=int(load * sets * WAYS))
    kept = (np.bincount(lines, minlength=sets)[lines] <= WAYS).mean()
    assert kept == pytest.approx(1 - NormalDist(1, WAYS**-0.5).cdf(load), abs=0.06)
    assert kept == pytest.approx(fits, abs=0.06)


def test_rooms_are_those_of_whole_pages_and_wider_of_parts():
    for whole, part, (average, deviation) in zip(rooms_of(APART)(1.0), rooms_of(APART)(0.25), APART, strict=True):
        assert whole == pytest.approx(average + deviation * MIDDLES)
        assert part == pytest.approx(average + (deviation**2 + average * 0.75 / 16) ** 0.5 * MIDDLES)


def test_a_page_is_as_full_as_what_is_held_of_it(monkeypatch):
    """Pages of 400 B, four cells each. Looked at with every touch: one cell of the first; all of it; then with one of
    the second, 400 of 500 B are in a whole page and 100 in a quarter of one."""
    monkeypatch.setattr("iosim.lru.PAGE_BYTES", 400)
    sizes, seen = np.full(8, 100), []
    pages = pages_of(sizes)
    assert pages.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]

    def rooms(fullness):
        seen.append(fullness)
        return (10,), (10,), (10,)

    cache = Cache(sizes, 200, rooms, pages)
    for cells in ([0], [1, 2, 3], [4]):
        cells = np.array(cells)
        cache.touch([cells, NONE[0]], NONE, cells)
    assert seen == [1.0, 0.25, 1.0, pytest.approx((400 + 100 / 4) / 500)]


def test_what_left_the_cache_fills_no_page(monkeypatch):
    """A page of four cells that are read in turn: the one partition has room for one, the other for two halves."""
    monkeypatch.setattr("iosim.lru.PAGE_BYTES", 400)
    sizes, seen = np.full(4, 100), []
    cache = Cache(sizes, 100, lambda fullness: seen.append(fullness) or ((1,), (1,), (1,)), pages_of(sizes))
    for cell in [0, 1, 2, 3] * 5:
        cache.touch([np.array([cell]), NONE[0]], NONE, np.array([cell]))
    assert 0.25 <= mean(seen[4:]) <= 0.75 and max(seen[4:]) < 1


def test_a_cell_larger_than_a_page(monkeypatch):
    """Nothing starts in the pages between; it is held whole."""
    monkeypatch.setattr("iosim.lru.PAGE_BYTES", 64)
    sizes = np.array([1000, 40])
    assert pages_of(sizes).tolist() == [0, 15]
    cache = Cache(sizes, 100, lambda fullness: ((fullness,),) * 3, pages_of(sizes))
    cache.touch([np.array([0, 1]), NONE[0]], NONE, np.array([0, 1]))
    assert cache.room.tolist() == [100.0]


def test_a_tensor_is_one_array_of_all_its_heads(monkeypatch):
    """K of two heads (two cells of 32 B each), then Q and O of four: pages of 64 B go on from head to head, and each
    tensor begins with one of its own; so do the places of blocks."""
    monkeypatch.setattr("iosim.lru.PAGE_BYTES", 64)
    p = Attention(16, 16, heads=4, kv_heads=2)
    found = Trace([], np.array([32, 32, 32, 32]), 2, (0, 2, 3))
    heads = Heads(found, p, places=3, place_bytes=16)
    of = {name: [int(heads.pages[heads.cells(np.array([cell]), np.array([head]))[0]]) for head in range(4)]
          for name, cell in (("K0", 0), ("K1", 1), ("Q", 2), ("O", 3))}  # fmt: skip
    assert of == {"K0": [0, 0, 1, 1], "K1": [0, 0, 1, 1], "Q": [2, 2, 3, 3], "O": [4, 4, 5, 5]}
    assert heads.pages[heads.of_places(np.arange(3))].tolist() == [6, 6, 6]


# ---------------------------------------------------------------- against what an H200 did

FOLDER = VALIDATION / "h200-2026-11-22"
needs_measurements = pytest.mark.skipif(not FOLDER.exists(), reason="no measurement of a GPU is in validation/")


@pytest.fixture(
    scope="module", params=[pytest.param(run, marks=pytest.mark.long) for run in ("", "_again")], ids=["run", "before"]
)
def pieces(request):
    """{(stride in KiB, access, MiB, what): bytes of DRAM over those of the pieces, measured, by the model, and by the
    model of whole pages}."""
    sys.path.insert(0, str(FOLDER.parent))
    import l2_strides

    hardware, found = read(FOLDER / "hardware.toml"), {}
    l2 = l2_capacity_bytes(hardware), l2_sides(hardware)
    with (FOLDER / f"l2_strides{request.param}.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        size = int(row["piece_bytes"]) * int(row["blocks"])
        model, whole = l2_strides.modelled(row, *l2), l2_strides.modelled({**row, "stride_kib": 0}, *l2)
        for n, what in enumerate(("read", "write")[: 1 + (row["access"] == "both")]):
            key = int(row["stride_kib"]), row["access"], int(row["pieces_mib"]), what
            found[key] = int(row[f"dram_{what}_bytes"]) / size, model[n] / size, whole[n] / size
    return found


@needs_measurements
def test_pieces_of_larger_memory_leave_the_l2_earlier(pieces, request):
    """What docs/hardware.md says: 36 MiB side by side are read once; a quarter of each MiB more than one and a half times.
    In the run before it was more."""
    often, rather = (1.6, 1.35) if request.node.callspec.params["pieces"] else (1.5, 1.3)
    for access in ("read", "both"):
        assert pieces[0, access, 36, "read"][0] < 1.05 and pieces[1024, access, 36, "read"][0] > often
        at_32 = [pieces[stride, access, 32, "read"][0] for stride in (0, 361, 723, 1024)]
        assert at_32 == sorted(at_32) and at_32[-1] > rather


@needs_measurements
def test_the_model_of_pieces(pieces):
    """Errors in rounds of five; those of a model for which all pages were whole are more than twice as large."""
    apart = [found for (stride, *_), found in pieces.items() if stride]
    errors = [abs(measured - model) for measured, model, _ in apart]
    whole = [abs(measured - model) for measured, _, model in apart]
    assert len(errors) >= 100 and mean(errors) <= 0.2 and max(errors) <= 1.3, (mean(errors), max(errors))
    assert mean(whole) > 2 * mean(errors), mean(whole)
