"""What `iosim schedules` says of the CUDA of a schedule."""

import pytest

from iosim import SCHEDULES, Schedule
from iosim.counting import about_schedules


def test_every_schedule_says_whether_it_has_cuda(ask):
    rows = {row["schedule"]: row["CUDA"] for row in ask("schedules")["schedules"]}
    assert [*rows] == [*SCHEDULES] and all(rows.values()) and rows["flash2"] == "yes"


def test_a_schedule_without_cuda_says_why():
    def strange(o):
        """A step that is not in steps/softmax.cuh."""

    def text(chip, p, t):
        for i in chip.tiles(p.N, t.rows_q):
            chip.store(chip.compute("O", (i, p.dv), strange), "O", i)

    shown = about_schedules.text_of(about_schedules.schedule_row(Schedule("mine", text, "mine")))
    assert "no: step 'strange' has no CUDA" in shown and "formula" not in shown


@pytest.mark.parametrize("name", SCHEDULES)
def test_verify_on_the_cpu_finds_nothing_wrong(name, ask):
    """It also runs in fp16, which rounds every partial sum."""
    line = (
        "--N",
        32,
        "--d",
        64,
        "--tiles",
        "8x8",
        "--schedule",
        name,
        "--mask",
        "causal" if "causal" in name else "dense",
    )
    line += ("--key-block", 4, "--top-k", 2) if "selected" in name else ()
    assert ask("verify", "--cpu", *line)["ok"] is True
