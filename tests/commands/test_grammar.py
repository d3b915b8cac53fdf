"""One grammar for all commands: axes, lists and short forms are read alike everywhere, and all faults are named at once.

What is asked of every command is a property over the lines of tests/*/questions.txt. Messages are in errors.txt.
"""

import csv
import io
import json
import random
import re
import shlex

import click
import pytest
from questions import KINDS, has_rows, questions

from iosim.commands.cli import main
from iosim.commands.command import HEADINGS, NAMED, OUTPUTS, Command
from iosim.commands.listed import all_commands

COMMANDS = {name: main.get_command(None, name) for name in all_commands()}
PROBLEM, M = ("--N", 64, "--d", 8), ("--M", "1KB")
ASKED = {
    name: [shlex.split(line) for line in made if "," not in line and ".csv" not in line]
    for name, (made, _) in questions().items()
}


def lines_with(*options, where=lambda name: True):
    """{question: its first line that has all of these options}."""
    found = {name: [one for one in lines if {*options} <= {*one}] for name, lines in ASKED.items() if where(name)}
    return {name: lines[0] for name, lines in found.items() if lines}


def takes(option):
    """Whether a question's command has an option."""
    return lambda name: any(option in parameter.opts for parameter in COMMANDS[name.split()[0]].params)


def axis_of(option):
    """Whether a question's command answers once for each value of an option, M or hardware."""

    def answers_each(name):
        axes = {*COMMANDS[name.split()[0]].axes}
        return option in axes <= {"M", "hardware"} and not {*KINDS} & {*name.split()}

    return answers_each


def put(line, option, value):
    """A line with another value of an option, which is added if it is not there."""
    at = line.index(option) if option in line else len(line)
    return [*line[:at], option, str(value), *line[at + 2 :]]


def rows_of(result):
    assert result.exit_code in (0, 1), result.output
    return list(csv.DictReader(io.StringIO(result.stdout)))


# ---------------------------------------------------------------- properties of every question

SEVERAL = lines_with("--M", where=axis_of("M"))


@pytest.mark.parametrize("name", SEVERAL)
def test_an_axis_of_m_is_the_answers_one_after_the_other(name, iosim, ask):
    """Each row is that of its own M alone, and so is each answer in JSON."""
    line = SEVERAL[name]
    found = rows_of(iosim(*name.split(), *put(line, "--M", "1KB:4KB:x2"), "--csv"))
    assert list(dict.fromkeys(int(row["M_bytes"]) for row in found)) == [1024, 2048, 4096]
    assert rows_of(iosim(*name.split(), *put(line, "--M", "1KB,2KB,4KB"), "--csv")) == found
    answers = ask(*name.split(), *put(line, "--M", "1024,2048,4096")).get("answers")
    for size, answer in zip((1024, 2048, 4096), answers or [None] * 3, strict=True):
        alone = put(line, "--M", size)
        expected = rows_of(iosim(*name.split(), *alone, "--csv"))
        mine = [row for row in found if int(row["M_bytes"]) == size]
        assert [{k: v for k, v in row.items() if k in expected[0]} for row in mine] == expected
        whole = {k: v for k, v in ask(*name.split(), *alone).items() if k not in ("schema", "iosim", "argv")}
        assert answer is None or whole.items() <= answer.items()


CHIPS = lines_with(where=axis_of("hardware"))


@pytest.mark.parametrize("name", CHIPS)
def test_hardware_is_an_axis(name, iosim):
    line = [text for text in CHIPS[name] if text not in ("--hardware", "h100", "t4")]
    line = [text for k, text in enumerate(line) if "--M" not in line[max(0, k - 1) : k + 1]]
    found = rows_of(iosim(*name.split(), *line, "--hardware", "h100,t4", "--csv"))
    assert list(dict.fromkeys(row["hardware"] for row in found)) == ["h100", "t4"]
    assert rows_of(iosim(*name.split(), *line, "--hardware", "h100", "--hardware", "t4", "--csv")) == found
    for chip in ("h100", "t4"):
        alone = rows_of(iosim(*name.split(), *line, "--hardware", chip, "--csv"))
        assert all(any(row.items() <= other.items() for other in found) for row in alone)


LENGTHS = lines_with("--N", where=lambda name: takes("--Nk")(name) and takes("--csv")(name))


@pytest.mark.parametrize("name", LENGTHS)
def test_K_is_1024_in_every_number(name, iosim):
    answers = []
    for keys in ("1k", "1024"):
        result = iosim(*name.split(), *put(LENGTHS[name], "--Nk", keys), "--csv")
        answers.append((result.exit_code, result.stdout, result.stderr.replace("1k", "1024")))
    assert answers[0] == answers[1]


LISTS = lines_with("--N", where=takes("--schedule"))


@pytest.mark.parametrize("name", LISTS)
def test_schedules_are_a_list_or_repeated(name, iosim):
    line = [text for k, text in enumerate(LISTS[name]) if "--schedule" not in LISTS[name][max(0, k - 1) : k + 1]]
    known = ("ring", "ulysses") if "--ranks" in line or "--nodes" in line else ("flash1", "flash2")

    def answer(*schedules):
        result = iosim(*name.split(), *line, *(text for one in schedules for text in ("--schedule", one)))
        assert result.exit_code in (0, 1), result.output
        return re.sub("|".join((",".join(known), " --schedule ".join(known))), "", result.stdout)

    assert answer(",".join(known)) == answer(*known)


MASKED = lines_with(where=takes("--mask"))


@pytest.mark.parametrize("name", MASKED)
def test_causal_is_short_for_a_mask(name, iosim):
    line = [text for k, text in enumerate(MASKED[name]) if "--mask" not in MASKED[name][max(0, k - 1) : k + 1]]
    line = [text for text in line if text not in ("--causal", "causal")]
    short, long = iosim(*name.split(), *line, "--causal"), iosim(*name.split(), *line, "--mask", "causal")
    assert short.exit_code == long.exit_code, short.output
    assert short.output.replace("--causal", "--mask causal") == long.output
    both = iosim(*name.split(), *line, "--causal", "--mask", "window:4")
    assert both.exit_code == 2 and "one of the two" in both.stderr


def test_all_commands_with_a_mask_have_the_short_form():
    for name, command in COMMANDS.items():
        flags = {flag for p in command.params for flag in p.opts}
        assert ("--mask" in flags) == ("--causal" in flags), name


# ---------------------------------------------------------------- values, repeats and files


def test_values_have_a_width_of_their_own(iosim):
    """dv is a column where it is not d."""
    from iosim import count

    (one,) = rows_of(iosim("count", *PROBLEM, "--dv", 4, "--tiles", "8x8", "--schedule", "flash2", "--csv"))
    assert int(one["total"]) == count(64, 8, dv=4, tiles="8x8", schedules="flash2")["flash2"].total and one["dv"] == "4"
    assert "dv" not in rows_of(iosim("count", *PROBLEM, *M, "--csv"))[0], "rows of d = dv have the columns they had"


TEXT = """
import iosim

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


# ---------------------------------------------------------------- faults, and the help


def faults(result):
    assert result.exit_code == 2 and not result.stdout and "Traceback" not in result.stderr
    assert [k for k, line in enumerate(result.stderr.splitlines()) if line.startswith("Error: ")] == [0]
    return result.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_what_is_missing_is_one_message_with_an_example_that_runs(name, iosim):
    command = COMMANDS[name]
    if not command.needs or command.gpu:
        return
    message = faults(iosim(name))
    assert message.count("\n") == 1 and "found 'nothing'" in message
    example = re.search(r"; as in iosim (.*)$", message)
    if example:
        assert iosim(
            *shlex.split(example[1]), *(["--dry-run"] if has_rows(name) and takes("--dry-run")(name) else [])
        ).exit_code in (0, 1)


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
    assert message.startswith(f"Error: {len(chosen)} faults\n") and all(f"  {name}" in message for name in chosen)


@pytest.mark.parametrize("option", BAD)
def test_one_fault_is_told_once(option, iosim):
    line = {"--N": "64", "--d": "8", "--M": "1KB", option: BAD[option]}
    message = faults(iosim("count", *(text for pair in line.items() for text in pair)))
    assert message.count("found") == 1 and message.count("\n") == 1, message


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_80_columns_and_what_is_needed_comes_first(name, iosim, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    command = COMMANDS[name]
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
    command = COMMANDS[name]
    ctx = click.Context(command, info_name=name)
    ctx.meta[NAMED] = None
    flags = {parameter.name: parameter.flag for parameter in command.options_of(ctx)}
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


def test_json_of_several_is_one_document(iosim):
    assert len(json.loads(iosim("count", *PROBLEM, "--M", "1KB,2KB", "--json").stdout)["answers"]) == 2
