"""The picture and the page of a batch: blocks are those that are counted, and bars those of the ways."""

import shlex
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "helpers"))
from paths import DOCS

import iosim
from iosim.batches.picture import MOST_ITEMS, MOST_LINES, BatchPicture, batch_page

MIXED = "3 * 1:40, 1:7, 9:9, 5:33, 4:21"
SMALL = {"d": 8, "heads": 4, "kv_heads": 2, "tiles": "6x5", "mask": "causal", "splits": 3, "page_size": 4}
TIMES = {"1:40 x 3": 3}
PREFIXES = [
    {"new": 2, "cached": 30, "prefix": "a:8"}, {"new": 1, "cached": 20, "prefix": "a:8"}, {"new": 3, "cached": 9},
]  # fmt: skip


@pytest.mark.parametrize("way", ["repeat", "pack", "split", "split-by-length", "paged", "paged-split"])
def test_blocks_are_those_that_are_counted(way):
    found = iosim.batch(MIXED, **SMALL, ways=way)
    drawn = BatchPicture(found)
    heads = 4 if way == "repeat" else 2
    blocks = sum(heads * TIMES.get(item.name, 1) * len(item.blocks) for item in drawn.items)
    assert blocks == found[way].blocks
    kept = sum(heads * TIMES.get(item.name, 1) * sum(b.keys for b in item.blocks) for item in drawn.items)
    if not way.endswith("split") and way != "split-by-length":
        assert 8 * kept == found[way].tensors["K"]["reads"]
    for item in drawn.items:
        starts = [(block.first, block.keys) for block in item.blocks]
        assert max(first + keys for first, keys in starts) == item.keys


@pytest.mark.parametrize("way", ["repeat", "pack", "paged"])
@pytest.mark.parametrize("mask", ["causal&window:6", "window:3", "causal&(window:2|sink:3)"])
def test_blocks_under_a_window_are_those_that_are_counted(way, mask):
    """With a sink the keys between are drawn as well."""
    if "|" in mask and way != "repeat":
        return
    found = iosim.batch("3:40, 9:9", **{**SMALL, "mask": mask, "tiles": "6x4"}, ways=way)
    items = BatchPicture(found).items
    kept = sum((4 if way == "repeat" else 2) * sum(b.keys for b in item.blocks) for item in items)
    assert 8 * kept >= found[way].tensors["K"]["reads"]
    assert 8 * kept == found[way].tensors["K"]["reads"] or "sink" in mask


def test_a_cascade_has_its_prefixes():
    drawn = BatchPicture(iosim.batch(PREFIXES, **SMALL, ways="cascade"))
    assert [(item.name, item.keys) for item in drawn.items] == [
        ("prefix of 8", 8),
        ("2:24", 24),
        ("1:13", 13),
        ("3:12", 12),
    ]


def test_the_picture_is_svg_with_a_bar_for_each_way():
    found = iosim.batch(MIXED, **SMALL)
    root = ElementTree.fromstring(BatchPicture(found).svg())
    texts = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert all(way.way in texts for way in found.ways) and any("floor" in str(text) for text in texts)


def test_many_requests_and_blocks_are_thinned():
    many = iosim.batch([(1 + k % 3, 50 + k) for k in range(100)], **SMALL, ways="pack")
    drawn = BatchPicture(many)
    assert len(drawn.items) == MOST_ITEMS and "76 more lengths" in drawn.svg()
    assert min(item.keys for item in drawn.items) >= 50 + 100 - MOST_ITEMS
    long = BatchPicture(iosim.batch("900:900", **SMALL, ways="pack"))
    assert long.svg().count("rows,") == MOST_LINES < len(long.items[0].blocks)


def test_the_page_has_the_answer_and_the_tables():
    found = iosim.batch(MIXED, **SMALL)
    page = batch_page(found)
    assert found.answer.split(".")[0] in page and "<svg" in page and page.count("<table>") == 2


def test_the_command_writes_pictures_and_pages(iosim, tmp_path):
    line = ["batch", "--requests", MIXED, "--d", "8", "--tiles", "6x5", "--causal"]
    for name, start in (("x.svg", "<?xml"), ("x.html", "<!doctype")):
        done = iosim(*line, "-o", tmp_path / name)
        assert done.exit_code == 0 and not done.stdout and (tmp_path / name).read_text().startswith(start)
    several = iosim(*line, "--M", "1KB,2KB", "-o", tmp_path / "y.svg")
    assert several.exit_code == 2 and "one SRAM" in several.stderr and not (tmp_path / "y.svg").exists()


def drawn_for_the_page(iosim, path):
    """Draw the picture of docs/batch.md."""
    command = (
        "batch --requests '12 * 1:3000, 1:9000, 512:4608' --d 128 --heads 32 --kv-heads 8 --causal --hardware h100"
    )
    done = iosim(*shlex.split(command), "-o", path)
    assert done.exit_code == 0, done.output


def test_the_picture_of_the_page_is_of_today(iosim, tmp_path):
    drawn_for_the_page(iosim, tmp_path / "batch.svg")
    assert (tmp_path / "batch.svg").read_text() == (DOCS / "batch.svg").read_text(), (
        "python tests/batches/test_batch_picture.py"
    )


if __name__ == "__main__":
    from click.testing import CliRunner

    from iosim.commands.cli import main

    drawn_for_the_page(lambda *line: CliRunner().invoke(main, list(map(str, line))), DOCS / "batch.svg")
