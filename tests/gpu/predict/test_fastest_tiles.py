"""The fastest tiles by the time model: the least of all predictions, with a limit on how many are made."""

from math import prod

import pytest

from iosim.core.problem import Attention
from iosim.core.tiling import Tiling
from iosim.gpu.cuda.machine import generate
from iosim.gpu.predict import fastest_tiles as tiles
from iosim.gpu.predict.generated import predict_generated
from iosim.hardware import measured_as
from iosim.masks import parse_mask
from iosim.schedules import find
from iosim.search.best import best_tiles
from iosim.tuning import timed_tiles

H200, FLASH2 = measured_as("h200"), find("flash2")
P = Attention(300, 32, heads=8, dtype="fp16", acc_dtype="fp32")


@pytest.fixture(autouse=True)
def few_sizes(monkeypatch):
    monkeypatch.setattr(timed_tiles, "SIZES", (16, 64, 128))


def predicted(tiling, p=P, schedule=FLASH2):
    return predict_generated(schedule, generate(schedule, p, tiling), H200).time.seconds


@pytest.mark.parametrize("name, mask", [
    ("flash2", "dense"), pytest.param("flash1", "dense", marks=pytest.mark.long), ("block-sparse-q", "causal"),
])  # fmt: skip
def test_the_fastest_of_all_candidates(name, mask):
    p, schedule = Attention(300, 32, heads=8, acc_dtype="fp32", mask=parse_mask(mask)), find(name)
    found = tiles.fastest_tiles(schedule, p, H200)
    every = {(i, j): predicted(Tiling(i, j), p, schedule) for i in (16, 64, 128) for j in (16, 64, 128)}
    assert (found.fastest.Br, found.fastest.Bc) == min(every, key=every.get)
    assert found.fastest.seconds == min(every.values()) and found.candidates == found.in_full == 9
    least = found.least
    program = generate(schedule, p, Tiling(least.Br, least.Bc))
    assert program.smem_bytes <= 232_448 and least.seconds == predicted(program.tiling, p, schedule)
    assert least.sm_bytes <= found.fastest.sm_bytes and least.chosen_by == "traffic"
    whole = best_tiles(schedule, p, H200.sram_bytes, 16)
    assert predict_generated(schedule, generate(schedule, p, whole), H200).read_bytes <= least.sm_bytes


def test_candidates_fit_a_block_and_no_size_is_much_longer_than_its_axis():
    p = Attention(100, 256, Nk=20, acc_dtype="fp32")
    found = tiles.candidates(FLASH2, p, H200)
    assert {t.rows_q for t in found} <= {16, 64, 128} and {t.rows_k for t in found} == {16, 64}
    assert all(generate(FLASH2, p, t).smem_bytes <= 232_448 for t in found)
    wide = Attention(512, 256, acc_dtype="fp32")
    assert Tiling(128, 128) not in tiles.candidates(FLASH2, wide, H200)


@pytest.mark.long
def test_beyond_the_limit_a_shorter_problem_chooses(monkeypatch):
    """Candidates are compared on a problem with as many blocks; the best few are then predicted in full."""
    p = Attention(1200, 32, heads=4, dtype="fp16", acc_dtype="fp32")
    costs = [tiles.cost(FLASH2, p, t, H200) for t in tiles.candidates(FLASH2, p, H200)]
    monkeypatch.setattr(tiles, "LIMIT_SECONDS", sum(costs) / 4)
    told = []
    found = tiles.fastest_tiles(FLASH2, p, H200, progress=told.append)
    assert 3 <= found.in_full < found.candidates == 9 and told == sorted(told) and told[0] == 0 and told[-1] < 1
    short = tiles.shorter(FLASH2, p, tiles.candidates(FLASH2, p, H200), H200, sum(costs))
    assert short.N == short.Nk == 600 or short.N == short.Nk == 300
    assert short.heads * short.N >= p.heads * p.N and short.heads % short.kv_heads == 0
    everything = {(i, j): predicted(Tiling(i, j), p) for i in (16, 64, 128) for j in (16, 64, 128)}
    assert found.fastest.seconds <= sorted(everything.values())[2], "among the best three"


def test_the_limit_counts_estimates(monkeypatch):
    monkeypatch.setattr(tiles, "LIMIT_SECONDS", 10.0)
    assert tiles.within([2, 0, 1, 3], [1.0, 1.0, 3.0, 1.0]) == [2, 0, 1], "half of the limit is for these"
    assert tiles.within([0, 1, 2], [9.0, 9.0, 9.0]) == [0, 1, 2], "a few at least"


LINE = (
    "tune",
    "--N",
    300,
    "--d",
    32,
    "--heads",
    8,
    "--acc-dtype",
    "fp32",
    "--by",
    "time",
    "--predict",
    "generated",
    "--hardware",
    "h200",
)


def test_the_command(ask, iosim, monkeypatch):
    answer = ask(*LINE, "--schedule", "flash2")
    rows = answer["results"]
    assert [(row["schedule"], row["chosen_by"]) for row in rows] == [("flash2", "time"), ("flash2", "traffic")]
    assert rows[0]["seconds_over_fastest"] == 1 and rows[0]["candidates"] == rows[0]["in_full"] == 9
    first = rows[0]
    program = generate(find(first["schedule"]), P, Tiling(first["Br"], first["Bc"]))
    assert first["blocks"] == prod(program.kernels[0].grid)
    assert first["seconds"] == predicted(program.tiling, P, find(first["schedule"])) and first["bound_by"]
    monkeypatch.setattr(timed_tiles, "SIZES", tuple(sorted({first["Br"], first["Bc"]})))  # so that the rest is quick
    done = iosim(*LINE, "--schedule", "flash2")
    tile = f"{first['Br']}x{first['Bc']}"
    assert done.exit_code == 0 and f"flash2 with {tile} is fastest by the model" in done.stdout
    assert done.stderr == "".join(f"note: {note}\n" for note in answer["notes"]) and "multiples of 16" in done.stderr
    head = iosim(*LINE, "--schedule", "flash2", "--csv").stdout.splitlines()[0]
    assert head.startswith("schedule,chosen_by,Br,Bc,seconds,bound_by,sm_bytes,blocks,seconds_over_fastest")
