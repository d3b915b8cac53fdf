"""docs/schema.json has the shape of every answer in JSON and CSV, and answers have the shape that it says.

`python tests/house/test_schema.py` writes it: the shape of an object is that of all EXAMPLES together, and the type of a
column is the one with which it is declared. The lines in OTHERS were not looked at for it. Both stand in tests/*/questions.txt.
"""

import csv
import io
import json
import re
import shlex
import sys
from functools import cache, reduce
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from click.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parent.parent / "helpers"))
from paths import ROOT
from questions import has_rows, questions

from iosim.answer import types_of
from iosim.commands import answer as writing
from iosim.commands.cli import main
from iosim.commands.listed import all_commands
from iosim.counting.columns import types_of_count
from iosim.event_file import EVENTS
from iosim.files import forms_of
from iosim.sweeps.questions import types_of_rows

PAGE = ROOT / "docs" / "schema.json"
SIZES = "--N 64 --d 8"
TRACES = ["--N 8 --d 4 --tiles 4x4", "--N 8 --d 4 --tiles 4x4 --schedule flash1,flash2 --mask causal"]
EXAMPLES, ROWS = (
    {name: made for name, (made, _) in questions().items() if has_rows(name) is rows} for rows in (False, True)
)
OTHERS = {name: others for name, (_, others) in questions().items()}
NEEDS = {"explain": "triton"}  # where it is missing, the page keeps what it has
SWEEP = ("sweep", "--N", "64", "--d", "8", "--M", "4KB", "-o")
MAPS = ("tensors", "distinct", "totals", "more_tiles", "options", "flops_per_second", "ridges", "not_predicted", "stored", "flops_by_kind",
        "constants", "steps", "loop_ratios", "first_seconds", "tensor_flops_per_second")  # fmt: skip


def invoked(*args):
    """The result of a command line, which is what the answer says that it is."""
    before, sys.argv = sys.argv, ["iosim", *args]
    try:
        return CliRunner().invoke(main, args)
    finally:
        sys.argv = before


def run(command, line, form):
    return told(command, line, form)[0]


@cache
def told(command, line, form):
    """(what a command line writes, the tables that it makes of its answer)."""
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "table_of", lambda parts, own=writing.table_of: seen.append(own(parts)) or seen[0])
        result = invoked(*command.split(), *shlex.split(line), form)
    assert result.exit_code in (0, 1) and result.stdout, (command, line, result.output)
    return result.stdout, seen


@cache
def types(command, line):
    """The type of each column of a command line's CSV, as its columns are declared."""
    if command == "trace":
        return {"schedule": "string", **types_of(EVENTS)}
    if command == "sweep":
        what = re.search(r"--what (\w+)", line)
        return types_of_rows(what[1]) if what else types_of_count()
    return told(command, line, "--csv")[1][0].types()


@cache
def known_types():
    """The type of each column of any of the commands, by its name."""
    lines = [(command, line) for command, lines in {**EXAMPLES, **ROWS}.items() if not lacks(command) for line in lines]
    return {name: kind for command, line in lines for name, kind in types(command, line).items()}


def shape(value, name=""):
    """The schema of one value."""
    if isinstance(value, dict):
        inner = {key: shape(part, key) for key, part in value.items()}
        if name in MAPS:
            return {"type": ["object"], "additionalProperties": reduce(both, inner.values(), {})}
        return {"type": ["object"], "properties": inner, "required": sorted(inner)}
    if isinstance(value, list):
        of = "" if name == "steps" else name  # those of a schedule are a list, and the measured ones a map
        return {"type": ["array"], "items": reduce(both, (shape(part, of) for part in value), {})}
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}
    return {"type": [kinds[type(value)]]}


def both(one, other):
    """The schema of values of either."""
    if not one or not other:
        return one or other
    kinds = {*one["type"], *other["type"]}
    found = {"type": sorted(kinds - ({"integer"} if "number" in kinds else set()))}
    if "properties" in one and "properties" in other:
        names = list(dict.fromkeys([*one["properties"], *other["properties"]]))
        found["properties"] = {
            name: both(one["properties"].get(name, {}), other["properties"].get(name, {})) for name in names
        }
        found["required"] = sorted({*one["required"]} & {*other["required"]})
        return found
    for key in ("properties", "required", "additionalProperties", "items"):
        if key in one or key in other:
            inner = (one.get(key), other.get(key))
            found[key] = (
                both(*inner) if key in ("additionalProperties", "items") and all(inner) else inner[0] or inner[1]
            )
    return found


def finished(schema, name=""):
    """The schema with null where only null was seen, and with all that a column of this name may have."""
    found = {key: value for key, value in schema.items() if key != "type"}
    kinds = {*schema.get("type", [])}
    if kinds == {"null"}:
        kinds |= {known_types().get(name, "integer")}  # a list or an object is null in no example
    if kinds:
        found["type"] = next(iter(kinds)) if len(kinds) == 1 else sorted(kinds)
    if "properties" in found:
        found["properties"] = {key: finished(part, key) for key, part in found["properties"].items()}
    for key in ("items", "additionalProperties"):
        if key in found:
            found[key] = finished(found[key], name)
    return found


def rows_of(command, line):
    """The rows of a command line's CSV, with their cells read as the types of their columns."""
    kinds = types(command, line)
    return [
        {name: read(cell, kinds[name]) for name, cell in row.items() if is_named(command, name)}
        for row in csv.DictReader(io.StringIO(run(command, line, "--csv")))
    ]


def is_named(command, name):
    """Whether a column has the name that iosim gives it, and not that of a kernel's constant, as BLOCK."""
    return command != "explain" or name.islower()


def read(cell, kind):
    if cell == "":
        return None
    if kind == "boolean":
        return {"True": True, "False": False}[cell]
    return {"integer": int, "number": float, "string": str}[kind](cell)


def of_rows(command, lines):
    """The schema of the rows of these command lines."""
    tables = [rows_of(command, line) for line in lines]
    kinds = {name: kind for line in lines for name, kind in types(command, line).items()}
    names = list(dict.fromkeys(name for rows in tables for row in rows for name in row))
    always = [name for name in names if all(name in row for rows in tables for row in rows)]
    columns = {name: {"type": ["null", kinds[name]]} for name in names}
    return {"type": "array", "items": {"type": "object", "properties": columns, "required": sorted(always)}}


def schema():
    """The whole page."""
    found = {}
    for command, lines in EXAMPLES.items():
        if lacks(command):
            kept = json.loads(PAGE.read_text())["$defs"]
            found |= {name: kept[name] for name in (f"{command}.json", f"{command}.csv")}
            continue
        answers = [json.loads(run(command, line, "--json")) for line in lines]
        found[f"{name_of(command)}.json"] = finished(reduce(both, map(shape, answers)))
        found[f"{name_of(command)}.csv"] = of_rows(command, lines)
    for command, lines in ROWS.items():
        found[f"{command}.csv"] = of_rows(command, lines)
    found["trace.json"] = finished(reduce(both, (shape(json.loads(run("trace", line, "--json"))) for line in TRACES)))
    of_sweep = ("_manifest.json", "FILE.meta.json")
    found |= zip(of_sweep, map(finished, map(shape, written_by_a_sweep())), strict=True)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Answers of iosim: --json as they are, --csv as rows whose empty cells are null",
        "$defs": shared(found) | found,
    }


def shared(found):
    """The objects that stand in `found` again and again, by the names of their keys. There they become references."""
    seen = {}

    def look(key, value):
        if isinstance(value, dict):
            if "properties" in value and len(json.dumps(value)) > SHORT:
                seen.setdefault(json.dumps(value), []).append(key)
            for name, one in value.items():
                look(key if name in ("items", "properties") else name, one)
        elif isinstance(value, list):
            for one in value:
                look(key, one)

    look("", found)
    names = {}
    for text, keys in seen.items():
        if len(keys) > 1:
            number = sum(name.split("-")[0] == keys[0] for name in names.values())
            names[text] = keys[0] + (f"-{number + 1}" if number else "")

    def referred(value, whole=False):
        if isinstance(value, list):
            return [referred(one) for one in value]
        if not isinstance(value, dict):
            return value
        if not whole and (name := names.get(json.dumps(value))):
            return {"$ref": f"#/$defs/{name}"}
        return {key: referred(one) for key, one in value.items()}

    found.update({name: referred(value) for name, value in found.items()})
    return {name: referred(json.loads(text), whole=True) for text, name in names.items()}


SHORT = 250  # characters of an object that is written where it stands


def name_of(command):
    """The name of a command's answers: those of `tune --curve` are `tune-curve`."""
    return command.replace(" --", "-")


def lacks(command):
    """Whether a command cannot answer here."""
    return command in NEEDS and not find_spec(NEEDS[command])


def written_by_a_sweep():
    """The manifest of a folder, and what stands beside a file."""
    with TemporaryDirectory() as folder:
        for name in ("sweep/", "x.csv"):
            assert invoked(*SWEEP, f"{folder}/{name}").exit_code == 0
        manifest = json.loads(Path(folder, "sweep/_manifest.json").read_text())
        manifest["arguments"] = {}  # depend on what is asked
        return manifest, json.loads(Path(folder, "x.csv.meta.json").read_text())


def text_of(value):
    """The page: a line for each definition."""
    *head, (name, definitions) = value.items()
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(one)}" for key, one in definitions.items())
    return json.dumps(dict(head))[:-1] + f", {json.dumps(name)}: {{\n{lines}\n}}}}\n"


@pytest.fixture(scope="module")
def page():
    return json.loads(PAGE.read_text())


def test_every_command_is_asked_or_writes_no_rows():
    """All but those that write pictures or pages, or measure a GPU, stand in some tests/*/questions.txt."""
    missing = {*all_commands()} - {name.split()[0] for name in questions()}
    assert not [name for name in missing if {"json", "csv"} <= {*forms_of(name)}]


@pytest.mark.long
def test_the_page_is_of_today():
    assert PAGE.read_text() == text_of(schema()), "python tests/house/test_schema.py writes it"


@pytest.mark.needs("jsonschema")
def test_the_page_is_a_schema(page):
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    Draft202012Validator.check_schema(page)
    with pytest.raises(SchemaError):
        Draft202012Validator.check_schema({**page, "type": "none"})


@pytest.mark.needs("jsonschema")
@pytest.mark.parametrize("command", EXAMPLES)
def test_answers_have_the_shape_that_the_page_says(command, page):
    from jsonschema import Draft202012Validator

    if lacks(command):
        pytest.skip(f"{NEEDS[command]} is not installed")
    forms = (f"#/$defs/{name_of(command)}.{form}" for form in ("json", "csv"))
    of_json, of_csv = (Draft202012Validator({**page, "$ref": form}) for form in forms)
    for line in [*EXAMPLES[command][:1], *OTHERS[command]]:
        answer, rows = json.loads(run(command, line, "--json")), rows_of(command, line)
        of_json.validate(answer)
        of_csv.validate(rows)
        with pytest.raises(Exception, match="'schema' is a required property"):
            of_json.validate({name: value for name, value in answer.items() if name != "schema"})
        if rows:
            with pytest.raises(Exception, match="is not of type"):
                of_csv.validate([{**rows[0], next(iter(rows[0])): ["x"]}])


@pytest.mark.needs("jsonschema")
@pytest.mark.parametrize("command", ROWS)
def test_rows_have_the_columns_that_the_page_says(command, page):
    from jsonschema import Draft202012Validator

    for line in OTHERS[command]:
        rows = rows_of(command, line)
        Draft202012Validator({**page, "$ref": f"#/$defs/{command}.csv"}).validate(rows)
        assert {*rows[0]} <= {*page["$defs"][f"{command}.csv"]["items"]["properties"]}


@pytest.mark.needs("jsonschema")
def test_a_timeline_has_the_shape_that_the_page_says(page):
    from jsonschema import Draft202012Validator

    timeline = json.loads(run("trace", "--N 16 --d 4 --tiles 8x8 --schedule standard", "--json"))
    of_trace = Draft202012Validator({**page, "$ref": "#/$defs/trace.json"})
    of_trace.validate(timeline)
    with pytest.raises(Exception, match="is a required property"):
        of_trace.validate({**timeline, "traceEvents": [{"name": "x", "ph": "X"}]})


if __name__ == "__main__":
    PAGE.write_text(text_of(schema()))
