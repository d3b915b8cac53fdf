"""`iosim check` says what is wrong, each fault by itself."""

from dataclasses import replace

import pytest

from iosim.core.problem import Attention
from iosim.core.tiling import Tiling
from iosim.schedules import find
from iosim.studies.check import check

P, T = Attention(48, 16, dtype="fp16", acc_dtype="fp32"), Tiling(16, 16)
FLASH2 = find("flash2")


def doubled(p, t):
    return {name: (2 * reads, writes) for name, (reads, writes) in FLASH2.exact_traffic(p, t).items()}


def one_more(p, t):
    return FLASH2.footprint(p, t) + 1


def spoilt(by):
    """The output of the same text, `by` too large."""

    def text(chip, p, t):
        FLASH2.text(chip, p, t)

    def answer(inputs, p, visible):
        return {name: array + by for name, array in FLASH2.answer(inputs, p, visible).items()}

    return replace(FLASH2, text=text, answer=answer)


def test_nothing_is_wrong():
    (row,) = check(P, T, [FLASH2])
    assert row["ok"] is True and row["faults"] == ""


@pytest.mark.parametrize("schedule, fault", [
    (replace(FLASH2, exact_traffic=doubled), "words are not those of the formula by hand"),
    (replace(FLASH2, footprint=one_more), "the peak is not the footprint by hand"),
    (spoilt(1e-6), "the error in fp64 is 1e-06 (allowed: less than 1e-12)"),
])  # fmt: skip
def test_one_fault_is_told_by_itself(schedule, fault):
    (row,) = check(P, T, [schedule])
    assert row["ok"] is False and row["faults"] == fault


def test_errors_of_both_types_are_told():
    (row,) = check(P, T, [spoilt(1.0)])
    fp64, fp16 = row["faults"].split("; ")
    assert fp64.startswith("the error in fp64 is 1 (") and fp16.startswith(
        "the error in fp16 is 1 (allowed: less than 0.02, "
    )


def test_sums_in_fp16_that_are_too_long_are_told(iosim):
    args = ("check", "--N", 1024, "--d", 64, "--tiles", "64x64", "--schedule", "linear")
    narrow, wide = iosim(*args), iosim(*args, "--acc-dtype", "fp32")
    assert narrow.exit_code == 1 and "linear: the error in fp16 is 0.17 (allowed: less than 0.02" in narrow.stdout
    assert "a wider --acc-dtype may help" in narrow.stdout and wide.exit_code == 0 and "linear:" not in wide.stdout
