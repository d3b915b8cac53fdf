"""What README and docs say is there: code, commands, paths and links. test_sessions.py has what they show."""

import contextlib
import inspect
import io
import re
import subprocess
import sys

import click
import pytest
from paths import ROOT

from iosim.commands.cli import main
from iosim.commands.listed import all_commands

COMMANDS = all_commands()

README = (ROOT / "README.md").read_text()


def test_the_first_screen_has_the_question_the_picture_the_commands_and_the_answer():

    screen = "\n".join(README.splitlines()[:60])
    install, count = re.search(r"```sh\n(.*)\n(.*)\n```", screen).groups()
    assert install.endswith("pip install -q .") and count.endswith("iosim count --N 8192 --d 128 --M 100KB")
    assert (
        screen.index("?**") < screen.index("](docs/gap.svg)") < screen.index(install) < screen.index("\nflash2 196x1")
    )


def test_the_chunk_of_the_readme():
    """A 70B model on 8 GPUs: what the chunk reads if each token streams the cache, if each key and value is read once,
    and with tiles of 128 rows."""
    import iosim

    new, cached, d, layers = 8192, 131072, 128, 80
    command = re.search(r"`iosim (count --N 8192 .*?)`", " ".join(README.split()))[1]
    assert command == "count --N 8192 --Nk 139264 --d 128 --heads 8 --kv-heads 1 --causal --tiles 128x128"
    found = iosim.count(
        new, d, Nk=new + cached, heads=8, kv_heads=1, mask="causal", tiles="128x128", schedules="flash2"
    )
    keys = 2 * (new + cached) * d * 2
    once = 2 * next(bound.words for bound in found.bounds if bound.name == "compulsory")
    said = {f"**{round(layers * new * cached * 2 * d * 2 / 1e12)} TB**", f"**{layers * keys / 1e9:.1f} GB**",
            f"({layers * once / 1e9:.1f} GB with Q and O)", f"**{layers * found['flash2'].total_bytes / 1e12:.2f} TB**"}  # fmt: skip
    assert said == {"**44 TB**", "**5.7 GB**", "(8.4 GB with Q and O)", "**2.84 TB**"}
    assert all(text in README for text in said)
    first = {bound.name: bound.words for bound in iosim.count(8192, 128, "100KB").bounds}
    assert round(first["floor"] / first["compulsory"]) == 20 and "the floor is 20 times as high" in README


def test_badges_are_true():
    """They say the license and the Python versions of pyproject.toml, and are no more than these two."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    versions = re.findall(r"Python :: (3\.\d+)", " ".join(project["classifiers"]))
    badges = re.findall(r"\[!\[([^\]]*)\]\(https://img.shields.io/badge/([^)]*)\)\]\((\w[^)]*)\)", README)
    said = f"{versions[0]} to {versions[-1]}"
    assert [(text, label) for text, label, _ in badges] == [
        (f"License: {project['license']}", f"license-{project['license']}-blue"),
        (f"Python {said}", f"python-{said.replace(' ', '%20')}-blue"),
    ]
    assert project["requires-python"] == f">={versions[0]}" and README.count("shields.io") == 2


def test_the_python_example_prints_what_is_said(iosim, tmp_path):
    from iosim import SCHEDULES

    page = (ROOT / "docs/python.md").read_text()
    code, printed = re.search(
        r"## A schedule of your own\n\n```python\n(.*?)```\n\nprints\n\n```text\n(.*?)```", page, re.S
    ).groups()
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            for _ in range(2):  # a cell of a notebook may run again
                exec(code, {})
    finally:
        SCHEDULES.pop("one-row", None)
    assert out.getvalue() == 2 * printed
    assert "`iosim --load FILE.py count --schedule one-row ...` does the same" in page
    file, line = tmp_path / "own.py", "count --N 512 --d 64 --M 227KB --schedule one-row --csv"
    file.write_text(code.partition("print(")[0])
    try:
        rows = iosim("--load", file, *line.split()).stdout.splitlines()
    finally:
        SCHEDULES.pop("one-row", None)
    assert len(rows) == 2 and dict(zip(rows[0].split(","), rows[1].split(","), strict=True))["total"] == "327680"


def test_what_the_python_page_says_of_mistakes():
    """Names of iosim's own schedules stay theirs, a schedule that stores no output is refused by the output's name, and
    a missing N is Python's own error."""
    import iosim

    with pytest.raises(iosim.InputError, match="flash2"):
        iosim.register(iosim.Schedule("flash2", iosim.SCHEDULES["flash2"].text, "mine"))

    def nothing(chip, p, t):
        for i in chip.tiles(p.N, t.rows_q):
            chip.load("Q", i)

    try:
        with pytest.raises(iosim.IosimError, match="never stores its output O"):
            iosim.count(64, 8, tiles="16x16", schedules=iosim.Schedule("nothing", nothing, "stores no O"))
    finally:
        iosim.SCHEDULES.pop("nothing", None)
    with pytest.raises(TypeError, match="required positional argument: 'N'"):
        iosim.count(d=64)
    with pytest.raises(iosim.InputError, match="--d: found 'nothing'"):
        iosim.count(N=64)


def test_the_schedule_of_the_docs_registers_and_is_right():
    import iosim
    from iosim import SCHEDULES

    code = re.search(r"```python\n(.*?)```", (ROOT / "docs" / "adding-a-schedule.md").read_text(), re.S)[1]
    try:
        exec(code, {})
        result = iosim.count(N=64, d=4, tiles="16x8", schedules=["wasteful"])["wasteful"]
    finally:
        SCHEDULES.pop("wasteful", None)
    assert result.tensors["K"]["reads"] == 64 * 4 * 4 and result.tensors["Q"]["reads"] == 64 * 4 * 8


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_its_row_and_its_help(name, iosim):
    """The line of a command in `iosim --help` comes from a table. It shares words with the command's own help."""
    command = main.get_command(None, name)
    first = inspect.cleandoc(command.help).partition("\n\n")[0].replace("\n", " ")
    assert first.endswith((".", "?")) and command.name == name
    assert words(first) & words(COMMANDS[name]), (first, COMMANDS[name])
    assert f"\n| `iosim {name}` | " in (ROOT / "docs/commands.md").read_text()
    shown = iosim(name, "--help")
    assert shown.exit_code == 0 and words(first) <= words(shown.stdout)
    assert COMMANDS[name].split()[0] in iosim("--help").stdout and name in iosim("--help").stdout


def words(text):
    return {word for word in re.findall(r"[a-z0-9^-]+", text.lower()) if len(word) > 3 or word.isupper()}


def test_the_commands_with_registers_are_those_that_have_them():
    page = (ROOT / "docs/conventions.md").read_text()
    said = re.findall(r"\w+", re.search(r"`iosim ([^.]*)` have these options", page)[1].replace(" and ", " "))
    made = {name: main.get_command(click.Context(main), name) for name in COMMANDS}
    assert set(said) == {
        name for name, command in made.items() if any(p.name == "register_bytes" for p in command.params)
    }


def test_every_command_file_is_a_command():
    """A file of a wing is found by its name; one of the house has `command`."""
    files = {path.stem.removeprefix("command_") for path in (ROOT / "iosim").glob("*/command_*.py")}
    own = {path.stem for path in (ROOT / "iosim/commands").glob("*.py") if "\n@named_command(" in path.read_text()}
    assert files | own == {*COMMANDS} and not files & own


PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_paths_and_links_of_pages_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    named = re.findall(r"`((?:iosim|tests|validation|docs|configs|benchmarks)/[\w./-]+)`", text)
    linked = [link for link in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in link]
    assert [path for path in named if not (ROOT / path).exists()] == []
    assert [link for link in linked if not (page.parent / link).exists()] == []


def test_a_newcomer_finds_what_is_named():
    """Where CONTRIBUTING.md says `name` in `file`, or `name` of `file`, the file defines that name."""
    text = re.sub(r"\s+", " ", (ROOT / "CONTRIBUTING.md").read_text())
    found = re.findall(r"`(\w+)` (?:in|of) `([\w/]+\.py)`", text)
    assert len(found) >= 3
    assert [
        (name, file)
        for name, file in found
        if not re.search(rf"(def|class) {name}\b|^{name}\b.* = ", (ROOT / file).read_text(), re.M)
    ] == []


def test_what_a_kernel_was_measured_to_load(ask):
    """The page shows the l1tex load bytes of PyTorch's FlashAttention-2, one row a kernel (data/h200_sdpa.json)."""
    import json

    kernels = json.loads((ROOT / "tests/data/h200_sdpa.json").read_text())["kernels"]
    flash = [k for k in kernels if k["backend"] == "FLASH_ATTENTION" and k["pass"] == "forward" and not k["causal"]]
    assert flash
    for k in flash:
        sizes = ["--N", k["N"], "--Nk", k["Nk"], "--d", k["d"], "--heads", k["heads"], "--batch", k["batch"]]
        tiles = ["--tiles", "{}x{}".format(*k["tiles"]), "--schedule", "flash2", "--acc-dtype", "fp32"]
        measured = k["metrics"]["l1tex__t_bytes_pipe_lsu_mem_global_op_ld.sum"]
        assert ask("count", *sizes, *tiles)["results"][0]["read_bytes"] == measured


def test_scripts_that_write_pages_begin_without_pytest():
    """pytest adds tests/helpers to the path, and `python tests/house/test_schema.py` does not."""
    text = (ROOT / "CONTRIBUTING.md").read_text() + "".join(page.read_text() for page in (ROOT / "docs").glob("*.md"))
    files = sorted(set(re.findall(r"python\s+(tests/\w+/\w+\.py)", text)))
    assert len(files) > 5
    code = """
import runpy, sys
for file in sys.argv[1:]:
    path, known = [*sys.path], {*sys.modules}
    runpy.run_path(file, run_name="read")
    sys.path[:] = path
    for name in {*sys.modules} - known:
        if "helpers" in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
"""
    subprocess.run([sys.executable, "-c", code, *files], cwd=ROOT, check=True)


def test_the_changelog_says_each_thing_once():
    """A merge that keeps both sides would leave a change there twice, or leave it in another version as well."""
    changelog = (ROOT / "CHANGELOG.md").read_text()
    texts = [line for line in changelog.splitlines() if len(line) > 60 and not line.startswith("|")]
    assert sorted(texts) == sorted(set(texts))
    for version in changelog.split("\n## ")[1:]:
        names = re.findall(r"^- \*\*(.+?)\*\*", version, re.M)
        assert all(names.count(name) <= 2 for name in names), version[:5]
