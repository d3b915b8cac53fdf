"""One grammar for all commands: axes, lists and short forms are read alike everywhere, and all faults are named at once."""

import csv
import io
import json
import random
import re
import shlex

import click
import pytest

from iosim.commands.cli import main
from iosim.commands.command import HEADINGS, NAMED, OUTPUTS, Command
from iosim.commands.listed import all_commands

COMMANDS = all_commands()

PROBLEM = ("--N", 64, "--d", 8)
M = ("--M", "1KB")
WITH_MASK = {name for name in COMMANDS if any("--mask" in p.opts for p in main.get_command(None, name).params)}


def rows_of(result):
    assert result.exit_code == 0, result.output
    return list(csv.DictReader(io.StringIO(result.stdout)))


# ---------------------------------------------------------------- axes


SEVERAL = {
    "count": (*PROBLEM, "--schedule", "flash2"),
    "bounds": PROBLEM,
    "tune": (*PROBLEM, "--schedule", "flash1,flash2"),
    "cache": (*PROBLEM, "--tiles", "8x8"),
}


@pytest.mark.parametrize("name, args", SEVERAL.items(), ids=SEVERAL)
@pytest.mark.parametrize(
    "axis, sizes", [(("--M", "1KB:4KB:x2"), [1024, 2048, 4096]), (("--M", "512el,1024el"), [1024, 2048])]
)
def test_an_axis_of_m_is_the_answers_one_after_the_other(name, args, axis, sizes, iosim):
    """Each row is that of its own M alone."""
    found = rows_of(iosim(name, *args, *axis, "--csv"))
    assert list(dict.fromkeys(int(row["M_bytes"]) for row in found)) == sizes
    for size in sizes:
        alone = rows_of(iosim(name, *args, "--M", size, "--csv"))
        mine = [row for row in found if int(row["M_bytes"]) == size]
        assert [{k: v for k, v in row.items() if k in alone[0]} for row in mine] == alone


SHORT = {
    "count": ("--N", "1K", "--Nk", "2k", "--d", 8, "--tiles", "16x1K"),
    "bounds": ("--N", "1K", "--Nk", "2k", "--d", 8, "--M", "1024el,4096el"),
    "memory": ("--N", "1K:4K:x2,8K", "--Nk", "2k", "--d", 8),
    "sweep": ("--N", "1K:2K:+1K", "--Nk", "2k", "--d", 8, "--schedule", "flash2", "--M", "4KB", "--mask", "window:1K"),
    "cache": ("--N", "1K", "--Nk", "2k", "--d", 8, "--tiles", "64x64", "--M", "4KB", "--granularity", "tile"),
    "crossover": ("--N", "1K:2K:x2", "--d", 8, "--M", "4KB", "--schedule", "flash1,flash2"),
    "roofline": (
        "--N",
        "1K",
        "--Nk",
        "2k",
        "--d",
        8,
        "--hardware",
        "h100",
        "--kv-scales",
        "1K",
        "--schedule",
        "flash2",
    ),
}


@pytest.mark.parametrize("name, short", SHORT.items(), ids=SHORT)
def test_K_is_1024_in_every_number(name, short, iosim):
    long = [re.sub(r"(\d+)[Kk]\b", lambda m: str(1024 * int(m[1])), str(text)) for text in short]
    assert any("1024" in text for text in long)
    found, expected = (rows_of(iosim(name, *line, "--csv")) for line in (short, long))
    assert [{**row, "mask": None} for row in found] == [{**row, "mask": None} for row in expected]


@pytest.mark.parametrize("name", ["count", "bounds", "tune"])
def test_several_answers_in_json_and_text(name, ask, iosim):
    args = (name, *SEVERAL[name], "--M", "1KB,2KB")
    found = ask(*args)["answers"]
    for size, answer in zip((1024, 2048), found, strict=True):
        alone = ask(name, *SEVERAL[name], "--M", size)
        assert {**answer, "argv": 0} == {
            **alone,
            "argv": 0,
            "M_bytes": size,
            **{k: answer.get(k, alone[k]) for k in ("schema", "iosim")},
        } or {k: v for k, v in alone.items() if k not in ("schema", "iosim", "argv")} == {
            k: v for k, v in answer.items() if k != "M_bytes"
        }
    text = iosim(*args).stdout
    assert text.count("M = ") >= 2 and "1,024 B" in text and "2,048 B" in text


@pytest.mark.parametrize("name", ["count", "tune", "bounds", "cache", "roofline"])
def test_hardware_is_an_axis(name, iosim):
    args = SEVERAL.get(name, (*PROBLEM, "--schedule", "flash2"))
    found = rows_of(iosim(name, *args, "--hardware", "h100,t4", "--csv"))
    assert list(dict.fromkeys(row["hardware"] for row in found)) == ["h100", "t4"]
    again = iosim(name, *args, "--hardware", "h100", "--hardware", "t4", "--csv")
    assert rows_of(again) == found, "repeats are the same axis"
    for chip in ("h100", "t4"):
        alone = rows_of(iosim(name, *args, "--hardware", chip, "--csv"))
        assert all(any(row.items() <= other.items() for other in found) for row in alone)


def test_hardware_is_an_axis_of_a_sweep(iosim):
    args = ("sweep", "--N", "64,100", "--d", 8, "--schedule", "flash2")
    found = rows_of(iosim(*args, "--hardware", "h100,h200,t4"))
    assert [row["hardware"] for row in found] == ["h100", "h200", "t4"] * 2
    assert [int(row["M_bytes"]) for row in found][:3] == [232448, 232448, 65536]
    assert rows_of(iosim(*args, "--hardware", "h100", "--hardware", "h200,t4")) == found
    (one, _) = rows_of(iosim(*args, "--hardware", "t4"))
    assert "hardware" not in one and one.items() <= found[2].items()
    assert iosim(*args, "--hardware", "h100,t4", *M).exit_code == 2


def test_hardware_in_a_toml_file(tmp_path, iosim):
    file = tmp_path / "sweep.toml"
    file.write_text('N = 64\nd = 8\nhardware = ["t4", "h100"]\nschedule = "flash2"\n')
    assert [row["hardware"] for row in rows_of(iosim("sweep", file))] == ["t4", "h100"]
    (row,) = rows_of(iosim("sweep", file, *M))
    assert row["M_bytes"] == "1024" and "hardware" not in row, "an option wins over the file"


def test_values_have_a_width_of_their_own(iosim, ask):
    """dv is an option of every command with a problem, an axis of a sweep, and a column where it is not d."""
    from iosim import count

    (one,) = rows_of(iosim("count", *PROBLEM, "--dv", 4, "--tiles", "8x8", "--schedule", "flash2", "--csv"))
    assert int(one["total"]) == count(64, 8, dv=4, tiles="8x8", schedules="flash2")["flash2"].total and one["dv"] == "4"
    found = rows_of(iosim("sweep", *PROBLEM, "--dv", "4,8", "--tiles", "8x8", "--schedule", "flash2"))
    assert [row["dv"] for row in found] == ["4", "8"] and found[0]["total"] == one["total"]
    assert ask("tune", *PROBLEM, "--dv", 4, *M)["problem"]["dv"] == 4
    assert "dv = 4" in iosim("bounds", *PROBLEM, "--dv", 4, *M).stdout
    assert "dv" not in rows_of(iosim("count", *PROBLEM, *M, "--csv"))[0], "rows of d = dv have the columns they had"
    result = iosim("memory", *PROBLEM, "--dv", 4)
    assert result.exit_code == 0 and result.stdout != iosim("memory", *PROBLEM).stdout


# ---------------------------------------------------------------- short forms and repeats


LISTS = {
    "count": (*PROBLEM, *M), "sweep": (*PROBLEM, *M), "tune": (*PROBLEM, *M), "roofline": (*PROBLEM, "--hardware", "t4"),
    "verify": ("--cpu", "--N", 8, "--d", 4, "--tiles", "4x4"), "cache": (*PROBLEM, *M, "--tiles", "8x8"),
    "report": (*PROBLEM, *M), "trace": ("--N", 8, "--d", 4, "--tiles", "4x4"),
}  # fmt: skip


@pytest.mark.parametrize("name, args", LISTS.items(), ids=LISTS)
def test_schedules_are_a_list_or_repeated(name, args, iosim):
    def answer(*schedules):
        result = iosim(name, *args, *(x for s in schedules for x in ("--schedule", s)))
        assert result.exit_code == 0, result.output
        return result.stdout.replace("flash1,flash2", "").replace("flash1 --schedule flash2", "")

    assert answer("flash1,flash2") == answer("flash1", "flash2") and "flash1" in answer("flash1,flash2")


def test_a_trace_of_several_schedules_is_one_trace_after_the_other(iosim):
    args = ("trace", "--N", 8, "--d", 4, "--tiles", "4x4")
    both = rows_of(iosim(*args, "--schedule", "flash1,flash2"))
    assert both == rows_of(iosim(*args, "--schedule", "flash1", "--schedule", "flash2"))
    for name in ("flash1", "flash2"):
        alone = rows_of(iosim(*args, "--schedule", name))
        assert [{k: v for k, v in row.items() if k != "schedule"} for row in both if row["schedule"] == name] == alone
    lines = iosim(*args, "--schedule", "flash1,flash2", "--format", "jsonl").stdout.splitlines()
    assert [json.loads(line)["schedule"] for line in lines] == [row["schedule"] for row in both]
    pages = json.loads(iosim(*args, "--schedule", "flash1,flash2", "--json").stdout)["traceEvents"]
    names = {r["pid"]: r["args"]["name"] for r in pages if r["name"] == "process_name"}
    assert {pid: name.split(":")[0] for pid, name in names.items()} == {1: "iosim flash1", 2: "iosim flash2"}
    for pid, name in ((1, "flash1"), (2, "flash2")):
        alone = json.loads(iosim(*args, "--schedule", name, "--json").stdout)["traceEvents"][1:]
        assert [{**r, "pid": 1} for r in pages if r["pid"] == pid][1:] == alone


@pytest.mark.parametrize("name", sorted(WITH_MASK - {"verify", "profile", "explain", "plot", "crossover"}))
def test_causal_is_short_for_a_mask(name, iosim):
    args = {"mask": ("--N", 64), "batch": ("--requests", "4:9,1:20", "--d", 8), "verify": ("--cpu", "--N", 8, "--d", 4), "cache": (*PROBLEM, *M, "--tiles", "8x8"), "trace": (*PROBLEM, "--tiles", "8x8"),
            "roofline": (*PROBLEM, "--hardware", "t4"), "links": (*PROBLEM, "--ranks", 4), "schedules": ("flash2", *PROBLEM, *M)}.get(name, (*PROBLEM, *M))  # fmt: skip
    short, long = iosim(name, *args, "--causal"), iosim(name, *args, "--mask", "causal")
    assert short.exit_code == long.exit_code == 0, short.output
    assert short.stdout.replace("--causal", "--mask causal") == long.stdout
    both = iosim(name, *args, "--causal", "--mask", "window:4")
    assert both.exit_code == 2 and "one of the two" in both.stderr


def test_all_commands_with_a_mask_have_the_short_form():
    for name in COMMANDS:
        flags = {flag for p in main.get_command(None, name).params for flag in p.opts}
        assert ("--mask" in flags) == ("--causal" in flags), name


def test_the_last_of_two_values_counts_and_a_note_says_so(iosim):
    twice = iosim("count", "--N", 32, *PROBLEM, *M)
    assert twice.exit_code == 0 and twice.stdout == iosim("count", *PROBLEM, *M).stdout
    assert twice.stderr == "note: --N takes one value: 64 counts, and 32 does not\n"
    assert iosim("count", "--N", 64, *PROBLEM, *M).stderr == "", "the same value twice changes nothing"


TEXT = """
import iosim
from iosim.steps import softmax

def text(chip, p, t):
    for i in chip.tiles(p.N, t.rows_q):
        q = chip.load("Q", i)
        chip.store(q, "O", i)

iosim.register(iosim.Schedule("copy-{n}", text, "copies Q"))
"""


def test_load_stands_before_or_after_the_command(tmp_path, iosim):
    from iosim import SCHEDULES

    answers = []
    try:
        for n, order in enumerate([lambda load, rest: (*load, *rest), lambda load, rest: (*rest, *load)]):
            file = tmp_path / f"copy{n}.py"
            file.write_text(TEXT.replace("{n}", str(n)))
            rest = ("count", *PROBLEM, "--tiles", "8x8", "--schedule", f"copy-{n}", "--csv")
            answers.append(rows_of(iosim(*order(("--load", file), rest)))[0]["total"])
    finally:
        for n in (0, 1):
            SCHEDULES.pop(f"copy-{n}", None)
    assert answers == [str(2 * 64 * 8)] * 2
    assert iosim("count", *PROBLEM, *M, "--load", tmp_path / "none.py").exit_code == 2


def test_json_of_a_trace_is_one_format(tmp_path, iosim):
    args = ("trace", "--N", 8, "--d", 4, "--tiles", "4x4")
    assert iosim(*args, "-o", tmp_path / "x.json").exit_code == 0
    assert (tmp_path / "x.json").read_text() == iosim(*args, "--json").stdout
    assert json.loads(iosim(*args, "--json").stdout)["traceEvents"]


# ---------------------------------------------------------------- faults, and the help


def faults(result):
    assert result.exit_code == 2 and not result.stdout and "Traceback" not in result.stderr
    assert [line for line in result.stderr.splitlines() if line.startswith("Error: ")] == [
        result.stderr.splitlines()[0]
    ]
    return result.stderr


@pytest.mark.parametrize("name, wanted", [("count", ["--N", "--d", "--M"]), ("tune", ["--N", "--d", "--M"]), ("sweep", ["--N", "--d", "--M"]),
                                          ("roofline", ["--N", "--d", "--hardware"]), ("report", ["--N", "--d", "--M"]), ("bounds", ["--N", "--d"])])  # fmt: skip
def test_what_is_missing_is_one_message_with_an_example(name, wanted, iosim):
    message = faults(iosim(name))
    assert message.startswith(f"Error: {', '.join(wanted)}: found 'nothing'") and message.count("\n") == 1
    assert f"as in iosim {name} --N" in message or name == "bounds"


@pytest.mark.parametrize(
    "line, completed",
    [
        ("tune --hardware h100", "iosim tune --N 8192 --d 128 --hardware h100"),
        ("tune --curve --causal", "iosim tune --N 8192 --d 128 --curve --causal"),
        ("tune --at-most 64MiB", "iosim tune --N 8192 --d 128 --at-most 64MiB"),
        ("count --mask causal&window:7", "iosim count --N 8192 --d 128 --M 100KB --mask 'causal&window:7'"),
    ],
)
def test_the_hint_about_what_is_missing_keeps_what_was_given_and_runs(line, completed, iosim):
    message = faults(iosim(*line.split()))
    assert message.rstrip().endswith(f"; as in {completed}")
    assert iosim(*shlex.split(completed)[1:]).exit_code == 0


def test_a_misspelt_command_before_options_gets_its_own_hint(iosim):
    message = faults(iosim("counts", "--N", 8))
    assert "command: found 'counts'; did you mean 'count'? allowed: batch, " in message


def test_all_faults_are_named_at_once(iosim):
    message = faults(iosim("count", "--d", "x", "--M", "1TB", "--dtype", "fp61", "--mask", "casual", "--schedule", "flash2,flsh1",
                           "--tiles", "4x", "--hed", 3, "--lsee"))  # fmt: skip
    assert message.startswith("Error: 9 faults\n") and message.count("\n") == 10
    for part in ("--N: found 'nothing'", "--d: found 'x'", "--M: found '1TB'", "--dtype: found 'fp61'", "--mask", "'causal'",
                 "'flash1'", "--tiles", "'--heads'", "'--lse'"):  # fmt: skip
        assert part in message, part


BAD = {"--N": "0", "--d": "x", "--Nk": "-1", "--dv": "1.5", "--batch": "", "--heads": "9e9", "--dtype": "int4", "--acc-dtype": "hlaf", "--mask": "window",
       "--M": "12XB", "--tiles": "4by4", "--schedule": "flash9", "--tile-multiple": "0", "--splits": "none", "--gqa": "both", "--elementwise": "-3"}  # fmt: skip


@pytest.mark.parametrize("seed", range(12))
def test_doubly_wrong_lines_name_both_faults(seed, iosim):
    rng = random.Random(seed)
    chosen = rng.sample(sorted(BAD), rng.choice([2, 2, 3]))
    good = {"--N": "64", "--d": "8", "--M": "1KB"}
    line = {
        **{name: value for name, value in good.items() if name not in chosen},
        **{name: BAD[name] for name in chosen},
    }
    message = faults(iosim("count", *(x for pair in line.items() for x in pair)))
    assert message.startswith(f"Error: {len(chosen)} faults\n") and all(f"  {name}" in message for name in chosen), (
        message
    )


def test_faults_of_lists_and_of_the_whole_problem_are_named_as_well(iosim):
    message = faults(iosim("count", *PROBLEM, *M, "--schedule", "flsh1,flash2,flsh9", "--schedule", "standrd"))
    assert message.startswith("Error: 3 faults\n") and all(
        f"found {name!r}" in message for name in ("flsh1", "flsh9", "standrd")
    )
    message = faults(iosim("count", "--d", 8, "--heads", 6, "--kv-heads", 4, "--M", "x"))
    assert (
        message.startswith("Error: 3 faults\n")
        and "a divisor of --heads 6" in message
        and "--N: found 'nothing'" in message
    )
    message = faults(iosim("tune", *PROBLEM, "--M", "x", "--gqa", "pack", "--causal"))
    assert message.startswith("Error: 2 faults\n") and "a dense mask" in message


def test_one_fault_is_told_once(iosim):
    for args in (("--tiles", "4x"), ("--M", "1TB"), ("--kv-heads", "0"), ("--mask", "casual")):
        message = faults(iosim("count", *PROBLEM, *(() if "--M" in args else M), *args))
        assert message.count("found") == 1 and message.count("\n") == 1, message


@pytest.mark.parametrize("wrong, right", [("--n", "--N"), ("--D", "--d"), ("--seq-len", "--N"), ("--head-dim", "--d"), ("--nk", "--Nk"),
                                          ("--tile", "--tiles"), ("--sram", "--M"), ("--output", "-o"), ("--num-heads", "--heads"),
                                          ("--schedules", "--schedule"), ("--gpu", "--hardware"), ("--acc_dtype", "--acc-dtype")])  # fmt: skip
def test_an_option_that_is_meant_is_suggested(wrong, right, iosim):
    assert f"did you mean {right!r}?" in faults(iosim("count", *PROBLEM, *M, wrong, "4"))


def test_an_option_of_another_command_is_found(iosim):
    assert "iosim count --tiles" in faults(iosim("tune", *PROBLEM, *M, "--tiles", "4x4"))
    assert "an option of iosim cache" in faults(iosim("count", *PROBLEM, *M, "--granularity", "word"))
    assert "set NO_COLOR=1" in faults(iosim("count", *PROBLEM, *M, "--no-color"))
    assert "options with their values" in faults(iosim("count", "64", *PROBLEM, *M))
    assert "it is a flag" in faults(iosim("count", *PROBLEM, *M, "--json=3"))
    assert "a value after it; as in --M 100KB" in faults(iosim("count", *PROBLEM, "--M"))


@pytest.mark.parametrize("given, hint", [
    ("--hardware h100 t4", "write --hardware h100,t4"), ("--hardware=h100, T4 b200", "write --hardware h100,T4,b200"),
    ("--hardware h100 --schedule flash1 flash2", "write --schedule flash1,flash2"),
    ("--hardware h100 --M 100 KB", "write --M 100KB"), ("--hardware h100 --M 64 kib", "write --M 64kib"),
    ("--hardware h100 --M 64 128", "write --M 64,128"), ("--hardware h100 --N 64 128", "a value with spaces needs quotes"), ("t4 --hardware h100", "needs quotes"),
])  # fmt: skip
def test_values_with_spaces_between_them_are_written_as_one(given, hint, iosim):
    """Where an option takes several values; --N takes one here."""
    assert faults(iosim("roofline", *PROBLEM, *given.split())).count(hint) == 1


def test_masks_of_a_sweep_are_one_quoted_value(iosim):
    line = ("sweep", *PROBLEM, *M, "file.toml", "--mask", "causal", "window:4", "dense")
    assert "write --mask 'causal;window:4;dense'" in faults(iosim(*line))


@pytest.mark.parametrize("line, option, text, instead", [
    ("report --N 64 --d 8 --M 1KB,2KB", "--M", "1KB,2KB", "run iosim report once for each"),
    ("report --N 64,128 --d 8 --M 1KB", "--N", "64,128", "run iosim report once for each"),
    ("trace --N 64 --d 8 --tiles best --M 1KB:4KB:x2", "--M", "1KB:4KB:x2", "run iosim trace once for each"),
    ("trace --N 64 --d 8 --tiles best --hardware h100,t4", "--hardware", "h100,t4", "run iosim trace once for each"),
    ("count --N 64,128 --d 8 --M 1KB", "--N", "64,128", "iosim sweep takes several"),
    ("tune --N 64 --d 8 --M 1KB --dtype fp16,fp32", "--dtype", "fp16,fp32", "iosim sweep --what tune takes several"),
    ("verify --cpu --N 8 --d 8 --seed 1,2", "--seed", "1,2", "run iosim verify once for each"),
])  # fmt: skip
def test_several_values_where_one_is_taken(line, option, text, instead, iosim):
    """Also beside another fault."""
    said = f"{option}: found {text!r}; allowed: one value; {instead}\n"
    assert faults(iosim(*line.split())) == f"Error: {said}"
    both = faults(iosim(*line.split(), "--heads", "x"))
    assert both.startswith("Error: 2 faults\n") and f"  {said}" in both and "--heads: found 'x'" in both


@pytest.mark.parametrize("line, text, instead", [
    ("count --N 64 --d 8 --M 1KB", "64x64,128x128", "iosim sweep takes several"),
    ("count --N 64 --d 8 --M 1KB", "a,b", "iosim sweep takes several"),
    ("cache --N 64 --d 8 --M 1KB", "8x8,paper", "iosim sweep --what cache takes several"),
    ("count --pass step --N 64 --d 8 --M 1KB", "8x8,16x16", "iosim sweep takes several"),
])  # fmt: skip
def test_several_tiles_where_one_is_taken(line, text, instead, iosim):
    said = f"--tiles: found {text!r}; allowed: one value, as 128x64 (query rows first); {instead}\n"
    assert faults(iosim(*line.split(), "--tiles", text)) == f"Error: {said}"


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_80_columns_and_what_is_needed_comes_first(name, iosim, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    command = main.get_command(None, name)
    assert isinstance(command, Command)
    lines = iosim(name, "--help").stdout.splitlines()
    assert max(map(len, lines)) <= 80
    found = [line[:-1] for line in lines if line.endswith(":") and line[:-1] in HEADINGS]
    assert found == [heading for heading in HEADINGS if heading in found], "headings stand in one order"
    assert (found[0] == "Required") == bool(command.needs)
    text = "\n".join(lines)
    first = text[text.index(found[0]) : text.index(found[1])] if len(found) > 1 else text
    for need in command.needs:
        flag = next(p.opts for p in command.params if p.name == need.parameter)
        assert any(f"  {option}" in first for option in flag)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_ten_options_and_where_all_are(name, iosim):
    """Those that most people need. The forms of an answer are one line more."""
    command = main.get_command(None, name)
    ctx = click.Context(command, info_name=name)
    ctx.meta[NAMED] = None
    flags = {parameter.name: max(parameter.opts, key=len) for parameter in command.options_of(ctx)}
    assert set(command.first) <= set(flags), "each is an option of the command"
    short, whole = (iosim(name, which).stdout for which in ("--help", "--help-all"))
    shown, every = (
        {key for key, flag in flags.items() if re.search(rf"^  {flag}\b", options_in(text), re.M)}
        for text in (short, whole)
    )
    assert every == set(flags) and set(command.first) <= shown
    assert len(shown - set(OUTPUTS)) <= 10
    hidden = len(set(flags) - shown - set(OUTPUTS))
    assert hidden == 0 or f"{hidden} more options: iosim {name} --help-all" in short


def options_in(text):
    """A help from its first heading on."""
    return text[min(text.index(f"\n{heading}:\n") for heading in HEADINGS if f"\n{heading}:\n" in text) :]


def test_the_help_of_a_sweep_says_which_schedules_it_counts(iosim):
    """Those of its rows: without a mask or under one, and those that visit all tiles of one."""
    said = " ".join(iosim("sweep", "--help").stdout.split()).partition("Without --schedule the rows are ")[2]
    dense, masked = said.partition("and under a mask with --visit-all")[::2]
    every = dense + masked.partition(" too.")[0]
    for more, text in (((), dense), (("--causal",), dense), (("--causal", "--visit-all"), every)):
        rows = rows_of(iosim("sweep", *PROBLEM, *M, *more, "--columns", "schedule"))
        named = set(re.findall(r"[a-z]+[a-z0-9-]*", text)) - {"and"}
        assert named == {row["schedule"] for row in rows}


def test_the_help_says_what_the_accumulators_are(iosim):
    text = " ".join(iosim("count", "--help-all").stdout.split())
    assert "fp16 (default)" in text and "(default: that of --dtype" in text and "dense (default)" in text


def test_notes_that_differ_only_in_numbers_are_said_once(iosim):
    """The tiles of three sizes are of no use to tensor cores; of two GPUs with one size, there is one note alone."""
    line = ("tune", "--N", 2048, "--d", 64, "--schedule", "flash2")
    (one,) = iosim(*line, "--M", "40KB").stderr.splitlines()
    (several,) = iosim(*line, "--M", "40KB,100KB,50KB").stderr.splitlines()
    assert several == one + " (and 2 more like this)"
    gpus = ("--hardware", "h100,h200", "--tile-multiple", 1, "--heads", 132)
    implied, gpus = iosim(*line, *gpus).stderr.splitlines()
    assert implied.startswith("note: --hardware implies fp32 accumulators, as")
    assert gpus.startswith("note: tensor cores take multiples of 16") and "more like" not in gpus
    assert iosim(*line, "--hardware", "h100,h1000").stderr.startswith("Error: --hardware: found 'h1000'")


def test_a_mask_of_one_tile_asks_for_smaller_ones(iosim):
    assert "--tiles 1x1, show more" in iosim("plot", "--picture", "mask", "--causal", "--N", 8).stdout
    whole = iosim("plot", "--picture", "mask", "--causal", "--N", 8, "--tiles", "1x1")
    assert whole.stdout.startswith("#.......\n##......\n") and "one tile" not in whole.stdout


def test_an_option_of_a_schedule_is_an_axis_where_all_options_are(iosim):
    """Repeated, it is an axis of a sweep; where one value is taken the last counts, with a note."""
    line = ("--N", 64, "--d", 8, "--M", "4KB", "--schedule", "split-kv", "--splits", 2, "--splits", 3)
    swept = iosim("sweep", *line, "--columns", "splits")
    assert swept.stdout.split() == ["splits", "2", "3"] and swept.stderr == ""
    counted = iosim("count", *line, "--csv")
    assert counted.stdout.splitlines()[1].endswith(",3") and "--splits takes one value" in counted.stderr


def test_an_option_wins_over_the_schedules_of_a_file(iosim, tmp_path):
    file = tmp_path / "sweep.toml"
    file.write_text('N = 64\nd = 8\nM = "4KB"\nschedule = "flash2"\ntile_multiple = 16\n')
    swept = iosim("sweep", file, "--schedule", "flash1", "--tile-multiple", 8, "--columns", "schedule,Br")
    assert {line.split(",")[0] for line in swept.stdout.splitlines()[1:]} == {"flash1"}
