"""`tune --rule ... --decode`: the best ring, and that no scheme of a state and rows moves less."""

import json

import pytest

import iosim
from iosim.counting.state_floors import ring_words
from iosim.errors import InputError


@pytest.mark.parametrize(
    ("options", "rows", "ratio"),
    [
        ({"rule": "linear"}, 11, "1.71"),
        ({"rule": "gdn", "state_dtype": "fp32"}, 16, "1.78"),
        ({"rule": "gdn", "heads": 32, "key_heads": 16, "state_dtype": "fp32"}, 18, "1.81"),
        ({"rule": "delta", "d": 256, "state_dtype": "fp32"}, 23, "1.84"),
    ],
)
def test_best_rings(options, rows, ratio):
    """docs/state.md."""
    found = iosim.ring(**{"d": 128, **options})
    best = next(row for row in found if row["rows"] == rows)
    assert found.to_dict()["rows"] == rows and f"{best['ratio_to_plain']:.2f}" == ratio
    said = f"A ring of {rows} rows, the key and the update of each token since the state was written, moves "
    assert found.to_dict()["answer"].startswith(said)
    assert "no scheme of a state and such rows moves less (docs/floors-state.md)" in found.to_dict()["answer"]
    assert best["ratio_to_least"] == 1 == min(row["ratio_to_least"] for row in found)


def test_words_of_the_best_ring():
    best = next(row for row in iosim.ring(128, rule="linear") if row["rows"] == 11)
    assert best["words"] == pytest.approx(210688 / 11) and best["total_bytes"] == pytest.approx(2 * 210688 / 11)
    whole = ring_words(11_000, 128 * 128, 256)
    assert whole == pytest.approx(11_000 * best["words"], rel=1e-4) and whole < 11_000 * best["words"]


def test_raw_gates_make_rows_longer():
    lines = iosim.ring(128, rule="kda", state_dtype="fp32").to_dict()["answer"]
    assert "73,472 B" in lines and "leaves 1.77 times" in lines and "a ring of 11 is best, 1.71 times" in lines
    assert "raw gates" not in iosim.ring(128, rule="delta").to_dict()["answer"]


def test_what_is_no_ring_is_refused():
    for options in ({}, {"rule": "linear", "normalise": True}, {"rule": "linear", "features": 256}):
        with pytest.raises(InputError):
            iosim.ring(128, **options)


def test_the_command_line(iosim):
    line = ("tune", "--rule", "gdn", "--decode", "--d", 128, "--heads", 4, "--key-heads", 2, "--state-dtype", "fp32")
    done = iosim(*line)
    assert done.exit_code == 0 and done.stdout.startswith("A ring of 18 rows, the key and the update of each token")
    assert json.loads(iosim(*line, "--json").stdout)["rows"] == 18
    assert iosim(*line, "--csv").stdout.startswith("rows,read_bytes,write_bytes")
    for more in (("--M", "3KB"), ("--curve",), ("--schedule", "flash2")):
        assert iosim(*line, *more).exit_code == 2


def test_drafts_are_verified_with_a_replay():
    """State 65,536 B, row 516 B: snapshots read one state and write five; L (L + 1) >= 2 s / (5 rho) at L = 7."""
    found = iosim.ring(128, rule="gdn", state_dtype="fp32", drafts=4)
    best = next(row for row in found if row["steps"] == 7)
    assert (found.to_dict()["rollback"], found.to_dict()["steps"]) == ("replay", 7)
    assert best["total_bytes"] == pytest.approx(65536 * 8 / 7 + 516 * 5 * 3 + 5 * 516)
    assert best["ratio_to_snapshots"] == pytest.approx(6 * 65536 / best["total_bytes"])
    words = {how: iosim.count(70, 128, rule="gdn", state_dtype="fp32", drafts=4, rollback=how, schedules="state-verify")
             ["state-verify"].total_bytes / 70 for how in ("snapshots", "replay")}  # fmt: skip
    own = 5 * (4 * 128 * 2 + 4 + 2)
    assert words == {"snapshots": 6 * 65536 + own, "replay": pytest.approx(best["total_bytes"] + own)}


def test_snapshots_of_a_small_state_are_best():
    said = iosim.ring(2, rule="gdn", state_dtype="fp32", drafts=2).to_dict()["answer"]
    assert said.startswith(
        "To verify 2 drafts, of which 2 are accepted, snapshots of the state after each token move 64 B"
    )
    assert "a replay" in said, "both ways are compared"
    one = iosim.ring(128, rule="gdn", state_dtype="fp32", drafts=4, accepted=1).to_dict()["answer"]
    assert "1,000 drafts, of which 1,000 are" in iosim.ring(8, rule="gdn", drafts=1000).to_dict()["answer"]
    assert "of which 1 is accepted, a replay that writes the state every" in one


def test_what_is_no_verification_is_refused():
    for options in ({"drafts": 2, "accepted": 3}, {"drafts": 2, "padding": 1}, {"drafts": 0}):
        with pytest.raises(InputError):
            iosim.ring(128, rule="gdn", **options)


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"ring": 5}, "--ring: found '5'; allowed: nothing here; .* --schedule state-ring counts a given one"),
        ({"drafts": 2, "ring": 5}, "--ring: found '5'"),
        ({"rollback": "snapshots"}, "--rollback: found 'snapshots'; .* both ways are compared"),
        ({"heads": 4, "key_heads": 2, "gqa": "pack"}, "--gqa: found 'pack'; .* share its rows: leave it out"),
        ({"mask": "causal", "chunk": 4}, "--mask, --chunk: found 'causal, 4'; allowed: nothing here"),
    ],
)
def test_what_a_ring_does_not_depend_on_is_refused(options, hint):
    with pytest.raises(InputError, match=hint):
        iosim.ring(128, rule="gdn", **options)
