"""validation/sources/README.md: every command of both tables runs, and prints the figures that stand beside it."""

import re
import shlex

import pytest
from paths import ROOT

PAGE = (ROOT / "validation/sources/README.md").read_text()
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w.])")
READ_ONLY = ("54", "E18")  # no command answers these


def table_of(heading):
    """Rows of the table under a heading, without the two lines of its head."""
    part = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def spans(cell):
    return re.findall(r"`([^`]*)`", cell)


def entries():
    """(number, commands, figures) of both tables."""
    rows = [(r[0], spans(r[2]), spans(r[3])) for r in table_of("Statements")]
    return rows + [(r[0], spans(r[3]), spans(r[4])) for r in table_of("Errors")]


def shown(figure, output):
    """Whether an output has a figure. Numbers are rounded to as many decimals as the figure has, and groups of digits
    have no separator."""
    output += "\n" + re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", output)
    if re.fullmatch(r"-?\d+\.\d+", figure):
        places = len(figure.partition(".")[2])
        return any(f"{float(x):.{places}f}" == figure for x in NUMBER.findall(output))
    edge = r"(?<![\w.]){}(?!\.?\w)" if figure[:1].isalnum() else "{}"
    return re.search(edge.format(re.escape(figure)), output) is not None


def test_the_comparison_of_figures():
    """A figure is neither found inside a longer number nor in a different one."""
    assert shown("384", "| 384 words") and shown("12.26", "256,12.2578125") and shown("0.5", "128,0.5")
    assert shown("66.7 %", "512 B  66.7 %  64 B") and shown("1.00", "0.9980544747081712")
    for figure in ("84", "38", "385"):
        assert not shown(figure, "| 384 words")
    assert not shown("12.25", "256,12.2578125") and not shown("128 MiB", "1128 MiB") and not shown("64", "64x64")
    assert not shown("128", "128.5")


def test_every_row_is_there():
    statements, errors = table_of("Statements"), table_of("Errors")
    assert [r[0] for r in statements] == [str(n) for n in range(1, 56)]
    assert [r[0] for r in errors] == [f"E{n}" for n in range(1, 28)]
    assert all(len(r) == 5 for r in statements + errors)
    named = {name for r in statements for name in re.findall(r"E\d+", r[4])}
    assert named <= {r[0] for r in errors}


@pytest.mark.parametrize("number, commands, figures", [pytest.param(*e, id=e[0]) for e in entries()])
def test_what_stands_there_comes_out(number, commands, figures, iosim, monkeypatch):
    monkeypatch.chdir(ROOT)
    if number in READ_ONLY:
        assert commands == figures == []
        return
    outputs = []
    for command in commands:
        assert command.startswith("iosim ")
        result = iosim(*shlex.split(command)[1:])
        assert result.exit_code == 0, result.output
        outputs.append(result.stdout)
    own = [f for f in figures if not f.startswith(("iosim ", "--"))]
    assert commands and own
    assert [f for f in own if not any(shown(f, output) for output in outputs)] == []
    assert all(any(shown(f, output) for f in own) for output in outputs), "a command that shows nothing"
