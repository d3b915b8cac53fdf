"""A hook of mkdocs: iosim, click and Pyodide are copied beside docs/playground.md, which runs them in a browser.

Pyodide is the folder that PYODIDE names, or node_modules/pyodide here, where `npm install --no-save pyodide` leaves it.
Without it the site is built all the same, and the page says so.
"""

from __future__ import annotations

import os
import shutil
import zipfile
from importlib.metadata import files
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PYODIDE = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json")


def on_post_build(config: Any) -> None:
    """Write the packages into the site, and Pyodide if it is here."""
    site = Path(config.site_dir)
    pyodide = Path(os.environ.get("PYODIDE") or ROOT / "node_modules" / "pyodide")
    if not (pyodide / PYODIDE[0]).is_file():
        return
    (site / "pyodide").mkdir(exist_ok=True)
    for name in PYODIDE:
        shutil.copy(pyodide / name, site / "pyodide")
    places = {"iosim": ROOT / "iosim", "iosim/configs": ROOT / "configs"}
    own = {
        f"{name}/{file.relative_to(folder)}": file for name, folder in places.items() for file in folder.rglob("*.*")
    }
    pack(site / "playground" / "iosim.whl", {**own, "iosim-LICENSE": ROOT / "LICENSE"})
    pack(site / "playground" / "click.whl", {str(file): Path(str(file.locate())) for file in files("click") or ()})


def pack(wheel: Path, contents: dict[str, Path]) -> None:
    """Write files into an archive, each by its name there."""
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, file in sorted(contents.items()):
            if not name.endswith(".pyc") and ".." not in name:
                archive.write(file, name)
