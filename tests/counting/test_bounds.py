"""Bounds: a floor holds under every mask. Other bounds are proven for dense attention only. An order is no longer valid
where the inputs are more words than it."""

import csv
import io
import random
import re
import time
from functools import partial

import pytest

import iosim
from iosim import SCHEDULES, Attention, bounds, count, floor
from iosim import tune as iosim_tune
from iosim.counting.bounds import COUNTED, REACHED_BY, SEARCHED, order_of
from iosim.errors import InputError
from iosim.verdict import about

MASKED = ["block-sparse-q", "flash1-bwd"]


@pytest.mark.parametrize("schedule", MASKED)
def test_under_a_mask_floors_alone_are_proven(schedule):
    dense = count(4096, 64, "64KB", schedules=[schedule]).bounds
    masked = count(4096, 64, "64KB", schedules=[schedule], mask="window:0").bounds
    assert [b.name for b in dense] == [b.name for b in masked] and len(dense) >= 4
    for before, after in zip(dense, masked, strict=True):
        assert before.valid
        if after.kind in (COUNTED, "floor"):
            assert after.valid and after.condition == before.condition
            assert after.words < before.words or after.kind == COUNTED
        else:
            assert after.valid is False and after.condition == f"dense attention; {before.condition}"


@pytest.mark.parametrize("family, schedule", [("", "flash2"), ("backward: ", "flash2-bwd")])
def test_the_floor_is_in_every_answer(family, schedule, ask, iosim):
    args = ("--N", 8192, "--d", 128, "--M", "100KB")
    entry = next(b for b in ask("count", *args, "--schedule", schedule)["bounds"] if b["name"] == f"{family}floor")
    assert list(entry) == [
        "name",
        "words",
        "kind",
        "source",
        "condition",
        "valid",
        "reads",
        "form",
        "segments",
        "lambda",
        "class",
        "reached_by",
    ]
    assert entry["kind"] == "floor" and entry["source"] == "docs/floors.md" and entry["valid"] is True
    if not family:
        expected = floor(Attention(8192, 128), "100KB")
        assert entry in ask("bounds", *args)["bounds"] and entry["words"] == expected.words == 84792361
        assert (entry["reads"], entry["form"], entry["segments"]) == (expected.reads, "II", 1483) and entry[
            "lambda"
        ] == 128
        rows = list(csv.DictReader(io.StringIO(iosim("bounds", *args, "--csv").stdout)))
        assert rows[1]["lambda"] == "128.0" and rows[0]["lambda"] == "" and rows[1]["words"] == "84792361"


def test_ratios_to_the_floor(ask, iosim):
    results = ask("count", "--N", 8192, "--d", 128, "--M", "100KB")["results"]
    ratios = {(r["schedule"], r["tiling"]): r["ratio_to_floor"] for r in results}
    assert ratios["flash2", "best"] == 90177536 / 84792361
    assert ratios["flash1", "paper"] is None, "what does not fit may be below"
    row = next(csv.DictReader(io.StringIO(iosim("count", "--N", 64, "--d", 8, "--tiles", "64x1", "--schedule", "flash2",
                                                "--csv").stdout)))  # fmt: skip
    assert list(row)[-3:] == ["ratio_to_floor", "ratio_to_order", "smem_read_words"]
    assert row["ratio_to_floor"] == "1.0", "without M: to compulsory words"


def test_what_has_no_floor():
    tiles = count(64, 8, "4KB", schedules=["block-sparse"], tiles="8x8", mask="causal:b")
    entry = next(b for b in tiles.bounds if b.of_class)
    assert entry.words is None and entry.valid is None and "tiles" in entry.condition
    assert tiles.results[0].ratio_to_floor is None
    other = count(64, 8, "4KB", schedules=["softmax-2pass", "matmul-tiled"])
    assert not any(b.of_class for b in other.bounds)
    assert [r.ratio_to_floor for r in other.results] == [None] * 2


@pytest.mark.parametrize("M, valid", [(64 * 512, True), (64 * 512 + 1, False)])
def test_no_order_beyond_Nd(M, valid):
    found = {b.name: b for b in count(512, 64, f"{M}el", schedules=["flash2"]).bounds}
    for name in ("N^2 d^2 / M", "Saha and Ye 2024"):
        assert (found[name].valid is valid and "M <= Nd" in found[name].condition) or valid
    assert found["compulsory"].valid


def attainable(answer):
    return next(b for b in answer["bounds"] if b["name"] == "attainable")


def test_attainable_is_of_what_was_counted():
    one = {b.name: b for b in count(512, 64, "64KB", schedules=["flash1"]).bounds}["attainable"]
    assert "counted here" in one.source and one.kind == COUNTED


@pytest.mark.parametrize("args", [
    ["--N", 8192, "--d", 128, "--M", "16KB"],  # standard-tiled is the least of what `count` counts: 549453824
    ["--N", 300, "--d", 32, "--M", "9KB", "--mask", "window:40|global:3"],
    ["--N", 4, "--Nk", 700, "--d", 16, "--M", "4KB", "--heads", 8, "--kv-heads", 2, "--mask", "causal"],
], ids=str)  # fmt: skip
def test_bounds_has_the_least_of_all_schedules(ask, args):
    """`bounds` says what `tune` finds, and never more than `count`, which says that it did not search."""
    (best, counted), found = (attainable(ask(name, *args)) for name in ("bounds", "count")), ask("tune", *args)
    assert best["words"] == min(r["total"] for r in found["results"] if r["fits"]) <= counted["words"]
    assert attainable(found) == best and best["kind"] == SEARCHED and counted["kind"] == COUNTED
    assert f" {len(found['space']['schedules'])} schedules" in best["source"]


def problem_of(rng):
    """Fields of a random problem: heads that share keys, few queries, a mask that may hide nothing."""
    N, kv_heads, d = rng.choice([1, 1, 2, rng.randint(3, 40)]), rng.choice([1, 2, 3]), rng.choice([4, 8, 16])
    Nk = rng.choice([N, rng.randint(N, 200)])
    masks = [
        "dense",
        "causal",
        f"window:{rng.randint(0, 2 * Nk)}",
        f"causal&window:{rng.randint(0, 2 * Nk)}",
        f"chunk:{Nk}",
    ]
    found = {"N": N, "Nk": Nk, "d": d, "heads": kv_heads * rng.choice([1, 2, 8]), "kv_heads": kv_heads}
    found |= {
        "mask": rng.choice(masks),
        **rng.choice([{}, {"dv": 6}, {"acc_dtype": "fp32"}, {"kv_dtype": "fp8"}, {"lse": True}]),
    }
    place = rng.choice([{"hardware": "h100"}, {"hardware": "t4"}, *[{"M": f"{rng.randint(4 * d, 40 * d)}el"}] * 3])
    return found | place | rng.choice([{}, {"visit_all": True}, {"short_tile": "first"}])


@pytest.mark.parametrize("problems", [12, pytest.param(150, marks=pytest.mark.long)])
def test_no_row_moves_less_than_the_best_known(problems):
    """The best known of `bounds` is at most each row in M alone that `count` or `tune` prints, packed or not, and the floor
    is at most that. A row of a library, with registers beside M, is no less than the floor of both."""
    rng = random.Random(7)
    for _ in range(problems):
        fields = problem_of(rng)
        found = iosim.bounds(**{name: value for name, value in fields.items() if name != "short_tile"})
        best, ways = found["attainable"], [{}] if fields["heads"] == fields["kv_heads"] else [{}, {"gqa": "pack"}]
        assert best.words is None or found["floor"].words <= best.words, fields
        for answer in [partial(ask, **fields, **way) for way in ways for ask in (iosim.count, iosim.tune)]:
            try:
                rows = (given := answer()).results + [row for _, row in given.published]
            except InputError as error:
                assert error.where == "--gqa", fields
                continue
            alone = [row.total for row in rows if row.fits and row.total is not None and not row.register_peak_bytes]
            assert not alone or best.words <= min(alone), (fields, best.by)
            assert all((row.ratio_to_floor or 1) >= 1 for row in rows if row.fits), fields


def test_the_best_known_of_one_query_packs_the_heads_of_a_kv_head():
    """The line of an issue: 67,117,056 words, 4 times what the rows of libraries moved. A window of all keys hides none."""
    fields = {"Nk": 8192, "d": 128, "heads": 32, "kv_heads": 8}
    for more in ({}, {"mask": "causal"}, {"mask": "causal&window:8192"}):
        for place in ({"hardware": "h100"}, {"M": "100KB"}):
            best = iosim.bounds(1, **fields, **more, **place)["attainable"]
            assert (best.words, best.kind) == (2 * 8192 * 128 * 8 + 2 * 32 * 128, SEARCHED) and best.by.endswith(
                " --gqa pack"
            )
    kinds = [iosim.tune(1, **fields, M="100KB", gqa=gqa).bounds[-1].kind for gqa in ("repeat", "pack")]
    assert kinds == [COUNTED, SEARCHED]
    state = {"rule": "gdn", "heads": 32, "key_heads": 16}
    assert iosim.bounds(8192, 128, "24KB", **state)["state: attainable"].by.endswith(" --gqa pack")


@pytest.mark.parametrize(
    "line",
    [{"N": 8192, "d": 128, "heads": 32, "hardware": "h100", "mask": "causal"}, {"N": 4096, "d": 64, "hardware": "t4"}],
)
def test_the_tiles_that_a_sentence_calls_least_are_counted(line):
    """On a GPU the rows are those of least time. The tiles that move least are in a sentence, and in the bound."""
    for ask in (iosim.count, iosim.tune):
        found = ask(**line)
        name, tiles, bytes_ = re.search(r"Of (\S+)'s tiles (\S+) moves least, (\S+ .iB)", str(found)).groups()
        best = {bound.name: bound for bound in found.bounds}["attainable"]
        assert (best.by, about(2 * best.words)) == (f"{name} {tiles}", bytes_)


@pytest.mark.parametrize("command", ["count", "tune"])
def test_tiles_that_cannot_be_searched_are_left_out_of_the_sentences(command, iosim):
    """With the short tile first, documents are counted for one tiling at a time: rows stand there, and what moves least is
    not known. Without a GPU the best tiles are a search, which is refused before anything is printed."""
    line = (command, "--N", 1024, "--d", 64, "--mask", "documents:24,1000", "--schedule", "flash2")
    done = iosim(*line, "--short-tile", "first", "--hardware", "h100")
    assert done.exit_code == 0 and "moves least" not in done.stdout and "flash2  " in done.stdout
    assert "moves least" in iosim(*line, "--hardware", "h100").stdout
    refused = iosim(*line, "--short-tile", "first", "--M", "100KB")
    assert refused.exit_code == 2 and refused.stdout == "" and "--short-tile: found 'first" in refused.stderr


@pytest.mark.parametrize("more", [["--schedule", "flash2"], ["--tile-multiple", 16], ["--least-blocks", 2]], ids=str)
def test_a_search_of_some_is_not_called_the_best_known(ask, more):
    assert attainable(ask("tune", "--N", 256, "--d", 16, "--M", "8KB", *more))["kind"] == COUNTED


@pytest.mark.parametrize("more, subject", [
    (["--M", "4KB"], "No algorithm for exact attention by standard products moves"),
    (["--M", "4KB", "--backward"], "No algorithm for exact gradients by standard products moves"),
    ([], "No exact algorithm moves"), (["--M", "10MB"], "No exact algorithm moves"),
], ids=str)  # fmt: skip
def test_the_sentence_names_the_class(ask, more, subject):
    assert ask("bounds", "--N", 256, "--d", 16, *more)["answer"].startswith(subject)


def test_without_M_nothing_is_called_counted(ask):
    one = attainable(ask("bounds", "--N", 256, "--d", 16))
    assert (one["words"], one["kind"], one["condition"]) == (None, SEARCHED, "all schedules and tiles, with --M")


def test_bounds_under_a_mask_of_tiles_has_the_least_of_what_was_counted(ask):
    one = attainable(ask("bounds", "--N", 256, "--d", 16, "--M", "8KB", "--mask", "window:2b"))
    assert one["kind"] == COUNTED and one["words"] > 0


def test_bounds_takes_well_under_a_second(iosim):
    """Without a mask, at a large N: 0.02 s of processor time where nothing else runs."""
    iosim("bounds", "--N", 1000, "--d", 128, "--M", "100KB")
    before = time.process_time()
    assert iosim("bounds", "--N", 2**20, "--d", 128, "--M", "100KB").exit_code == 0
    assert time.process_time() - before < 0.3


def test_bounds_of_the_longest_axis_end(iosim):
    """Only few tiles fit, however many there are."""
    assert iosim("bounds", "--N", 2**48, "--d", 2, "--M", 64).exit_code == 0


def test_detail_in_csv(iosim):
    args = ("count", "--N", 64, "--d", 8, "--M", "4KB", "--schedule", "flash1", "--detail", "--csv")
    rows = list(csv.DictReader(io.StringIO(iosim(*args).stdout)))
    for tiling in ("paper", "best"):
        here = [row for row in rows if row["tiling"] == tiling]
        total = count(64, 8, "4KB", schedules=["flash1"])["flash1", tiling].reads
        assert {row["part"] for row in here} == {*(f"tensor {x}" for x in "QKVOlm"), "launch 1"}
        for kind in ("tensor", "launch"):
            assert sum(int(row["reads"]) for row in here if row["part"].startswith(kind)) == total
        assert all(row["N"] == "64" and row["Br"] for row in here)


@pytest.mark.parametrize("options, words", [
    (("--kv-dtype", "fp8"), 16384), (("--dtype", "fp32", "--acc-dtype", "fp16"), 8192), (("--kv-dtype", "fp32"), None),
    (("--registers", "1K"), None), ((), None),
])  # fmt: skip
def test_it_is_said_if_floors_and_orders_count_other_words(options, words, iosim):
    """16 KiB hold as many words as they would of the narrowest type. Registers are in both counts."""
    said = iosim("bounds", "--N", 512, "--d", 64, "--M", "16KB", *options).stderr
    assert said.count("\n") == said.count("the floors count M as") == bool(words)
    assert words is None or f"M as {words:,} words" in said


@pytest.mark.parametrize("M, words, form, K", [
    (4096, 458_074_640, "II''", 66_877), (16_384, 171_051_673, "I''", 8772), (65_536, 44_793_848, "backward", 341),
])  # fmt: skip
def test_bounds_of_the_backward_pass(M, words, form, K, ask, iosim):
    """The numbers of docs/floors-backward.md, and the least of all schedules that compute gradients."""
    args = ("--N", 8192, "--d", 64, "--M", f"{M}el", "--backward")
    found = {b["name"]: b for b in ask("bounds", *args)["bounds"]}
    floor_row, best = found["backward: floor"], found["backward: attainable"]
    assert (floor_row["words"], floor_row["form"], floor_row["segments"]) == (words, form, K)
    named = [name for name, s in SCHEDULES.items() if s.family == "backward"]
    assert best["words"] == iosim_tune(8192, 64, f"{M}el", schedules=named).winner.total and "search" in best["kind"]
    text = iosim("bounds", *args).stdout
    assert f"fewer than {words:,} words; " in text.splitlines()[0]
    assert (
        f"the floor divides a run into {K:,} segments (form {form} of docs/floors.md" in text
        and f": {floor_row['reached_by']}" in text
    )
    assert floor(Attention(8192, 64), f"{M}el", backward=True)[:3] == (words, floor_row["reads"], form)


def test_what_would_reach_each_form():
    """Every form that a floor may have has a text, and only schedules that exist are named."""
    named = {word for text in REACHED_BY.values() for word in re.findall(r"[a-z]+\d?-[a-z-]+|flash2", text)}
    assert {"compulsory", "simple", "latent", "latent II", "I", "II", "backward", "I'", "II'", "I''", "II''"} == set(
        REACHED_BY
    )
    assert {word for word in named if word.startswith(("flash", "small"))} <= set(SCHEDULES)
    assert "\ncompulsory: " in str(bounds(64, 16, "1MB"))


def test_the_answer_comes_first(ask, iosim):
    line = ("bounds", "--N", 8192, "--d", 128, "--M", "100KB")
    assert iosim(*line).stdout.startswith(ask(*line)["answer"] + "\n")


def test_bounds_of_more_queries_than_a_search_can_look_at(mask="causal"):
    """small-cache has other keys for each query tile. Beyond 2^25 of them, the least is that of what count shows."""
    found = {bound.name: bound for bound in bounds(2**48, 2, 64, mask=mask).bounds}
    assert found["attainable"].kind == COUNTED and 0 < found["floor"].words < found["attainable"].words
    with pytest.raises(InputError, match="at most 33554432 query tiles.*another --schedule"):
        iosim_tune(2**48, 2, 64, mask=mask)


def test_more_stripes_than_can_be_counted_are_refused():
    with pytest.raises(InputError, match="stripes'; allowed: at most .*try a smaller N, larger tiles"):
        bounds(2**48, 2, 64, mask="strided:7|strided:11|strided:13|strided:17")


@pytest.mark.parametrize(
    "M, holds", [(32, False), (64, False), (4095, False), (4096, True), (2**18, True), (2**19, False)]
)
def test_the_order_of_theorem_2_is_a_bound_from_d_squared_on(M, holds):
    import iosim

    found = iosim.bounds(N=4096, d=64, M=f"{M}el")
    order = next(bound for bound in found if bound.name == "N^2 d^2 / M")
    assert order.valid is holds and order.condition == "d^2 <= M <= Nd"
    assert (order_of(Attention(4096, 64), 2 * M, "attention") is not None) is holds, (
        "pictures draw the line where it holds"
    )


@pytest.mark.parametrize("mask, leaves_out", [("dense", False), ("causal", True), ("window:0", True)])
def test_what_reaches_the_compulsory_words_leaves_out_rows_of_one_key(mask, leaves_out):
    said = str(iosim.bounds(64, 16, "100KB", mask=mask))
    assert ("reads each input once and writes each output once, but for rows that see one key" in said) is leaves_out
    assert "(1 fp16 word)" in str(iosim.bounds(64, 16, "1el", mask=mask))


def test_no_reason_for_more_is_given_for_less():
    """standard does not fit, and moves less than what fits: P through HBM is no reason for that."""
    found = iosim.tune(100, 64, "5KB")
    assert "standard, which needs 2.53 times this memory, moves 0.921 times as much." in str(found)


def test_a_step_that_fits_says_so_where_another_would_move_less():
    import iosim
    from iosim.counting.step import as_many, less_or_more

    found = iosim.count(N=1024, d=64, M="192KB", tiles="paper", passes="step", combinations="standard,flash1")
    assert "of what fits; flash1" in str(found) and "does not fit" in str(found)
    assert (as_many(999, 1000), as_many(5, 5), less_or_more(1), less_or_more(0.9999)) == (
        "0.999 times as many", "as many", "as many", "1.0001x fewer",
    )  # fmt: skip
