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
    """The answer is that of the conditions written out, and with --paper-model that of M alone."""
    found, said = answer(iosim, line, "--hardware", GPU)
    assert "implies fp32 accumulators" in said and "--paper-model" in said
    own = ["--tile-multiple", 16] if accepts(line, "--tile-multiple") else []
    explicit, quiet = answer(iosim, line, "--M", M, "--acc-dtype", "fp32", *own)
    if own:
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
    assert ask("count", *SIZES, *both)["results"] == ask("count", *SIZES, "--M", M)["results"]
    assert ask("count", *SIZES, *both)["notes"] == []
    (note,) = ask("count", *SIZES, "--hardware", GPU, "--tiles", "100x50")["notes"]
    assert "fp32 accumulators, as" in note and "multiples" not in note, "given tiles stay as they are"
    (note,) = ask("count", *SIZES, "--hardware", GPU, "--acc-dtype", "fp32")["notes"]
    assert "implies best tiles in multiples of 16" in note
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
    assert set(lacking) <= {"explain", "verify", "profile", "prune"}, "these take no M from it"


def test_the_conditions_are_decided_in_one_place():
    """Only its own file knows the type and the note."""
    assert conditions(None, {}, None) == ({}, 1, (), False)
    assert conditions("h100", {}).multiple == 16 and conditions("h100", {}, 8).multiple == 8
    assert conditions("h100", {}, paper_model=True) == conditions(None, {})
