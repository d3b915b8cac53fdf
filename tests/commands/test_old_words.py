"""Commands of earlier versions answer with the line that asks the same today, and that line answers."""

import shlex

import pytest

from iosim.commands.listed import all_commands
from iosim.commands.old_words import OLD

LINES = {
    "crossover --N 64 --d 8 --schedule flash1,flash2": "tune --curve --N 64 --d 8 --schedule flash1,flash2",
    "crossover --N 64 --d 8 --detail --schedule flash1": "tune --curve --N 64 --d 8 --all --schedule flash1",
    "crossover --M 4KB --d 8 --schedule flash1,flash2": "tune --over N --M 4KB --d 8 --schedule flash1,flash2",
    "crossover --hardware=t4 --d 8 --schedule flash1,flash2": "tune --over N --hardware=t4 --d 8 --schedule flash1,flash2",
    "crossover --M 4KB --d 8": "tune --over N --M 4KB --d 8 --schedule standard,flash1,flash2",
    "training --N 64 --d 8 --M 4KB": "count --pass step --N 64 --d 8 --M 4KB",
    "mask 'causal&window:4' --N 8": "plot --picture mask --mask 'causal&window:4' --N 8",
    "mask --N 8 --causal": "plot --picture mask --N 8 --causal",
    "check --N 8 --d 4": "verify --cpu --N 8 --d 4",
    "gather parts -o x.csv": "sweep --gather parts -o x.csv",
    "play --N 64 --d 8 --M 4KB": "report --open --N 64 --d 8 --M 4KB",
}


@pytest.mark.parametrize("before", LINES)
def test_an_old_word_says_the_line_of_today(before, iosim, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    word = before.split()[0]
    said = iosim(*shlex.split(before))
    assert (said.exit_code, said.stdout) == (2, "")
    assert said.stderr == f"Error: iosim {word} is now: iosim {LINES[before]}\n"
    now = shlex.split(LINES[before])
    if now[0] in all_commands():
        if word == "gather":
            assert iosim("sweep", "--N", 8, "--d", 4, "--M", "1KB", "-o", "parts/").exit_code == 0
        assert iosim(*now).exit_code == 0


def test_every_old_word_is_tried_and_is_no_command():
    assert {line.split()[0] for line in LINES} == {*OLD} and not {*OLD} & {*all_commands()}
