"""docs/notebook.ipynb: its cells run from the first to the last and answer what is kept in the file.

`python tests/house/test_notebook.py` runs them and writes their answers.
"""

import ast
import contextlib
import io
import json
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "helpers"))
from paths import DOCS, ROOT

FILE = DOCS / "notebook.ipynb"


def cells(kind):
    return [cell for cell in json.loads(FILE.read_text())["cells"] if cell["cell_type"] == kind]


def ran(codes):
    """What each cell answers, in the form that a notebook keeps: what it prints, and its last expression."""
    space = {}
    for number, code in enumerate(codes, 1):
        body, printed, value = ast.parse(code).body, io.StringIO(), None
        last = ast.Expression(body.pop().value) if isinstance(body[-1], ast.Expr) else None
        with contextlib.redirect_stdout(printed):
            exec(compile(ast.Module(body, []), f"cell {number}", "exec"), space)
            value = eval(compile(last, f"cell {number}", "eval"), space) if last else None
        outputs = []
        if printed.getvalue():
            outputs.append({"name": "stdout", "output_type": "stream", "text": lines(printed.getvalue())})
        if value is not None:
            data = {"text/html": lines(value._repr_html_()), "text/plain": lines(repr(value))}
            outputs.append({"data": data, "execution_count": number, "metadata": {}, "output_type": "execute_result"})
        yield outputs


def lines(text):
    return text.splitlines(keepends=True)


def answers():
    from iosim import SCHEDULES

    try:
        return list(ran(["".join(cell["source"]) for cell in cells("code")]))
    finally:
        SCHEDULES.pop("mine", None)


def test_cells_answer_what_is_kept():
    found = answers()
    kept = [cell["outputs"] for cell in cells("code")]
    assert found == kept and len(kept) > 12 and sum(map(len, kept)) >= len(kept)
    assert [cell["execution_count"] for cell in cells("code")] == list(range(1, len(kept) + 1))


def test_it_is_a_notebook_that_any_viewer_opens():
    whole = json.loads(FILE.read_text())
    assert (whole["nbformat"], whole["nbformat_minor"]) == (4, 5) and FILE.stat().st_size < 100_000
    assert len({cell["id"] for cell in whole["cells"]}) == len(whole["cells"])
    assert all({"cell_type", "id", "metadata", "source"} <= set(cell) for cell in whole["cells"])
    text = "".join("".join(cell["source"]) for cell in cells("markdown"))
    assert all((DOCS / link).exists() for link in re.findall(r"\]\(([\w/.-]+)\)", text))


def test_numbers_of_its_text():
    """98.5 % stands in the answer of `memory`, and the bytes are those that the profiler counted."""
    text = "".join("".join(cell["source"]) for cell in cells("markdown") + cells("code"))
    printed = "".join(x for cell in cells("code") for out in cell["outputs"] for x in out.get("text", []))
    assert "98.5 %" in text and "98.5 %" in printed
    measured = re.search(r"measured = (\d+)", text)[1]
    assert f'"{measured}"' in (ROOT / "tests/data/ncu_flash.csv").read_text().replace(",", "")


if __name__ == "__main__":
    whole = json.loads(FILE.read_text())
    found = iter(answers())
    for number, cell in enumerate((cell for cell in whole["cells"] if cell["cell_type"] == "code"), 1):
        cell["outputs"], cell["execution_count"] = next(found), number
    FILE.write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n")
