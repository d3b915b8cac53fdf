"""What `tune` chooses beside tiles: options that a schedule lets it choose, and how many thread blocks are wanted."""

import csv
import io
import random
import re
from pathlib import Path

import pytest
from test_curve import every_tiling, moved, staircase

from iosim import SCHEDULES, Attention, Machine, Tiling, Traffic
from iosim.curve import choices, exact, free_steps, least
from iosim.errors import InputError
from iosim.experiment import parse_mask
from iosim.tiling import footprint
from iosim.tune import space_of, trace_curve, tune
from iosim.tune_blocks import blocks

CHOSEN = [s.name for s in SCHEDULES.values() if s.chosen]
SPACE = [s.name for s in space_of((), Attention(8, 4)) if exact(s, Attention(8, 4), 2)]
MASKED = Attention(8, 4, mask=parse_mask("causal"))
SPACE_MASKED = [s.name for s in space_of((), MASKED) if exact(s, MASKED, 2)]
PAGES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def allowed(name, p, multiple):
    """Every problem that the docs say is in the space, by definition: no order, no short cut."""
    key_tile = min(multiple, p.Nk)
    if name == "split-kv":
        splits = [s for s in range(1, p.Nk + 1) if -(-p.Nk // s) >= key_tile]
        return [with_option(p, splits=s) for s in splits]
    if name == "paged":
        pages = [page for page in PAGES if page < 2 * p.Nk]
        return [with_option(p, page_size=page) for page in pages if page >= key_tile] or [
            with_option(p, page_size=pages[-1])
        ]
    return [p]


def with_option(p, **option):
    return Attention(**{**vars(p), **option})


def problems(name, count, most=11):
    rng = random.Random(name)
    for _ in range(count):
        sizes = {"Nk": rng.randint(1, most), "heads": rng.choice([1, 3]), "acc_dtype": rng.choice(["fp16", "fp32"])}
        yield Attention(rng.randint(1, most), rng.randint(1, 5), **sizes), rng.choice([1, 1, 2, 3, 4, 20]), rng


def test_the_schedules_that_let_choose():
    assert CHOSEN == ["split-kv", "paged"]
    assert {"flash1", "flash2", "split-kv", "paged", "memory-efficient", "standard-tiled"} <= set(SPACE)
    assert {"block-sparse", "block-sparse-q", "split-kv"} <= set(SPACE_MASKED)


@pytest.mark.parametrize("name", CHOSEN)
def test_the_first_choice_is_the_least_of_all(name):
    """All values and all tilings by brute force, at every M."""
    for p, multiple, _ in problems(name, 12):
        pairs = [pair for q in allowed(name, p, multiple) for pair in every_tiling(SCHEDULES[name], q, multiple)]
        found = free_steps(SCHEDULES[name], p, multiple, ())
        assert [(s.M_bytes, s.total_bytes) for s in found] == staircase(pairs), (p, multiple)


@pytest.mark.parametrize("name", CHOSEN)
def test_an_earlier_choice_is_never_worse(name):
    """What `Schedule.chosen` promises, at every M."""
    for p, multiple, _ in problems(name, 8):
        before = None
        for options in choices(SCHEDULES[name], p, multiple, ()):
            own = free_steps(SCHEDULES[name], with_option(p, **options), multiple, options)
            for step in own if before else []:
                better = least(before, step.M_bytes)
                assert better is not None and better.total_bytes <= step.total_bytes, (p, multiple, options)
            before = own


@pytest.mark.parametrize("multiple", [1, 2, 5, 50])
def test_every_number_of_shares_is_chosen_from_once(multiple):
    for Nk in (1, 7, 12, 40):
        p = Attention(1, 4, Nk=Nk)
        found = [o["splits"] for o in choices(SCHEDULES["split-kv"], p, multiple, ())]
        assert found == sorted({with_option(p, splits=q.splits).shares for q in allowed("split-kv", p, multiple)})


@pytest.mark.parametrize("name, M", [("split-kv", 600), ("paged", 500), ("split-kv", 100_000)])
def test_one_m_finds_what_all_of_them_find(name, M):
    found = tune(100, 8, M, schedules=[name])
    curve = trace_curve(100, 8, schedules=[name])
    step = least(curve.steps, M)
    assert found.winner.total_bytes == step.total_bytes and found.winner.options == step.options != {}


def test_what_is_given_is_not_chosen(ask):
    size = ["tune", "--N", 16, "--Nk", 500, "--d", 8, "--M", "4KB", "--schedule", "split-kv", "--schedule", "paged"]
    free, fixed = ask(*size), ask(*size, "--splits", 4, "--page-size", 16)
    named = {r["schedule"]: r for r in free["results"]}
    assert named["split-kv"]["options"] == {"splits": 1} and named["paged"]["options"] == {"page_size": 256}
    for r in fixed["results"]:
        assert r["options"] == {} and r["total"] > named[r["schedule"]]["total"]


# ---------------------------------------------------------------- blocks


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
    machine = Turns(p if schedule.skips else with_option(p, mask=Attention.mask), traffic).run(schedule, tiling)
    words = [sum(step) for step in traffic.steps]
    return p.instances * machine.launches[words.index(max(words))]


@pytest.mark.parametrize("mask", ["dense", "causal", "window:2"])
@pytest.mark.parametrize("name", [s.name for s in SCHEDULES.values() if s.family == "attention"])
def test_folded_blocks_are_those_of_every_tile(name, mask):
    schedule, rng = SCHEDULES[name], random.Random(name + mask)
    for _ in range(5):
        p = Attention(rng.randint(1, 14), 4, Nk=rng.randint(1, 14), heads=3, mask=parse_mask(mask))
        tiling = Tiling(rng.randint(1, 8), rng.randint(1, 8))
        assert blocks(schedule, p, tiling) == counted_blocks(schedule, p, tiling)


@pytest.mark.parametrize("name, expected", [
    ("flash2", 2 * 6 * 4), ("flash1", 2 * 6), ("split-kv", 2 * 6 * 5), ("memory-efficient", 2 * 6 * 4),
])  # fmt: skip
def test_blocks_by_hand(name, expected):
    """Heads and batches times query tiles, nothing, or shares of the keys: 100 / 30 and 90 / 18."""
    p = Attention(100, 8, Nk=90, batch=2, heads=6, splits=5)
    assert blocks(SCHEDULES[name], p, Tiling(30, 10)) == expected


def test_packed_heads_are_one():
    p = Attention(1, 8, Nk=64, heads=8, kv_heads=2, gqa="pack")
    assert blocks(SCHEDULES["flash2"], p, Tiling(2, 8)) == 2 * 2


def check_least_blocks(name, p, multiple, wanted):
    schedule = SCHEDULES[name]
    pairs = []
    for q in allowed(name, p, multiple):
        for tiling in tilings(schedule, q, multiple):
            if counted_blocks(schedule, q, tiling) >= wanted:
                pairs.append((footprint(schedule, q, tiling).peak_bytes, moved(schedule, q, tiling)))
    found = free_steps(schedule, p, multiple, (), wanted)
    assert [(s.M_bytes, s.total_bytes) for s in found] == staircase(pairs), (p, multiple, wanted)
    return bool(pairs)


def tilings(schedule, p, multiple):
    if "ideal" in schedule.rules:
        return [Tiling(1, 1)]
    rows, columns = (range(multiple, n + multiple, multiple) for n in (p.N, p.Nk))
    return [Tiling(q, k) for q in rows for k in columns]


@pytest.mark.parametrize("name", SPACE)
def test_the_least_with_so_many_blocks_is_that_of_an_exhaustive_search(name):
    found = [
        check_least_blocks(name, p, multiple, p.heads * rng.randint(2, 4))
        for p, multiple, rng in problems(name, 16, most=9)
    ]
    assert any(found) or name == "flash1"


@pytest.mark.parametrize("name", SPACE_MASKED)
def test_and_with_a_mask(name):
    for mask in ("causal", "window:2"):
        for p, multiple, rng in problems(name, 3, most=9):
            check_least_blocks(name, with_option(p, mask=parse_mask(mask)), multiple, p.heads * rng.randint(2, 4))


def test_decoding_on_all_multiprocessors(iosim, ask):
    """4 heads, 132 blocks: 33 splits. R = S N d + 2 Nk d + S N (d + 1), W = S N (d + 1) + N d, for each head."""
    size = ["tune", "--N", 1, "--Nk", 8192, "--d", 128, "--heads", 4, "--M", "100KB"]
    got = ask(*size, "--least-blocks", 132)
    best = got["winner"]
    assert (best["schedule"], best["options"], best["blocks"]) == ("split-kv", {"splits": 33}, 132)
    assert best["total"] == 4 * (33 * 128 + 2 * 8192 * 128 + 2 * 33 * 129 + 128) and best["tiling"] == "best"
    assert got["space"]["least_blocks"] == 132 and "small-cache" in got["space"]["left_out"]
    assert all(r["total"] is None for r in got["results"] if r["schedule"] != "split-kv")
    assert ask(*size)["winner"]["schedule"] != "split-kv" and ask(*size)["space"]["left_out"] == []
    text = iosim(*size, "--least-blocks", 132).stdout
    assert "least with 132 blocks: split-kv 1x1 --splits 33, " in text and "not in the space: small-cache" in text
    rows = list(csv.DictReader(io.StringIO(iosim(*size, "--least-blocks", 132, "--csv").stdout)))
    assert (rows[0]["options"], rows[0]["blocks"]) == ("splits=33", "132")


def test_fewer_rows_where_one_head_must_fill_the_gpu(ask):
    """132 query tiles of 8192 rows: at most 62 rows each, and 133 tiles; N d (2 + 2 * 133) words."""
    got = ask("tune", "--N", 8192, "--d", 128, "--M", "100KB", "--least-blocks", 132, "--schedule", "flash2")
    assert (got["winner"]["Br"], got["winner"]["blocks"]) == (62, 133)
    assert got["winner"]["total"] == 8192 * 128 * (2 + 2 * 133)


def test_what_the_docs_say_of_blocks(ask):
    text = (Path(__file__).parent.parent / "docs" / "tune.md").read_text().split("<!-- blocks -->")[1]
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
    assert " --splits 10 " in iosim(*args).stdout and "least traffic with 10 blocks over " in iosim(*args).stdout


def test_nothing_has_so_many_blocks(iosim, ask):
    args = ["tune", "--N", 4, "--d", 8, "--M", "4KB", "--least-blocks", 1000]
    assert ask(*args)["winner"] is None and "none that fits" in iosim(*args).stdout


@pytest.mark.parametrize("args, name", [
    (["--M", "4KB", "--least-blocks", 0], "--least-blocks"), (["--curve", "--least-blocks", "x"], "--least-blocks"),
    (["--M", "4KB", "--least-blocks", 2, "--schedule", "small-cache"], "--schedule"),
    (["--curve", "--least-blocks", 2, "--schedule", "memory-efficient", "--mask", "causal"], "--schedule"),
], ids=str)  # fmt: skip
def test_bad_input(iosim, args, name):
    result = iosim("tune", "--N", 64, "--d", 8, *args)
    assert result.exit_code == 2 and name in result.stderr and result.stdout == ""


def test_bad_input_in_python():
    with pytest.raises(InputError, match="--least-blocks"):
        tune(64, 8, "4KB", least_blocks=0)
