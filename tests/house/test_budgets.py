"""The table of CONTRIBUTING on how large each part may be holds, and names every folder once."""

import re

from paths import ROOT

from iosim.wings import wings

TABLE = (ROOT / "CONTRIBUTING.md").read_text().split("\n## How large it may be\n")[1].split("\n## ")[0]
ROWS = re.findall(r"^\| ([^|]+) \| (`[^|]+`) \| ([\d,]+) \| ([\d,]+) \|$", TABLE, re.M)
BUDGETS = {tuple(re.findall(r"`([^`]+)`", folders)): int(most.replace(",", "")) for _, folders, most, _ in ROWS}


def lines_of(folder):
    """Lines of Python of a folder of iosim, of the files beside the folders (`.`), or of the tests."""
    if folder == "tests":
        files = (ROOT / "tests").rglob("*.py")
    else:
        files = (ROOT / "iosim").glob("*.py") if folder == "." else (ROOT / "iosim" / folder).rglob("*.py")
    return sum(len(file.read_text().splitlines()) for file in files)


def test_no_part_is_larger_than_its_budget():
    sizes = {folders: sum(map(lines_of, folders)) for folders in BUDGETS}
    assert {folders: size for folders, size in sizes.items() if size > BUDGETS[folders]} == {}


def test_every_folder_has_a_budget():
    named = [folder for folders in BUDGETS for folder in folders]
    there = {path.name for path in (ROOT / "iosim").iterdir() if any(path.glob("*.py"))} | {".", "tests"}
    assert sorted(named) == sorted(there) and {*wings()} <= there


def test_no_aim_is_above_its_budget():
    assert all(int(aim.replace(",", "")) <= int(most.replace(",", "")) for *_, most, aim in ROWS) and len(ROWS) > 10
