"""Whatever is called a floor is `floor` of the counted problem: for every option, in every command and every picture.

A case is the fields of a problem; the problem and the command line are both made from it here. The words of the player
are those of the counted problem's small case.
"""

import itertools
import json
import random
import re
from dataclasses import replace

import click
import pytest
from paths import DATA, TESTS
from spread import first_with, spread

from iosim.commands.cli import main
from iosim.commands.options import Option
from iosim.core.options import option_names
from iosim.core.problem import Attention
from iosim.counting.bounds import FLOORS
from iosim.counting.count import count
from iosim.counting.floors import floor, held_words
from iosim.drawing.picture import Picture
from iosim.errors import IosimError
from iosim.hardware import load
from iosim.masks import parse_mask
from iosim.pictures import page
from iosim.pictures.player import plays
from iosim.schedules import SCHEDULES, find
from iosim.units import dtype_bytes

BASE = {"N": 96, "d": 16}
M, SIZES = "6000", ("2KB", "6000", "9KB")
CASES = [  # of each option, several values
    {}, {"N": 64}, {"N": 300}, {"d": 8}, {"d": 40}, {"Nk": 32}, {"Nk": 130}, {"dv": 4}, {"dv": 24}, {"batch": 3},
    {"heads": 4}, {"heads": 4, "kv_heads": 2}, {"heads": 6, "kv_heads": 1},
    *({"dtype": name} for name in ("bf16", "fp32", "fp8", "fp64")), {"acc_dtype": "fp32"}, {"acc_dtype": "fp8"},
    {"kv_dtype": "fp8"}, {"kv_dtype": "fp32"}, {"kv_scales": "tensor"}, {"kv_scales": "4"},
    {"kv_scales": "4", "scale_dtype": "fp16"}, {"latent": True}, {"latent": True, "dv": 12},
    {"latent": True, "dv": 12, "kv_scales": "4", "kv_dtype": "fp8"},
    *({"mask": name} for name in ("causal", "window:20", "sink:4|window:9")),
    {"mask": "causal", "visit_all": True}, {"mask": "causal", "short_tile": "first"},
    {"count_init": True}, {"lse": True}, {"keep_p": True}, {"elementwise": 2}, {"splits": 2}, {"splits": 7},
    {"page_size": 5}, {"page_size": 40}, {"top_k": 1, "key_block": 4}, {"top_k": 5, "key_block": 2},
    {"gqa": "pack", "heads": 4, "kv_heads": 2}, {"register_bytes": 1024}, {"register_bytes": 3072}, {"stages": 2},
]  # fmt: skip
KERNEL = [TESTS / "helpers" / "triton_kernels.py", "--kernel", "attention", "--grid", "2", "--no-resources",
          *[f"--arg={name}=fp16[1,64,16]" for name in "QKVO"], "--arg=scale=0.25", "--arg=N=64", "--const=D=16",
          "--const=BM=32", "--const=BN=16", "--const=CAUSAL=False"]  # fmt: skip
READS = {"splits": "split-kv", "page_size": "paged", "top_k": "selected"}  # option: a schedule that reads it
TEXTS = {"register_bytes": ("--registers", "{}B")}  # fields whose option has another name or text
SHORT = {"causal": "mask"}  # options that are short for another
SMALLER = {"N", "Nk", "d", "dv", "batch", "heads", "kv_heads", "mask", "key_block", "count_init"}  # in the player


def problem_of(case):
    """The problem of a case."""
    return Attention(**{**BASE, **case, "mask": parse_mask(case.get("mask", "dense"))})


def drawn(seed):
    """A case with several options."""
    rng = random.Random(seed)
    while True:
        case = {name: value for part in rng.sample(CASES, rng.randint(2, 5)) for name, value in part.items()}
        try:
            problem_of(case)
        except IosimError:
            continue
        return case


def option_of(name):
    """The option of a field, and the form of its text."""
    return TEXTS.get(name, ("--" + name.replace("_", "-"), "{}"))


def parameters_of(command):
    """The parameters of a command, also those that schedules declare."""
    context = click.Context(main)
    return main.get_command(context, command).get_params(context)


def options_of(command):
    """The options of a command."""
    return {name for option in parameters_of(command) for name in option.opts}


class Asked:
    """A case that is asked for on the command line, with one schedule that is about it."""

    def __init__(self, iosim, patch, case):
        self.iosim, self.patch, self.case, self.problem = iosim, patch, case, problem_of(case)
        self.schedule = next((READS[name] for name in case if name in READS), "flash2")
        self.family = find(self.schedule).family

    @property
    def line(self):
        """The options of the problem."""
        found = []
        for name, value in {**BASE, **self.case}.items():
            option, text = option_of(name)
            found += [option] if value is True else [option, text.format(value)]
        return found

    def floor(self, M_bytes, **other):
        """The floor at M bytes in words, perhaps of the case with other fields."""
        p = problem_of({**self.case, **other})
        least = FLOORS[self.family](p, held_words(p, M_bytes)).words
        assert self.family != "attention" or least == floor(p, M_bytes).words
        return least

    def json(self, command, *more):
        """The JSON of a command; a list for lines of JSON."""
        if lacking := {option_of(name)[0] for name in self.case} - options_of(command):
            pytest.skip(f"iosim {command} has no {', '.join(sorted(lacking))}")
        done = self.iosim(command, *self.line, *more, "--json")
        if command == "verify" and done.exit_code == 2:
            pytest.skip(done.output)  # what no kernel does
        assert done.exit_code == 0 or (command == "verify" and done.exit_code == 1), done.output
        return [*map(json.loads, done.stdout.splitlines())] if command == "sweep" else json.loads(done.stdout)

    def rows(self, command, *more):
        """The JSON of a command about the schedule."""
        return self.json(command, "--schedule", self.schedule, *more)

    def bound(self, bounds):
        """The words of the floor in a list of bounds."""
        prefix = "" if self.family == "attention" else f"{self.family}: "
        return next(bound["words"] for bound in bounds if bound["name"] == prefix + "floor")

    def check_ratios(self, rows, room=0):
        """The ratios to the floor in rows are those of their words to it."""
        for row in rows:
            if row["ratio_to_floor"]:
                least = self.floor(row.get("M_bytes", int(M)))
                assert abs(row["total"] / row["ratio_to_floor"] - least) <= room + 1e-9 * least

    def calls(self, owner, name):
        """A list that gets the arguments of each call of a function from now on."""
        found, real = [], getattr(owner, name)
        self.patch.setattr(owner, name, lambda *given, **more: found.append(given) or real(*given, **more))
        return found

    def charts(self, *more):
        """The charts of `iosim plot`. An option that is given again is an axis."""
        saved = self.calls(Picture, "save")
        done = self.iosim("plot", *self.line, "--schedule", self.schedule, *more, "-o", "/dev/null/never.svg")
        assert saved, done.output
        return saved[0][0].drawn.charts

    def check_line(self, line, **other):
        """The points of a floor that is drawn against M."""
        assert line.kind == "floor" and line.x
        assert line.y == [self.floor(int(x), **other) for x in line.x]


def fields_of(problem):
    """The fields of a problem, as `count` takes them."""
    return problem.values()


def in_count(asked):
    found = asked.rows("count", "--M", M)
    assert asked.bound(found["bounds"]) == asked.floor(6000)
    asked.check_ratios(found["results"])


def in_tune(asked):
    found = asked.rows("tune", "--M", M)
    assert asked.bound(found["bounds"]) == asked.floor(6000)
    asked.check_ratios(found["results"])


def in_bounds(asked):
    found, least = asked.json("bounds", "--M", M), floor(asked.problem, 6000).words
    assert [bound["words"] for bound in found["bounds"] if bound["name"] == "floor"] == [least]
    assert f"fewer than {least:,} words" in found["answer"]


def in_sweep(asked):
    found = asked.rows("sweep", "--M", ",".join(SIZES), "--tiles", "4x4")
    assert len(found) == 3
    asked.check_ratios(found, asked.problem.instances)  # a sweep knows the floor to a word an instance
    asked.check_ratios(asked.rows("sweep", "--M", M, "--what", "tune"))


def in_curve(asked):
    for row in asked.rows("tune", "--curve")["curve"]:
        assert row["floor_words"] == asked.floor(row["M_bytes"])
        assert row["ratio_to_floor"] == row["total"] / row["floor_words"]


def in_roofline(asked):
    (one,) = asked.rows("count", "--M", M, "--tiles", "4x4")["results"]
    found = asked.rows("roofline", "--hardware", "h100", "--paper-model", "--M", M, "--tiles", "4x4")["results"]
    asked.check_ratios([{**row, "total": one["total"]} for row in found if row["launch"] == "all"])


def in_verify(asked):
    (row,) = asked.rows("verify", "--tiles", "16x16", "--from-ncu", DATA / "ncu_math.csv")["rows"]
    p = asked.problem
    width = min(p.word_bytes, p.acc_bytes, dtype_bytes(p.cache_dtype))
    assert row["floor_bytes"] == width * asked.floor(row["floor_M_bytes"])


def in_traffic(asked):
    (chart,) = asked.charts("--M", ",".join(SIZES))
    asked.check_line(chart.line("floor"))
    more = asked.problem.d + 3
    (chart,) = asked.charts("--M", ",".join(SIZES), "--d", more)
    asked.check_line(chart.line(f"floor, d = {asked.problem.d}"))
    asked.check_line(chart.line(f"floor, d = {more}"), d=more)


def in_traffic_by_length(asked):
    several = [asked.problem.N, 2 * asked.problem.N]
    (chart,) = asked.charts("--N", several[1], "--M", M)
    line = chart.line("floor")
    assert line.x == several
    assert line.y == [asked.floor(6000, N=N) for N in several]


def in_gap(asked):
    words, ratios = asked.charts("--picture", "gap")
    asked.check_line(words.line("floor"))
    assert set(ratios.line("floor").y) == {1}


def in_report(asked):
    """The page has the floor in a sentence, in a table, as a line of its chart and as a mark of its bars."""
    drawn, marks = asked.calls(page, "chart_svg"), asked.calls(page, "bars_svg")
    text, least = asked.iosim("report", *asked.line, "--schedule", asked.schedule, "--M", M).stdout, asked.floor(6000)
    assert f"{least:,}" in text
    said = re.findall(r"No algorithm of its class can move fewer than ([\d,]+)\.", text)
    assert said in ([], [f"{least:,}"])
    asked.check_line(drawn[0][0].line("floor"))
    assert [size for _, (size, name), *_ in marks if name == "floor"] in ([], [least])


def in_player(asked):
    found = count(**{**BASE, **asked.case}, M=M, schedules=asked.schedule)
    small, runs = plays(found)
    for name in {*small.values(), *asked.problem.values()} - SMALLER:
        assert getattr(small, name) == getattr(asked.problem, name), name
    (one,) = runs or [None]
    if one:
        counted = count(**fields_of(one.problem), tiles=one.tiling, schedules=one.name)[one.name]
        moved = {name: {"reads": reads, "writes": writes} for name, (reads, writes) in one.moved().items()}
        assert moved == counted.tensors and one.problem == find(one.name).about(small).packed


PLACES = [in_count, in_tune, in_bounds, in_sweep, in_curve, in_roofline, in_verify, in_traffic, in_traffic_by_length,
          in_gap, in_report, in_player]  # fmt: skip


@pytest.fixture
def asked(iosim, monkeypatch):
    """asked(case) -> an Asked."""
    return lambda case: Asked(iosim, monkeypatch, case)


def test_cases_have_every_option_of_a_problem():
    """A new field, or a new option of `count`, needs cases above. Floors of a state have other questions, and tests of
    their own (test_state_bounds.py)."""
    families = [schedule for schedule in SCHEDULES.values() if schedule.family.startswith("state")]
    of_state = {option.name for schedule in families for option in schedule.options if not isinstance(option, str)}
    named = {name for case in CASES for name in case} | of_state
    assert named | BASE.keys() == {*option_names()}
    options = [option for option in parameters_of("count") if isinstance(option, Option)]
    headings = {option.heading for option in options if option.name in ("d", "splits")}
    own = {option.name for option in options if option.heading in headings} - SHORT.keys()
    assert own <= {option_of(name)[0].strip("-").replace("-", "_") for name in named | BASE.keys()}


def names_of(case):
    """What a case has: its options, and of types and masks each value."""
    return [f"{name}={value}" if "type" in name or name == "mask" else name for name, value in case.items()] or [""]


NEW = first_with(names_of)
FIRST = [case for case in CASES if NEW(case)]


def in_the_short_run(asked):
    """Each option, and each value of a type and a mask, in every third place; each place with a third of them."""
    case, place = asked
    return case in FIRST and (FIRST.index(case) + PLACES.index(place)) % 3 == 0


@pytest.mark.parametrize(
    "case, place",
    spread(itertools.product(CASES, PLACES), in_the_short_run, lambda asked: f"{asked[0]}-{asked[1].__name__}"),
)
def test_it_is_the_floor_of_the_problem(case, place, asked):
    place(asked(case))


@pytest.mark.needs("triton")
@pytest.mark.parametrize("case, gpu", [*((case, "h100") for case in CASES), (CASES[0], "mi300x")], ids=str)
def test_of_a_kernel_as_well(case, gpu, asked):
    """`iosim explain --as`: its chip has the shared memory and the registers of a GPU. A multiprocessor of an MI300X has
    twice the registers of an H100, and so a lower floor."""
    one, chip = asked(case), load(gpu)
    found = one.json("explain", *KERNEL, "--as", "attention", "--hardware", gpu)
    p, size = replace(one.problem, register_bytes=chip.registers_per_sm_bytes), chip.sram_bytes
    assert (found["floor"]["words"], found["floor"]["M_words"]) == (floor(p, size).words, held_words(p, size))


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
@pytest.mark.parametrize("seed", spread(range(6), lambda seed: seed < 3))
def test_it_is_the_floor_of_a_problem_with_several_options(seed, place, asked):
    place(asked(drawn(seed)))
