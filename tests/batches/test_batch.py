"""A batch is counted by the schedules that count a single problem. Here that is proven in three ways: formulas by hand
for each request, walks over every tile, and NumPy runs whose outputs are compared with attention in float64."""

import json
import random
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner
from paths import DOCS

import iosim
from iosim import batch
from iosim.batches.cascade import LEVEL, MERGE
from iosim.batches.moved import LENGTHS_BYTES, counted
from iosim.batches.ways import BY_NAME, KEY_TILES
from iosim.commands.cli import main
from iosim.core.folded import Folded
from iosim.core.machine import Machine
from iosim.core.numeric import Numeric
from iosim.core.problem import DENSE, Attention, narrowed
from iosim.core.tiling import Tiling
from iosim.core.watchers import Traffic
from iosim.errors import InputError
from iosim.masks import parse_mask
from iosim.masks.grouped import grouped
from iosim.oracles.attention import attention
from iosim.schedules import SCHEDULES, decode

MIXED = "3 * 1:40, 1:7, 9:9, 5:33, 4:21"
SMALL = {"d": 8, "heads": 4, "kv_heads": 2, "tiles": "6x5", "mask": "causal", "splits": 3, "page_size": 4}
REQUESTS = [(1, 40)] * 3 + [(1, 7), (9, 9), (5, 33), (4, 21)]


def run(*args):
    """What a command line prints, as JSON."""
    done = CliRunner().invoke(main, [*args, "--json"], prog_name="iosim")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


# ---------------------------------------------------------------- one request is `count`


@pytest.mark.parametrize("mask", ["dense", "causal", "causal&window:20", "strided:3"])
def test_a_batch_of_one_is_a_count(mask):
    problem = {"d": 16, "heads": 4, "kv_heads": 2, "mask": mask, "tiles": "8x6", "splits": 3, "page_size": 8}
    found = iosim.batch("12:50", **problem)
    of = {"repeat": "flash2", "split": "split-kv", "paged": "paged"}
    for way, schedule in of.items():
        if way not in [one.way for one in found]:
            continue
        share = {} if way == "repeat" or mask != "dense" else {"gqa": "pack"}
        if way != "repeat" and mask != "dense":
            continue  # count cannot pack under a mask; the formulas by hand below can
        wanted = iosim.count(N=12, Nk=50, schedules=schedule, **share, **problem)[schedule]
        assert (found[way].total, found[way].total_bytes, found[way].flops) == (
            wanted.total, wanted.total_bytes, wanted.flops,
        )  # fmt: skip
        assert {n: (w["reads"], w["writes"]) for n, w in found[way].tensors.items()} == {
            n: (w["reads"], w["writes"]) for n, w in wanted.tensors.items()
        }
        assert found[way].ratio_to_floor == wanted.ratio_to_floor


@pytest.mark.parametrize("mask", ["dense", "causal"])
def test_a_batch_of_one_has_the_best_tiles_of_a_count(mask):
    wanted = iosim.count(N=300, Nk=900, d=64, M="64KB", mask=mask, heads=2, schedules="flash2")["flash2"]
    found = iosim.batch("300:900", 64, M="64KB", mask=mask, heads=2)["repeat"]
    assert (found.tiles, found.total, found.ratio_to_floor) == (
        f"{wanted.Br}x{wanted.Bc}", wanted.total, wanted.ratio_to_floor,
    )  # fmt: skip


@pytest.mark.parametrize(
    "requests, M",
    [(((12, 30), (3, 40)), "1500"), pytest.param(((20, 60), (3, 90)), "3000", marks=pytest.mark.long)],
)
def test_best_tiles_of_a_batch_are_those_of_least_traffic(requests, M):
    found = iosim.batch(", ".join(f"{n}:{k}" for n, k in requests), 8, M=M, mask="causal")["repeat"]
    N, Nk = map(max, zip(*requests, strict=True))
    tried = {}
    for Br in range(1, N + 1):
        for Bc in range(1, Nk + 1):
            each = [
                iosim.count(N=n, Nk=k, d=8, M=M, mask="causal", schedules="flash2", tiles=(Br, Bc))["flash2"]
                for n, k in requests
            ]
            largest = iosim.count(N=N, Nk=Nk, d=8, M=M, schedules="flash2", tiles=(Br, Bc))["flash2"]
            if largest.fits:
                tried[Br, Bc] = sum(one.total_bytes for one in each)
    assert found.total_bytes == min(tried.values())


# ---------------------------------------------------------------- formulas by hand, and walks over every tile


def problem_of(way, new, tokens, packs=True):
    """The problem of a request, as a way runs it."""
    p = Attention(new, 8, tokens, heads=4, kv_heads=2, mask=parse_mask("causal"), splits=3, page_size=4)
    if way == "split-by-length":
        p = narrowed(p, splits=-(-tokens // 14))  # the longest request has 40 tokens in 3 shares of 14
    if not packs or way == "repeat":
        return p
    return narrowed(p, N=2 * new, heads=2, mask=grouped(p.mask, 2))


def test_pages_in_key_tiles_are_what_formulas_and_walks_say():
    """Key tiles that the mask hides are left out, and each of the others reads an entry for each of its pages."""
    rng = np.random.default_rng(6)
    for _ in range(60):
        page = int(rng.choice([2, 4, 8]))
        tiling = Tiling(int(rng.integers(1, 12)), int(rng.choice([1, 2, page, 2 * page, 4 * page])))
        if page % tiling.rows_k and tiling.rows_k % page:
            continue
        N, more = (int(rng.integers(1, top)) for top in (20, 40))
        mask = parse_mask(str(rng.choice(["causal", "window:5", "dense"])))
        p = Attention(N, 3, N + more, dv=2, page_size=page, mask=mask)
        walked, folded = Traffic(), Traffic()
        Machine(p, walked).run(KEY_TILES, tiling)
        Folded(p, folded).run(KEY_TILES, tiling)
        by_hand = KEY_TILES.exact_traffic(p.tiled(tiling), tiling)
        assert walked.tensors == {name: tuple(map(int, words)) for name, words in folded.tensors.items()} == by_hand


def test_pages_in_key_tiles_are_paged_without_hidden_tiles():
    fields = {**SMALL, "tiles": "6x8"}
    found = iosim.batch("9:40, 5:33", **fields)
    assert (
        found["paged"].total
        < found["paged-tiles"].total
        < iosim.batch("9:40, 5:33", **fields, visit_all=True)["paged"].total
    )
    kept = {name: words for name, words in found["paged-tiles"].tensors.items() if name != "table"}
    assert kept == found["pack"].tensors
    p = Attention(7, 8, 50, page_size=4)
    rng, traffic = np.random.default_rng(3), Traffic()
    hbm = {name: rng.normal(size=(n, 8)) for name, n in (("Q", 7), ("K", 50), ("V", 50))} | {"table": np.arange(13)}
    machine = Numeric(p, hbm, traffic).run(KEY_TILES, Tiling(3, 8))
    assert np.allclose(machine.array("O"), attention(hbm["Q"], hbm["K"], hbm["V"], None), rtol=1e-12, atol=1e-12)
    assert traffic.tensors["table"] == (3 * 13, 0)
    with pytest.raises(InputError, match="a part of a page of 4"):
        iosim.batch("9:40", **{**SMALL, "tiles": "6x6"}, ways="paged-tiles")


@pytest.mark.parametrize("problems", [25, pytest.param(300, marks=pytest.mark.long)])
def test_best_tiles_in_pages_are_the_least_of_all(problems):
    """Every tile whose keys are a part of a page or whole pages is counted. A larger key tile has fewer entries."""
    rng, tried = random.Random(41), 0
    while tried < problems:
        requests = [(new, new + rng.randint(0, 30)) for new in (rng.randint(1, 12) for _ in range(rng.randint(1, 2)))]
        fields = {
            "d": rng.randint(1, 4), "mask": rng.choice(["causal", "causal&window:5"]), "page_size": rng.choice([2, 4, 6]),
            "heads": 2, "kv_heads": rng.randint(1, 2), "ways": "paged-tiles", "tile_multiple": rng.choice([1, 1, 2, 3]),
        }  # fmt: skip
        M, step, page = rng.randint(60, 400), fields["tile_multiple"], fields["page_size"]
        rows = max(new for new, _ in requests) * 2 // fields["kv_heads"]
        try:
            every = [
                iosim.batch(requests, **{**fields, "tiles": (Br, Bc)}, M=M).ways[0]
                for Br in range(step, rows + step, step)
                for Bc in range(step, 45, step)
                if page % Bc == 0 or Bc % page == 0
            ]
        except InputError as error:
            assert "paged moves the same" in str(error)  # the mask hides nothing
            continue
        fitting = [one.total_bytes for one in every if one.fits]
        if fitting:
            assert iosim.batch(requests, **fields, M=M).ways[0].total_bytes == min(fitting), (requests, fields, M)
            tried += 1
    found = iosim.batch("64:1000", 8, mask="causal", M="16KB", ways="paged-tiles").ways[0]
    assert (found.tiles, found.total_bytes) == ("64x16", 34_300)


@pytest.mark.parametrize("problems", [3, pytest.param(25, marks=pytest.mark.long)])
@pytest.mark.parametrize("way", ["repeat", "pack", "split", "split-by-length", "paged", "paged-split", "decode"])
def test_best_tiles_of_every_way_are_the_least_of_all(way, problems):
    """Every tile is counted, for the way alone."""
    rng, tried = random.Random(way), 0
    while tried < problems:
        requests = [(new, new + rng.randint(0, 12)) for new in (rng.randint(1, 5) for _ in range(rng.randint(1, 3)))]
        step = rng.choice([1, 1, 2, 3])
        fields = {
            "d": rng.randint(1, 4), "mask": rng.choice(["dense", "causal", "causal&window:5"]), "ways": way, "heads": 2,
            "kv_heads": 1, "page_size": rng.randint(1, 4), "splits": rng.randint(1, 4), "tile_multiple": step,
            "dv": rng.randint(1, 4), "M": rng.randint(40, 300),
        }  # fmt: skip
        rows, keys = 2 * max(new for new, _ in requests), max(tokens for _, tokens in requests)
        try:
            sizes = [(Br, Bc) for Br in range(step, rows + step, step) for Bc in range(step, keys + step, step)]
            every = [iosim.batch(requests, **{**fields, "tiles": size}).ways[0] for size in sizes]
        except InputError:
            continue  # not for such a batch
        if fitting := [one.total_bytes for one in every if one.fits]:
            assert iosim.batch(requests, **fields).ways[0].total_bytes == min(fitting), (requests, fields)
            tried += 1


def test_a_way_without_a_fitting_tile_refuses_no_other():
    fields = {"dtype": "fp32", "acc_dtype": "fp32", "mask": "window:3", "page_size": 2}
    found = iosim.batch("3:4, 1:6", 1, M=28, **fields)
    assert {way.way: way.fits for way in found if way.way in ("repeat", "paged")} == {"repeat": True, "paged": False}
    assert found["paged"].ratio_to_floor is None and found.least.way == "repeat"
    with pytest.raises(InputError, match="an SRAM in which some tile fits"):
        iosim.batch("3:4, 1:6", 1, M=8, **fields)


def test_new_tokens_one_by_one_are_not_packed_under_masks_that_are_not_strips():
    fields = {"mask": "causal&global:2", "heads": 2, "kv_heads": 1, "M": "4KB"}
    assert [way.way for way in iosim.batch("1:22, 2:26", 3, **fields)] == ["repeat"]
    with pytest.raises(InputError, match="packed rows under --mask causal&global:2 are not counted"):
        iosim.batch("1:22, 2:26", 3, ways="decode", **fields)


SCHEDULE_OF = {
    "repeat": "flash2", "pack": "flash2", "split": "split-kv", "split-by-length": "split-kv", "paged": "paged",
    "paged-split": "paged-split-kv",
}  # fmt: skip


@pytest.mark.parametrize("way", SCHEDULE_OF)
def test_words_are_those_of_formulas_and_of_walks(way):
    schedule, tiling = SCHEDULES[SCHEDULE_OF[way]], Tiling(6, 5)
    by_hand, walked = {}, {}
    for new, tokens in REQUESTS:
        p = problem_of(way, new, tokens)
        traffic = Traffic()
        Machine(p, traffic).run(schedule, tiling)
        bound = p.tiled(tiling, schedule.skips)
        for sums, words in ((by_hand, schedule.exact_traffic(bound, tiling)), (walked, traffic.tensors)):
            for name, (reads, writes) in words.items():
                before = sums.get(name, (0, 0))
                sums[name] = before[0] + p.heads * reads, before[1] + p.heads * writes
    found = {n: (w["reads"], w["writes"]) for n, w in iosim.batch(MIXED, **SMALL)[way].tensors.items()}
    assert found == by_hand == walked


def test_new_tokens_one_by_one_are_requests_of_their_own():
    found = iosim.batch("4:21", **SMALL)["decode"]
    wanted = iosim.batch("1:18, 1:19, 1:20, 1:21", **SMALL)["pack"]
    assert (found.tensors, found.blocks) == (wanted.tensors, wanted.blocks)


def test_no_note_says_that_an_option_of_the_command_changes_nothing(iosim):
    """A schedule with a state has a --chunk too."""
    done = iosim("batch", "--requests", "64:100", "--d", 8, "--causal", "--tiles", "4x4", "--chunk", 16, "--splits", 2)
    assert "chunk-16" in done.stdout and "changes nothing" not in done.stderr
    with pytest.raises(InputError, match="--layers 'gdn heads=4"):
        batch("1:40", 8, chunk=16)


def test_chunks_are_requests_after_each_other():
    found = iosim.batch("10:30", **SMALL, chunks=[4])["chunk-4"]
    wanted = iosim.batch("4:24, 4:28, 2:30", **SMALL)["pack"]
    assert found.tensors == wanted.tensors
    assert iosim.batch("10:30", **SMALL, chunks=4)["chunk-4"].tensors == found.tensors
    assert [row.way for row in iosim.batch("10:30", **SMALL, chunks="4,5", ways="chunk-5")] == ["chunk-5"]


def test_the_rows_of_detail_add_up():
    """The tensors of each way, and its requests, are all of its words and bytes; each request is that of a batch of
    one."""
    found = iosim.batch(MIXED, **SMALL, chunks=[4], detail=True)
    for way in found:
        rows = [row for row in found.to_rows() if row["way"] == way.way]
        tensors = [row for row in rows if row["part"].startswith("tensor")]
        requests = [row for row in rows if row["part"].startswith("request")]
        assert sum(row["total"] for row in tensors) == way.total
        assert sum(row["bytes"] for row in tensors) == way.total_bytes
        assert sum(row["times"] * row["total"] for row in requests) == way.total
        assert sum(row["times"] * row["bytes"] for row in requests) == way.total_bytes
    shapes = {row["part"]: row["total"] for row in found.to_rows() if row["way"] == "pack" and row["new"]}
    assert shapes == {f"request {n}:{k}": iosim.batch([(n, k)], **SMALL)["pack"].total for n, k in REQUESTS}


def test_masks_of_packed_rows_are_counted_as_their_tables_say():
    rng = np.random.default_rng(3)
    for text in ("causal", "window:3", "causal&window:7"):
        for _ in range(150):
            g, n, more, Br, Bc = (int(rng.integers(1, top)) for top in (6, 20, 30, 25, 13))
            bound = grouped(parse_mask(text), g).bind(Attention(n * g, 1, n + more), Tiling(Br, Bc))
            assert bound._counts == bound.table_counts(bound.table), (text, g, n, more, Br, Bc)
    assert grouped(parse_mask("strided:3"), 2) is None and grouped(parse_mask("causal:b"), 2) is None


def shares_of(way, p, tokens):
    """The keys of each share of a request."""
    each = -(-tokens // p.splits)
    if way == "paged-split":
        pages = -(-tokens // 4)
        each = 4 * -(-pages // p.splits)
    return [min(each, tokens - start) for start in range(0, tokens, each)]


@pytest.mark.parametrize("way", SCHEDULE_OF)
def test_the_largest_block_is_that_of_a_walk(way):
    """Each block is counted by itself: a tile of queries, or a share of the keys with all queries. d = dv = 8."""
    words = []
    for new, tokens in REQUESTS:
        p = problem_of(way, new, tokens)
        visible = p.tiled(Tiling(6, 5)).mask.visible(0, p.N, 0, tokens)
        seen = [visible[x : x + 6].any(axis=0) for x in range(0, p.N, 6)]

        def moved(keys, first, last):
            """The words of K and V, and of the block table, for the keys first..last that a tile of queries sees."""
            pages = [(y, min(y + 4, last)) for y in range(first, last, 4)] if "paged" in way else [(first, last)]
            cells = [(y, min(y + 5, end)) for start, end in pages for y in range(start, end, 5)]
            entries = sum(keys[a:b].any() for a, b in pages) * ("paged" in way)
            return 16 * sum(b - a for a, b in cells if keys[a:b].any()) + entries

        if "split" in way:  # Q and the partial results once, K and V for each tile of queries
            first = 0
            for keys in shares_of(way, p, tokens):
                part = sum(moved(one, first, first + keys) for one in seen)
                words += [p.N * (8 + 8 + 1) + part] * p.heads
                first += keys
            continue
        for i, one in enumerate(seen):
            words += [min(6, p.N - 6 * i) * 16 + moved(one, 0, tokens)] * p.heads
    found = iosim.batch(MIXED, **SMALL)[way]
    assert found.blocks == len(words)
    assert found.largest_block == pytest.approx(max(words) * len(words) / sum(words), rel=1e-12)


def test_the_largest_block_of_causal_requests_is_that_of_their_tables():
    """A last tile of few rows moves less than the one before it."""
    rng = np.random.default_rng(8)
    for _ in range(60):
        new, cached, Br, Bc = (int(rng.integers(least, top)) for least, top in ((2, 30), (0, 30), (1, 12), (1, 9)))
        found = iosim.batch([(new, new + cached)], **{**SMALL, "tiles": (Br, Bc)}, ways="pack").ways[0]
        p = problem_of("pack", new, new + cached)
        table = p.tiled(Tiling(Br, Bc)).mask.table
        keys = [sum(min(Bc, p.Nk - Bc * j) for j, on in enumerate(line) if on) for line in table]
        words = [16 * (min(Br, p.N - Br * i) + seen) for i, seen in enumerate(keys)]
        assert found.largest_block == pytest.approx(max(words) * len(words) / sum(words), rel=1e-12), (
            new,
            cached,
            Br,
            Bc,
        )


# ---------------------------------------------------------------- NumPy runs


@pytest.mark.parametrize("way", ["repeat", "pack", "split", "paged", "paged-split"])
def test_a_numpy_run_of_a_batch_gives_attention_and_its_words(way, monkeypatch):
    """All requests lie in one pool of pages in random order, and five of them share the pages of a prefix."""
    rng, page, g, d = np.random.default_rng(5), 4, 2, 8
    found = iosim.batch(MIXED, **SMALL)[way].tensors
    monkeypatch.setattr(decode, "cache_rows", lambda p: 202 * page)  # of the pool
    prefix = [np.arange(2), rng.normal(size=(2, 2 * page, d))]  # two pages, of K and of V
    pool, moved = {"K": {}, "V": {}}, {}
    order = iter(rng.permutation(200) + 2)
    for new, tokens in REQUESTS:
        shares = tokens - new >= 2 * page
        K, V = rng.normal(size=(2, tokens, d))
        if shares:
            K[: 2 * page], V[: 2 * page] = prefix[1]
        number = -(-tokens // page)
        table = np.array([prefix[0][k] if shares and k < 2 else next(order) for k in range(number)])
        for name, values in (("K", K), ("V", V)):
            for k, place in enumerate(table):
                pool[name][int(place)] = values[k * page : (k + 1) * page]
        p = problem_of(way, new, tokens)
        mask = p.mask if p.mask is not DENSE else grouped(parse_mask("causal"), g)
        p = narrowed(p, mask=mask)
        queries = rng.normal(size=(p.N, d))
        hbm = {"Q": queries, "K": K, "V": V}
        if way.startswith("paged"):
            cache = {name: np.full((202 * page, d), np.nan) for name in pool}
            for name, values in pool.items():
                for place, rows in values.items():
                    cache[name][place * page : place * page + len(rows)] = rows
            hbm = {"Q": queries, "table": table, **cache}
        traffic, schedule = Traffic(), SCHEDULES[SCHEDULE_OF[way]]
        if way.startswith("paged"):
            of_pool = {name: replace_axis(schedule.tensors[name], 202 * page) for name in ("K", "V")}
            schedule = replace(schedule, tensors={**schedule.tensors, **of_pool})
        machine = Numeric(p, hbm, traffic).run(schedule, Tiling(6, 5))
        rows = np.arange(p.N)[:, None] // (1 if way == "repeat" else g)
        visible = np.arange(tokens)[None, :] <= rows + tokens - new
        assert np.allclose(machine.array("O"), attention(queries, K, V, visible), rtol=1e-12, atol=1e-12)
        for name, (reads, writes) in traffic.tensors.items():
            before = moved.get(name, (0, 0))
            moved[name] = before[0] + p.heads * reads, before[1] + p.heads * writes
    assert {n: (w["reads"], w["writes"]) for n, w in found.items()} == moved


def replace_axis(tensor, rows):
    """A tensor with another number of rows."""
    return tensor._replace(axes=(rows, *tensor.axes[1:]))


# ---------------------------------------------------------------- known answers


@pytest.mark.parametrize(
    ("requests", "read_bytes", "blocks"),
    [
        ("130:130, 900:900, 2048:2048, 77:77, 513:513", 212_451_328, 1280),
        ("512:4608, 256:300, 1000:9000", 718_012_416, 384),
        ("1:3000, 1:117, 1:9000, 1:640, 512:2048", 167_600_128, 320),
    ],
)
def test_what_an_h200_loaded(requests, read_bytes, blocks):
    """PyTorch's FlashAttention for unequal lengths, under Nsight Compute: the schedule, and 512 B a block."""
    way = ["--d", "128", "--heads", "16", "--kv-heads", "4", "--causal", "--tiles", "128x64", "--way", "repeat"]
    (found,) = run("batch", "--requests", requests, *way)["ways"]
    assert (found["grid_blocks"], found["lengths_bytes"]) == (blocks, LENGTHS_BYTES * blocks)
    assert found["read_bytes"] + found["lengths_bytes"] == read_bytes
    cells = f"| {requests} | {read_bytes:,} | {found['read_bytes']:,} | {blocks:,} x 512 |"
    assert cells in (DOCS / "batch.md").read_text()


SERVER = ["--requests", "12 * 1:3000, 1:9000, 512:4608", "--d", "128", "--heads", "32", "--kv-heads", "8", "--causal"]


def test_the_floor_names_every_form_that_was_summed():
    """12 requests of one token and one of 9000 are compulsory; 512 of 4608 are form I: each by itself as one problem."""
    found = run("batch", *SERVER, "--M", "227KiB", "--acc-dtype", "fp32", "--way", "pack")["floor"]
    alone = {
        (N, Nk): iosim.floor(
            iosim.Attention(N, 128, Nk, heads=32, kv_heads=8, mask=parse_mask("causal"), acc_dtype="fp32"), "227KiB"
        )
        for N, Nk in ((1, 3000), (1, 9000), (512, 4608))
    }
    words = [times * alone[shape].words for times, shape in ((12, (1, 3000)), (1, (1, 9000)), (1, (512, 4608)))]
    assert found["forms"] == {"compulsory": words[0] + words[1], "I": words[2]} and found["words"] == sum(words)
    assert found["bytes"] == 2 * found["words"] and found["form"] in found["forms"]


def test_a_tile_in_pages_is_at_most_a_page():
    """A page of 16 or 64 keys is on chip at one time, however many fit."""
    for page in (16, 64):
        found = run("batch", *SERVER, "--hardware", "h100", "--page-size", str(page))["ways"]
        tiles = {way["way"]: way["tiles"] for way in found}
        for name in ("paged", "paged-split"):
            assert int(tiles[name].split("x")[1]) <= page, tiles


def test_single_tokens_that_pack_read_a_quarter():
    found = iosim.batch("1:3000, 1:9000", d=128, heads=16, kv_heads=4)
    keys = [found[way].tensors["K"]["reads"] for way in ("repeat", "pack")]
    assert keys[0] == 4 * keys[1]


# ---------------------------------------------------------------- answers and faults


def test_why_a_way_moves_more_is_read_off_its_counts():
    found = iosim.batch("2 * 1:64", d=8, heads=2, kv_heads=1, tiles="8x8", splits=2)
    ways = {name: SimpleNamespace(name=name) for name in ("repeat", "pack", "split", "paged")}
    assert found.why(ways["pack"], ways["repeat"]) == "keys and values are read 2 times, not once"
    assert found.why(ways["pack"], ways["split"]) == "Opart and LSEpart go through HBM"
    assert found.why(ways["repeat"], ways["pack"]) == "" and len(found.lines) <= 3


@pytest.mark.parametrize("requests, place, allowed", [
    ([], "--requests", "at least one"), ([(5, 3)], "--requests, request 1", "no fewer"),
    ([{"new": 1}], "--requests, request 1", "cached"), (["1:2", 3], "--requests, request 2", "512:4608"),
])  # fmt: skip
def test_faults_in_requests(requests, place, allowed):
    with pytest.raises(InputError) as caught:
        iosim.batch(requests, d=8)
    assert caught.value.where == place and allowed in str(caught.value)


def test_keywords_that_requests_or_ways_say():
    for more in ({"Nk": 5}, {"gqa": "pack"}, {"nonsense": 5}):
        with pytest.raises(InputError, match="keyword"):
            iosim.batch("1:10, 4:9", d=8, **more)


def test_ways_have_names_of_their_own():
    assert len(BY_NAME) == len({way.text for way in BY_NAME.values()}) and LEVEL.name != MERGE.name


def test_a_function_of_python_hides_what_it_says(tmp_path):
    """`causal` of a file that adds the cached tokens of one request moves what the atom moves."""
    (tmp_path / "m.py").write_text(
        "def f(b, h, q, k):\n    return q + 5 >= k\ndef none(b, h, q, k):\n    return q < 0\n"
    )
    for requests in ("4:9", "4:9, 2:7"):
        found = iosim.batch(requests, **{**SMALL, "heads": 2, "mask": f"py:{tmp_path / 'm.py'}:f"})
        wanted = iosim.batch(requests, **{**SMALL, "heads": 2})
        assert found["paged"].tensors == wanted["paged"].tensors and found["split"].blocks == wanted["split"].blocks
        assert found.floor.words == wanted.floor.words
    asked = {"d": 8, "heads": 2, "M": "1KB"}  # best tiles, for all requests together
    found, wanted = (iosim.batch("4:9, 2:7", mask=mask, **asked) for mask in (f"py:{tmp_path / 'm.py'}:f", "causal"))
    assert [(way.way, way.tiles, way.total) for way in found if way.way in ("repeat", "split", "paged")] == [
        (way.way, way.tiles, way.total) for way in wanted if way.way in ("repeat", "split", "paged")
    ]
    nothing = iosim.batch("4:9", **{**SMALL, "heads": 2, "mask": f"py:{tmp_path / 'm.py'}:none"})
    assert nothing["repeat"].tensors["K"]["reads"] == 0 == nothing["repeat"].kv_times_read == nothing.distinct["K"]


@pytest.mark.parametrize("mask", ["dense", "causal", "causal&window:1000000"])
def test_counts_beyond_64_bits_are_exact(mask):
    """Each request by itself is counted with Python's integers; together they are arrays."""
    shapes = [(2**40, 2**40), (2**20, 2**44), (1, 2**47)]
    fields = {"heads": 128, "mask": mask, "tiles": "128x64", "splits": 8, "page_size": 64}
    found = iosim.batch(shapes, 128, ways="repeat,split,paged", **fields)
    for way, name in (("repeat", "flash2"), ("split", "split-kv"), ("paged", "paged")):
        total = sum(iosim.count(N=n, Nk=k, d=128, schedules=name, **fields)[name].total for n, k in shapes)
        assert found[way].total == total > 2**53


def test_the_room_of_unequal_requests_is_that_of_the_one_and_the_launch_that_need_most():
    """Short requests have smaller tiles, and the launch that adds up the shares of keys needs less than the others."""
    asked = {"d": 16, "heads": 4, "kv_heads": 2, "mask": "causal", "tiles": "32x32", "M": "64KB"}
    parts = ["1:9", "20:40", "3:200"]
    together, apart = iosim.batch(", ".join(parts), **asked), [iosim.batch(part, **asked) for part in parts]
    for way in ("repeat", "pack", "paged"):
        assert together[way].smem_peak_bytes == max(found[way].smem_peak_bytes for found in apart), way
    tiles_of_q_and_k = (20 + 32) * 16 * 2
    assert together["split"].smem_peak_bytes > tiles_of_q_and_k
    asked = {"d": 128, "heads": 32, "kv_heads": 8, "mask": "causal", "hardware": "h100", "ways": "FlashInfer"}
    found = iosim.batch("512:4096, 1:8192, 1:9000", **asked)
    launches = [counted(found.batch, one) for one in BY_NAME["FlashInfer"].launches(found.batch)]
    for name in ("smem_peak_bytes", "sram_peak_bytes"):
        prompts, tokens = sorted((int(np.max(one.of[name])) for one in launches), reverse=True)
        assert getattr(found["FlashInfer"], name) == prompts > tokens


def test_a_function_is_asked_about_each_pair_a_few_times(tmp_path):
    """Best tiles of two requests are counted in turn, from sums over the mask of each."""
    (tmp_path / "m.py").write_text(
        "asked = [0]\ndef f(b, h, q, k):\n    asked[0] += q.size * k.size\n    return q + 20 >= k\n"
    )
    asked = {"d": 8, "M": "1KB", "ways": "repeat,split,paged,paged-split", "mask": f"py:{tmp_path / 'm.py'}:f"}
    found = iosim.batch("40:60, 20:44", **asked)
    pairs = 40 * 60 + 20 * 44
    assert found.batch.problem.mask.expr.function.function.__globals__["asked"][0] < 10 * pairs
