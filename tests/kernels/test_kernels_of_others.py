"""What docs/explain.md says of kernels that nobody here wrote is what the files of validation/kernels have."""

import csv
import re
import tomllib

import pytest
from paths import DOCS, VALIDATION

import iosim

on_gpu = pytest.importorskip("on_gpu")  # reads counters with the wing gpu

PAGE = (DOCS / "explain.md").read_text().split("\n## How good are the numbers?\n")[1]
with open(VALIDATION / "kernels" / "counted.csv") as file:
    ROWS = list(csv.DictReader(file))
with open(VALIDATION / "kernels" / "drawn.csv") as file:
    DRAWN = list(csv.DictReader(file))
with open(VALIDATION / "kernels" / "interpreted.csv") as file:
    INTERPRETED = list(csv.DictReader(file))
COUNTERS = VALIDATION / "kernels" / "on_gpu.csv"
GPU = on_gpu.read_rows(COUNTERS) if COUNTERS.exists() else []
HELD = VALIDATION / "kernels" / "held_out.csv"
HELD_OUT = on_gpu.profiled(on_gpu.read_rows(HELD)) if HELD.exists() else []
LAID = VALIDATION / "kernels" / "layouts.csv"
LAYOUTS = on_gpu.profiled(on_gpu.read_rows(LAID)) if LAID.exists() else []
FLEX = on_gpu.read_rows(VALIDATION / "kernels" / "flex.csv")
SERVING = VALIDATION / "h200-2026-11-22" / "serving_rows.csv"
AGAIN_FILE = VALIDATION / "kernels" / "interpreted_drawn.csv"
AGAIN = on_gpu.read_rows(AGAIN_FILE) if AGAIN_FILE.exists() else []
needs_interpreted = pytest.mark.skipif(not AGAIN, reason="a package without what the interpreter said of drawn kernels")
needs_counters = pytest.mark.skipif(not GPU, reason="a package without the counters of a GPU")
NAMES = {"Dao": "flash_attn", "Triton": "tutorials", "vLLM": "vllm", "unsloth": "unsloth", "liger": "liger_kernel",
         "flash": "fla"}  # fmt: skip
WHERE = ("package", "file", "kernel")
LAUNCHES = tomllib.loads((VALIDATION / "kernels" / "launches.toml").read_text())


def test_every_launch_has_an_answer():
    launched = [(p["version"], one["file"], one["kernel"]) for p in LAUNCHES.values() for one in p["launch"]]
    assert [(row["package"], row["file"], row["kernel"]) for row in ROWS] == launched
    assert {row["answer"] for row in ROWS} == {"counted", "refused"} and max(float(row["seconds"]) for row in ROWS) < 1
    assert [row["why"] for row in ROWS if row["answer"] == "counted" and row["why"]] == []


def test_the_list_of_launches():
    answers = [row["answer"] for row in ROWS]
    assert f"{answers.count('counted')} of {len(answers)} are counted" in PAGE
    assert all(re.search(r", line \d+ `|^kernel ", row["why"]) for row in ROWS if row["answer"] == "refused")


def words_of(text):
    """{(argument, way): (words, distinct words)} of a cell such as `Q reads 8 of 4; O writes 4 of 4`."""
    parts = (re.fullmatch(r"(\w+) (reads|writes|atomics) (\d+) of (\d+)", part).groups() for part in text.split("; "))
    return {(name, way): (int(words), int(distinct)) for name, way, words, distinct in parts}


def test_the_interpreter_counts_the_words_of_every_launch_that_is_counted():
    assert [[row[k] for k in WHERE] for row in INTERPRETED] == [[row[k] for k in WHERE] for row in ROWS]
    compared = [row for row in INTERPRETED if row["interpreted"]]
    assert [bool(row["interpreted"]) for row in INTERPRETED] == [row["answer"] == "counted" for row in ROWS]
    differ = [row for row in compared if words_of(row["said"]) != words_of(row["interpreted"])]
    for row in INTERPRETED:
        assert row["same"] == ("" if row not in compared else "merged" if row in differ else "yes")
        assert bool(row["why"]) == (row not in compared)
    assert [row["kernel"] for row in differ] == ["_attn_bwd"]
    page = " ".join(PAGE.split())
    assert f"Of the {len(ROWS)} launches" in page and f"iosim refuses {len(ROWS) - len(compared)}." in page
    assert f"The interpreter was asked about the other {len(compared)}," in page
    assert f"The words of {len(compared) - len(differ)} are equal" in page


@needs_counters
def test_what_differs_is_a_load_that_the_compiler_makes_once_and_the_gpu_agrees():
    (row,) = [row for row in INTERPRETED if row["same"] == "merged"]
    said, found = words_of(row["said"]), words_of(row["interpreted"])
    more = {key: found[key][0] - words for key, (words, _) in said.items() if found[key] != said[key]}
    assert more == {("D", "reads"): int(row["programs"]) * 128} and "BLOCK_M2=128" in row["sizes"]
    assert {key: distinct for key, (_, distinct) in said.items()} == {key: n for key, (_, n) in found.items()}
    measured = [row for row in on_gpu.profiled(GPU) if row["kernel"] == "_attn_bwd"]
    assert measured and all(on_gpu.loads_of(row) == on_gpu.whole(row, "read_bytes") for row in measured)


def package_of(page):
    """The folder of a package by its name on the page; None for the row of all."""
    return NAMES.get(re.match("[A-Za-z]+", page)[0])


def test_the_table_of_kernels_that_were_drawn():
    rows = re.findall(r"^\| ([^|]+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", PAGE, re.M)
    assert {package_of(row[0]) for row in rows[:-1]} == {row["package"] for row in DRAWN}
    for page, *numbers in rows:
        answers = [row["answer"] for row in DRAWN if page == "all" or row["package"] == package_of(page)]
        kinds = [answers.count(kind) for kind in ("counted", "refused", "no launch")]
        assert [len(answers), *kinds] == [int(n) for n in numbers]
    assert len(DRAWN) == 100 and max(float(row["seconds"] or 0) for row in DRAWN) < 1.5


def test_the_table_of_published_kernels():
    """A row whose kernel stands in parentheses is a script that ended early."""
    with open(VALIDATION / "kernels" / "published.csv") as file:
        rows = list(csv.DictReader(file))
    (section,) = re.findall(r"### Which scripts run as they are\?\n(.*?)\n### ", PAGE, re.S)
    shown = re.findall(r"^\| ([^|]+) \| (\d+) \| (\d+) \| (\d+) \|$", section, re.M)
    assert [name for name, *_ in shown[:-1]] == list(dict.fromkeys(row["project"] for row in rows))
    for name, *numbers in shown:
        some = [row for row in rows if name in ("all", row["project"])]
        kernels = [row for row in some if not row["kernel"].startswith("(")]
        answered = [row for row in kernels if row["answer"] != "refused"]
        counts = [len(answered), len(kernels) - len(answered), len(some) - len(kernels)]
        assert counts == [int(n) for n in numbers], name
    assert all(row["why"] if row["answer"] == "refused" else int(row["reads"]) + int(row["writes"]) for row in rows)
    answered = [row for row in rows if row["answer"] != "refused"]
    tried = [row["verdict"] for row in answered]
    same, fewer, rest = (tried.count(kind) for kind in ("same", "fewer", "not run"))
    text = " ".join(section.split())
    asked = f"Triton's interpreter was asked about all {len(answered)} kernels, and ran {same + fewer}: {same} have the"
    assert f"{asked} same words" in text and f"The other {rest} it cannot run" in text
    assert same + fewer + rest == len(tried) and fewer == 2
    assert [bool(row["why"]) for row in answered] == [row["verdict"] == "not run" for row in answered]
    words = [(int(row["interpreter_words"]), int(row["iosim_words"])) for row in answered if row["programs"]]
    assert len(words) == same + fewer and sum(a == b for a, b in words) == same and all(a >= b for a, b in words)


PAIRS = (("words", "iosim_words"), ("distinct_words", "iosim_distinct_words"))


def by_kernel(rows):
    """{(package, file, kernel): its rows}, in order."""
    found = {}
    for row in rows:
        found.setdefault(tuple(row[key] for key in WHERE), []).append(row)
    return found


def verdict_of(rows):
    """The verdict on a kernel: the worst of those on its arguments."""
    order = ["same", "fewer", "different", "not run"]
    return order[max(order.index(row["verdict"]) for row in rows)]


@needs_interpreted
def test_every_drawn_kernel_that_is_counted_is_interpreted():
    counted = [tuple(row[key] for key in WHERE) for row in DRAWN if row["answer"] == "counted"]
    assert list(by_kernel(AGAIN)) == counted
    for row in AGAIN:
        numbers = [int(row[key] or 0) for pair in PAIRS for key in pair]
        found, said = numbers[::2], numbers[1::2]
        assert 0 < int(row["programs"]) <= int(row["grid_programs"])
        assert row["way"] in (
            [
                "",
            ]
            if row["verdict"] == "not run"
            else ["reads", "writes", "atomics"]
        )
        assert (row["verdict"] == "same") == (found == said and found[0] > 0) and row["verdict"] != "different"
        assert bool(row["why"]) == (row["verdict"] in ("fewer", "not run"))


@needs_interpreted
def test_fewer_words_are_those_of_the_lines_that_are_named():
    rows = [row for row in AGAIN if row["verdict"] == "fewer"]
    assert rows
    for row in rows:
        less = re.findall(r", line \d+ `[^`]+`: (\d+) words less", row["why"])
        assert sum(map(int, less)) == int(row["words"]) - int(row["iosim_words"]) > 0
        assert row["way"] == "reads" and row["why"].startswith(row["file"])


@needs_interpreted
def test_the_interpreted_programs_are_of_the_launches_of_the_drawn_list():
    """All programs of a launch move the words that drawn.csv has, and some of them no more."""
    drawn = {tuple(row[key] for key in WHERE): row for row in DRAWN}
    whole = 0
    for key, rows in by_kernel(AGAIN).items():
        if key[0] in ("tutorials", "flash_attn"):  # other sizes
            continue
        moved = [sum(int(row["iosim_words"]) for row in rows if row["way"] == way) for way in ("reads", "writes")]
        all_programs = [int(drawn[key][way]) for way in ("reads", "writes")]
        if rows[0]["programs"] == rows[0]["grid_programs"]:
            assert moved == all_programs, key
            whole += 1
        else:
            assert all(some <= every for some, every in zip(moved, all_programs, strict=True)), key
            assert 0 < sum(moved) < sum(all_programs), key
    assert whole > 0


@needs_interpreted
def test_launches_of_the_list_are_interpreted_alike_by_both_scripts():
    listed = {(row["file"], row["kernel"]): row for row in INTERPRETED}
    both = 0
    for (package, file, kernel), rows in by_kernel(AGAIN).items():
        if package in ("tutorials", "flash_attn"):
            row = listed[file.removeprefix(package + "/"), kernel]
            for names, cell in zip(zip(*PAIRS, strict=True), (row["interpreted"], row["said"]), strict=True):
                numbers = {(r["argument"], r["way"]): tuple(int(r[name]) for name in names) for r in rows}
                assert {key: pair for key, pair in numbers.items() if pair[0]} == words_of(cell)
            both += 1
    assert both == sum(row["package"] in ("tutorials", "flash_attn") and row["answer"] == "counted" for row in DRAWN)


@needs_interpreted
def test_the_table_of_the_interpreter():
    verdicts = {key: verdict_of(rows) for key, rows in by_kernel(AGAIN).items()}
    part = PAGE.partition("\n### Does Triton's interpreter agree?")[2]
    rows = re.findall(r"^\| ([^|]+) \| (\d+) \| (\d+) \| (\d+) \|$", part, re.M)
    assert {package_of(page) for page, *_ in rows[:-1]} == {row["package"] for row in DRAWN} and rows[-1][0] == "all"
    for page, *numbers in rows:
        found = [verdict for key, verdict in verdicts.items() if page == "all" or key[0] == package_of(page)]
        assert [found.count(kind) for kind in ("same", "fewer", "not run")] == [int(n) for n in numbers]
    page = " ".join(PAGE.split())
    assert f"For the {len(verdicts)} counted kernels" in page and f"{len(AGAIN)} numbers of words" in page


def ratios(row):
    """Bytes of loads and of stores that a GPU counted, for each that was said."""
    said = [on_gpu.whole(row, "read_sectors"), on_gpu.whole(row, "write_sectors")]
    found = [on_gpu.loads_of(row), on_gpu.stores_of(row)]
    return [f / s for f, s in zip(found, said, strict=True) if s]


@needs_counters
def test_the_table_of_the_gpu():
    done = on_gpu.profiled(GPU)
    most = [max(ratios(row)) for row in done]
    kernels = {(row["file"], row["kernel"]) for row, r in zip(done, most, strict=True) if r == 1}
    same = {
        name: sum(on_gpu.whole(row, a) == on_gpu.whole(row, b) for row in done)
        for name, a, b in (("registers", "ncu_registers", "registers"), ("smem", "own_smem", "smem"))
    }
    asked = [row for row in done if row["asked_of_l1"]]
    assert all(on_gpu.loads_of(row) == on_gpu.whole(row, "asked_of_l1") for row in asked)
    rows = dict(re.findall(r"^\| ([^|]+) \| ([\d]+)(?: \([^|]+\))? \|$", PAGE, re.M))
    assert {key: int(value) for key, value in rows.items()} == {
        "bytes of sectors, loaded and stored: as predicted": sum(r == 1 for r in most),
        "more than predicted, by a tenth at most": sum(1 < r <= 1.1 for r in most),
        "more, by up to a half": sum(1.1 < r <= 1.5 for r in most),
        "more than that": sum(r > 1.5 for r in most),
        "fewer than predicted": sum(min(ratios(row)) < 1 for row in done),
        "bytes that the L1 is asked for by loads: as predicted": len(asked),
        "registers of a thread: as predicted": same["registers"],
        "shared memory of a program: as predicted": same["smem"],
    }
    assert f"({len(kernels)} kernels)" in PAGE and max(most) < 8.3 and rows["fewer than predicted"] == "0"
    launched = {(row["file"], row["kernel"]) for row in done}
    assert f"{len(done)} launches of {len(launched)} kernels" in PAGE and f"the other {len(GPU) - len(done)}" in PAGE


@needs_counters
def test_the_places_of_the_fastest_configurations():
    said = [int(n) for line in on_gpu.ranks(on_gpu.profiled(GPU)) for n in re.findall(r"number (\d+)", line)]
    assert said == [int(n) for n in re.findall(r"number (\d+)", PAGE)]


@pytest.mark.skipif(not LAYOUTS, reason="a package without the counters of a GPU")
def test_loads_in_many_layouts_were_said_before_they_were_measured():
    assert all(on_gpu.loads_of(row) == on_gpu.whole(row, "asked_of_l1") for row in LAYOUTS)
    more = sum(on_gpu.whole(row, "asked_of_l1") > on_gpu.whole(row, "read_sectors") for row in LAYOUTS)
    kernels = len({row["kernel"] for row in LAYOUTS})
    said = " ".join(PAGE.split())
    assert f"{len(LAYOUTS)} launches of {kernels} kernels in many layouts" in said and f"in {more} of them" in said


@pytest.mark.long
@pytest.mark.needs("triton")
@pytest.mark.skipif(not LAYOUTS, reason="a package without the counters of a GPU")
def test_the_installed_triton_has_the_same_sectors_and_knows_what_loads_ask_for():
    found = [each for one in on_gpu.listed("-", name="layouts.toml") for each in on_gpu.ready(one)]
    for each in found:
        answer = each.explained(hardware="h200")
        (row,) = (r for r in LAYOUTS if (r["kernel"], r["sizes"]) == (answer.kernel, ""))
        assert [answer.total("reads"), answer.total("reads", "sector_bytes")] == [
            on_gpu.whole(row, "reads"), on_gpu.whole(row, "read_sectors")]  # fmt: skip
        assert all(ways["reads"].l1_bytes is not None for ways in answer.ways.values())
    assert len(found) == 10


@needs_counters
def test_other_launches_were_held_out():
    """No launch of the second list was among those of the first."""
    known = {(row["kernel"], row["sizes"]) for row in GPU}
    assert HELD_OUT and not known & {(row["kernel"], row["sizes"]) for row in HELD_OUT}


@pytest.mark.parametrize("row", [row for row in FLEX if row["Nk"] == row["N"]], ids=lambda r: f"{r['mask']}-{r['d']}")
def test_flex_attention_moves_the_words_of_its_schedule(row):
    """PyTorch's kernel, counted by iosim explain, against the schedule that it names."""
    sizes = {name: int(row[name]) for name in ("N", "Nk", "d", "batch", "heads", "kv_heads")}
    found = iosim.count(**sizes, mask=row["mask"], tiles=row["tiles"], schedules=[row["schedule"]])[row["schedule"]]
    assert {name: sum(way.values()) for name, way in found.tensors.items()} == {n: int(row[n]) for n in "QKVO"}


@pytest.mark.parametrize("number", range(len(FLEX)))
def test_a_gpu_read_the_words_of_flex_attention_and_its_lists(number):
    """Bytes by the counters of an H200: those of Q, K and V, and at most a sector for each warp and word of a list."""
    with open(SERVING, newline="") as file:
        measured = [r for r in csv.DictReader(file) if r["kernel"] == "torch-flex" and r["best"] == "True"]
    row, found = FLEX[number], measured[number]
    assert len(measured) == len(FLEX) and found["mask"] == row["mask"] and found["d"] == row["d"]
    inputs = 2 * sum(int(row[name]) for name in "QKV")
    assert inputs < int(found["read_measured"]) <= inputs + 32 * int(row["warps"]) * int(row["lists"])


def test_what_the_page_says_of_flex_attention():
    seconds = [float(row["seconds"]) for row in FLEX]
    text = " ".join(PAGE.split())
    assert f"counted the {len(FLEX)} kernels" in text
    assert f"in {min(seconds):.1f} to {max(seconds):.1f} seconds each" in text
    whole = [row for row in FLEX if row["state"] == "0"]
    assert len(whole) == 9 and {row["schedule"] for row in whole} == {"flash2", "block-sparse-q"}


def test_the_words_of_attention_are_those_of_its_schedule():
    words = LAUNCHES["dao"]["launch"][0]["words"]
    found = iosim.count(N=2048, d=128, heads=4, mask="causal", tiles="128x128", schedules=["block-sparse-q"])[
        "block-sparse-q"
    ]
    assert {name: list(row.values()) for name, row in found.tensors.items()} == {
        "O" if n == "Out" else n: words[n] for n in ("Q", "K", "V", "Out")
    }
    turns = sum(range(1, 2048 // 128 + 1)) * 4
    assert words["TMP"] == [128 * (turns + 64)] * 2 == [77_824] * 2 and "77,824 words each way" in PAGE
