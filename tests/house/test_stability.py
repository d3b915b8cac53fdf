"""docs/commands.md promises what is true: exit codes, the number of the schema, and what is said of old names."""

import re

import pytest
from paths import DOCS, ROOT

import iosim
from iosim.commands.listed import all_commands
from iosim.commands.old_words import GONE, OLD
from iosim.errors import CheckError, InputError, MissingError

PAGE = " ".join((DOCS / "commands.md").read_text().split("\n## What stays\n")[1].split())


def test_exit_codes_are_those_of_errors():
    said = dict(re.findall(r"(\d+) ([\w -]+?)(?=,|\.)", PAGE.partition("**Exit codes**:")[2].partition("- **")[0]))
    codes = {
        code: text for text, code in ((error, str(error.exit_code)) for error in (CheckError, InputError, MissingError))
    }
    assert {*said} == {"0", "130", *codes} and said["3"] == "something is missing"


def test_every_answer_names_the_schema_of_the_page(ask):
    assert f"`schema`, which is {ask('count', '--N', 64, '--d', 8, '--M', '4KB')['schema']}," in PAGE


def test_old_commands_of_the_changelog_are_known(iosim):
    """The table of the newest version has every old command, and each answers with a line of today."""
    newest = (ROOT / "CHANGELOG.md").read_text().split("\n## ")[1]
    rows = re.findall(r"^\| `(\w+)[^`]*` \|", newest, re.M)
    assert sorted(rows) == sorted(OLD) and not {*OLD, *GONE} & {*all_commands()}
    for name in OLD:
        asked = iosim(name)
        assert asked.exit_code == 2 and f"iosim {name} is now: iosim {OLD[name].now.split()[0]}" in asked.stderr


@pytest.mark.parametrize("name", [name for name, old in OLD.items() if old.python])
def test_an_old_function_names_one_of_today(name):
    with pytest.raises(AttributeError, match=rf"^iosim.{name} is now iosim\.(\w+)") as said:
        getattr(iosim, name)
    assert all(callable(getattr(iosim, now)) for now in re.findall(r"iosim\.(\w+)", str(said.value))[1:])


def test_names_of_no_version_have_pythons_own_message():
    with pytest.raises(AttributeError, match="^module 'iosim' has no attribute 'kount'$"):
        iosim.kount  # noqa: B018


def test_the_examples_of_the_page_are_said(iosim):
    said = re.search(r"`(iosim \w+)` of 0.2 names `(iosim [\w -]+)`, and `(iosim\.\w+)` names `(iosim\.\w+)`", PAGE)
    old, now, old_name, name = said.groups()
    assert now in iosim(old.split()[1]).stderr
    with pytest.raises(AttributeError, match=re.escape(f"{old_name} is now {name}")):
        import iosim as package

        getattr(package, old_name.partition(".")[2])
