"""The functions of `import iosim`: docs/python.md, and the commands of the same names."""

import doctest
import inspect
import json
import os
import re
import subprocess
import sys
from functools import partial

import pytest
from paths import ROOT

import iosim
from iosim.answer import Answer
from iosim.core.options import option_names
from iosim.core.problem import USUAL
from iosim.counting.sweep_axes import AXES
from iosim.points import own_options

PAGE = (ROOT / "docs" / "python.md").read_text()
FUNCTIONS = [
    "count",
    "sweep",
    "tune",
    "curve",
    "least_M",
    "bounds",
    "over_N",
    "roofline",
    "memory",
    "links",
    "verify",
    "trace",
    "cache",
    "plot",
]


def examples():
    return "\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.S))


def test_the_page_shows_what_is_printed():
    test = doctest.DocTestParser().get_doctest(examples(), {}, "docs/python.md", None, 0)
    assert len(test.examples) > 20
    said = []
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test, out=said.append)
    assert not said, "".join(said)


def test_importing_imports_no_library_and_dir_shows_everything():
    code = """
import sys; before = set(sys.modules)
import iosim
new = {m.split(".")[0] for m in set(sys.modules) - before}
shown = set(dir(iosim))
new_after_dir = {m.split(".")[0] for m in set(sys.modules) - before}
import json; print(json.dumps([sorted(new), sorted(new_after_dir), sorted(shown)]))
"""
    new, after, shown = json.loads(subprocess.check_output([sys.executable, "-c", code]))
    assert not {"numpy", "pandas", "click", "dataclasses", "inspect"} & {*new, *after}
    assert set(FUNCTIONS) <= set(shown) and set(iosim.__all__) <= set(shown) and "TYPE_CHECKING" not in shown


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_has_types_a_docstring_and_the_options_of_its_command(name):
    function = getattr(iosim, name)
    parameters = inspect.signature(function).parameters
    assert inspect.getdoc(function) and all(p.annotation != p.empty for p in parameters.values())
    if name in ("curve", "over_N", "least_M"):
        return
    from iosim.commands.cli import main

    options = {option.name for option in main.get_command(None, name).params} - NOT_IN_PYTHON
    taken = {
        *parameters,
        *(own_options() if name == "sweep" else ()),
    }  # which takes those of the command that it asks as **values
    assert {PYTHON_NAMES.get(option, option) for option in options} - SPECIAL.get(name, set()) <= taken


# Options that only a command line needs: the form of its answer, M in words (M="512el" here), --causal for mask="causal".
NOT_IN_PYTHON = {"as_json", "as_csv", "causal", "detail", "every", "config", "columns", "dry_run", "files", "help",
                 "in_browser"}  # fmt: skip
PYTHON_NAMES = {"no_counters": "counters", "kind": "format", "as_grid": "grid"}
SPECIAL = {
    "tune": {"curve", "over", "by", "at_most", "x_floor", "decode"},  # functions of their own
    "sweep": {"path", "format", "part_rows", "resume", "quiet", "gather"},  # the answer is a DataFrame
    "plot": {"M"},
    "trace": {"schedules"}, "cache": {"schedules", "path", "trace"},  # one schedule: `schedule`
}  # fmt: skip
PATH = {name: SPECIAL.setdefault(name, set()).add("path") for name in FUNCTIONS if name not in ("trace", "plot")}

SIZES = {"N": 64, "d": 8}
ASKED = {
    "count": ("--M 4KB --mask causal", {**SIZES, "M": "4KB", "mask": "causal"}),
    "tune": ("--hardware T4 --schedule flash1,flash2", {**SIZES, "hardware": "T4", "schedules": ["flash1", "flash2"]}),
    "bounds": ("--M 4KB --heads 2", {**SIZES, "M": "4KB", "heads": 2}),
    "roofline": ("--hardware H100 --tiles 16x32", {**SIZES, "hardware": "H100", "tiles": (16, 32)}),
    "count --pass step": ("--tiles 16x32 --unfused dropout",
                          {**SIZES, "passes": "step", "tiles": iosim.Tiling(16, 32), "unfused": "dropout"}),
    "memory": ("--tiles 16x16 --grid", {**SIZES, "tiles": (16, 16), "grid": True}),
    "verify": ("--cpu --tiles 16x8 --schedule flash2 --seed 3",
               {**SIZES, "cpu": True, "tiles": (16, 8), "schedules": "flash2", "seed": 3}),
    "cache": ("--M 1KB,4KB --tiles 16x16 --policy lru", {**SIZES, "M": ["1KB", 4096], "tiles": (16, 16), "policy": "lru"}),
}  # fmt: skip


@pytest.mark.parametrize("name", ASKED)
def test_a_command_and_its_function_say_the_same(name, iosim):
    import iosim as package

    options, keywords = ASKED[name]
    line = (*name.split(), "--N", 64, "--d", 8, *options.split())
    found = getattr(package, name.split()[0])(**keywords)
    said = json.loads(iosim(*line, "--json").stdout)
    assert {k: v for k, v in said.items() if k not in ("schema", "iosim", "argv")} == json.loads(
        json.dumps(found.to_dict())
    )
    assert iosim(*line).stdout == str(found).partition("\nnote: ")[0] + "\n"
    written = iosim(*line, "--csv").stdout.splitlines()
    assert written[0].split(",") == list(found.to_frame().columns) and len(written) == 1 + len(found.to_frame())


SWEEPS = {
    "count": ("--M 1KB,4KB --mask dense;causal", {"M": ["1KB", 4096], "mask": ["dense", "causal"]}),
    "tune": ("--M 16B,64KB --least-blocks 1,4 --schedule flash1,flash2",
             {"M": ["16B", "64KB"], "least_blocks": (1, 4), "schedules": "flash1,flash2"}),
    "cache": ("--M 1KB --tiles 16x16 --line 32,64 --tensors Q;K,V",
              {"M": "1KB", "tiles": (16, 16), "line": "32,64", "tensors": ["Q", "K,V"]}),
    "check": ("--tiles 16x8 --seed 0:2:+1 --dropout 0.25 --schedule flash2",
              {"tiles": (16, 8), "seed": range(3), "dropout": 0.25, "schedules": "flash2"}),
    "roofline": ("--hardware t4 --M 16B,64KB --decode", {"hardware": "t4", "M": ["16B", "64KB"], "decode": True}),
}  # fmt: skip


@pytest.mark.parametrize("what", SWEEPS)
def test_a_sweep_has_the_rows_of_the_command(what, iosim, tmp_path):
    import pandas as pd

    import iosim as package

    options, keywords = SWEEPS[what]
    out = tmp_path / "x.csv"
    assert iosim("sweep", "--N", "32,64", "--d", 8, "--what", what, *options.split(), "-o", out).exit_code == 0
    found, said = (
        package.sweep(N=[32, 64], d=8, what=what, **keywords),
        pd.read_csv(out, dtype=str, keep_default_na=False),
    )
    assert list(found) == list(said) and len(found) == len(said) > 1
    for name in found:
        assert ["" if pd.isna(cell) else str(cell) for cell in found[name].tolist()] == said[name].tolist(), name


@pytest.mark.long
@pytest.mark.parametrize("what", ["count", "tune"])
def test_a_sweep_in_processes_has_the_same_rows(what):
    from pandas.testing import assert_frame_equal

    import iosim as package

    options, keywords = SWEEPS[what]
    one, two = (package.sweep(N="32:96:+32", d=8, what=what, **keywords, jobs=jobs) for jobs in (1, 2))
    assert_frame_equal(one, two)


@pytest.mark.long
def test_a_script_without_a_guard_is_told_so(tmp_path):
    """Every process that Python begins runs the script again."""
    script = tmp_path / "script.py"
    script.write_text("import iosim; iosim.sweep(N=64, d=8, M='1KB', jobs=2)")
    found = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=ROOT, env=os.environ)
    assert found.returncode == 1 and found.stderr.endswith("must stand under if __name__ == '__main__'\n")


def test_mask_trace_and_plot_say_what_their_commands_say(iosim, tmp_path):
    import iosim as package

    masked = package.plot(picture="mask", mask="causal", N=64, tiles=(16, 16))
    said = iosim("plot", "--picture", "mask", "--causal", "--N", 64, "--tiles", "16x16").stdout
    assert said == f"{masked}\n" and masked.to_frame()["active_tiles"].tolist() == [10]
    events = package.trace(64, 8, tiles=(16, 16), path=str(tmp_path / "t.csv"))
    assert iosim("trace", "--N", 64, "--d", 8, "--tiles", "16x16").stdout == (tmp_path / "t.csv").read_text()
    assert len(events.to_frame()) == len(list(events)) == len((tmp_path / "t.csv").read_text().splitlines()) - 1
    picture = package.plot(N=64, d=8, schedules="flash2")
    assert picture._repr_html_().startswith("<svg") and {"flash2"} <= set(picture.to_frame()["line"])
    of_rows = package.plot(package.sweep(N="64:256:x2", d=8, M="2KB"), x="N", y="total", by="schedule,tiling")
    assert len(of_rows.drawn.lines) == len(of_rows.to_frame()["line"].unique()) > 3
    assert max(row["visible"] for row in masked.drawn.rows()) == 1
    gap = package.plot(picture="gap", N=64, d=8, schedules="flash2").to_frame()
    assert gap["total"].notna().sum() + gap["ratio_to_floor"].notna().sum() == len(gap), "of two charts"


@pytest.mark.parametrize("name", [*ASKED, "curve"])
def test_an_answer_is_short_as_repr_and_a_table_in_a_notebook(name):
    keywords = {**SIZES, "schedules": "flash2"} if name == "curve" else ASKED[name][1]
    found = getattr(iosim, name.split()[0])(**keywords)
    assert isinstance(found, Answer) and "\n" not in repr(found) and len(repr(found)) < 200
    html = found._repr_html_()
    assert html.count("<table>") == html.count("</table>") >= 1 and "<td" in html
    assert "N&lt;2" not in html and html.count("<tr>") > 1


def test_the_tiles_of_least_time_are_those_of_the_command(iosim):
    import iosim as package

    line = ["tune", "--N", "128", "--d", "64", "--schedule", "flash2", "--hardware", "h100"]
    found = package.tune(128, 64, hardware="h100", schedules="flash2")
    said = json.loads(iosim(*line, "--json").stdout)
    assert {k: v for k, v in said.items() if k not in ("schema", "iosim", "argv")} == json.loads(
        json.dumps(found.to_dict())
    )
    assert found.winner.at_least_seconds > 0 and found.winner.binds == said["winner"]["binds"]


def test_html_is_escaped_and_the_winner_stands_out():
    report = iosim.count(N=64, d=8, M="4KB", mask="causal&window:4")
    html = report._repr_html_()
    assert "causal&amp;window:4" in html and "causal&window" not in html and "font-weight: bold" in html
    assert "note: standard" in html and "note: standard" in str(report)


def test_whole_numbers_stay_whole_beside_gaps():
    frame = iosim.count(N=64, d=8, M="1KB").to_frame()
    assert frame["Br"].isna().any() and str(frame["Br"].dtype) == "Int64"
    assert (
        str(iosim.count(N=2**40, d=2**10, tiles=(64, 64), schedules="flash1,standard").to_frame()["flops"].dtype)
        == "object"
    )


BAD = {
    "both M and hardware": (lambda: iosim.count(64, 8, M="4KB", hardware="T4"), "--M: found '--hardware as well'"),
    "tiles of one": (lambda: iosim.count(64, 8, tiles=(16,)), r"--tiles: .*\(128, 64\)"),
    "tiles of none": (lambda: iosim.count(64, 8, tiles=(0, 16)), "--tiles"),
    "an unknown schedule": (lambda: iosim.tune(64, 8, "4KB", schedules="flash3"), "--schedule: found 'flash3'"),
    "tune of several M": (lambda: iosim.tune(64, 8, M=["1KB", "2KB"]), "iosim.sweep takes several"),
    "tune without M": (lambda: iosim.tune(64, 8), "--M: found 'nothing'.*hardware='h100', or iosim.curve"),
    "count without M": (lambda: iosim.count(64, 8), "in Python hardware='h100', or tiles='128x64'"),
    "a step without M": (lambda: iosim.count(64, 8, passes="step"), "in Python hardware='h100', or tiles='128x64'"),
    "every M of tune": (lambda: iosim.tune(64, 8, curve=True), "'curve'; did you mean 'iosim.curve'"),
    "a goal of tune": (lambda: iosim.tune(64, 8, at_most="1MB"), "'at_most'; did you mean 'iosim.least_M'"),
    "memory without d": (lambda: iosim.memory(64), "--d: found 'nothing'"),
    "too many lengths": (lambda: iosim.memory("1:100001:+1", 8), "--N: found '100001 lengths'"),
    "an unknown keyword": (lambda: iosim.bounds(64, 8, masks="causal"), "bounds: keyword: found 'masks'.*did you mean 'mask'"),
    "a mask of memory": (lambda: iosim.memory(100, 8, heads=4, mask="window:3"), "memory: keyword: found .mask='window:3'"),
    "a schedule's option of memory": (lambda: iosim.memory(100, 8, lse=True), "memory: keyword: found 'lse=True'"),
    "no length of memory": (lambda: iosim.memory([], 8), "--N: found 'no length'"),
    "an option that no bound reads": (lambda: iosim.bounds(64, 8, ring=3), "bounds: keyword: found 'ring=3'"),
    "a floor of numbers": (lambda: iosim.floor(64, 8, 100), "floor: problem: found 64; allowed: an iosim.Attention"),
    "a mask of a problem as text": (lambda: iosim.Attention(64, 8, mask="causal"), r"parse_mask\('causal'\) makes one"),
    "no registers": (lambda: iosim.count(64, 8, "1KB", registers=[]), "registers: found ''"),
    "an option of another command": (lambda: iosim.sweep(N=64, d=8, M="1KB", line=64), "--line: found '--what count'"),
    "an unknown command": (lambda: iosim.sweep(N=64, d=8, M="1KB", what="tone"), "did you mean 'tune'"),
    "registers": (lambda: iosim.tune(64, 8, hardware="h100", register_bytes=2**20), "at most 256KB, the registers of an SM of H100"),
    "registers of a sweep": (lambda: iosim.sweep(N=64, d=8, hardware="h100", register_bytes="64K,1M"), "--registers: found '?1M|4194304"),
    "no process": (lambda: iosim.sweep(N=64, d=8, M="1KB", jobs=0), "--jobs"),
    "an unknown keyword of a sweep": (lambda: iosim.sweep(N=64, d=8, M="1KB", lines=64), "keyword: found 'lines'"),
    "a picture of rows and sizes": (lambda: iosim.plot("x.csv", N=3), "one of the two"),
}  # fmt: skip


def test_defaults_that_are_given_change_nothing():
    assert str(iosim.memory(100, 8, mask="dense", lse=False, ring=None)) == str(iosim.memory(100, 8))
    assert str(iosim.count(64, 8, "1KB", stages=None, splits=None)) == str(iosim.count(64, 8, "1KB"))
    assert str(iosim.sweep(N=64, d=8, M="1KB", gqa=[], rule=None)) == str(iosim.sweep(N=64, d=8, M="1KB"))


TAKE_A_MASK = {
    "count": {"M": "1KB"}, "tune": {"M": "1KB"}, "bounds": {"M": "1KB"}, "curve": {}, "verify": {"cpu": True},
    "roofline": {"hardware": "t4"}, "links": {"ranks": 4}, "least_M": {"x_floor": 3},
    "cache": {"M": "1KB", "tiles": "4x4"}, "sweep": {"M": "1KB"},
}  # fmt: skip


@pytest.mark.parametrize("name", TAKE_A_MASK)
def test_causal_is_short_for_a_mask(name):
    ask = partial(getattr(iosim, name), N=64, d=8, **TAKE_A_MASK[name])
    short, long = (str(ask(**mask)) for mask in ({"causal": True}, {"mask": "causal"}))
    assert short == long != str(ask(causal=False))
    with pytest.raises(iosim.InputError, match="causal=True: found .*window:3.* as well"):
        ask(causal=True, mask="window:3")


@pytest.mark.parametrize("elsewhere, meant", [("seq_len", "N"), ("head_dim", "d"), ("num_heads", "heads")])
@pytest.mark.parametrize("name", [*TAKE_A_MASK, "memory"])
def test_names_of_other_programs_get_a_hint(name, elsewhere, meant):
    given = {"N": 64, "d": 8, **TAKE_A_MASK.get(name, {}), elsewhere: 64}
    if name != "memory":
        given.pop(meant, None)
    with pytest.raises(iosim.InputError, match=f"found {elsewhere!r}.*did you mean {meant!r}"):
        getattr(iosim, name)(**given)


OF_CAUSAL = {
    "published tiles": lambda mask: len(iosim.count(8192, 64, hardware="h100", mask=mask, schedules="flash2").published),
    "measured times": lambda mask: iosim.roofline(8192, 128, "h100", heads=32, schedules="flash2", mask=mask).to_dict()["measured"],
    "the floor of GPUs": lambda mask: iosim.links(8192, 128, 4, heads=8, schedules="ring", mask=mask).results[0].ratio_to_floor,
    "packed decoding": lambda mask: iosim.count(1, 64, "100KB", Nk=1024, heads=8, kv_heads=2, gqa="pack", mask=mask)["flash2"].total,
}  # fmt: skip


@pytest.mark.parametrize("ask", OF_CAUSAL.values(), ids=OF_CAUSAL)
def test_causal_is_known_in_every_spelling(ask):
    assert ask(" causal") == ask("(causal)") == ask("causal") and ask("causal")


def test_types_of_a_sweep_have_the_names_of_count():
    own, other = (
        iosim.sweep(N=1024, d=64, hardware="h100", dtype=name, schedules="flash2") for name in ("fp64", "float64")
    )
    assert own.equals(other) and list(own.dtype) == ["fp64"] and list(own.acc_dtype) == ["fp64"]
    assert set(iosim.sweep(N=64, d=16, M="512el", dtype="fp16,half").dtype) == {"fp16"}


def own_parameters(name):
    """{parameter of a function: whether it must be given}, without options of a problem and of commands."""
    found = inspect.signature(inspect.unwrap(getattr(iosim, name))).parameters.values()
    return {one.name: one.default is one.empty for one in found if one.kind is not one.VAR_KEYWORD}


TAKE_OPTIONS = {name: own_parameters(name) for name in [*TAKE_A_MASK, "memory", "over_N", "trace", "batch", "plot"]}
ELSEWHERE = {"sweep": (*AXES, *own_options()), "plot": AXES}


@pytest.mark.parametrize("name", TAKE_OPTIONS)
def test_a_keyword_of_another_function_is_an_input_error(name):
    own = TAKE_OPTIONS[name]
    taken = {*own, *USUAL, *option_names(), *ELSEWHERE.get(name, ())}
    short = {"schedule"} if "schedules" in own else set()
    others = {other for each in TAKE_OPTIONS.values() for other in each} - taken - short
    assert len(others) > 12
    for other in others:
        with pytest.raises(iosim.InputError, match=f"{name}: keyword: found {other!r};.* {list(own)[-1]},"):
            getattr(iosim, name)(**{key: 64 for key, needed in own.items() if needed}, **{other: 1})


@pytest.mark.parametrize("ask, message", BAD.values(), ids=BAD)
def test_a_mistake_is_an_input_error(ask, message):
    with pytest.raises(iosim.InputError, match=message):
        ask()


def test_every_length_of_memory_is_counted_alone():
    """Rows of an axis, which are computed together, are those of single lengths, above 2^53 too."""
    lengths = [1, 7, 1024, 2**20, 2**40]
    for chosen in (lengths[:3], lengths):
        rows = iosim.memory(chosen, 64, heads=6, kv_heads=3, acc_dtype="fp32")
        assert [dict(row) for row in rows] == [
            dict(iosim.memory(N, 64, heads=6, kv_heads=3, acc_dtype="fp32")[0]) for N in chosen
        ]
    assert rows[-1]["S_bytes"] == 6 * 2**80 * 2


def test_the_names_of_the_command_line_are_known_too():
    """`schedule`, `registers` and `causal` stand in every signature that has their longer names, and mean the same."""
    asked = {"N": 64, "d": 8, "M": "4KB"}
    short = iosim.count(**asked, schedule="flash2", registers="4K", causal=True).to_dict()
    assert short == iosim.count(**asked, schedules="flash2", register_bytes=16384, mask="causal").to_dict()
    swept = iosim.sweep(**asked, schedule="flash2", registers="0,4K")
    assert swept.equals(iosim.sweep(**asked, schedules="flash2", register_bytes="0,4K"))
    for name in TAKE_A_MASK:
        parameters = inspect.signature(getattr(iosim, name)).parameters
        assert "causal" in parameters and ("schedules" in parameters) <= ("schedule" in parameters), name
        assert ("register_bytes" in parameters) == ("registers" in parameters), name
    with pytest.raises(iosim.InputError, match="schedule: found 'schedules as well'"):
        iosim.count(**asked, schedule="flash1", schedules="flash2")


def test_help_shows_every_question(capsys):
    """Each function that has a command, with the line of `iosim --help`; then the help of one."""
    from iosim.commands.listed import all_commands

    iosim.help()
    shown = capsys.readouterr().out
    functions = [name for name in all_commands() if callable(getattr(iosim, name, None))]
    assert all(f"iosim.{name} " in shown and all_commands()[name] in shown for name in functions)
    iosim.help("count")
    assert inspect.getdoc(iosim.count).splitlines()[0] in capsys.readouterr().out
    with pytest.raises(iosim.InputError, match="did you mean 'count'"):
        iosim.help("cuont")


def test_questions_with_the_names_of_modules_are_asked_and_imported():
    """`iosim.schedules` and `iosim.hardware` are modules that answer; their signatures show every option."""
    from iosim.hardware import load

    assert load("h100").name == "H100" and iosim.hardware.load is load and len(iosim.hardware()) > 10
    assert iosim.hardware("h100").to_dict()["hardware"][0]["key"] and "flash2" in iosim.schedules.SCHEDULES
    assert {"causal", "registers", "tiles"} <= {*inspect.signature(iosim.schedules).parameters}
    (own,) = iosim.schedules("flash2", 64, 8, tiles=(8, 8), causal=True).to_dict()["schedules"]
    assert own["run"]["mask"] == "causal" and own["text"] and len(iosim.schedules().to_rows()) == len(iosim.SCHEDULES)
