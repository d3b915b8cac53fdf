"""docs/tutorial.md: code prints what is said, and every number of the text is produced."""

import contextlib
import io
import json
import re

import pytest
from paths import DOCS, ROOT
from sessions import sessions

import iosim
from iosim.core.tiling import Tiling
from iosim.hardware import load
from iosim.pictures.mask_text import describe

PAGE = (DOCS / "tutorial.md").read_text()
BLOCKS = sessions(PAGE)
PROSE = re.sub(r"\s+", " ", re.sub(r"```.*?```", " ", PAGE, flags=re.S))


def test_the_code_prints_what_is_said():
    code, printed = re.search(r"```python\n(.*?)```\n\nprints\n\n```text\n(.*?)```", PAGE, re.S).groups()
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(code, {})
    assert out.getvalue() == printed


def words(schedule, M=None, N=8192, d=128, tiles=None, **options):
    return iosim.count(N, d, M, schedules=[schedule], tiles=tiles, **options)[schedule].total


def tensors(schedule, N=8192, d=128, **options):
    return iosim.count(N, d, schedules=[schedule], **options)[schedule].tensors


def launches_of_standard():
    """Algorithm 0 with N = 4 and d = 2, by its launches: words read and written."""
    found = iosim.count(4, 2, schedules="standard")["standard"]
    return [(step["reads"], step["writes"]) for step in found.steps]


def measured_tiles():
    kernels = json.loads((ROOT / "tests/data/h200_sdpa.json").read_text())["kernels"]
    wide = [k for k in kernels if k["backend"] == "FLASH_ATTENTION" and k["pass"] == "forward" and k["d"] == 128]
    return {tuple(k["tiles"]) for k in wide}


H100 = load("h100")
FACTS = {
    "| HBM, the \"GPU memory\" of the advertisement | 80 GiB |": lambda: H100.hbm_bytes == 80 * 2**30,
    "| L2 cache | 50 MiB |": lambda: H100.l2_bytes == 50 * 2**20,
    "as much as one group of threads may have | 227 KiB | one of 132 SMs": lambda: (
        (H100.shared_memory_per_block_bytes, H100.sms) == (227 * 1024, 132)
    ),
    "| registers | 256 KiB | one of 132 SMs": lambda: H100.registers_per_sm_bytes == 256 * 1024,
    "3.35 TB/s": lambda: H100.hbm_bytes_per_second == 3.35e12,
    "989.4 trillion operations on fp16 numbers": lambda: H100.flops_per_second["fp16"] == 989.4e12,
    "That is 295 operations for each byte": lambda: round(H100.flops_per_second["fp16"] / H100.hbm_bytes_per_second) == 295,
    "All SMs of this card together have 29 MiB": lambda: round(132 * H100.shared_memory_per_sm_bytes / 2**20) == 29,
    "Q, K, V and O have 8 words each. S and P have 16 words each": lambda: [
        sum(tensors("standard", N=4, d=2)[name].values()) for name in "QKVOSP"
    ] == [8, 8, 8, 8, 32, 32],
    "| 1: S = Q Kᵀ | Q 8, K 8 | S 16 | | 2: P = softmax(S) | S 16 | P 16 | | 3: O = P V | P 16, V 8 | O 8 |": lambda: (
        launches_of_standard() == [(8 + 8, 16), (16, 16), (16 + 8, 8)]
    ),
    "| in all | 56 | 40 | That is 96 words": lambda: [sum(x) for x in zip(*launches_of_standard(), strict=True)] == [56, 40],
    "R = 3Nd + 2N² words are read, and W = Nd + 2N² are written": lambda: all(
        (r.reads, r.writes) == (3 * N * d + 2 * N * N, N * d + 2 * N * N)
        for N, d in ((4, 2), (77, 8)) for r in iosim.count(N, d, schedules="standard")
    ),
    "Nd + d + 1 = 11 words here, and 1,048,705 words for N = 8192 and d = 128": lambda: [
        iosim.count(N, d, schedules="standard")["standard"].sram_peak_words for N, d in ((4, 2), (8192, 128))
    ] == [11, 1048705],
    "In fp16 these are 2 MiB, and an SM has 227 KiB": lambda: round(1048705 * 2 / 2**20, 1) == 2.0,
    "That is 4Nd words, 32 in the small case. Standard attention moves 96": lambda: (
        (iosim.bounds(4, 2)["compulsory"].words, words("standard", N=4, d=2)) == (32, 96)
    ),
    "M = 100 KiB, which is 51,200 words of two bytes, both are 100": lambda: (
        [(r.Br, r.Bc) for r in iosim.count(8192, 128, "51200el", schedules="flash1", tiles="paper")] == [(100, 100)]
    ),
    "loaded again for each of the 82 key tiles, and O is stored 82 times": lambda: [
        sum(tensors("flash1", M="100KB", tiles="paper")[name].values()) / (8192 * 128) for name in "QO"
    ] == [82, 164],
    "The tiles fit only from about M = 8d² on": lambda: [
        iosim.count(8192, 128, f"{M}el", schedules="flash1", tiles="paper")["flash1", "paper"].fits
        for M in (7 * 128**2, 9 * 128**2)
    ] == [False, True],
    "42 times. So the tile of queries should be as tall as possible, and the tile of keys as small as possible: here 196 rows and 1 row": lambda: [
        tensors("flash2", M="100KB")[name]["reads"] / (8192 * 128) for name in "KV"
    ] == [42, 42],
    "K and V move 2N²d / Br words": lambda: words("flash2", tiles="64x64") - 2 * 8192 * 128 == 2 * 8192**2 * 128 // 64,
    "With one row at a time it moves 63 times as much": lambda: round(
        words("flash2", tiles="1x64") / words("standard")) == 63,
    "It moves less than flash2 at every M up to 13,461 B, which is 0.41 d² words": lambda: (
        [(row["from_M_bytes"], row["to_M_bytes"], row["gaps"], round(13461 // 2 / 128**2, 2))
         for row in iosim.curve(8192, 128, schedules=["flash2", "standard-square"]).to_dict()["moves_less"]][1] == (6, 13461, 0, 0.41)
    ),
    "`standard-tiled` keeps whole rows of scores, so it needs 16,384 B or more": lambda: [
        words("standard-tiled", f"{M}B", tiles="best") is None for M in (16383, 16384)
    ] == [True, False],
    "`matmul-tiled` moves 143,654,912 words with this SRAM": lambda: words("matmul-tiled", "100KB") == 143654912,
    "The best tiles of flash2 move 4.2 times as much": lambda: (
        round(iosim.count(8192, 128, "100KB", schedules="flash2")["flash2"].ratio_to_order, 1) == 4.2
    ),
    "to 0.526": lambda: round(
        words("flash2", "100KB", mask="causal") / words("flash2", "100KB", mask="causal", visit_all=True), 3) == 0.526,
    "With T x T square tiles it is (T + 1) / 2T": lambda: all(
        describe("causal", Tiling(512 // T, 512 // T), 512, 512)["tile_density"] == (T + 1) / (2 * T) for T in (4, 8, 16)
    ),
    "Here 32 query heads share 8 KV heads": lambda: words("flash2", N=1, Nk=8192, heads=32, tiles="1x64") > 3.9 * words(
        "flash2", N=1, Nk=8192, heads=32, kv_heads=8, gqa="pack", tiles="4x64"),
    "It has 50 MiB, between the SMs and HBM": lambda: H100.l2_bytes == 50 * 2**20,
    "PyTorch's kernel uses 128x64 for d = 128": lambda: measured_tiles() == {(128, 64)},
    "five other texts about this, statement by statement, and 27 errors in them": lambda: (
        len(re.findall(r"^\| E\d+ \|", (ROOT / "validation/sources/README.md").read_text(), re.M)) == 27
    ),
}  # fmt: skip


@pytest.mark.parametrize("phrase", FACTS)
def test_numbers_of_the_text(phrase):
    assert phrase in PROSE
    assert FACTS[phrase]()


STEPS = re.findall(
    r"^\| .* \| `(.*)` \| (\d[\d.]+) \|$", PAGE.partition("### Nine times")[2].partition("\n##")[0], re.M
)


def test_the_steps_from_three_to_nine_are_answers(iosim):
    """Each row's factor is the words of standard attention over those of the schedule, as its command prints them."""
    assert len(STEPS) == 5
    for (command, factor), before in zip(STEPS, [("", ""), *STEPS], strict=False):
        line = command.removeprefix("iosim ").replace("...", before[0].removeprefix("iosim "))
        said = rf"{factor} times as much: S and P|moves {factor}x fewer"
        assert re.search(said.replace(".", r"\."), iosim(*line.split()).stdout), command
    assert factor in (ROOT / "validation/sources/fig2-left.md").read_text()
    figure = "40.3 GB and 4.4 GB, of which iosim counts 40.27 and 4.06"
    rows = dict(
        re.findall(r"^\| ([\d.]+) GB \| ([\d.]+) GB", (ROOT / "validation/sources/fig2-left.md").read_text(), re.M)
    )
    assert figure in PROSE and rows == {"40.3": "40.27", "4.4": "4.06"}


def plain(text):
    """A text without the separators of groups of digits."""
    return re.sub(r"(?<=\d),(?=\d{3}\b)", "", text)


def test_no_number_of_the_text_stands_alone():
    """Every number from 10 on, and every fraction, is in a fact above or in the output of a command above it."""
    text = PROSE
    for phrase in (*FACTS, "40.3 GB and 4.4 GB, of which iosim counts 40.27 and 4.06"):
        text = text.replace(phrase, " ")
    shown = plain(" ".join(f"{command} {said}" for command, said in [*BLOCKS, *STEPS]))
    printed = set(re.findall(r"\d+(?:\.\d+)?", shown))
    prose = re.sub(r"`[^`]*`|\]\([^)]*\)|\d+\. (?=\[)|## \d+", " ", text)
    said = {*re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?![\w²])", plain(prose))}
    free = {"30", "2022"}  # minutes of the lesson, year of a paper
    assert (
        sorted(number for number in said if float(number) >= 10 or "." in number if number not in printed | free) == []
    )
    assert len(printed & said) > 10


def test_the_lesson_needs_no_codes():
    """The list of errors in other texts has codes, such as E9. A newcomer is led to the list, and meets no code."""
    assert (
        re.search(r"^\| E9 \|", (ROOT / "validation/sources/README.md").read_text(), re.M)
        and "sources/README.md#errors)" in PAGE
    )
    assert re.findall(r"\bE\d+\b", PROSE) == []


def test_the_class_has_a_sentence_where_it_first_stands():
    """In the section where an answer first says `the class`, below that answer and before the next one."""
    first = re.search(r"\b(the|its) class\b", PAGE).start()
    below = PAGE[first:].partition("```")[2].partition("```")[0]
    assert re.search(r'"The class" there is all algorithms that', below, re.S)


def test_the_lesson_is_one_sitting():
    """About 30 minutes: 200 words a minute for the prose, and a second a line of what is shown."""
    shown = sum(shown.count("\n") for _, shown in BLOCKS)
    assert 15 < len(PROSE.split()) / 200 + shown / 60 < 35 and len(BLOCKS) > 15
