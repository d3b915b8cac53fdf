"""Pages of questions of public threads: every command runs, and prints the figures that stand beside it."""

import re
import shlex

import pytest
from paths import ROOT
from wings_here import skip_if_gone

PAGE = ROOT / "validation/pages/state-threads.md"
OTHER = PAGE.with_name("attention-threads.md")


def rows(page):
    return [re.split(r" \| ", line.strip("| ")) for line in page.read_text().splitlines() if re.match(r"\| \d+ ", line)]


def spans(cell):
    return re.findall(r"`([^`]*)`", cell)


@pytest.mark.parametrize(("page", "many"), [(PAGE, 12), (OTHER, 10)])
def test_each_question_has_an_address_and_a_command(page, many):
    assert [row[0] for row in rows(page)] == [str(n) for n in range(1, many + 1)] and {*map(len, rows(page))} == {4}
    addresses = [
        re.findall(r"\(https://github\.com/[\w.-]+/[\w.-]+/(?:pull|issues)/\d+\)", row[1]) for row in rows(page)
    ]
    assert all(len(found) == 1 for found in addresses) and len({*map(tuple, addresses)}) == many


@pytest.mark.parametrize("row", [*rows(PAGE), *rows(OTHER)], ids=lambda row: row[0])
def test_the_answer_is_what_the_command_prints(row, iosim):
    said, commands = "", spans(row[2])
    for command in commands:
        words = shlex.split(command)[1:]
        skip_if_gone(words)
        done = iosim(*words)
        assert done.exit_code == 0, done.output
        said += done.stdout.replace("3.00 GiB", "3 GiB")
    figures = [figure for figure in spans(row[3]) if not figure.startswith("--")]
    assert commands and figures and [figure for figure in figures if figure not in said] == []


def test_the_ratios_that_follow():
    """Row 6: bytes of 4 tokens over those of one, and bytes a second of both. Row 7: 3,072 tokens are 48 times 64."""
    one, four = 545308672, 1375928320
    text = PAGE.read_text()
    assert f"{four / one:.2f} times as many" in text and f"{225.92 / 89.38:.2f} times as long" in text
    assert {f"{bytes_ / us / 1e6:.1f}" for bytes_, us in ((one, 89.38), (four, 225.92))} == {
        "6.1"
    } and "6.1 TB/s" in text
    assert f"3,072 tokens: kept every 64 tokens states are {3072 // 64} times the KV cache" in text
