"""`iosim cache`: its rows, the input that it refuses, and the examples of its page."""

import pytest
from paths import DOCS
from sessions import sessions

from iosim import Attention, Tiling

SIZES = ("--N", 32, "--d", 8, "--tiles", "8x8", "--schedule", "flash1")


def test_rows_and_axes(ask, iosim):
    answer = ask("cache", *SIZES, "--M", "256:1KB:x2", "--line", "16B")
    assert [(r["policy"], r["M_bytes"]) for r in answer["results"]] == [
        (p, m) for p in ("lru", "belady") for m in (256, 512, 1024)
    ]
    text = iosim("cache", *SIZES, "--M", "256:1KB:x2", "--line", "16B", "--csv").stdout.splitlines()
    assert text[0].split(",")[:4] == ["policy", "M_bytes", "accesses", "misses"] and len(text) == 7


def test_the_curve_of_the_command(ask):
    answer = ask("cache", *SIZES, "--curve", "--policy", "lru")
    misses = [r["misses"] for r in answer["results"]]
    assert misses == sorted(misses, reverse=True) and misses[0] == answer["accesses"] > misses[-1]


BAD = {
    "no M": SIZES,
    "less than a line": (*SIZES, "--M", 32),
    "a policy that is none": (*SIZES, "--M", "1KB", "--policy", "fifo"),
    "a granularity that is none": (*SIZES, "--M", "1KB", "--granularity", "page"),
    "a line of words": (*SIZES, "--M", "1KB", "--granularity", "word", "--line", "64"),
    "a line of half words": (*SIZES, "--M", "1KB", "--line", "3"),
    "words of two sizes": (*SIZES, "--M", "1KB", "--granularity", "word", "--acc-dtype", "fp32"),
    "a curve of Belady": (*SIZES, "--M", "1KB", "--curve", "--policy", "belady"),
    "a tensor that is none": (*SIZES, "--M", "1KB", "--tensors", "Q,Z"),
    "several heads": (*SIZES, "--M", "1KB", "--heads", 4),
    "too many tiles": ("--N", 10**6, "--d", 8, "--tiles", "1x1", "--M", "1KB"),
}


@pytest.mark.parametrize("args", BAD.values(), ids=BAD)
def test_bad_input_is_one_message(iosim, args):
    answer = iosim("cache", *args)
    assert answer.exit_code == 2 and answer.stdout == "" and "allowed" in answer.stderr


def test_tiles_that_overlap_are_no_objects(iosim):
    """standard-tiled walks S in tiles, then in whole rows."""
    answer = iosim(
        "cache",
        "--N",
        32,
        "--d",
        8,
        "--tiles",
        "8x8",
        "--schedule",
        "standard-tiled",
        "--M",
        "1KB",
        "--granularity",
        "tile",
    )
    assert answer.exit_code == 2 and "overlap" in answer.stderr


@pytest.mark.parametrize("command, output", sessions((DOCS / "cache.md").read_text()), ids=lambda x: x[-30:])
def test_the_docs_print_what_is_printed(command, output, iosim):
    assert iosim(*command.split()).stdout == output


def test_each_stage_is_told(monkeypatch):
    """On a terminal the first text is shown after a second: recording, then each cache."""
    from iosim.schedules import find
    from iosim.tracing import cache_answer

    said = []
    caches = cache_answer.caches_of([1024, 4096], 2, "line", None, "both", False, ())
    cache_answer.cache_of(Attention(64, 16), find("flash1"), Tiling(16, 16), None, caches, tell=said.append)
    assert said[0] == "recording the loads and stores of flash1" and said[1] == "putting the accesses in order"
    assert "through an LRU of every size" in said[2]
    assert [text.rpartition(" of ")[2] for text in said[3:]] == ["1,024 B", "4,096 B"]


def test_words_of_two_sizes_have_a_hint_that_helps(iosim):
    """The entries of a block table have four bytes. Without it all words of paged have two."""
    line = (
        "cache",
        "--N",
        64,
        "--d",
        16,
        "--tiles",
        "16x16",
        "--schedule",
        "paged",
        "--M",
        "4KB",
        "--granularity",
        "word",
    )
    done = iosim(*line)
    assert done.exit_code == 2 and "give --granularity line, or --tensors of one type" in done.stderr
    assert iosim(*line, "--tensors", "Q,K,V,O").exit_code == 0
