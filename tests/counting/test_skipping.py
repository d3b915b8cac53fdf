"""Who skips nothing under a mask is named, with who does instead; a schedule that skips is not."""

import pytest

import iosim as package
from iosim.core.problem import DENSE, Attention
from iosim.counting.count import count
from iosim.counting.notes import blind_to_mask, mask_notes
from iosim.masks import parse_mask

MASKED = Attention(64, 8, mask=parse_mask("window:3"))


def test_a_note_names_the_sister_with_the_same_text():
    (note,) = mask_notes(MASKED, ["flash2"])
    assert note == (
        "flash2 skips nothing under mask window:3: its words and FLOPs are those of dense attention; block-sparse-q is "
        "flash2 with hidden tiles skipped"
    )
    assert "block-sparse is flash1 with" in mask_notes(MASKED, ["flash1"])[0]
    assert "block-sparse-q-bwd is flash2-bwd with" in mask_notes(MASKED, ["flash2-bwd"])[0]


def test_who_has_no_sister_hears_of_the_same_outer_loop():
    assert "; block-sparse-q skips hidden tiles" in mask_notes(MASKED, ["standard"])[0]


@pytest.mark.parametrize("name", [n for n, s in package.SCHEDULES.items() if s.family in ("attention", "backward")])
def test_a_note_stands_where_a_mask_saves_nothing(name):
    """Counted: with a note the words are those without a mask, without one they are fewer."""
    schedule = package.SCHEDULES[name]
    tiles = None if "ideal" in schedule.rules else "8x8"
    if schedule.about(MASKED) != MASKED:
        pytest.skip("not about this problem")
    masked, dense = (count(64, 8, schedules=name, tiles=tiles, mask=m)[name].total for m in ("window:3", "dense"))
    assert (masked == dense) == blind_to_mask(schedule, MASKED) == bool(mask_notes(MASKED, [name]))


def test_without_a_mask_and_for_one_mask_alone_there_is_none():
    assert mask_notes(Attention(64, 8), package.SCHEDULES) == []
    assert not blind_to_mask(package.SCHEDULES["linear-causal"], Attention(64, 8, mask=parse_mask("causal")))
    packed = Attention(1, 8, 64, heads=4, kv_heads=1, gqa="pack", mask=parse_mask("causal"))
    assert packed.mask is not DENSE and mask_notes(packed, ["flash2"]) == []


LINES = {
    "count": ("--M", "4KB"),
    "tune": ("--M", "4KB"),
    "roofline": ("--hardware", "h100", "--tiles", "16x16"),
}


@pytest.mark.parametrize("command", LINES)
def test_commands_say_it(command, ask, iosim):
    args = (command, "--N", 64, "--d", 8, "--schedule", "flash2", "--mask", "causal", *LINES[command])
    (note,) = ask(*args)["notes"]
    found = iosim(*args)
    assert f"note: {note}\n" in found.stderr and "note:" not in found.stdout and "block-sparse-q" in note
    assert ask(*(x if x != "causal" else "dense" for x in args))["notes"] == []


def test_a_sweep_says_it_of_each_mask(iosim):
    found = iosim("sweep", "--N", 64, "--d", 8, "--M", "4KB", "--mask", "causal;dense;window:3", "--schedule", "flash2")
    assert found.stderr.count("note: flash2 skips nothing under mask") == 2 and "note" not in found.stdout
