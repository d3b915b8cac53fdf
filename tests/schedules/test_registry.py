"""Schedules are known by name before their files are loaded. What is written about them is what they do."""

import json
import math
import random
import re
import subprocess
import sys
from fractions import Fraction

import pytest
from paths import ROOT

import iosim
from iosim import SCHEDULES, Attention, Tiling
from iosim.core.problem import skips_tiles
from iosim.errors import InputError, InternalError
from iosim.schedules import FILES
from iosim.schedules.registry import LETTERS, Schedule, Schedules, find


def fresh(code):
    """The JSON that a new interpreter prints last."""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


REGISTERED = """
import json, sys
from importlib import import_module
from pathlib import Path
from iosim.schedules import registry
found, real = {}, registry.register

def register(schedule):
    caller = sys._getframe(1)
    while caller.f_globals["__name__"] == registry.__name__:
        caller = caller.f_back
    found.setdefault(caller.f_globals["__name__"].rpartition(".")[2], []).append(schedule.name)
    return real(schedule)

registry.register = register
files = {p.stem for p in Path(registry.__file__).parent.glob("*.py")} - {"__init__", "registry", "cache", "state", "ways"}
for file in sorted(files, reverse=True):
    import_module(f"iosim.schedules.{file}")
print(json.dumps([found, list(registry.SCHEDULES), sorted(files)]))
"""


def test_the_table_is_what_the_files_register():
    found, order, files = fresh(REGISTERED)
    assert {name: list(names) for name, names in FILES.items()} == found
    assert order == [name for names in FILES.values() for name in names], "in any order of imports"
    assert sorted(FILES) == files


def test_a_count_loads_the_files_that_it_needs():
    code = """
import json, sys, click
before = {*sys.modules}
from iosim.commands.cli import main
try:
    main(["count", "--N", "64", "--d", "8", "--M", "4KB"])
except SystemExit as done:
    print(json.dumps([*{*sys.modules} - before]))
"""
    loaded = fresh(code)
    found = {name for name in loaded if name.startswith("iosim.schedules.")}
    assert found == {f"iosim.schedules.{x}" for x in ("registry", "cache", "standard", "flash")}
    late = {
        "locale",
        "numpy",
        "pandas",
        "rich",
        "iosim.steps.passes",
        "iosim.counting.typing",
        "iosim.masks.atoms",
    }
    assert not late & {*loaded}


@pytest.mark.parametrize("load_first", [True, False])
def test_a_known_name_cannot_be_taken(load_first):
    code = f"""
import iosim, json
if {load_first}:
    iosim.SCHEDULES["state-fused"]
try:
    iosim.register(iosim.Schedule("state-fused", None, "mine"))
except iosim.InputError as fault:
    print(json.dumps([str(fault), iosim.SCHEDULES["state-fused"].family]))
"""
    message, family = fresh(code)
    assert "state-fused" in message and "no schedule of iosim" in message and family == "state"


def test_it_is_a_mapping():
    mine = Schedule("mine", print, "mine")
    assert iosim.register(mine) is mine is SCHEDULES["mine"] is find("mine")
    assert repr(mine) == "<schedule mine>"
    try:
        assert list(SCHEDULES)[-1] == "mine" and len(SCHEDULES) == len(list(SCHEDULES.items()))
        changed = Schedule("mine", print, "mine, changed")
        assert iosim.register(changed) is find("mine") and list(SCHEDULES).count("mine") == 1
        assert find(mine) is mine is SCHEDULES["mine"], "a Schedule itself is taken, and registered"
    finally:
        assert SCHEDULES.pop("mine") is mine
    assert "mine" not in SCHEDULES and SCHEDULES.get("mine") is None
    with pytest.raises(KeyError):
        SCHEDULES["mine"]


def without_store(chip, p, t):
    """Loads what attention needs, and keeps the output to itself."""
    for i in chip.tiles(p.N, t.rows_q):
        chip.load("Q", i)
        chip.load("K")
        chip.load("V")


def stores_q(chip, p, t):
    for i in chip.tiles(p.N, t.rows_q):
        chip.store(chip.load("Q", i), "Q", i)


@pytest.mark.parametrize("text, stored", [(without_store, "nothing"), (stores_q, "Q")])
def test_a_schedule_that_never_stores_its_output_is_told(text, stored):
    mine = Schedule("no-output", text, "no output")
    try:
        with pytest.raises(iosim.IosimError, match=f"no-output never stores its output O; .*stores: {stored};"):
            iosim.count(N=64, d=8, tiles="16x16", schedules=[mine])
        other = Schedule("no-output", stores_q, "another answer", answer=lambda hbm, p, visible: {"Q": hbm["Q"]})
        iosim.register(other)
        assert iosim.count(N=64, d=8, tiles="16x16", schedules="no-output")["no-output"].writes == 64 * 8
    finally:
        del SCHEDULES["no-output"]


def test_a_table_that_lies_is_a_bug():
    some = Schedules()
    some.expect({"flash": ("flash3",)})
    with pytest.raises(InternalError, match="flash3"):
        some["flash3"]


# ---------------------------------------------------------------- what is written about a schedule


def evaluate(text, names):
    """The value of a formula such as `2 N (d + dv)`, in which a space is a product."""
    tokens = re.findall(r"\d+|\w+|[()+/,-]", text)
    assert "".join(tokens) == text.replace(" ", "")
    code = []
    for before, token in zip([None, *tokens], tokens, strict=False):
        factor = (
            before is not None
            and before not in ("ceil", "min", "max")
            and (before == ")" or before.isalnum() or "_" in before)
        )
        code += ["*"] * (factor and (token == "(" or token[0].isalnum())) + [token]
    return eval("".join(code), {"ceil": lambda x: Fraction(math.ceil(x)), "min": min, "max": max, **names})


def test_the_language_of_formulas():
    names = {"N": Fraction(7), "Br": Fraction(3), "d": Fraction(2), "dv": Fraction(5)}
    assert evaluate("2 N (d + dv) ceil(N / Br)", names) == 2 * 7 * 7 * 3
    assert evaluate("(1 + d) N - ceil(N / ceil(N / Br)) (d + 1)", names) == 21 - 3 * 3
    assert evaluate("d dv", names) == 10 and evaluate("N 2", names) == 14


def test_the_language_knows_no_other_letters():
    with pytest.raises(NameError):
        evaluate("N x", {"N": 1})


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_formula_is_the_traffic(name):
    schedule, rng = SCHEDULES[name], random.Random(name)
    read, written = re.fullmatch(r"R = (.*), W = (.*)", schedule.formula).groups()
    for _ in range(40):
        N, Nk, d, dv, splits, page = (rng.randint(1, 30) for _ in range(6))
        chosen = {"ring": rng.randint(1, 9), "top_k": rng.randint(1, 6), "key_block": rng.randint(1, 9)}
        chosen |= {"drafts": rng.randint(3, 5), "accepted": rng.randint(0, 3)}
        p = schedule.about(Attention(N, d, Nk=Nk, dv=dv, splits=splits, page_size=page, **chosen))
        t = Tiling(*(rng.randint(1, 35) for _ in range(3)), *(rng.randint(1, 35) for _ in range(4)))
        t = Tiling(1, 1) if "ideal" in schedule.rules else t
        sizes = {"N": p.N, "Nk": p.Nk, "d": p.d, "dv": p.dv, "splits": p.splits, "page_size": p.page_size}
        sizes |= {"top_k": p.top_k, "key_block": p.key_block}
        sizes |= {"Br": t.rows_q, "Bc": t.rows_k, "depth": t.depth, "rows_o": t.rows_o, "cols_o": t.cols_o}
        sizes |= {"kept": t.kept, "L": p.ring, "drafts": p.drafts, "accepted": p.accepted}
        sizes = {x: Fraction(value) for x, value in sizes.items() if value is not None}
        used = {x: evaluate(text, sizes) for x, text in LETTERS.items() if re.search(rf"\b{x}\b", schedule.formula)}
        words = schedule.exact_traffic(p.tiled(t, skips_tiles(schedule, p)), t).values()
        assert evaluate(read, {**sizes, **used}) == sum(r for r, _ in words)
        assert evaluate(written, {**sizes, **used}) == sum(w for _, w in words)


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_command_shows_one_in_full(name, iosim, ask):
    (row,) = ask("schedules", name)["schedules"]
    assert row["schedule"] == name and all(row[x] for x in ("source", "formula", "state", "tensors"))
    text = iosim("schedules", name).stdout
    assert max(map(len, text.splitlines())) <= 80
    flat = re.sub(r"\s+", " ", text)
    assert row["formula"] in flat and row["source"] in flat and row["state"] in flat
    assert ("HBM between launches" in row["state"] or "between launches" in row["state"]) == (row["launches"] > 1)


def test_the_list_fits_a_terminal():
    assert all(s.summary and 24 + len(s.summary) <= 80 and len(name) <= 22 for name, s in SCHEDULES.items())


def test_what_is_found_out(ask):
    rows = {row["schedule"]: row for row in ask("schedules")["schedules"]}
    assert list(rows) == list(SCHEDULES)
    options = "--lse, --keep-p, --visit-all, --short-tile, --latent, --mask, --kv-dtype, --kv-scales, --dropout"
    assert rows["flash2"]["options"] == options and rows["standard"]["launches"] == 3
    assert rows["flash1"]["ignores"] == "--lse, --elementwise, --short-tile, --splits, --page-size"
    assert "--keep-p" in rows["standard"]["ignores"] and "--keep-p" not in rows["small-cache"]["ignores"], "refused"
    assert "--mask" in rows["block-sparse-q"]["options"] and "--visit-all" not in rows["block-sparse-q"]["options"]
    assert "--splits" in rows["split-kv"]["options"] and "--page-size" in rows["paged"]["options"]
    assert "--elementwise" in rows["standard-tiled"]["options"] and "--count-init" in rows["flash1"]["options"]
    assert rows["matmul-tiled"]["more tiles"] == "depth"
    assert rows["flash1"]["tensors"].endswith("l (N) read and written; m (N) read and written")
    assert rows["selected-keys-outside"]["tensors"].startswith("blocks (chosen_blocks) read; K (Nk, k_words) read")


@pytest.mark.parametrize("word, names", [
    ("flashattention2", {"flash2"}), ("flash-attention-2", {"flash2"}), ("fa2", {"flash2"}), ("FA2", {"flash2"}), ("Flash_Attn_2", {"flash2"}),
    ("flashattention3", {"flash2"}), ("fa1", {"flash1"}), ("flashattention", {"flash1", "flash2"}), ("naive", {"standard"}),
    ("sdpa", {"standard", "flash2"}), ("vanilla", {"standard"}), ("xformers", {"memory-efficient"}), ("flash-decoding", {"split-kv"}),
    ("PagedAttention", {"paged"}), ("fa2-bwd", {"flash2-bwd"}), ("sliding_window", {"block-sparse-q"}), ("gemm", {"matmul-tiled"}),
    ("onlinesoftmax", {"softmax-2pass"}), ("linearattention", {"state-fused"}), ("splitkv", {"split-kv"}), ("flahs2", {"flash2"}),
])  # fmt: skip
def test_names_of_others_lead_to_a_schedule(word, names):
    with pytest.raises(InputError) as found:
        find(word)
    assert set(re.findall(r"'([\w-]+)'", found.value.hint)) == names


@pytest.mark.parametrize("word", ["flash3", "FlashAttention3", "fa3", "fa4", "flash4"])
def test_later_versions_of_flash_attention_point_to_their_tiles(word):
    """With the command line of docs/conventions.md."""
    with pytest.raises(InputError) as found:
        find(word)
    hint = found.value.hint
    version = f"FlashAttention-{word[-1]}"
    assert hint.startswith("did you mean 'flash2'? " + version)
    line = re.search(r"iosim count .*--stages 2", hint)
    assert line and line[0] + "\n" in (ROOT / "docs" / "conventions.md").read_text()
    assert "(docs/conventions.md)" in hint


def test_names_of_others_are_no_names_here():
    """Else a schedule would never be suggested, but found."""
    words = [word for s in SCHEDULES.values() for word in s.known_as.split(", ") if word]
    assert len(words) > 40 and not set(words) & set(SCHEDULES) and all(word == word.lower() for word in words)


@pytest.mark.parametrize("name", ["d", "lse", "splits", "my-waste", ""])
def test_an_option_of_ones_own_has_a_name_of_its_own(name):
    from iosim.options import COUNT, Option

    mine = Schedule("own-names", lambda chip, p, t: None, "", options=(Option(name, COUNT, "", 1),))
    with pytest.raises(InputError, match="options"):
        iosim.register(mine)
    assert "own-names" not in SCHEDULES
