"""The number of thread blocks of a schedule, and the least traffic with a given number of them."""

import csv
import io
import random
import re

import numpy as np
import pytest
from footprints import footprints
from paths import DOCS
from test_curve import moved, staircase
from test_tune_space import allowed, problems, with_option

from iosim import SCHEDULES, Attention, Machine, Tiling, Traffic
from iosim.core.problem import DENSE
from iosim.hardware import load
from iosim.masks import parse_mask
from iosim.schedules import Schedule
from iosim.search.best import footprint
from iosim.steps.softmax import zeros
from iosim.timing.blocks import blocks
from iosim.tuning.curve import exact, free_steps, most_blocks, step_at
from iosim.tuning.least import space_of, tune

pytestmark = pytest.mark.early

SPACE = [s.name for s in space_of((), Attention(8, 4)) if exact(s, Attention(8, 4), 2)]
MASKED = Attention(8, 4, mask=parse_mask("causal"))
SPACE_MASKED = [s.name for s in space_of((), MASKED) if exact(s, MASKED, 2)]


def test_the_space_is_not_empty():
    assert {"flash1", "flash2", "split-kv", "paged", "memory-efficient", "standard-tiled"} <= set(SPACE)
    assert {"flash1", "flash2", "split-kv"} <= set(SPACE_MASKED)


class Turns(Machine):
    """Visits every tile and counts the turns of outermost parallel loops, launch by launch."""

    def __init__(self, *args):
        super().__init__(*args)
        self.turns, self.launches = 0, []

    def _walk(self, length, size, where, parallel):
        counts = self._depth == 0 and parallel and not self._resident
        for tile in super()._walk(length, size, where, parallel):
            self.turns += counts
            yield tile

    def _end_of_launch(self):
        if self._depth == 0 and not self._resident:
            self.launches.append(max(1, self.turns))
            self.turns = 0
        super()._end_of_launch()


def counted_blocks(schedule, p, tiling):
    traffic = Traffic()
    machine = Turns(p if schedule.skips else with_option(p, mask=DENSE), traffic).run(schedule, tiling)
    words = [sum(launch) for launch in traffic.launches]
    deciding = [n for n, moved in zip(machine.launches, words, strict=True) if 10 * moved >= sum(words)]
    return p.instances * (min(deciding) if deciding else machine.launches[words.index(max(words))])


@pytest.mark.parametrize("mask", ["dense", "causal", "window:2"])
@pytest.mark.parametrize("name", [s.name for s in SCHEDULES.values() if s.family == "attention"])
def test_folded_blocks_are_those_of_every_tile(name, mask):
    schedule, rng = SCHEDULES[name], random.Random(name + mask)
    for _ in range(5):
        p = Attention(rng.randint(1, 14), 4, Nk=rng.randint(1, 14), heads=3, mask=parse_mask(mask))
        tiling = Tiling(rng.randint(1, 8), rng.randint(1, 8))
        found = blocks(schedule, p, tiling)
        assert found == counted_blocks(schedule, p, tiling) and type(found) is int


@pytest.mark.parametrize("name, expected", [
    ("flash2", 4), ("flash1", 1), ("split-kv", 4), ("memory-efficient", 4), ("standard-tiled", 4), ("standard", 1),
])  # fmt: skip
def test_blocks_by_hand(name, expected):
    """Each head of a batch has ceil(100 / 30) = 4 blocks, or one. split-kv has 90 / 18 = 5 shares, but 4 query tiles in
    its second kernel, which moves 5300 of 19560 words."""
    p = Attention(100, 8, Nk=90, batch=2, heads=6, splits=5)
    assert blocks(SCHEDULES[name], p, Tiling(30, 10)) == 2 * 6 * expected


def test_shares_where_the_second_kernel_moves_little():
    """With one query the first kernel moves 2 * 900 * 8 + 5 * 17 words, and the second one 5 * 9 + 8."""
    p = Attention(1, 8, Nk=900, heads=6, splits=5)
    assert blocks(SCHEDULES["split-kv"], p, Tiling(1, 10)) == 6 * 5


def two_launches(chip, p, t):
    """A launch that stores O, N d words in tiles, and one that loads K, Nk d words in one tile."""
    output_rows(chip, p, t.rows_q)
    for j in chip.tiles(p.Nk, p.Nk, parallel=True):
        chip.load("K", j)


def many_launches(chip, p, t):
    """Launches of which the first moves 2 N d of 21 N d words. The others have one block each."""
    output_rows(chip, p, t.rows_q, "Q")
    for _ in range(19):
        output_rows(chip, p, p.N)


def equal_launches(chip, p, t):
    """Eleven launches that move as much. The first has several blocks, the others have one each."""
    output_rows(chip, p, t.rows_q)
    for _ in range(10):
        output_rows(chip, p, p.N)


def beside_resident(chip, p, t):
    """A loop with independent turns, around which K stays in SRAM. So there is one block, which holds K."""
    k = chip.load("K")
    output_rows(chip, p, t.rows_q)
    chip.free(k)


def output_rows(chip, p, size, *inputs):
    for i in chip.tiles(p.N, size, parallel=True):
        for name in inputs:
            chip.load(name, i)
        chip.store(chip.compute("O", (i, p.dv), zeros), "O", i)


@pytest.mark.parametrize("text, N, expected", [
    (two_launches, 9, 1), (two_launches, 10, 5), (many_launches, 10, 5), (beside_resident, 10, 1),
    (equal_launches, 10, 5),
])  # fmt: skip
def test_launches_that_decide(text, N, expected):
    """A launch decides if it moves at least a tenth of all words. If none does, the one that moves most decides, the
    first of several. This holds for arrays too."""
    schedule, p = Schedule("mine", text, "for this test"), Attention(N, 4, Nk=1, heads=3)
    assert blocks(schedule, p, Tiling(2, 1)) == counted_blocks(schedule, p, Tiling(2, 1)) == 3 * expected
    sizes = np.array([2, N])
    assert np.broadcast_to(blocks(schedule, p, Tiling(sizes, 1)), 2).tolist() == [3 * expected, 3]


def test_packed_heads_are_one():
    p = Attention(1, 8, Nk=64, heads=8, kv_heads=2, gqa="pack")
    assert blocks(SCHEDULES["flash2"], p, Tiling(2, 8)) == 2 * 2


def check_least_blocks(name, p, multiple, wanted):
    schedule = SCHEDULES[name]
    pairs = []
    most = 0
    for q in allowed(name, p, multiple):
        space = tilings(schedule, q, multiple)
        for tiling, need in zip(space, footprints(schedule, q, space), strict=True):
            here = counted_blocks(schedule, q, tiling)
            most = max(most, here)
            if here >= wanted:
                pairs.append((need.peak_bytes, moved(schedule, q, tiling)))
    found = free_steps(schedule, p, multiple, (), wanted)
    assert [(s.M_bytes, s.total_bytes) for s in found] == staircase(pairs), (p, multiple, wanted)
    assert most_blocks(schedule, p, multiple, ()) == most
    return bool(pairs)


def wanted_blocks(p, rng):
    """A random number of blocks, from one a head, which every tiling has, to more than most tilings have. It is not 1,
    which would ask for nothing."""
    return max(2, p.heads * rng.choice([1, 1, 2, 4]))


def tilings(schedule, p, multiple):
    if "ideal" in schedule.rules:
        return [Tiling(1, 1)]
    rows, columns = (range(multiple, n + multiple, multiple) for n in (p.N, p.Nk))
    return [Tiling(q, k) for q in rows for k in columns]


@pytest.mark.parametrize("tries", [6, pytest.param(16, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", SPACE)
def test_the_least_with_so_many_blocks_is_that_of_an_exhaustive_search(name, tries):
    found = [
        check_least_blocks(name, p, multiple, wanted_blocks(p, rng))
        for p, multiple, rng in problems(name, tries, most=9)
    ]
    assert any(found) and not all(found)


@pytest.mark.parametrize("tries", [3, pytest.param(6, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", SPACE_MASKED)
def test_and_with_a_mask(name, tries):
    found = [
        check_least_blocks(name, with_option(p, mask=parse_mask(mask)), multiple, wanted_blocks(p, rng))
        for mask in ("causal", "window:2")
        for p, multiple, rng in problems(name + mask, tries, most=9)
    ]
    assert any(found) and not all(found)


def test_decoding_on_all_multiprocessors(iosim, ask):
    """With 4 heads, 132 blocks need 33 splits. R = S N d + 2 Nk d + S N (d + 1), W = S N (d + 1) + N d, for each
    head."""
    size = ["tune", "--N", 1, "--Nk", 8192, "--d", 128, "--heads", 4, "--M", "100KB"]
    got = ask(*size, "--least-blocks", 132)
    best = got["winner"]
    assert (best["schedule"], best["options"], best["blocks"]) == ("split-kv", {"splits": 33}, 132)
    assert best["total"] == 4 * (33 * 128 + 2 * 8192 * 128 + 2 * 33 * 129 + 128) and best["tiling"] == "best"
    assert got["space"]["least_blocks"] == 132 and "small-cache" in got["space"]["left_out"]
    assert {r["schedule"] for r in got["results"] if r["total"] is not None} == {"split-kv", "paged-split-kv"}
    assert ask(*size)["winner"]["schedule"] != "split-kv" and ask(*size)["space"]["left_out"] == []
    text = iosim(*size, "--least-blocks", 132).stdout
    assert "least with 132 blocks: split-kv 1x198 --splits 33, " in text and re.search(
        "not searched: [^\n]*small-cache", text
    )
    rows = list(csv.DictReader(io.StringIO(iosim(*size, "--least-blocks", 132, "--csv").stdout)))
    assert (rows[0]["options"], rows[0]["blocks"]) == ("splits=33", "132")


def test_fewer_rows_where_one_head_must_fill_the_gpu(ask):
    """At least 132 query tiles of 8192 rows have at most 62 rows each. That gives 133 tiles, and N d (2 + 2 * 133)
    words."""
    got = ask("tune", "--N", 8192, "--d", 128, "--M", "100KB", "--least-blocks", 132, "--schedule", "flash2")
    assert (got["winner"]["Br"], got["winner"]["blocks"]) == (62, 133)
    assert got["winner"]["total"] == 8192 * 128 * (2 + 2 * 133)


def test_a_launch_without_blocks_is_no_answer(ask):
    """The softmax of standard-tiled has 1024 blocks. But its products would have 9, and they move 62 % of the words."""
    args = ["tune", "--N", 1024, "--d", 64, "--M", "16KB", "--mask", "causal"]
    (free,) = ask(*args, "--schedule", "standard-tiled")["results"]
    assert (free["Br"], free["blocks"]) == (114, 9)
    got = ask(*args, "--least-blocks", 132)
    named = {r["schedule"]: r for r in got["results"]}
    assert got["winner"]["schedule"] == "flash2" and named["standard-tiled"]["Br"] == 7
    assert all(r["blocks"] >= 132 for r in got["results"] if r["fits"])


@pytest.mark.parametrize("multiple", [1, 16])
@pytest.mark.parametrize("M, wanted", [(2000, 4), (20_000, 6), (100_000, 6)])
@pytest.mark.parametrize("options", [{}, {"heads": 4, "kv_heads": 2, "gqa": "pack"}, {"mask": "causal"}], ids=str)
def test_the_inner_tile_is_the_largest_that_fits(multiple, M, wanted, options):
    """Words and blocks are those of the curve, and a larger key tile does not fit. If tiles of a mask are skipped, the
    key tile is the smallest."""
    found = tune(100, 8, M, Nk=120, tile_multiple=multiple, least_blocks=wanted, **options)
    fitting = [r for r in found.results if r.fits and r.Br]
    for r in fitting:
        schedule, p = SCHEDULES[r.schedule], with_option(found.problem, **r.options).packed
        step = step_at(free_steps(schedule, found.problem, multiple, frozenset(), wanted), M)
        assert (r.total, r.blocks, r.Br, r.options) == (step.total, step.blocks, step.Br, step.options)
        if schedule.skips and "mask" in options:
            assert r.Bc == multiple
        else:
            assert r.Bc >= p.Nk or footprint(schedule, p, Tiling(r.Br, r.Bc + multiple)).peak_bytes > M
    assert len(fitting) > 2 and (M == 2000 or any(r.Bc > multiple for r in fitting))


def test_why_nothing_fits(iosim, ask):
    """flash1 has one block a head. 50 blocks for 100 rows need tiles of 2 rows: 1 x 8 words of K and of V, 2 x 8 of Q
    and of O, 2 x 1 of S, 2 of l and of m."""
    args = ["tune", "--N", 100, "--d", 8, "--schedule", "flash1,flash2", "--heads", 3, "--least-blocks", 150, "--M"]
    needed = 2 * (2 * 8 + 2 * 2 * 8 + 2 + 2 * 2)
    named = {r["schedule"]: r for r in ask(*args, needed)["results"]}
    assert (named["flash1"]["most_blocks"], named["flash1"]["needs_M_bytes"]) == (3, None)
    assert named["flash2"]["fits"] and named["flash2"]["most_blocks"] is named["flash2"]["needs_M_bytes"] is None
    assert named["flash2"]["blocks"] == 150 and ask(*args, needed - 1)["winner"]["blocks"] == 300
    one_row = 2 * (2 * 8 + 2 * 8 + 1 + 2)
    rows = list(csv.DictReader(io.StringIO(iosim(*args, one_row - 1, "--csv").stdout)))
    assert [(r["schedule"], r["needs_M_bytes"], r["most_blocks"]) for r in rows[:2]] == [
        ("flash1", "", "3"),
        ("flash2", str(one_row), ""),
    ]
    text = iosim(*args, one_row - 1).stdout
    assert "none: at most 3 blocks" in text and f"none: needs {one_row} B" in text
    plain = [*args[:-3], "--M", one_row - 1]
    assert "most_blocks" not in ask(*plain)["results"][0] and "nothing fits" in iosim(*plain).stdout


def test_what_the_docs_say_of_blocks(ask):
    text = (DOCS / "tiles.md").read_text().split("<!-- blocks -->")[1].replace(",", "")
    decode = ["tune", "--N", 1, "--Nk", 8192, "--d", 128, "--heads", 4, "--M", "100KB"]
    prefill = ["tune", "--N", 8192, "--d", 128, "--M", "100KB", "--schedule", "flash2"]
    one, many, long, short = [
        ask(*a, *more)["winner"] for a in (decode, prefill) for more in ([], ["--least-blocks", 132])
    ]
    assert (one["schedule"], many["schedule"]) == ("flash2", "split-kv")
    found = re.findall(r"(\d+)\s(?:words|splits|blocks|query rows|rows)", text)
    assert [int(x) for x in found] == [
        *(one["total"], one["blocks"], 132, many["options"]["splits"], many["total"]),
        *(long["Br"], long["total"], long["blocks"], 132, short["Br"], short["total"]),
    ]


def test_the_curve_takes_it_too(iosim, ask):
    args = ["tune", "--N", 4, "--Nk", 100, "--d", 8, "--curve", "--least-blocks", 10]
    got = ask(*args)
    assert {r["schedule"] for r in got["curve"]} == {"split-kv"}
    assert {r["options"] for r in got["curve"]} == {"splits=10"} and "options" not in ask(*args[:-2])["curve"][0]
    assert all(r["blocks"] >= 10 for r in got["curve"]) and "blocks" not in ask(*args[:-2])["curve"][0]
    assert " --splits 10 " in iosim(*args).stdout and "least traffic with 10 blocks over " in iosim(*args).stdout


def test_schedules_with_fewer_blocks_than_multiprocessors_are_left_out_on_a_gpu(ask, iosim):
    """No note asks for more blocks: best tiles have as many as multiprocessors where the problem allows, and schedules
    with fewer stand in no table unless all rows are asked for."""
    line, sms = ("tune", "--N", 8192, "--d", 64, "--heads", 8, "--hardware", "h100"), load("h100").sms
    found = ask(*line)
    few = [r["schedule"] for r in found["results"] if r["blocks"] and r["blocks"] < sms]
    assert "flash1" in few and found["winner"]["blocks"] >= sms
    said = "left out: flash1, with fewer thread blocks than the multiprocessors could take; --all shows them"
    text, every = (" ".join(iosim(*line, *more).stdout.split()) for more in ((), ("--all",)))
    assert said in text and said not in every
    for more in ((), ("--heads", 1), ("--paper-model",)):
        assert not any("--least-blocks" in note for note in ask(*line, *more)["notes"])
