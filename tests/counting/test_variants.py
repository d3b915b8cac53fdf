"""Options that usual schedules cannot read, and query heads that could share keys and do not: a note says so."""

import pytest

SIZES = ("--N", 64, "--d", 32)


def test_query_heads_that_share_nothing_are_noted_in_decoding(ask, iosim):
    """For one query the words of K and V are a quarter with --gqa pack; a note says so as long as packing moves less."""
    line = ["count", "--Nk", 256, "--d", 16, "--heads", 8, "--kv-heads", 2, "--M", "16KB", "--schedule", "flash2"]
    plain, packed = (ask(*line, "--N", 1, *more) for more in ((), ("--gqa", "pack")))
    assert ["--gqa pack" in note for note in plain["notes"]] == [True] and packed["notes"] == []
    reads = [answer["results"][0]["tensors"]["K"]["reads"] for answer in (plain, packed)]
    assert reads[0] == 4 * reads[1]
    assert "--gqa pack" in iosim(*line, "--N", 1).stderr
    many, one = (ask(*line, "--N", 64, *more)["results"][0]["total"] for more in (("--gqa", "pack"), ()))
    assert bool(ask(*line, "--N", 64)["notes"]) == (many < one)
    assert "--gqa pack" in str(ask(*line, "--N", 2)["notes"])


@pytest.mark.parametrize(
    ("command", "others"),
    [("count", ()), ("sweep", ("--dtype", "fp8,fp16")), ("roofline", ("--hardware", "h100"))],
)
@pytest.mark.parametrize("keys", [("--kv-dtype", "fp8"), ("--kv-scales", "32")])
def test_usual_schedules_that_cannot_read_the_keys_are_left_out_with_a_note(command, others, keys, iosim):
    line = (command, *SIZES, *([] if "--hardware" in others else ["--M", "8KB"]), *others, *keys)
    done = iosim(*line, "--csv")
    said = "note: standard and standard-tiled are left out: they read K and V only in the type of Q, without scales\n"
    assert done.exit_code == 0 and said in done.stderr
    assert {name for name in ("standard", "flash1", "flash2") if f",{name}," in done.stdout} == {"flash1", "flash2"}
    named = iosim(*line, "--csv", "--schedule", "standard,flash2")
    assert named.exit_code == 2 and "allowed: " in named.stderr and "with --schedule standard" in named.stderr


def test_keys_of_the_type_of_all_points_leave_nothing_out(iosim):
    done = iosim("sweep", *SIZES, "--M", "8KB", "--dtype", "fp8", "--kv-dtype", "fp8")
    assert done.exit_code == 0 and "left out" not in done.stderr and ",standard," in done.stdout
