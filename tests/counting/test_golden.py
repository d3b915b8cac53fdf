"""Every case of data/golden.json, through the command line. Its counts were made by an independent brute force."""

import json

import pytest
from paths import DATA

GOLDEN = json.loads((DATA / "golden.json").read_text())
NAMES = {
    "standard": "standard",
    "standard_elementwise": "standard",
    "flash1": "flash1",
    "q_outer": "flash2",
    "block_sparse": "block-sparse",
    "standard_backward": "standard-bwd",
    "flash1_backward": "flash1-bwd",
}
CASES = [c for c in GOLDEN["cases"] if c["schedule"] in NAMES]
WRONG = [c for c in CASES if "seed_printed_total" in c]


def mask_of(mask, folder):
    kind = mask["type"]
    if kind in ("and", "or"):
        return ("&" if kind == "and" else "|").join(f"({mask_of(m, folder)})" for m in mask["of"])
    if kind == "explicit":
        file = folder / f"mask{abs(hash(tuple(mask['rows'])))}.txt"
        file.write_text("\n".join(mask["rows"]) + "\n")
        return f"file:{file}"
    return {
        "dense": "dense",
        "causal_block": "causal:b",
        "causal_token": "causal",
        "sliding_window_block": f"window:{mask.get('w')}b",
        "sliding_window_token": f"window:{mask.get('w')}",
        "strided_block": f"strided:{mask.get('stride')}b",
        "global_local_block": f"global:{mask.get('g')}b|window:{mask.get('w')}b",
    }[kind]


def arguments(case, folder):
    name = NAMES[case["schedule"]]
    args = ["count", "--N", case["N"], "--d", case["d"]]
    if "Br" in case:
        args += ["--tiles", f"{case['Br']}x{case['Bc']}"]
    if "M_elements" in case:
        args += ["--M", f"{case['M_elements']}el"]
    if "mask" in case:
        args += ["--mask", mask_of(case["mask"], folder)]
        name = {"flash2": "block-sparse-q"}.get(name, name)
    if "extra_passes" in case:
        args += ["--elementwise", case["extra_passes"]]
    return [*args, "--schedule", name]


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c['id']}-{c['schedule']}")
def test_case(case, ask, tmp_path):
    result = ask(*arguments(case, tmp_path))["results"][0]
    assert (result["reads"], result["writes"], result["total"]) == (case["reads"], case["writes"], case["total"])
    if "sram_peak_elements" in case:
        assert result["sram_peak_words"] == case["sram_peak_elements"]
    if "tiles_fit_in_M" in case:
        assert result["fits"] is case["tiles_fit_in_M"]
    if "flops" in case:
        assert result["flops"] == case["flops"]
    if "steps" in case:
        assert result["steps"] == case["steps"]


DECODE = [c for c in GOLDEN["cases"] if c["schedule"] == "decode"]


@pytest.mark.parametrize("case", DECODE, ids=lambda c: f"{c['id']}-decode")
def test_decoding(case, ask):
    """There is one query. The query heads of a KV head share its keys and values."""
    sizes = ["--N", 1, "--Nk", case["Tk"], "--d", case["d"], "--batch", case["batch"]]
    heads = ["--heads", case["Hq"], "--kv-heads", case["Hkv"], "--gqa", "pack"]
    result = ask("count", *sizes, *heads, "--tiles", "32x64", "--schedule", "flash2")["results"][0]
    assert (result["reads"], result["writes"], result["total"]) == (case["reads"], case["writes"], case["total"])


SOFTMAX = [c for c in GOLDEN["cases"] if c["schedule"].startswith("softmax_")]
MATMUL = [c for c in GOLDEN["cases"] if c["schedule"].startswith("matmul_")]


@pytest.mark.parametrize("case", SOFTMAX, ids=lambda c: f"{c['id']}-{c['schedule']}")
def test_softmax_of_n_numbers(case, ask):
    """The matrix is one row of n scores, in tiles of 4."""
    name = case["schedule"].replace("_", "-")
    args = ["--N", 1, "--Nk", case["n"], "--d", 1, "--tiles", "1x4", "--schedule", name]
    result = ask("count", *args)["results"][0]
    assert (result["reads"], result["writes"], result["total"]) == (case["reads"], case["writes"], case["total"])


@pytest.mark.parametrize("case", MATMUL, ids=lambda c: f"{c['id']}-{c['schedule']}")
def test_matrix_products(case, ask):
    """C (n, p) = A (n, m) B (m, p) is computed in cubes: all three tile sizes are the same."""
    sizes = ["--N", case["n"], "--d", case["m"], "--Nk", case["p"], "--schedule", case["schedule"].replace("_", "-")]
    tile = case.get("tile", 1)
    result = ask("count", *sizes, "--tiles", f"{tile}x{tile}/depth={tile}")["results"][0]
    assert (result["reads"], result["writes"], result["total"]) == (case["reads"], case["writes"], case["total"])


PAPER = [c for c in CASES if "M_elements" in c and c["schedule"] == "flash1"]
SEARCH = GOLDEN["search_cases"] + GOLDEN["big_table_N8192_d128"]


@pytest.mark.parametrize("case", PAPER, ids=lambda c: c["id"])
def test_paper_tiles(case, ask):
    args = ["count", "--N", case["N"], "--d", case["d"], "--M", f"{case['M_elements']}el", "--tiles", "paper"]
    result = ask(*args, "--schedule", "flash1")["results"][0]
    assert (result["Br"], result["Bc"], result["total"]) == (case["Br"], case["Bc"], case["total"])


def test_the_wrong_numbers_of_the_sources_are_not_reproduced(ask, tmp_path):
    assert len(WRONG) >= 4
    for case in WRONG:
        assert ask(*arguments(case, tmp_path))["results"][0]["total"] != case["seed_printed_total"]


@pytest.mark.parametrize("case", SEARCH, ids=lambda c: f"{c['N']}-{c['M_elements']}")
def test_search(case, ask):
    base = ["count", "--N", case["N"], "--d", case["d"], "--M", f"{case['M_elements']}el"]
    paper = ask(*base, "--schedule", "flash1", "--tiles", "paper")["results"][0]
    assert (paper["total"], paper["fits"]) == (case["paper_total"], case["paper_fits"])
    assert (paper["Br"], paper["Bc"]) == (case["paper_Br"], case["paper_Bc"])
    for name, key in (("flash1", "best_k_outer_total"), ("flash2", "best_q_outer_total")):
        best = ask(*base, "--schedule", name, "--tiles", "best")["results"][0]
        assert best["total"] == case[key]
        assert best["fits"] is (case[key] is not None)
    if "best_q_outer_tiles_example" in case:
        assert [best["Br"], best["Bc"]] == case["best_q_outer_tiles_example"]
        answer = ask(*base)
        bounds = {b["name"]: b["words"] for b in answer["bounds"]}
        assert bounds["compulsory"] == case["compulsory_4Nd"]
        assert bounds["N^2 d^2 / M"] == pytest.approx(case["N2d2_over_M"], rel=1e-12)
