"""A layer with a state across GPUs: what each scheme receives, and the floor of a cut."""

import json

import pytest

import iosim
from iosim.errors import InputError


def of(found):
    return {row["schedule"]: row for row in found}


def test_two_devices_and_a_million_tokens():
    """docs/state.md: 16,384 words a head once; a gather in one round 32,768 with delta; Ulysses 134 million a device."""
    found = of(iosim.state_links(1 << 20, 128, 2, rule="deltanet", heads=2))
    assert found["state-hand-on"]["received_bytes"] == 2 * 16384 * 2
    assert found["state-all-gather"]["largest_received_bytes"] == 2 * 32768 * 2
    linear = of(iosim.state_links(1 << 20, 128, 2, rule="linear", heads=2))
    assert linear["ulysses"]["largest_received_bytes"] == 2 * 134_217_728 * 2
    assert linear["state-all-gather"]["largest_received_bytes"] == 2 * 16384 * 2


@pytest.mark.parametrize("rule", ["linear", "retnet", "mamba2", "gla", "deltanet", "gdn", "kda"])
def test_handing_on_receives_the_floor(rule):
    for ranks in (2, 3, 8):
        found = iosim.state_links(2400, 16, ranks, rule=rule, dv=24, heads=48, key_heads=24, state_dtype="fp32")
        rows = of(found)
        assert rows["state-hand-on"]["ratio_to_floor"] == 1 == min(row["ratio_to_floor"] for row in found)
        assert rows["state-hand-on"]["received_bytes"] == (ranks - 1) * 24 * 16 * 48 * 4
        assert rows["state-hand-on"]["rounds"] == ranks - 1 and rows["ulysses"]["rounds"] == 2


def test_ulysses_receives_all_tokens_of_its_heads():
    """Each GPU has 4 of 8 key heads; of their 100 tokens it lacks 50, and of its own 50 tokens' outputs 4 heads."""
    (row,) = iosim.state_links(100, 8, 2, rule="gdn", heads=16, key_heads=8, schedules=["ulysses"])
    token = 2 * 8 * 2 + 16 * 2 + 2 * (4 + 2) + 16 * 2
    assert row["largest_received_bytes"] == 4 * 50 * token and row["received_bytes"] == 2 * 4 * 50 * token


def test_short_runs_need_less():
    found = iosim.state_links(8, 16, 2, rule="linear")
    assert found.to_dict()["floor_bytes"] == 4 * (4 + 16 - 4) * 2
    assert of(found)["state-hand-on"]["ratio_to_floor"] == 4


def test_the_command_line(iosim):
    line = ("links", "--rule", "gdn", "--ranks", 8, "--N", 131072, "--d", 128, "--heads", 32, "--key-heads", 16)
    done = iosim(*line, "--state-dtype", "fp32", "--hardware", "h100")
    assert done.exit_code == 0 and done.stdout.startswith(
        "state-hand-on receives 14 MiB in all GPUs, and no exact algorithm with fixed addresses, one number a word, can "
        "receive less (docs/floors-state.md, X)."
    )
    assert "7         32.6" in done.stdout
    assert json.loads(iosim(*line, "--json").stdout)["results"][0]["ratio_to_floor"] == 1
    assert len(iosim(*line, "--schedule", "ulysses", "--csv").stdout.splitlines()) == 2
    for more in (
        ("--nodes", "2x4"),
        ("--network", "50GB"),
        ("--detail",),
        ("--pass", "backward"),
        ("--schedule", "ring"),
        ("-o", "x.html"),
        ("--M", "4KB"),
    ):
        assert iosim(*line, *more).exit_code == 2, more
    assert "not for this problem: ulysses" in iosim(*line[:-4], "--heads", 4).stdout


def test_what_is_no_layer_with_a_state_is_refused():
    for options in ({}, {"rule": "linear", "normalise": True}, {"rule": "gdn", "schedules": ["ring"]}):
        with pytest.raises(InputError):
            iosim.state_links(64, 8, 2, **options)
    with pytest.raises(InputError, match="--mask: found 'causal'; allowed: nothing here"):
        iosim.state_links(64, 8, 2, rule="gdn", mask="causal")
    with pytest.raises(InputError, match="a divisor of --N 64"):
        iosim.state_links(64, 8, 3, rule="gdn")


def test_what_a_state_does_not_depend_on_is_refused(iosim):
    """As `count --rule` does; no option is read by nobody in silence."""
    asked = ["links", "--ranks", 4, "--rule", "gdn", "--N", 64, "--d", 16, "--heads", 4]
    assert iosim(*asked, "--key-heads", 2, "--dv", 8, "--batch", 2, "--state-dtype", "fp32").exit_code == 0
    found = iosim(*asked, "--mask", "window:7", "--Nk", 300, "--kv-dtype", "fp8", "--padding", 3)
    said = "--Nk, --mask, --kv-dtype, --padding: found '300, window:7, fp8, 3'; allowed: nothing here; it has no part in what"
    assert found.exit_code == 2 and said in found.output
