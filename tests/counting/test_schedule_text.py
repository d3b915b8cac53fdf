"""`iosim schedules NAME`: words and formulas of lines against counts and against formulas that were derived by hand."""

import re
from math import prod

import pytest

from iosim import SCHEDULES, Attention, Tiling
from iosim.core.problem import skips_tiles
from iosim.counting.run import choose_tiling, measure, rules_of
from iosim.counting.schedule_text import box_text, letters_of, product_text, sizes_of, text_lines
from iosim.schedules.registry import Schedule
from iosim.steps.softmax import zeros


def own_lines(schedule, lines):
    return [line for line in lines if line.function == schedule.text.__qualname__]


@pytest.mark.parametrize("name", SCHEDULES)
def test_lines_have_the_words_that_are_counted(name):
    """The lines of the schedule's own function, summed, are the result of `count`, over two heads."""
    schedule = SCHEDULES[name]
    p = schedule.about(Attention(48, 24, heads=2, page_size=4, key_block=8, top_k=3))
    rule = None if "ideal" in schedule.rules else Tiling(16, 12)
    lines = own_lines(schedule, text_lines(schedule, sizes_of(schedule, p, rule, None)))
    counted = measure(schedule, p.packed, choose_tiling(schedule, rules_of(schedule, rule, p)[0], p, None, 1))
    for tensor, words in counted["tensors"].items():
        for side, key in enumerate(("reads", "writes")):
            assert sum(line.words.get(tensor, (0, 0))[side] for line in lines) == words[key], (tensor, key)


SUMS = {
    "state-tiles": {"O read"},
    "state-verify": {"Kring read", "Uring read", "slot written"},
    "state-ring": {"Q read", "slot read", "slot written", "O written"},
}  # words of a line that are no product


@pytest.mark.parametrize("name", SCHEDULES)
def test_formulas_of_lines_add_up_to_those_by_hand(name):
    """They give the words of `exact_traffic`, which was derived by hand, which every line has."""
    schedule = SCHEDULES[name]
    p = schedule.about(Attention(90, 14, 75, 10, splits=3, page_size=5, top_k=4, key_block=6))
    t = Tiling(12, 9, depth=4, rows_o=7, cols_o=3, kept=11)
    sizes = letters_of(schedule, p, t)
    by_hand = schedule.exact_traffic(p.tiled(t, skips_tiles(schedule, p)), t)
    found: dict[str, list[str]] = {}
    for line in own_lines(schedule, text_lines(schedule)):
        for tensor, (read, written) in line.formulas.items():
            found.setdefault(tensor + " read", []).append(read)
            found.setdefault(tensor + " written", []).append(written)
    known = {key: sum(value(text, sizes) for text in texts) for key, texts in found.items() if "?" not in texts}
    assert known == {key: by_hand[key.split()[0]][key.endswith("written")] for key in known}
    assert {*found} - {*known} == SUMS.get(name, set()), "every other line of iosim's own schedules has a formula"


def value(text, sizes):
    """The number that a product such as `2 Nk d` stands for."""
    return prod(sizes.get(factor) or int(factor) for factor in text.split()) if text else 0


def test_products_are_found():
    sizes = {"N": 101, "d": 7}
    found = [product_text(words, sizes) for words in (0, 101, 7 * 101, 2 * 49, 1, 103, 11 * 7)]
    assert found == ["", "N", "N d", "2 d d", "1", "?", "?"]


def test_the_command_has_words_beside_the_lines(iosim, ask):
    """N = 64, d = 8, Br = 16: K and V are read by 4 query tiles, 4 x 64 x 8 words each."""
    sizes = ("--N", 64, "--d", 8, "--tiles", "16x8")
    text = iosim("schedules", "flash2", *sizes).stdout
    assert "words moved by each line: N = 64, d = 8, tiles 16x8" in text
    assert re.search(r"\| +chip.store\(o, \"O\", i\) +write O: 512 \|", text)
    assert re.search(r"cache.load\(j\), \(m, l, o\)\) +\|\n\| +read K: 2,048, V: 2,048 \|", text)
    (row,) = ask("schedules", "flash2", *sizes)["schedules"]
    assert row["run"] == {
        "N": 64,
        "Nk": 64,
        "d": 8,
        "dv": 8,
        "batch": 1,
        "heads": 1,
        "mask": "dense",
        "Br": 16,
        "Bc": 8,
    }
    store = next(line for line in row["text"] if 'store(o, "O"' in line["code"])
    assert store["tensors"] == {"O": {"reads": 0, "writes": 512}} and store["formulas"]["O"]["writes"] == "N dv"
    assert {line["function"] for line in row["text"]} == {
        "queries_outside", "attend", "Cache.load", "Cache.scaled", "masked_scores",
    }  # fmt: skip


def test_a_mask_that_is_skipped_takes_words_away(ask):
    """causal, 4 x 4 tiles of 16: K and V are read for 10 tiles, not 16."""
    sizes = ("--N", 64, "--d", 8, "--tiles", "16x16", "--causal")
    words = {}
    for way in ((), ("--visit-all",)):
        (row,) = ask("schedules", "flash2", *sizes, *way)["schedules"]
        words[way] = next(line for line in row["text"] if "cache.load" in line["code"])["tensors"]["K"]["reads"]
    assert words == {(): 10 * 16 * 8, ("--visit-all",): 16 * 16 * 8}


def test_a_text_without_a_file_has_no_box():
    space = {"zeros": zeros}
    exec("def text(chip, p, t):\n    for i in chip.tiles(p.N, 1):\n        pass", space)
    assert box_text(text_lines(Schedule("mine", space["text"], "mine"))) == ""
