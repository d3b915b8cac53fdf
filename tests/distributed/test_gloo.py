"""Bytes that ranks of PyTorch's context-parallel attention received over gloo, against the words that iosim counts."""

import csv
import sys
from collections import Counter

import pytest
from paths import VALIDATION

import iosim
from iosim import Attention
from iosim.distributed.floors import floor_across
from iosim.masks import parse_mask
from iosim.units import dtype_bytes

FOLDER = VALIDATION / "links"
sys.path.append(str(FOLDER))
KEPT = list(csv.DictReader((FOLDER / "results.csv").open()))
DTYPES = {"float32": "fp32", "bfloat16": "bf16"}


def problem_of(case):
    mask = {"mask": parse_mask("causal")} if case["causal"] else {}
    heads = {"heads": case["heads"], "kv_heads": case["kv_heads"]}
    return Attention(case["tokens"], case["d"], dtype=DTYPES[case["dtype"]], **heads, **mask)


def counted(case, name, passes):
    """The row of `iosim links` for a case: gradients that travel are of the type of accumulators, fp32 in PyTorch."""
    types = {"dtype": DTYPES[case["dtype"]], "acc_dtype": "fp32", "mask": "causal" if case["causal"] else "dense"}
    heads = {"heads": case["heads"], "kv_heads": case["kv_heads"]}
    return iosim.links(case["tokens"], case["d"], case["ranks"], schedules=name, passes=passes, **heads, **types)[name]


def expected(case, which):
    """Bytes that a rank receives. Backward, PyTorch's ring and its all-gather send dK and dV home in P hops. Ulysses
    keeps Q, K, V and O of its forward pass, so its backward pass is a step less that, and D need not be sent."""
    if case["scheme"] == "ulysses":
        tensors = Counter(counted(case, "ulysses", "forward").tensors)
        if which == "backward":
            tensors = Counter(counted(case, "ulysses", "step").tensors) - tensors
        del tensors["D"]
        moved = sum(tensors.values()) * dtype_bytes(DTYPES[case["dtype"]])
    elif which == "backward":
        moved = counted(case, "ring-coded", "backward").received_bytes
    else:
        name = "zigzag" if (case["scheme"], case["layout"]) == ("ring", "zigzag") else case["scheme"]
        moved = counted(case, name, "forward").received_bytes
    assert moved % case["ranks"] == 0
    return moved // case["ranks"]


def case_of(row):
    numbers = {name: int(row[name]) for name in ("ranks", "tokens", "heads", "kv_heads", "d")}
    return {**{k: row[k] for k in ("scheme", "layout", "dtype")}, "causal": row["causal"] == "True", **numbers}


@pytest.mark.parametrize("row", KEPT, ids=lambda row: " ".join(list(row.values())[:5] + [row["pass"]]))
def test_kept_bytes(row):
    """Equal to the byte by the dispatch mode; by the loopback device 2 % more at most, for headers and barriers."""
    case = case_of(row)
    counted = int(row["mode_bytes_a_rank"])
    assert counted == expected(case, row["pass"])
    assert 1 < int(row["device_bytes"]) / (case["ranks"] * counted) < 1.02
    assert float(row["error"]) < (1e-5 if row["dtype"] == "float32" else 0.03)


def test_the_share_of_headers_on_the_page():
    more = max(int(row["device_bytes"]) / (int(row["ranks"]) * int(row["mode_bytes_a_rank"])) for row in KEPT) - 1
    assert 0.004 < more < 0.005 and "at most 0.5 % more" in " ".join((FOLDER / "README.md").read_text().split())


def test_what_was_run():
    run = {(row["scheme"], row["layout"], row["dtype"]) for row in KEPT}
    for layout in ("blocks", "zigzag"):
        assert {("ring", layout, "float32"), ("ring", layout, "bfloat16")} <= run
    assert {("ulysses", "blocks", "float32"), ("ulysses", "blocks", "bfloat16")} <= run
    assert {row["pass"] for row in KEPT} == {"forward", "backward"} and {row["ranks"] for row in KEPT} == {"2", "4"}


def test_kept_bytes_against_the_floor():
    """Nothing is received below a floor. Ulysses keeps Q, K and V from its forward pass, so its backward pass alone does
    not start from the layout alone: the floor of a whole step holds for both passes together."""
    received = {(tuple(case_of(row).values()), row["pass"]): int(row["mode_bytes_a_rank"]) for row in KEPT}
    met, below = set(), set()
    for row in KEPT:
        case = case_of(row)
        problem, layout = problem_of(case), case["layout"]
        word = case["ranks"] / dtype_bytes(problem.dtype)  # from bytes of a rank to words of all
        one = {name: received[tuple(case.values()), name] * word for name in ("forward", "backward")}
        floors = {name: floor_across(problem, case["ranks"], layout=layout, backward=name == "backward").received_words
                  for name in one}  # fmt: skip
        assert sum(one.values()) >= floor_across(problem, case["ranks"], layout=layout, step=True).received_words
        assert one["forward"] >= floors["forward"]
        if one["forward"] == floors["forward"]:
            met.add((case["scheme"], case["ranks"]))
        if one["backward"] < floors["backward"]:
            below.add(case["scheme"])
    assert ("ring", 2) in met and below == {"ulysses"}


@pytest.mark.needs("torch")
@pytest.mark.parametrize("scheme, causal", [("ring", True), ("ulysses", False)])
def test_processes_again(scheme, causal):
    """A small case, as processes on this machine. The loopback device is the machine's own, so it is not read."""
    import attention_over_gloo as runs

    case = runs.Case(scheme, "zigzag" if causal else "blocks", causal, 2, "float32", 128, 4, 4, 16)
    found = runs.run(case)
    for which, counted in found["mode_bytes"].items():
        assert counted == [expected(vars(case), which)] * 2
    assert found["error"] < 1e-5 and found["device_bytes"] == {"forward": None, "backward": None}
