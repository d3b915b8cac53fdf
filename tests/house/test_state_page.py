"""Each number of docs/state.md."""

import pytest
from paths import DOCS

import iosim
from iosim.counting.state_floors import StateProblem, product_words
from iosim.counting.state_heads import StateHeads, rule_of

PAGE = DOCS / "state.md"


def said(*texts):
    """Whether a line of the page has all of these texts."""
    return any(all(text in line for text in texts) for line in PAGE.read_text().splitlines())


def test_rings():
    best = {row["rows"]: row for row in iosim.ring(128, rule="linear")}
    assert said("11 rows", f"{best[11]['words']:,.0f} words a step where {best[1]['words']:,.0f} move", "1.71")
    for options, rows, ratio in (
        ({"rule": "gdn"}, 16, "1.78"),
        ({"rule": "gdn", "heads": 32, "key_heads": 16}, 18, "1.81"),
    ):
        found = iosim.ring(128, state_dtype="fp32", **options)
        assert found.to_dict()["rows"] == rows and said(f"{rows} rows", f"{ratio} times")
        assert f"{next(row for row in found if row['rows'] == rows)['ratio_to_plain']:.2f}" == ratio
    assert (
        "raw gates in them a ring of 11 is best, 1.71"
        in iosim.ring(128, rule="kda", state_dtype="fp32").to_dict()["answer"]
    )
    assert said("KDA", "11 rows", "1.71")


def test_saved_states():
    shares = []
    for chunk in (64, 128, 256):
        names = "state-fused,state-saved"
        found = iosim.count(8192, 128, schedules=names, rule="linear", chunk=chunk)
        fused, saved = (result.total // 8192 for result in found.results)
        assert found.results[0].ratio_to_floor == 1
        shares.append((f"{saved:,}", fused, f"{saved / fused:.2f}"))
    (a, one, x), (b, _, y), (c, _, z) = shares
    assert said(f"{a}, {b} or {c} | {one} | {x}, {y} or {z}")


def test_the_kernels_of_flash_linear_attention():
    """3,061.0625 words: what tests/kernels/test_of_state.py counts of its five launches."""
    least = iosim.bounds(8192, 128, rule="gdn", heads=32, key_heads=16, final_state=True)["state: compulsory"].words
    each = least / 8192 / 32
    assert said("3,061", f"{each:.0f}", f"{3061.0625 / each:.1f}") and 2250.0625 + 811 == 3061.0625
    read, written = StateProblem(1, 128, 128, 1, 1, True, True).own
    plain, blocks = 2 * 128 * 128 + read + written, 2 * 128 * 128 + 16 * (2 * 128 + 2) + 2 * 128
    assert said(f"{blocks:,}", f"{plain:,}", f"{blocks / plain:.2f}")


def test_a_kernel_for_each_value_head():
    for N, percent in ((65536, "0.6 %"), (8192, "1.6 %")):
        floor = product_words(StateProblem(N, 128, 256), 128 * 128 + 130, 64)
        assert 2 * N * 4 * 128 / floor < 1 + float(percent.split()[0]) / 100 and said(percent)


def test_drafts():
    assert said(f"{5 * 128 * 128:,} words of a head") and said(f"{5 * 256:,} words and their decays")


def test_across_gpus_and_layers():
    found = {row["schedule"]: row for row in iosim.state_links(1 << 20, 128, 2, rule="deltanet", heads=2)}
    assert said("16,384 words a head, once") and found["state-hand-on"]["received_bytes"] == 2 * 2 * 16384
    assert said("32,768 words") and found["state-all-gather"]["largest_received_bytes"] == 2 * 2 * 32768
    plain = {row["schedule"]: row for row in iosim.state_links(1 << 20, 128, 2, rule="linear", heads=2)}
    assert round(plain["ulysses"]["largest_received_bytes"] / 4 / 1e6) == 134 and said("134 million")
    layers = "gdn d=128 heads=32 key-heads=16 * 36, attention*12"
    rows = list(iosim.memory(131072, 256, heads=16, kv_heads=2, layers=layers))
    assert [row["bytes"] for row in rows] == [3 << 30, 72 << 20] and said("72 MiB") and said("3 GiB")


def test_the_claim():
    (kind,) = iosim.batch("1024 * 1:9000", 128, heads=8, layers="gdn*1").kinds
    heads = StateHeads(rule_of("gdn"), 128, 128, 1, 1024 * 8)
    states = kind.total_bytes - heads.instances * sum(heads.own_bytes)
    assert (
        said(f"{states:,} bytes")
        and said(f"{states / 215e-6 / 1e12:.2f} TB/s")
        and states / 215e-6 == pytest.approx(4.99e12, 1e-3)
    )
