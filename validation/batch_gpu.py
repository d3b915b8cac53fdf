"""Batches of unequal requests on a GPU: PyTorch's FlashAttention under Nsight Compute beside `iosim batch`.

    PYTHONPATH=. python3 validation/batch_gpu.py OUT.csv

Three batches stand in docs/batch.md, and thirty are drawn at random. If no head is packed, the bytes that the kernel
loads must be those of the schedule, and 512 B of cumulative lengths in each block of the grid; else the exit code is 1.
A batch of single tokens with grouped heads is packed, and its kernel is another one: its row says what is beside the
schedule, and is not judged. It needs PyTorch with CUDA, and ncu.
"""

from __future__ import annotations

import csv
import json
import random
import sys
import tempfile
from pathlib import Path

import iosim
from iosim.batches.moved import LENGTHS_BYTES

CASES = [
    [[130, 130], [900, 900], [2048, 2048], [77, 77], [513, 513]],
    [[512, 4608], [256, 300], [1000, 9000]],
    [[1, 3000], [1, 117], [1, 9000], [1, 640], [512, 2048]],
]
TILES = {64: "128x128", 128: "128x64"}  # of FlashAttention-2 without dropout, on an A100, an H100 and an H200
COLUMNS = ("requests", "heads", "kv_heads", "d", "causal", "packed", "kernel", "grid_blocks", "measured_bytes",
           "schedule_bytes", "beside_bytes", "beside_bytes_per_block", "equal")  # fmt: skip


def drawn(seed: int) -> dict[str, object]:
    """A batch at random: prefills, chunks after a cache, single tokens, drafts, or a mixture of them."""
    rng = random.Random(seed)
    kinds = (
        lambda: [n := rng.randint(1, 2500), n],
        lambda: [n := rng.randint(2, 1200), n + rng.randint(1, 8000)],
        lambda: [1, rng.randint(1, 9000)],
        lambda: [n := rng.randint(2, 8), n + rng.randint(1, 5000)],
    )
    allowed = rng.sample(kinds, rng.randint(1, 4))
    heads, kv_heads = rng.choice([(16, 4), (8, 8), (32, 8), (12, 3), (8, 1)])
    requests = [rng.choice(allowed)() for _ in range(rng.randint(1, 12))]
    shape = {"heads": heads, "kv_heads": kv_heads, "d": rng.choice([64, 128])}
    return {"requests": requests, **shape, "causal": rng.random() < 0.8}


def batches() -> list[dict[str, object]]:
    """All batches."""
    first = [{"requests": one, "heads": 16, "kv_heads": 4, "d": 128, "causal": True} for one in CASES]
    return first + [drawn(seed) for seed in range(30)]


def launch(path: str) -> None:
    """Launch the batches of a file, each once after a marker, between profilerStart and profilerStop."""
    import torch

    torch.cuda.init()
    cudart = torch.cuda.cudart()
    made = [arrays(one, torch) for one in json.loads(Path(path).read_text())]
    torch.cuda.synchronize()
    cudart.cudaProfilerStart()
    for given in made:
        torch.cuda._sleep(1)
        torch.ops.aten._flash_attention_forward(*given)
        torch.cuda.synchronize()
    cudart.cudaProfilerStop()


def arrays(one, torch):
    """The arguments of PyTorch's kernel for batches of unequal lengths."""
    new, tokens = zip(*one["requests"], strict=True)
    ends = [torch.tensor([0, *sums(lengths)], dtype=torch.int32, device="cuda") for lengths in (new, tokens)]
    q = torch.randn(sum(new), one["heads"], one["d"], dtype=torch.float16, device="cuda")
    k, v = (torch.randn(sum(tokens), one["kv_heads"], one["d"], dtype=torch.float16, device="cuda") for _ in "KV")
    return q, k, v, *ends, max(new), max(tokens), 0.0, one["causal"], False


def sums(lengths):
    """The running sums of some lengths."""
    total = 0
    for length in lengths:
        total += length
        yield total


def row_of(one, kernels) -> dict[str, object]:
    """A batch and what its kernels loaded."""
    packed = all(new == 1 for new, _ in one["requests"]) and one["heads"] > one["kv_heads"]
    fields = {"d": one["d"], "heads": one["heads"], "kv_heads": one["kv_heads"], "tiles": TILES[one["d"]]}
    requests = [(new, tokens) for new, tokens in one["requests"]]
    mask = "causal" if one["causal"] else "dense"
    found = iosim.batch(requests, **fields, mask=mask, ways="pack" if packed else "repeat").ways[0]
    kernel = max(kernels, key=lambda kernel: kernel.load_bytes)
    grid = 1
    for size in kernel.grid:
        grid *= size
    beside = kernel.load_bytes - found.read_bytes
    return {
        **{name: one[name] for name in ("heads", "kv_heads", "d", "causal")},
        "requests": ", ".join(f"{new}:{tokens}" for new, tokens in requests),
        "packed": packed,
        "kernel": kernel.name[:60],
        "grid_blocks": grid,
        "measured_bytes": kernel.load_bytes,
        "schedule_bytes": found.read_bytes,
        "beside_bytes": beside,
        "beside_bytes_per_block": beside / grid,
        "equal": (beside, grid) == (LENGTHS_BYTES * grid, found.grid_blocks),
    }


def main(out: str) -> int:
    """Profile all batches, write a row for each, and say how many are equal."""
    from iosim.gpu.ncu.counters import read_profile
    from iosim.gpu.ncu.run import _explain, _run, command, find_ncu

    asked = batches()
    with tempfile.TemporaryDirectory() as folder:
        jobs, log = Path(folder, "jobs.json"), str(Path(folder, "ncu.csv"))
        jobs.write_text(json.dumps(asked))
        done = _run(command(find_ncu(), log, [sys.executable, __file__, "--launch", str(jobs)]), "the profiler")
        _explain((Path(log).read_text() if Path(log).exists() else "") + done.stdout + done.stderr, done.returncode)
        profile = read_profile(log)
    assert len(profile.jobs) == len(asked), f"{len(asked)} batches were launched and {len(profile.jobs)} profiled"
    rows = [row_of(one, kernels) for one, kernels in zip(asked, profile.jobs, strict=True)]
    with open(out, "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    judged = [row for row in rows if not row["packed"]]
    equal = sum(bool(row["equal"]) for row in judged)
    print(f"{equal} of {len(judged)} batches are equal to the byte; {len(rows) - len(judged)} are packed")
    return int(equal < len(judged))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--launch"]:
        launch(sys.argv[2])
    else:
        sys.exit(main(sys.argv[1]))
