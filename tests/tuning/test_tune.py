"""`iosim tune`: winners, published tiles, the curve, and the input that it refuses."""

import csv
import io
import json
import re
import time
from math import inf

import pytest
from click.testing import CliRunner
from paths import ROOT

from iosim import SCHEDULES, count
from iosim.commands.cli import main
from iosim.counting.columns import COLUMNS
from iosim.tuning.best import dominated

pytestmark = pytest.mark.early

BASE = ["tune", "--N", 8192, "--d", 128]
SMALL = [x for n in ("small-cache", "small-cache-q", "standard-square", "flash1", "flash2", "standard-tiled",
                     "memory-efficient") for x in ("--schedule", n)]  # fmt: skip


@pytest.fixture(scope="module")
def whole_curve():
    """`iosim tune --curve` of BASE in JSON, which several tests look at."""
    result = CliRunner().invoke(main, [*map(str, BASE), "--curve", "--json"], prog_name="iosim")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.parametrize("M, acc, multiple, tiles, total", [
    ("64KB", "fp16", 1, (125, 1), 140_509_184),  # N d (2 + 2 * 66)
    ("100KB", "fp16", 1, (196, 1), 90_177_536),
    ("100KB", "fp32", 1, (128, 3), 136_314_880),  # accumulators of four bytes leave 64 query tiles
    ("128KB", "fp16", 16, (224, 16), 79_691_776),
    ("228KB", "fp32", 16, (256, 16), 69_206_016),
])  # fmt: skip
def test_the_winner(ask, M, acc, multiple, tiles, total):
    """The figures are from an independent exhaustive search at N = 8192, d = 128, with K and V on chip together."""
    orders = ["--schedule", "flash1", "--schedule", "flash2"]
    got = ask(*BASE, *orders, "--M", M, "--acc-dtype", acc, "--tile-multiple", multiple)
    best = got["winner"]
    assert (best["schedule"], (best["Br"], best["Bc"]), best["total"]) == ("flash2", tiles, total)
    assert best == got["results"][0] and best["ratio_to_winner"] == 1.0 and best["fits"] is True


def test_attainable_is_the_least_in_words(ask):
    """In 100 KiB with 4-byte accumulators, flash1 moves fewer words. But its l and m are wider, so flash2 moves fewer
    bytes."""
    got = ask(*BASE, "--M", "100KB", "--acc-dtype", "fp32", "--schedule", "flash1", "--schedule", "flash2")
    attainable = {b["name"]: b["words"] for b in got["bounds"]}["attainable"]
    flash2, flash1 = got["results"]
    assert attainable == flash1["total"] < flash2["total"] and flash2["total_bytes"] < flash1["total_bytes"]


def test_below_d_squared_words_standard_attention_wins(ask):
    """In 16 KiB with d = 128, the three kernels of Algorithm 0 move 4 N^2 + N d (2 + 2 * 133) words. flash2 moves
    more."""
    got = ask(*BASE, "--M", "16KB", "--schedule", "standard-tiled", "--schedule", "flash2")
    named = {r["schedule"]: r for r in got["results"]}
    assert got["winner"]["schedule"] == "standard-tiled" and got["winner"]["total"] == 549_453_824
    assert named["flash2"]["total"] == 576_716_800 and named["flash2"]["Br"] == 30


def test_rows_are_in_order_and_what_does_not_fit_is_last(ask):
    got = ask(*BASE, "--M", "100KB")
    rows = got["results"]
    fitting = [r["total_bytes"] for r in rows if r["fits"]]
    assert fitting == sorted(fitting) and [r["fits"] for r in rows] == sorted((r["fits"] for r in rows), reverse=True)
    assert rows[-1]["schedule"] == "standard" and rows[-1]["fits"] is False
    for r in rows:
        assert r["ratio_to_winner"] == r["total_bytes"] / got["winner"]["total_bytes"]
        assert r["ratio_to_order"] == pytest.approx(r["total"] / (8192**2 * 128**2 / 51200))
    names = [r["schedule"] for r in rows]
    assert sorted(names) == sorted(got["space"]["schedules"]) and len(set(names)) == len(names)


def test_the_keys_are_those_of_a_count(ask):
    got = ask(*BASE, "--M", "100KB")
    counted = ask("count", "--N", 8192, "--d", 128, "--M", "100KB", "--schedule", "flash2")["results"][0]
    more = {"ratio_to_winner": 1.0, "dominated_by": None, "options": {}, "blocks": 42}  # ceil(8192 / 196)
    assert got["schema"] == 1 and got["winner"] == {**counted, **more}


def test_published_choices(ask):
    """In 100 KiB the paper's tiles, 100x100, need 61400 words, which is 1.2 M. The 128x128 of FlashAttention-2 move
    N d (2 + 2 * 64) words."""
    found = {(r["schedule"], r["Br"], r["Bc"]): r for r in ask(*BASE, "--M", "100KB")["published"]}
    paper = found["flash1", 100, 100]
    assert paper["fits"] is False and paper["sram_peak_words"] == 61_400 and "Algorithm 1" in paper["source"]
    assert paper["ratio_to_winner"] == pytest.approx(262_733_824 / 90_177_536)
    second = found["flash2", 128, 128]
    assert second["fits"] is False and second["total"] == 8192 * 128 * 130 and "2307.08691" in second["source"]
    assert found["flash2", 64, 64]["fits"] is True
    assert [key[1:] for key in found if key[0] == "memory-efficient"] == [(64, 128)]


def test_without_published_tiles_there_is_no_table_of_them(iosim):
    text = iosim("tune", "--N", 256, "--d", 32, "--M", "16KB", "--schedule", "flash2-bwd").stdout
    assert "published" not in text and "(no rows)" not in text and "\n\nbound " in text
    assert "\n\npublished:\n" in iosim("tune", "--N", 256, "--d", 32, "--M", "16KB", "--schedule", "flash2").stdout


def test_with_a_mask_flash2_skips_and_its_published_tiles_do_so(ask):
    """flash2 with 128x64 tiles reads K and V, 2 d words a key, in 2, 4, 6 and 8 of 8 tiles of 64 keys."""
    line = ("tune", "--N", 512, "--d", 64, "--M", "64KB", "--mask", "causal")
    got, every = ask(*line), ask(*line, "--visit-all")
    skips, visits = ({r["schedule"]: r["total"] for r in found["results"]} for found in (got, every))
    assert got["winner"]["schedule"] == "flash2" and "block-sparse-q" not in skips and "block-sparse" not in skips
    assert every["winner"]["schedule"] == "block-sparse-q" and visits["block-sparse-q"] < visits["flash2"]
    assert skips["flash2"] == visits["block-sparse-q"] and skips["flash1"] == visits["block-sparse"]
    published = [{(r["schedule"], r["Br"], r["Bc"]): r["total"] for r in found["published"]} for found in (got, every)]
    skipping = 2 * 512 * 64 + 20 * 64 * 2 * 64
    assert published[0]["flash2", 128, 64] == published[1]["block-sparse-q", 128, 64] == skipping
    assert published[1]["flash2", 128, 64] == skipping, "what the library does"
    assert len({*published[0]}) == len(got["published"])
    asked = ask(*line, "--schedule", "flash2,block-sparse-q")
    assert len(asked["results"]) == 2 and {r["schedule"] for r in asked["published"]} == {"flash2"}


def test_without_a_mask_no_schedule_stands_twice(ask):
    names = ask(*BASE, "--M", "100KB")["space"]["schedules"]
    assert "flash1" in names and "block-sparse" not in names and "block-sparse-q" not in names


@pytest.mark.parametrize("mask", ["window:1024|global:64", pytest.param("strided:1000&causal", marks=pytest.mark.long)])
def test_joined_masks_take_no_time_that_grows_with_pairs(ask, mask):
    """2^17 queries have 2^34 pairs. The least is that of a count with its tiles: nothing is approximated."""
    before = time.process_time()
    args = ["--N", 2**17, "--d", 128, "--M", "227KB", "--mask", mask]
    best = ask("tune", *args)["winner"]
    assert time.process_time() - before < 15  # 1 to 2 s where nothing else runs
    (again,) = ask("count", *args, "--schedule", best["schedule"], "--tiles", f"{best['Br']}x{best['Bc']}")["results"]
    assert again["total"] == best["total"] and again["fits"]


def test_nothing_fits(ask):
    got = ask("tune", "--N", 64, "--d", 16, "--M", "10el", "--schedule", "flash1", "--schedule", "flash2")
    assert got["winner"] is None and all(r["fits"] is False for r in got["results"])
    assert {b["name"]: b["words"] for b in got["bounds"]}["attainable"] is None


def test_restricted(ask):
    got = ask(*BASE, "--M", "100KB", "--schedule", "flash1")
    assert [r["schedule"] for r in got["results"]] == ["flash1"] and got["winner"]["total"] == 135_593_984
    assert all(r["schedule"] == "flash1" for r in got["published"])


def shown_schedules(text):
    """The schedules of the first table of an answer, and the line on those that it leaves out."""
    table = text[text.index("\nschedule") : text.index("\npublished:")].strip().splitlines()
    table = [line for line in table if not line.startswith("tiles: Br x Bc; ")]
    left_out = [line for line in table[2:] if line.startswith("left out: ")]
    return [line.split()[0] for line in table[2:] if line not in left_out], left_out


@pytest.mark.parametrize("line", [
    (*BASE, "--M", "100KB"), (*BASE, "--M", "10KB"), (*BASE, "--M", "20KB", "--causal"),
    ("tune", "--N", 1, "--Nk", 8192, "--d", 128, "--M", "100KB"),
], ids=str)  # fmt: skip
def test_rows_that_move_no_less_than_the_one_they_add_to_are_left_out(line, ask, iosim):
    results = ask(*line)["results"]
    moved = {r["schedule"]: r["total_bytes"] if r["fits"] else None for r in results}
    for r in results:
        other, name = r["dominated_by"], r["schedule"]
        beaten = SCHEDULES[name].dominated_by
        assert other == (beaten if moved.get(beaten) and moved[name] and moved[beaten] <= moved[name] else None), name
    hidden = [r["schedule"] for r in results if r["dominated_by"]]
    shown, (left_out,) = shown_schedules(iosim(*line).stdout)
    assert shown == [r["schedule"] for r in results if not r["dominated_by"]]
    assert left_out.startswith(f"left out: {', '.join(hidden)} ({len(hidden)} that") and "--all" in left_out
    assert shown_schedules(iosim(*line, "--all").stdout) == ([r["schedule"] for r in results], [])
    assert not any(f"{name} (" in ask(*line)["answer"] for name in hidden), "nobody hears of what is not shown"


def test_a_schedule_is_dominated_by_an_equal_one_and_never_by_one_that_does_not_fit():
    chosen = {"flash2": (), "small-cache": (), "paged": ("page_size",), "split-kv": ()}
    assert dominated({"flash2": 5, "small-cache": 5, "paged": inf, "split-kv": 9}, chosen) == {
        "small-cache": "flash2", "paged": "flash2",
    }  # fmt: skip
    assert dominated({"flash2": inf, "small-cache": inf}, chosen) == dominated({"small-cache": 5}, chosen) == {}


def test_at_100_kib_the_table_is_short(ask):
    hidden = {r["schedule"] for r in ask(*BASE, "--M", "100KB", "--causal")["results"] if r["dominated_by"]}
    small = {"flash2-pinned", "small-cache", "small-cache-q", "standard-square"}
    assert hidden == {"split-kv", "paged", "paged-split-kv", "local-gather", *small}


@pytest.mark.parametrize("asked", [("--schedule", "flash2,split-kv,paged"), ("--splits", 1, "--page-size", 256)])
def test_what_is_asked_for_is_shown(asked, iosim, ask):
    line = (*BASE, "--M", "100KB", *asked)
    assert {"split-kv", "paged"} <= {*shown_schedules(iosim(*line).stdout)[0]}
    assert not any(r["dominated_by"] for r in ask(*line)["results"] if r["schedule"] in ("split-kv", "paged"))


def test_csv_and_text(iosim):
    rows = list(csv.DictReader(io.StringIO(iosim(*BASE, "--M", "100KB", "--csv").stdout)))
    assert list(rows[0]) == [
        "role",
        "label",
        *COLUMNS,
        "ratio_to_winner",
        "blocks",
        "dominated_by",
        "options",
        "more_tiles",
    ]
    assert {r["role"] for r in rows} == {"best", "published"} and rows[0]["total"] == "90177536"
    text = iosim(*BASE, "--M", "100KB").stdout
    assert text.startswith("flash2 196x1 moves 172 MiB; ") and " 90,177,536 " in text and "nothing fits" not in text


def test_the_curve_as_csv_and_json(iosim, whole_curve):
    rows = list(csv.DictReader(io.StringIO(iosim(*BASE, "--curve", "--csv").stdout)))
    got = whole_curve
    assert [(int(r["M_bytes"]), int(r["total"])) for r in rows] == [(r["M_bytes"], r["total"]) for r in got["curve"]]
    assert len(rows) > 180 and rows[-1]["total"] == rows[-1]["compulsory_words"] == str(4 * 8192 * 128)
    for r in got["curve"]:
        assert r["order_words"] == pytest.approx(8192**2 * 128**2 / r["M_words"])
        below = r["M_words"] < 128**2
        assert r["saha_ye_words"] == pytest.approx(8192**2 * 128 / r["M_words"] ** 0.5 if below else r["order_words"])
        assert r["total"] >= r["compulsory_words"]


def test_published_points_on_the_curve(whole_curve):
    """At d = 128 tiles of 128x128 need 5 * 128^2 + 2 * 128 words. In as many words 245 query rows would fit."""
    found = {(r["schedule"], r["Br"], r["Bc"]): r for r in whole_curve["published"]}
    point = found["flash2", 128, 128]
    assert point["M_bytes"] == 2 * (5 * 128**2 + 2 * 128) and point["total"] == 8192 * 128 * 130
    best = count(8192, 128, point["M_bytes"], schedules=["flash2"])["flash2"].total
    assert point["least_bytes"] == 2 * best and point["ratio_to_least"] == point["total"] / best
    paper = found["flash1", 96, 96]
    assert paper["rule_M_bytes"] == 98_304 and paper["M_bytes"] > 98_304 and paper["ratio_to_least"] > 3


def test_the_curve_says_what_it_leaves_out(whole_curve):
    space = whole_curve["space"]
    every = {s.name for s in SCHEDULES.values() if s.family == "attention"}
    assert set(space["schedules"]) | set(space["left_out"]) <= every
    assert not set(space["schedules"]) & set(space["left_out"]) and "flash2" in space["schedules"]


@pytest.mark.parametrize("M, multiple, tiles, total", [
    ("64KB", 1, (125, 1), 140_509_184),  # one key row more or less buys no query row
    ("64KB", 16, (112, 16), 157_286_400),  # N d (2 + 2 * 74); with K and V together 96x16 and 182 452 224
])  # fmt: skip
def test_k_and_v_one_after_the_other_leave_more_for_queries(ask, M, multiple, tiles, total):
    """The footprint of 112x16 is 112 * (2 * 128 + 2) + 112 * 16 + 16 * 128 = 32736 of 32768 words."""
    args = ["--M", M, "--tile-multiple", multiple, "--schedule", "flash2", "--schedule", "flash2-one-room"]
    named = {r["schedule"]: r for r in ask(*BASE, *args)["results"]}
    apart = named["flash2-one-room"]
    assert apart["total"] == total <= named["flash2"]["total"] and apart["Br"] == tiles[0]
    assert apart["sram_peak_words"] == 32_736 or multiple == 1


def test_the_ranges_in_the_docs(whole_curve):
    """The ranges of M in docs/tiles.md, and which schedule moves least in each."""
    text = (ROOT / "docs" / "tiles.md").read_text().split("<!-- ranges -->")[1].replace(",", "")
    found = whole_curve["curve"]
    stated = [int(x) for x in re.findall(r"\b(\d+) (?:steps|B|of them|to)\b", text)]
    others = [r["M_bytes"] for r in found if r["schedule"] == "flash2-one-room"]
    pinned = [r for r in found if r["schedule"] == "flash2-pinned"]
    assert stated == [len(found), found[0]["M_bytes"], found[-1]["M_bytes"], others[0], len(others), len(pinned)]
    assert all(r["schedule"] in SMALL for r in found if r["M_bytes"] < others[0])
    assert len([r for r in found if r["M_bytes"] >= others[0]]) == len(others) + len(pinned)
    assert others[0] / 2 / 128**2 == pytest.approx(1.02, abs=0.005) and found[-1]["total"] == 4 * 8192 * 128
