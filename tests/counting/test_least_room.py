"""The note on a count of which nothing fits: the least SRAM of its schedules, which is really enough."""

import re

import pytest

from iosim import count, tune


def least_named(note):
    name, size = re.search(r"([a-z0-9-]+) with 1x1 tiles needs (\d+) B", note).groups()
    return name, int(size)


@pytest.mark.parametrize("options", [{}, {"mask": "causal"}, {"schedules": "flash2,small-cache"}, {"schedules": "flash2-bwd"},
                                     {"acc_dtype": "fp32"}])  # fmt: skip
def test_where_nothing_fits_the_least_sram_is_named(options):
    """With this many bytes the schedule fits, and with one less none does."""
    note = count(300, 64, "4B", **options).notes[-1]
    assert note.startswith("nothing fits in 4 B: ")
    name, size = least_named(note)
    assert ("iosim tune searches all schedules" in note) == (options.get("schedules") != "flash2-bwd")
    enough, less = (count(300, 64, M, tiles="best", **options) for M in (size, size - 1))
    assert enough[name].fits and not any(result.fits for result in less)
    assert not any(note.startswith("nothing fits") for note in enough.notes)


def test_tiles_that_are_too_large_are_to_be_smaller(ask, iosim):
    line = ("count", "--N", 1024, "--d", 64, "--M", "16KB", "--tiles", "512x512", "--schedule", "flash2")
    (note,) = ask(*line)["notes"]
    assert note.startswith("nothing fits in 16,384 B (16 KiB): try smaller tiles, or --tiles best")
    assert least_named(note)[1] <= 16384 and f"note: {note}\n" == iosim(*line).stderr


def test_without_tiles_to_choose_only_tune_is_named():
    (note,) = count(300, 64, "1KB", schedules="standard").notes
    assert note == "nothing fits in 1,024 B (1 KiB); iosim tune searches all schedules, and some of them need less"


@pytest.mark.parametrize("fields", [{}, {"N": 1, "Nk": 1}, {"acc_dtype": "fp32"}, {"tile_multiple": 4, "schedules": "flash2"}, {"rule": "gdn"}, {"rule": "gla"},
                                    {"rule": "gdn", "schedules": "state-split"}])  # fmt: skip
def test_the_first_line_names_what_the_note_names(fields):
    """With these bytes the schedule fits, and with one less nothing does, of tiles in columns too."""
    fields = {"N": 64, "d": 8, **fields}
    found = count(M="3B", **fields)
    name, size = re.search(r"nothing fits in 3 B: ([a-z0-9-]+).* needs (\d+) B", found.notes[-1]).groups()
    assert found.answer.startswith(f"Nothing that was counted fits: {name}")
    assert f" needs least, {float(f'{int(size) / 3:.3g}'):,.4g} times this memory." in found.answer
    assert any(r.fits for r in tune(M=f"{size}B", **{**fields, "schedules": name}).results)
    assert not any(r.fits for r in count(M=f"{int(size) - 1}B", **fields).results)


def test_too_few_blocks_are_no_lack_of_memory():
    found = tune(64, 8, "100KB", schedules="flash2", least_blocks=100)
    assert str(found).startswith("No tiling that was counted has so many thread blocks: flash2 has the most, 64.")
