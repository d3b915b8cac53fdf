"""What a GPU implies: fp32 accumulators and tiles in multiples of 16, in every command, unless something else is
given."""

import inspect
import json

import pytest

import iosim as package
from iosim.counting.conditions import conditions
from iosim.hardware import load

N, D, GPU = 1100, 64, "h100"  # no size is a multiple of 16
SIZES = ("--N", N, "--d", D)
M = load(GPU).sram_bytes
COMMANDS = {
    "count": SIZES,
    "count --tiles best": SIZES,
    "count --causal": SIZES,
    "tune": SIZES,
    "tune --all --mask window:100": SIZES,
    "tune --least-blocks 8": SIZES,
    "bounds": SIZES,
    "count --pass step": SIZES,
    "tune --over N --schedule flash1,flash2": ("--N", "64:1024:+64", "--d", D),
    "sweep": SIZES,
    "sweep --what tune": SIZES,
    "sweep --what cache --tiles best --schedule flash2": ("--N", 300, "--d", 16),
    "cache --tiles best": ("--N", 300, "--d", 16),
    "trace --tiles best": ("--N", 300, "--d", 16),
    "schedules flash2": SIZES,
}


BY_TIME = {
    "count",
    "count --tiles best",
    "count --causal",
    "count --pass step",
    "tune",
    "tune --all --mask window:100",
    "sweep",
    "sweep --what tune",
}
"""The lines whose best tiles are those of least time."""


def problem_of(values):
    """The problem of an answer, or of the first row of a sweep."""
    if isinstance(values, list):
        return {key: values[0][key] for key in ("N", "d", "dtype", "acc_dtype", "mask", "M_bytes")}
    return values.get("problem", {})


def multiple_of(values):
    """What `tune` says of the multiple of its tiles."""
    space = values.get("space", {}) if isinstance(values, dict) else {}
    return {"tile_multiple": space.get("tile_multiple")}


def answer(iosim, line, *more):
    """What a command prints as JSON or JSON lines, without what it was asked."""
    out = iosim(*line.split(), *COMMANDS[line], *more, "--json")
    assert out.exit_code == 0, out.output
    try:
        found = json.loads(out.stdout)
    except json.JSONDecodeError:
        rows = [row for line in out.stdout.splitlines() if (row := json.loads(line)).get("role") != "published"]
        return [{key: cell for key, cell in row.items() if key != "hardware"} for row in rows], out.stderr
    return {key: value for key, value in found.items() if key not in ("argv", "notes", "published")}, out.stderr


def results(values):
    """All results with tiles inside an answer."""
    if isinstance(values, dict):
        return [values] * ("Br" in values) + [r for value in values.values() for r in results(value)]
    return [r for value in values for r in results(value)] if isinstance(values, list) else []


@pytest.mark.parametrize("line", COMMANDS)
def test_a_gpu_has_its_conditions_in_every_command(line, iosim):
    """The types and multiples are those of the conditions written out, and so is an answer without best tiles, which
    are those of least time. With --paper-model the answer is that of M alone."""
    found, said = answer(iosim, line, "--hardware", GPU)
    assert "implies fp32 accumulators" in said and "--paper-model" in said
    own = ["--tile-multiple", 16] if accepts(line, "--tile-multiple") else []
    explicit, quiet = answer(iosim, line, "--M", M, "--acc-dtype", "fp32", *own)
    if own:
        assert {**problem_of(found), **multiple_of(found)} == {**problem_of(explicit), **multiple_of(explicit)}
    if own and line not in BY_TIME:
        assert explicit == found
    assert "implies" not in quiet
    paper, _ = answer(iosim, line, "--hardware", GPU, "--paper-model")
    alone, _ = answer(iosim, line, "--M", M)
    assert paper == alone != found
    best = [r for r in results(found) if r.get("tiling") == "best" and r["Br"]]
    assert all(r["Br"] % 16 == 0 == r["Bc"] % 16 or r["Bc"] >= N for r in best), best
    assert best or "--over" in line or not line.startswith(("count", "tune"))
    further = [size for r in best if isinstance(r.get("more_tiles"), dict) for size in r["more_tiles"].values()]
    assert all(size % 16 == 0 or size >= N for size in further), further


@pytest.mark.parametrize("more", [(), ("--causal",), ("--heads", 32)], ids=str)
def test_every_command_has_the_same_best_tiles_on_a_gpu(more, iosim, ask):
    """`count`, `tune`, `sweep` and `sweep --what tune` have one choice of tiles, with one least time."""
    line = (*SIZES, "--hardware", GPU, "--schedule", "flash1,flash2", *more)
    keys = ("schedule", "Br", "Bc", "total", "at_least_seconds", "binds", "blocks", "smem_read_words")

    def rows(found):
        return sorted(
            tuple(row[key] for key in keys)
            for row in found
            if row["tiling"] == "best" and row.get("role", "best") == "best"
        )

    def sweep(*what):
        return rows([json.loads(row) for row in iosim("sweep", *line, *what, "--json").stdout.splitlines()])

    counted = rows(ask("count", *line)["results"])
    assert len(counted) == 2 and all(row[4] > 0 for row in counted)
    assert counted == rows(ask("tune", *line)["results"]) == sweep() == sweep("--what", "tune")
    traffic = rows_of_traffic(ask("count", *SIZES, "--M", M, "--acc-dtype", "fp32", *more)["results"])
    assert traffic["flash2"] < dict((row[0], row[3]) for row in counted)["flash2"], "time is not traffic"


def rows_of_traffic(results):
    """The words of the best tiles of each schedule."""
    return {r["schedule"]: r["total"] for r in results if r["tiling"] == "best"}


def test_tiles_of_the_backward_pass_alone_are_searched_too():
    found = package.count(
        N, D, passes="step", hardware=GPU, tiles="64x64", backward_tiles="best", combinations="flash2"
    ).steps
    assert all(step.backward.Br % 16 == 0 == step.backward.Bc % 16 for step in found)
    assert found[0].backward.tiling == "best"


def accepts(line, flag):
    """Whether the command of a line has an option."""
    from iosim.commands.cli import main

    command = main.get_command(None, line.split()[0])
    return any(flag in option.opts for option in command.params)


def test_notes_are_in_the_json_too(ask):
    line = ("tune", "--over", "N", "--schedule", "flash1,flash2", "--N", "64:256:+64", "--d", D)
    (note,) = ask(*line, "--hardware", GPU)["notes"]
    assert note.startswith("--hardware implies") and ask(*line, "--hardware", GPU, "--paper-model")["notes"] == []


def test_what_is_given_wins(ask):
    both = ("--hardware", GPU, "--acc-dtype", "fp16", "--tile-multiple", 1)
    found, plain = (ask("count", *SIZES, *line) for line in (both, ("--M", M)))
    assert found["problem"] == plain["problem"] and found["problem"]["acc_dtype"] == "fp16"
    given = ("--schedule", "flash2", "--tiles", "100x50")
    words = [ask("count", *SIZES, *line, *given)["results"][0]["total"] for line in (both, ("--M", M))]
    assert words[0] == words[1]
    assert found["notes"] == []
    (note,) = ask("count", *SIZES, "--hardware", GPU, "--tiles", "100x50")["notes"]
    assert "fp32 accumulators, as" in note and "multiples" not in note, "given tiles stay as they are"
    (note,) = ask("count", *SIZES, "--hardware", GPU, "--acc-dtype", "fp32")["notes"]
    assert "implies best tiles of least time, in multiples of 16" in note
    for wide in ("fp32", "fp64"):
        assert ask("count", *SIZES, "--hardware", GPU, "--dtype", wide)["problem"]["acc_dtype"] == wide
    for narrow in ("fp8", "bf16"):
        assert ask("count", *SIZES, "--hardware", GPU, "--dtype", narrow)["problem"]["acc_dtype"] == "fp32"
    (vain,) = ask("count", *SIZES, "--M", M, "--paper-model")["notes"]
    assert "changes nothing without --hardware" in vain


@pytest.mark.parametrize(
    "name, tiles", [("count", ()), ("tune", ()), ("bounds", ()), ("roofline", ("--tiles", "64x64"))]
)
def test_python_and_the_command_line_agree(name, tiles, ask):
    for paper in (False, True):
        said = ask(name, *SIZES, "--hardware", GPU, *tiles, *["--paper-model"] * paper)
        found = getattr(package, name)(
            N, D, hardware=GPU, paper_model=paper, **dict(zip(["tiles"], tiles[1:], strict=False))
        )
        own = json.loads(json.dumps(found.to_dict()))
        assert {key: said[key] for key in own} == own
        assert any("implies" in note for note in own["notes"]) == (not paper)


def test_every_function_that_takes_hardware_takes_paper_model():
    functions = [f for name in package.__all__ if inspect.isfunction(f := getattr(package, name))]
    taking = [f.__name__ for f in functions if "hardware" in inspect.signature(f).parameters]
    assert {"count", "tune", "over_N", "bounds"} <= {*taking}
    lacking = [
        f.__name__ for f in functions if f.__name__ in taking and "paper_model" not in inspect.signature(f).parameters
    ]
    assert set(lacking) <= {"explain", "verify", "profile", "prune", "state_links"}, "these take no M from it"


def test_the_conditions_are_decided_in_one_place():
    """Only its own file knows the type and the note."""
    assert conditions(None, {}, None) == ({}, 1, (), False, None)
    assert conditions("h100", {}).multiple == 16 and conditions("h100", {}, 8).multiple == 8
    assert conditions("h100", {}, paper_model=True) == conditions(None, {})
    assert conditions("h100", {}).chip == load("h100")
