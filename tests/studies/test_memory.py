"""`iosim memory`, the demonstrations beside `iosim verify --cpu`, and `iosim sweep --columns`."""

import csv
import io

import pytest

from iosim import memory


def rows(ask, *args):
    return ask("memory", *args)["results"]


def test_sizes_by_hand(ask):
    """N = 100, Nk = 60, d = 16, 2 x 6 heads, 3 KV heads, fp16 with fp32 statistics."""
    (row,) = rows(ask, "--N", 100, "--Nk", 60, "--d", 16, "--batch", 2, "--heads", 6, "--kv-heads", 3,
                  "--acc-dtype", "fp32")  # fmt: skip
    S, Q, KV = 12 * 100 * 60 * 2, 12 * 100 * 16 * 2, 2 * 6 * 60 * 16 * 2
    assert (row["S_bytes"], row["S_and_P_bytes"], row["score_traffic_bytes"]) == (S, 2 * S, 4 * S)
    assert (row["Q_bytes"], row["O_bytes"], row["KV_bytes"]) == (Q, Q, KV)
    assert (row["l_and_m_bytes"], row["LSE_bytes"]) == (12 * 100 * 8, 12 * 100 * 4)
    assert row["score_traffic_share"] == 4 * S / (4 * S + 2 * Q + KV)


def test_the_share_is_that_of_algorithm_0(ask):
    for row in rows(ask, "--N", "8:4096:x4", "--d", 4):
        found = ask("count", "--N", row["N"], "--d", 4, "--schedule", "standard")["results"][0]
        scores = sum(sum(found["tensors"][name].values()) for name in ("S", "P"))
        assert row["score_traffic_share"] == scores / found["total"]
        assert row["score_traffic_bytes"] == 2 * scores


def kept_bytes(N, d, heads, kind):
    """fp16 tensors, fp32 statistics."""
    inputs = heads * (2 if kind == "the KV cache alone" else 4) * N * d * 2
    more = {"S and P": 2 * N * N * 2, "P in the place of S": N * N * 2, "l and m (FlashAttention)": 8 * N,
            "LSE (FlashAttention-2)": 4 * N, "nothing (inference)": 0, "the KV cache alone": 0}[kind]  # fmt: skip
    return inputs + heads * more


@pytest.mark.parametrize("budget, size", [("12GB", 12 * 1024**3), ("1MB", 1024**2), ("70000", 70000)])
def test_the_largest_n_is_the_largest(ask, budget, size):
    found = rows(ask, "--budget", budget, "--d", 64, "--heads", 4, "--acc-dtype", "fp32")
    assert len(found) == 6
    for row in found:
        N, kind = row["largest_N"], row["kept beside Q, K, V, O"]
        assert row["bytes"] == kept_bytes(N, 64, 4, kind) <= size < kept_bytes(N + 1, 64, 4, kind)


def test_tiles_on_chip(ask):
    """(Bq + 2 Bk) d words for the inputs; O and S in fp32, l and m beside them."""
    found = rows(ask, "--tiles", "64x64,128x64,128x128", "--d", 128, "--acc-dtype", "fp32")
    assert [row["QKV_bytes"] for row in found] == [49152, 65536, 98304]
    for row in found:
        Br, Bc = row["Br"], row["Bc"]
        assert row["footprint_bytes"] == row["QKV_bytes"] + 4 * (Br * 128 + Br * Bc + 2 * Br)


def test_the_grid(ask):
    """pid 10 is (batch, head) 2, block 2 of batch 0, head 2; every row of every head belongs to one program."""
    found = rows(ask, "--N", 250, "--d", 64, "--batch", 2, "--heads", 4, "--tiles", "64x64", "--grid")
    assert len(found) == 32
    pid = found[10]
    assert (pid["batch_head"], pid["block"], pid["batch"], pid["head"]) == (2, 2, 0, 2)
    owned = [(r["batch"], r["head"], x) for r in found for x in range(r["first_row"], r["first_row"] + r["rows"])]
    assert sorted(owned) == [(b, h, x) for b in range(2) for h in range(4) for x in range(250)]


# ---------------------------------------------------------------- columns of a sweep


def test_columns(iosim, tmp_path):
    args = ["sweep", "--N", "64,128", "--d", 16, "--tiles", "16x16", "--schedule", "flash2"]
    whole = list(csv.DictReader(io.StringIO(iosim(*args).stdout)))
    some = list(csv.DictReader(io.StringIO(iosim(*args, "--columns", "total,N").stdout)))
    assert [list(row) for row in some] == [["total", "N"]] * 2
    assert some == [{"total": row["total"], "N": row["N"]} for row in whole]
    file = tmp_path / "s.toml"
    file.write_text('N = [64, 128]\nd = 16\ntiles = "16x16"\nschedule = "flash2"\ncolumns = ["total", "N"]\n')
    assert iosim("sweep", file).stdout == iosim(*args, "--columns", "total,N").stdout
    assert iosim("sweep", file, "--columns", "N").stdout == "N\n64\n128\n"


def test_the_share_counts_scales_and_what_latent_rows_save(ask):
    """Scales of K and V are moved with them. Latent rows have no V."""
    for options in (("--kv-dtype", "fp8", "--kv-scales", 16), ("--latent", "--dv", 16), ()):
        (row,) = rows(ask, "--N", 64, "--d", 32, *options)
        beside = row["Q_bytes"] + row["KV_bytes"] + row["O_bytes"]
        assert row["score_traffic_share"] == row["score_traffic_bytes"] / (row["score_traffic_bytes"] + beside)
    (row,) = rows(ask, "--N", 64, "--d", 32, "--kv-dtype", "fp8", "--kv-scales", 16)
    assert row["KV_bytes"] == 2 * 64 * (32 + 2 * 4)


def test_shares_of_very_large_lengths_are_those_of_whole_numbers(ask):
    """Beyond 2^53 floats hold no whole number exactly, so the row is made of Python's own."""
    for row in rows(ask, "--N", "67108865,100000007", "--d", 3):
        traffic = row["score_traffic_bytes"]
        assert traffic == 4 * 2 * row["N"] ** 2 > 2**53
        assert row["score_traffic_share"] == traffic / (traffic + row["Q_bytes"] + row["KV_bytes"] + row["O_bytes"])


def test_inference_keeps_the_keys_and_values_of_all_layers_and_no_more():
    """80 GiB: 80 layers of K and V (2 x 8 heads x 128 B of fp8), and Q and O of one layer (2 x 64 heads x 256 B)."""
    rows = memory(budget="80GB", d=128, heads=64, kv_heads=8, layers=80, kv_dtype="fp8").to_rows()
    (row,) = [row for row in rows if row["kept beside Q, K, V, O"] == "nothing (inference)"]
    token = 80 * 2 * 8 * 128 + 2 * 64 * 128 * 2
    assert row["largest_N"] == 80 * 2**30 // token and row["bytes"] == row["largest_N"] * token


def test_a_budget_is_named_as_it_was_given():
    assert str(memory(budget="10.55GiB", d=128)).startswith("10.55 GiB hold at most N = ")


def test_a_window_of_a_model_is_said_to_be_left_out(tmp_path, iosim):
    file = tmp_path / "config.json"
    file.write_text(
        '{"num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096, "num_hidden_layers": 2, '
        '"sliding_window": 4096}'
    )
    said = iosim("memory", "--model", file, "--N", 131072)
    assert said.exit_code == 0 and "a sliding window, which is not taken" in said.stderr
    assert "sliding" not in iosim("count", "--model", file, "--N", 128, "--M", "100KB").stderr
