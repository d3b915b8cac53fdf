"""Who skips nothing under a mask is named, with who does instead; a schedule that skips is not."""

from dataclasses import replace

import pytest

import iosim as package
from iosim.core.problem import DENSE, Attention
from iosim.counting.count import count
from iosim.counting.notes import blind_to_mask, mask_notes
from iosim.masks import parse_mask
from iosim.schedules import distinct

MASKED = Attention(64, 8, mask=parse_mask("window:3"))
ALL = replace(MASKED, visit_all=True)


def test_who_was_asked_to_visit_all_is_told_so():
    (note,) = mask_notes(ALL, ["flash2"])
    assert note == (
        "flash2 skips nothing under mask window:3: its words and FLOPs are those of dense attention; without "
        "--visit-all flash2 skips hidden tiles"
    )
    assert mask_notes(ALL, ["standard", "flash1", "flash1-bwd"])[0].endswith(
        "without --visit-all flash1 and flash1-bwd skip hidden tiles"
    )
    assert (
        mask_notes(MASKED, ["flash1", "flash2", "flash1-bwd", "flash2-bwd"]) == mask_notes(ALL, ["block-sparse"]) == []
    )


def test_others_hear_of_the_same_outer_loop():
    assert mask_notes(MASKED, ["standard"])[0].endswith("; flash2 skips hidden tiles")
    assert mask_notes(ALL, ["standard"])[0].endswith("; block-sparse-q skips hidden tiles")


@pytest.mark.parametrize("pair", [("flash1", "block-sparse"), ("flash2", "block-sparse-q"),
                                  ("flash1-bwd", "block-sparse-bwd"), ("flash2-bwd", "block-sparse-q-bwd")])  # fmt: skip
def test_names_of_the_same_text_move_the_same_words_unless_all_tiles_are_visited(pair):
    schedules = [package.SCHEDULES[name] for name in pair]
    for p, alone in ((Attention(64, 8), 1), (MASKED, 1), (ALL, 2)):
        assert len(distinct(schedules, p)) == alone
    for mask in ("causal", "window:3", "global:5"):
        both = [count(64, 8, schedules=pair, tiles="8x16", mask=mask, visit_all=every) for every in (False, True)]
        dense = count(64, 8, schedules=pair, tiles="8x16")
        assert both[0][pair[0]].tensors == both[0][pair[1]].tensors == both[1][pair[1]].tensors
        assert both[1][pair[0]].tensors == dense[pair[0]].tensors != both[0][pair[0]].tensors


@pytest.mark.parametrize("name", [n for n, s in package.SCHEDULES.items() if s.family in ("attention", "backward")])
def test_a_note_stands_where_a_mask_saves_nothing(name):
    """Counted: with a note the words are those without a mask, without one they are fewer."""
    schedule = package.SCHEDULES[name]
    tiles = None if "ideal" in schedule.rules else "8x8"
    if schedule.about(MASKED) != MASKED:
        pytest.skip("not about this problem")
    dense = count(64, 8, schedules=name, tiles=tiles)[name].total
    for p in (MASKED, ALL):
        masked = count(64, 8, schedules=name, tiles=tiles, mask="window:3", visit_all=p.visit_all)[name].total
        assert (masked == dense) == blind_to_mask(schedule, p) == bool(mask_notes(p, [name]))


def test_without_a_mask_and_for_one_mask_alone_there_is_none():
    assert mask_notes(Attention(64, 8), package.SCHEDULES) == []
    assert mask_notes(Attention(64, 8, visit_all=True), ["flash2"]) == ["--visit-all changes nothing without a mask"]
    packed = Attention(1, 8, 64, heads=4, kv_heads=1, gqa="pack", mask=parse_mask("causal"))
    assert packed.mask is not DENSE and mask_notes(packed, ["flash2"]) == []


LINES = {
    "count": ("--M", "4KB"),
    "tune": ("--M", "4KB"),
    "roofline": ("--hardware", "h100", "--tiles", "16x16", "--paper-model"),
}


@pytest.mark.parametrize("command", LINES)
def test_commands_say_it(command, ask, iosim):
    args = (command, "--N", 64, "--d", 8, "--schedule", "flash2", "--visit-all", "--mask", "causal", *LINES[command])
    (note,) = ask(*args)["notes"]
    found = iosim(*args)
    assert f"note: {note}\n" in found.stderr and "note:" not in found.stdout and "without --visit-all" in note
    assert ask(*(x for x in args if x != "--visit-all"))["notes"] == []


def test_a_state_that_takes_no_mask_is_not_said_to_skip_nothing():
    """The mask is refused, so nothing is said of what it saves."""
    assert mask_notes(Attention(8, 4, mask=parse_mask("causal"), rule="gdn"), ["state-fused", "state-saved"]) == []
