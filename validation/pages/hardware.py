"""Writes the tables of docs/hardware/words-and-bytes.md and of the pages here from a measurement: from the root

    PYTHONPATH=. python3 validation/pages/hardware.py validation/FOLDER            # the tables, and claims.json
    PYTHONPATH=. python3 validation/pages/hardware.py validation/FOLDER --plots    # and the plots (needs matplotlib)

The CSVs come from `validation/measure.py --rows` and `validation/measure_tuned.py`. What stands between
`<!-- NAME -->` and `<!-- end NAME -->` in a page is replaced; the rest is prose. claims.json in the folder gets what
did not agree. A folder without all parts (no sweep_rows.csv) only gets its claims.json. It appears in the pages of a
folder that has all parts.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from pathlib import Path

from validation.pages import kernels, serving, words_and_bytes
from validation.pages.text import ROOT, read, whole

HERE = Path(__file__).parent
DOCS = ROOT / "docs" / "hardware"
Parts = dict[str, Callable[[Path], str]]
PAGES: dict[Path, Parts] = {
    DOCS / "words-and-bytes.md": words_and_bytes.PARTS,
    HERE / "other-peoples-kernels.md": kernels.PARTS,
    HERE / "serving.md": serving.PARTS,
}


def filled(page: Path, folder: Path) -> str:
    """The text of a page with its parts made anew."""

    def part(match: re.Match[str]) -> str:
        name = match[1]
        return f"<!-- {name} -->\n{PAGES[page][name](folder)}\n<!-- end {name} -->"

    text = page.read_text(encoding="utf-8")
    return re.sub(r"<!-- ([\w-]+) -->\n.*?<!-- end \1 -->", part, text, flags=re.S)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--plots", action="store_true")
    given = parser.parse_args()
    for page in PAGES if whole(given.folder) else ():
        page.write_text(filled(page, given.folder), encoding="utf-8")
    faults = {"faults": [row["faults"] for row in read(given.folder, "rows.csv") if row["faults"]]}
    (given.folder / "claims.json").write_text(json.dumps(faults, indent=1) + "\n", encoding="utf-8")
    if given.plots:
        from validation.pages import plots

        plots.draw(given.folder, DOCS, HERE)


if __name__ == "__main__":
    main()
