"""What NCCL and PyTorch's context-parallel ring send between two GPUs: from the root of the repository

    python3 validation/links/nccl.py FILE.csv

Each row has the milliseconds of a step, the bytes that a GPU needs from the other, and the bytes that the links of a
GPU carried, as the driver counts them (`nvidia-smi nvlink -gt d`, in KiB). It needs PyTorch with CUDA and two GPUs.
The functions of the ring are private names of PyTorch.
"""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
import time
import traceback
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

HEADS, TOKENS, WIDTH, TIMES = 16, 16384, 128, 20  # tokens of a GPU


def carried(gpu: int) -> tuple[int, int]:
    """Bytes that the links of a GPU received and sent since the driver started."""
    text = subprocess.run(["nvidia-smi", "nvlink", "-gt", "d", "-i", str(gpu)], capture_output=True, text=True).stdout
    received, sent = (sum(map(int, re.findall(rf"Data {way}: (\d+) KiB", text))) for way in ("Rx", "Tx"))
    return 1024 * received, 1024 * sent


def timed(step: Callable[[], object], rank: int) -> tuple[float, int, int]:
    """(milliseconds, bytes received, bytes sent) of a step."""

    def meet() -> None:
        torch.cuda.synchronize()
        dist.barrier()
        torch.cuda.synchronize()
        time.sleep(1)  # the driver's counters of received bytes are late

    step()
    meet()
    before, begin = carried(rank), time.perf_counter()
    for _ in range(TIMES):
        step()
    torch.cuda.synchronize()
    each = (time.perf_counter() - begin) / TIMES * 1e3
    meet()
    after = carried(rank)
    return each, (after[0] - before[0]) // TIMES, (after[1] - before[1]) // TIMES


def main(rank: int, path: str) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511", RANK=str(rank), WORLD_SIZE="2")
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=2)
    q, k, v = (torch.randn(1, HEADS, TOKENS, WIDTH, dtype=torch.bfloat16, device="cuda") for _ in range(3))
    came = [torch.empty_like(k), torch.empty_like(v)]

    def exchange() -> None:
        for work in begun(k, v, came, rank):
            work.wait()

    steps: dict[str, Callable[[], object]] = {"exchange of K and V": exchange}
    for causal in (False, True):
        steps[f"context-parallel ring, {'causal zigzag' if causal else 'dense'}"] = ring(q, k, v, causal)
    steps["ring, own keys beside the exchange"] = ring_by_hand(q, k, v, came, rank)
    steps["Ulysses"] = ulysses(q, k, v)
    rows = []
    for what, step in steps.items():
        try:
            each, received, sent = timed(step, rank)
        except Exception:  # both processes fail alike: names of PyTorch that changed
            print(what, traceback.format_exc(), flush=True)
            continue
        moved = {"needed_bytes": 2 * 2 * k.numel(), "received_bytes": received, "sent_bytes": sent}
        machine = {"torch": torch.__version__, "gpu": torch.cuda.get_device_name()}
        rows.append({"what": what, **machine, "milliseconds": f"{each:.3f}", **moved})
    if rank == 0:
        with open(path, "w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        print(*(",".join(map(str, row.values())) for row in rows), sep="\n", flush=True)
    dist.destroy_process_group()


def begun(k: torch.Tensor, v: torch.Tensor, came: list[torch.Tensor], rank: int) -> list[dist.Work]:
    """An exchange of K and V, which has begun."""
    sends = [dist.P2POp(dist.isend, x, 1 - rank) for x in (k, v)]
    return dist.batch_isend_irecv([*sends, *(dist.P2POp(dist.irecv, x, 1 - rank) for x in came)])


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """O and LSE by PyTorch's FlashAttention."""
    return torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, False)[:2]


def ring_by_hand(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, came: list[torch.Tensor], rank: int
) -> Callable[[], object]:
    """A ring of two whose exchange begins before the attention to the own keys."""

    def step() -> object:
        works = begun(k, v, came, rank)
        o, lse = attend(q, k, v)
        for work in works:
            work.wait()
        part, its = attend(q, *came)
        return torch.lerp(o, part, torch.sigmoid(its - lse).to(o.dtype)[..., None])

    return step


def ulysses(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Callable[[], object]:
    """Half of the heads of all tokens, by all-to-all exchanges, and O home. Rows are put in order by copies."""

    def exchanged(x: torch.Tensor) -> torch.Tensor:
        found = torch.empty_like(x)
        dist.all_to_all_single(found, x)
        return found

    def step() -> object:
        parts = (exchanged(x.view(2, HEADS // 2, TOKENS, WIDTH)) for x in (q, k, v))
        o, _ = attend(*(x.transpose(0, 1).reshape(1, HEADS // 2, 2 * TOKENS, WIDTH) for x in parts))
        rows = o.reshape(HEADS // 2, 2, TOKENS, WIDTH).transpose(0, 1).contiguous()
        return exchanged(rows).view(1, HEADS, TOKENS, WIDTH)

    return step


def ring(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> Callable[[], object]:
    """PyTorch's ring, in zigzag if causal."""
    from torch.distributed.tensor.experimental import _attention as private

    private.set_rotate_method("alltoall")

    def attend(q, k, v, is_causal=False, **more):  # type: ignore[no-untyped-def]
        return torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, is_causal)

    def step() -> object:
        private._cp_options.enable_load_balance = causal
        return private._templated_ring_attention(dist.group.WORLD, 2, attend, q, k, v, is_causal=causal)

    return step


if __name__ == "__main__":
    mp.spawn(main, (sys.argv[1],), nprocs=2)
