"""Options as axes of a sweep: each row is the count with these options."""

import pandas as pd
import pytest

SIZES = ("--N", 64, "--d", 32)


def rows(run, tmp_path, *args):
    result = run("sweep", "--M", "8KB", "-o", tmp_path / "x.csv", *args)
    assert result.exit_code == 0, result.output
    return pd.read_csv(tmp_path / "x.csv")


def test_splits_and_gqa(iosim, tmp_path):
    from iosim import count

    args = ("--N", 1, "--Nk", "512,640", "--d", 16, "--heads", 4, "--kv-heads", 2, "--schedule", "split-kv")
    found = rows(iosim, tmp_path, *args, "--splits", "1,2:4:+2", "--gqa", "repeat,pack")
    assert len(found) == 2 * 3 * 2 and set(found.splits) == {1, 2, 4} and set(found.gqa) == {"repeat", "pack"}
    assert int(iosim("sweep", *args, "--M", "8KB", "--splits", "1,2", "--dry-run").stdout) == 4
    for row in found.itertuples():
        one = count(1, 16, "8KB", Nk=row.Nk, heads=4, kv_heads=2, splits=row.splits, gqa=row.gqa, schedules="split-kv")
        assert one["split-kv"].total == row.total
    assert found.total.nunique() > 6


def test_multiples_and_masks(iosim, tmp_path):
    from iosim import count

    args = ("--N", "100:300:+100", "--d", 16, "--tile-multiple", "1,16", "--mask", "dense; causal&window:64;causal")
    found = rows(iosim, tmp_path, *args, "--schedule", "block-sparse-q")
    assert len(found) == 3 * 2 * 3 and list(found.columns)[-1] == "tile_multiple"
    for row in found.itertuples():
        one = count(row.N, 16, "8KB", mask=row.mask, tile_multiple=row.tile_multiple, schedules="block-sparse-q")
        assert one["block-sparse-q"].total == row.total


def test_from_python_and_from_toml(iosim, tmp_path):
    from iosim import sweep

    found = sweep("split-kv", N=1, Nk=512, d=16, M="8KB", splits=[1, 4], tile_multiple=16)
    assert list(found.splits) == [1, 4] and "tile_multiple" not in found
    (tmp_path / "x.toml").write_text('[sweep]\nN = 1\nNk = 512\nd = 16\nschedule = "split-kv"\nsplits = [1, 4]\n')
    assert list(rows(iosim, tmp_path, tmp_path / "x.toml").splits) == [1, 4]


WRONG = [
    (("--splits", "1,0"), "--splits"),
    (("--gqa", "repeat,some"), "--gqa"),
    (("--tile-multiple", "x"), "--tile-multiple"),
    (("--gqa", "repeat,pack", "--mask", "dense;causal"), "--gqa"),
    (("--mask", "causal;"), "--mask"),
]


@pytest.mark.parametrize("args, where", WRONG, ids=str)
def test_what_is_wrong_is_said_before_anything_is_written(args, where, iosim):
    result = iosim("sweep", "--N", "64,128", "--d", 8, "--M", "4KB", *args)
    assert result.exit_code == 2 and result.stdout == "" and where in result.stderr


def test_query_heads_that_share_nothing_are_noted_in_decoding(ask, iosim):
    """For one query the words of K and V are a quarter with --gqa pack; for more queries each head has its own tiles."""
    line = ["count", "--Nk", 256, "--d", 16, "--heads", 8, "--kv-heads", 2, "--M", "16KB", "--schedule", "flash2"]
    plain, packed = (ask(*line, "--N", 1, *more) for more in ((), ("--gqa", "pack")))
    assert ["--gqa pack" in note for note in plain["notes"]] == [True] and packed["notes"] == []
    reads = [answer["results"][0]["tensors"]["K"]["reads"] for answer in (plain, packed)]
    assert reads[0] == 4 * reads[1]
    assert "--gqa pack" in iosim(*line, "--N", 1).stderr and ask(*line, "--N", 64)["notes"] == []
    assert ask(*line, "--N", 2)["notes"] == [], "two queries are no decoding"


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
