"""Counts PyTorch's FlexAttention kernels, which it makes of a template for each problem, beside what a GPU moved.

    PYTHONPATH=. python3 validation/kernels/flex.py FOLDER --make           # on a GPU, with PyTorch: writes the kernels
    PYTHONPATH=. python validation/kernels/flex.py FOLDER > flex.csv        # no GPU: counts them

The problems are those of `torch-flex` in validation/shapes.py, whose bytes are in serving.csv. FOLDER gets the code
that PyTorch makes, and flex.json, which says which file belongs to which problem. The lists of key blocks are made
again from the mask, as create_block_mask makes them.
"""

from __future__ import annotations

import csv
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from iosim.core.problem import DENSE, Attention
from iosim.core.tiling import Tiling
from iosim.gpu.jobs import TorchJob, job_from_json
from iosim.kernels.explain import explain
from iosim.kernels.read.arguments import tensor
from iosim.kernels.read.kernel_file import kernel_of
from iosim.kernels.walk.launch import Tensor

BLOCK = 128  # queries and keys of a block of create_block_mask
ROLES = {"arg_Q": "Q", "arg_K": "K", "arg_V": "V", "out_ptr0": "O"}
LISTS = ("arg_KV_NUM_BLKS", "arg_KV_IDX", "arg_FULL_KV_NUM_BLKS", "arg_FULL_KV_IDX")
COLUMNS = ("N", "Nk", "d", "batch", "heads", "kv_heads", "mask", "warps", "Q", "K", "V", "O", "state", "lists",
           "schedule", "tiles", "seconds")  # fmt: skip


def make(folder: Path) -> None:
    """Compile every problem on the GPU, and write down which files PyTorch made for it."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "inductor")
    from iosim.gpu.worker import torch_call
    from validation import shapes

    rows: list[dict[str, object]] = []
    for job in shapes.serving():
        if isinstance(job, TorchJob) and job.name == "torch-flex":
            before = {*folder.rglob("*.py")}
            torch_call(job)()
            made = sorted(str(file.relative_to(folder)) for file in {*folder.rglob("*.py")} - before)
            rows.append({"job": job.to_json(), "files": made})
    (folder / "flex.json").write_text(json.dumps({"rows": rows}, indent=1))


def kernels(folder: Path) -> Iterator[tuple[Attention, str]]:
    """(problem, text of the file with its attention kernel)."""
    for row in json.loads((folder / "flex.json").read_text())["rows"]:
        texts = [(folder / file).read_text() for file in row["files"]]
        (text,) = [text for text in texts if "_tem_" in text and "async_compile.triton(" not in text]
        yield job_from_json(row["job"]).problem, text  # type: ignore[union-attr]


def number(text: str, name: str) -> int:
    """The value of a constant of the kernel, or of an option of its launch."""
    found = re.search(rf"\b{name}(?: : tl\.constexpr = |=)(\d+)", text)
    assert found, name
    return int(found[1])


def lists(p: Attention) -> list[np.ndarray]:
    """For each block of queries: how many blocks of keys it sees in part, and which; the same of those seen whole."""
    if p.mask is DENSE:  # a single block holds everything
        return [np.array([1], np.int32), np.array([[0]], np.int32)] * 2
    seen = p.mask.bind(p, Tiling(BLOCK, BLOCK), True).visible(0, p.N, 0, p.Nk)
    rows, columns = -(-p.N // BLOCK), -(-p.Nk // BLOCK)
    whole = np.zeros((rows * BLOCK, columns * BLOCK), bool)
    whole[: p.N, : p.Nk] = seen
    sums = whole.reshape(rows, BLOCK, columns, BLOCK).sum((1, 3))
    full = sums == BLOCK * BLOCK
    found = []
    for blocks in ((sums > 0) & ~full, full):
        found += [blocks.sum(1).astype(np.int32), np.argsort(~blocks, axis=1, kind="stable").astype(np.int32)]
    return found


def arguments(p: Attention, text: str) -> tuple[dict[str, Tensor | np.ndarray], tuple[int, int, int]]:
    """(arguments of the kernel, its grid). The kernel of decoding splits the keys and packs the heads of a group."""
    given: dict[str, Tensor | np.ndarray] = {
        "arg_Q": tensor("fp16", (p.batch, p.heads, p.N, p.d)),
        "arg_K": tensor("fp16", (p.batch, p.kv_heads, p.Nk, p.d)),
        "arg_V": tensor("fp16", (p.batch, p.kv_heads, p.Nk, p.dv)),
    } | dict(zip(LISTS, lists(p), strict=True))
    rows = number(text, "BLOCK_M")
    if "arg_LSE" in text:
        state = tensor("fp32", (p.batch, p.heads, p.N))
        given |= {"arg_LSE": state, "arg_MAX": state, "out_ptr0": tensor("fp16", (p.batch, p.heads, p.N, p.dv))}
        return given, (-(-p.N // rows), p.batch, p.heads)
    splits = number(text, "SPLIT_KV")
    state = tensor("fp32", (p.batch, splits, p.heads, p.N))
    given |= {"arg_M": state, "arg_L": state, "out_ptr0": tensor("fp32", (p.batch, splits, p.heads, p.N, p.dv))}
    return given, (-(-p.N * (p.heads // p.kv_heads) // rows), p.batch * p.kv_heads, splits)


def row_of(p: Attention, text: str, scratch: Path) -> dict[str, object]:
    """What iosim says of one kernel."""
    scratch.write_text(re.sub(r"@triton_heuristics\.template\(.*?\n\)\n", "", text, flags=re.DOTALL))
    name = re.search(r"def (triton_tem\w+)\(", text)
    assert name
    begin = time.perf_counter()
    given, grid = arguments(p, text)
    found = explain(kernel_of(str(scratch), name[1]), grid, num_warps=number(text, "num_warps"),
                    num_stages=number(text, "num_stages"), problem=p, roles=ROLES, **given)  # fmt: skip
    seconds = time.perf_counter() - begin
    words = {name: way["reads"].words + way["writes"].words for name, way in found.ways.items()}
    near = found.nearest
    return {
        "N": p.N, "Nk": p.Nk, "d": p.d, "batch": p.batch, "heads": p.heads, "kv_heads": p.kv_heads, "mask": p.mask,
        "warps": number(text, "num_warps"), **{role: words[name] for name, role in ROLES.items()},
        "state": sum(words.get(name, 0) for name in ("arg_LSE", "arg_MAX", "arg_M", "arg_L")),
        "lists": sum(words[name] for name in LISTS),
        "schedule": near.schedule if near else "", "tiles": near.tiles if near else "", "seconds": round(seconds, 2),
    }  # fmt: skip


def main(folder: str, *options: str) -> None:
    """Make the kernels, or print a row for each."""
    path = Path(folder).resolve()
    if "--make" in options:
        path.mkdir(parents=True, exist_ok=True)
        make(path)
        return
    writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for p, text in kernels(path):
        writer.writerow(row_of(p, text, path / "kernel.py"))


if __name__ == "__main__":
    main(*sys.argv[1:])
