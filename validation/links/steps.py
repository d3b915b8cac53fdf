"""Time of a step of attention on two GPUs, beside its bound at the peaks: from the root of the repository

    PYTHONPATH=. python3 validation/links/steps.py FILE.csv

One process has both GPUs. Its kernels are generated ones, or PyTorch's FlashAttention or cuDNN. Rows of the other GPU
come by the driver's copies. A ring attends to its own keys, gets K and V of the other GPU, attends to these, and merges
both results; a generated kernel goes on from the first result, and merges nothing. In Ulysses rows of the other GPU
come into arrays that already have a GPU's own rows, and O of half of the heads goes home.

A row has the milliseconds of each part alone, which both GPUs do at once, and of two steps: `followed` has every part
in one stream, and `overlapped` has the copies of a ring in a stream of their own. The bounds are those of `iosim links
--ranks 2 --hardware h100`: of links and arithmetic at their peaks, and of a step. It needs CuPy and PyTorch with CUDA.
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

import numpy as np
import torch

import iosim
from iosim.core.problem import Attention
from iosim.core.tiling import Tiling
from iosim.distributed.inside import FIRST, HOP
from iosim.gpu.cuda.machine import generate
from iosim.gpu.cuda.program import Program
from validation.links.on_gpus import RANKS, Case, Gpus, visit, write

HEADS, WIDTH = 16, 128
TOKENS = (8192, 32768, 65536)  # of both GPUs
REPEATS = {"generated": 3, "flash": 10, "cudnn": 10}
Tensors = dict[str, torch.Tensor]
Part = Callable[[int], None]
"""Starts a part of a step on a GPU, on its current stream."""


class Places(Protocol):
    """What a step asks of two GPUs, or of what stands for them in a test."""

    def place(self, rank: int) -> str: ...
    def bring(self, rank: int, here: torch.Tensor, there: torch.Tensor) -> int: ...
    def start(self, rank: int, program: Program, arrays: Mapping[str, torch.Tensor]) -> None: ...


class Two:
    """Two GPUs. Each has a stream to compute in and one for copies."""

    def __init__(self) -> None:
        import cupy

        self.gpus, self.cupy = Gpus(), cupy
        self.streams = [[self._stream(rank) for rank in range(RANKS)] for _ in range(2)]
        self.main, self.side = [
            [torch.cuda.ExternalStream(stream.ptr, device=self.place(rank)) for rank, stream in enumerate(streams)]
            for streams in self.streams
        ]

    def _stream(self, rank: int):  # type: ignore[no-untyped-def]
        with self.cupy.cuda.Device(rank):
            return self.cupy.cuda.Stream(non_blocking=True)

    def place(self, rank: int) -> str:
        """PyTorch's name of a GPU."""
        return f"cuda:{rank}"

    def bring(self, rank: int, here: torch.Tensor, there: torch.Tensor) -> int:
        """Rows of the other GPU come; the bytes."""
        assert here.is_contiguous() and there.is_contiguous() and here.shape == there.shape
        size, stream = here.numel() * here.element_size(), torch.cuda.current_stream(rank).cuda_stream
        self.cupy.cuda.runtime.memcpyPeerAsync(here.data_ptr(), rank, there.data_ptr(), 1 - rank, size, stream)
        return size

    def start(self, rank: int, program: Program, arrays: Mapping[str, torch.Tensor]) -> None:
        """A generated kernel starts in the stream of the GPU. It counts nothing."""
        pointers = {name: np.uint64(x.data_ptr()) for name, x in arrays.items()}
        with self.cupy.cuda.Device(rank), self.streams[0][rank]:
            self.gpus.start(rank, program, pointers, {}, np.uint64(0))

    @contextmanager
    def stream(self, rank: int, side: bool = False) -> Iterator[None]:
        """What is started inside is in a stream of a GPU."""
        with torch.cuda.device(rank), torch.cuda.stream((self.side if side else self.main)[rank]):
            yield

    def meet(self) -> None:
        """Each GPU waits until the other one is here."""
        events = [stream.record_event() for stream in self.main]
        for rank, stream in enumerate(self.main):
            stream.wait_event(events[1 - rank])

    def done(self) -> None:
        for rank in range(RANKS):
            torch.cuda.synchronize(rank)

    def step(self, parts: Mapping[str, Part], beside: str = "") -> None:
        """A step of both GPUs. The part `beside` begins with the step, in a stream of its own; the parts after
        it wait for it."""
        self.meet()
        for rank in range(RANKS):
            self.side[rank].wait_stream(self.main[rank])
            if beside:
                with self.stream(rank, side=True):
                    parts[beside](rank)
        for name, part in parts.items():
            if name == "home":
                self.meet()
            for rank in range(RANKS):
                if name == beside:
                    self.main[rank].wait_stream(self.side[rank])
                else:
                    with self.stream(rank):
                        part(rank)

    def milliseconds(self, parts: Mapping[str, Part], repeats: int, beside: str = "") -> float:
        """The mean time of a step of both GPUs."""
        self.step(parts, beside)
        self.done()
        begin = time.perf_counter()
        for _ in range(repeats):
            self.step(parts, beside)
        self.done()
        return (time.perf_counter() - begin) / repeats * 1e3


def pytorch(kernel: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """O and LSE of heads x tokens x d, by a kernel of PyTorch."""
    aten, given = torch.ops.aten, [x.unsqueeze(0) for x in (q, k, v)]
    if kernel == "flash":
        o, lse, *_ = aten._scaled_dot_product_flash_attention(*given, 0.0, False)
    elif kernel == "cudnn":
        o, lse, *_ = aten._scaled_dot_product_cudnn_attention(*given, None, True, 0.0, False)
    else:
        o, lse, *_ = aten._scaled_dot_product_flash_attention_for_cpu(*given, 0.0, False)
    return o[0].contiguous(), lse.reshape(q.shape[:2])


class Ring:
    """A ring of two: its parts in order, the bytes that came, and O."""

    def __init__(self, two: Places, kernel: str, shards: list[Tensors]):
        self.two, self.kernel, self.shards = two, kernel, shards
        self.bytes_come = [0, 0]
        self.came = [{name: torch.empty_like(shard[name]) for name in "KV"} for shard in shards]
        self.found: list[Tensors] = [{} for _ in range(RANKS)]
        if kernel == "generated":
            self._generate()
            self.parts: dict[str, Part] = {"own": self.first, "hop": self.hop, "other": self.later}
        else:
            self.parts = {"own": self.own, "hop": self.hop, "other": self.other, "merge": self.merge}

    def _generate(self) -> None:
        heads, n, d = self.shards[0]["Q"].shape
        case = Case("ring", Attention(RANKS * n, d, heads=heads, dtype="fp16", acc_dtype="fp32"), Tiling(64, 64))
        with TemporaryDirectory() as none:
            p = visit(case, 0, 0, Path(none))
        self.programs = [generate(schedule, p, case.tiles) for schedule in (FIRST, HOP)]
        for rank, found in enumerate(self.found):
            shapes = {"O": (heads, n, d), "l": (heads, n), "m": (heads, n)}
            found |= {name: torch.empty(shape, device=self.two.place(rank)) for name, shape in shapes.items()}

    def first(self, rank: int) -> None:
        self.two.start(rank, self.programs[0], {**self.shards[rank], **self.found[rank]})

    def later(self, rank: int) -> None:
        self.two.start(rank, self.programs[1], {**self.shards[rank], **self.came[rank], **self.found[rank]})

    def own(self, rank: int) -> None:
        self.attend(rank, self.shards[rank], "")

    def other(self, rank: int) -> None:
        self.attend(rank, self.came[rank], "part")

    def attend(self, rank: int, keys: Tensors, name: str) -> None:
        o, lse = pytorch(self.kernel, self.shards[rank]["Q"], keys["K"], keys["V"])
        self.found[rank] |= {f"O{name}": o, f"LSE{name}": lse}

    def hop(self, rank: int) -> None:
        there = self.shards[1 - rank]
        self.bytes_come[rank] = sum(self.two.bring(rank, self.came[rank][name], there[name]) for name in "KV")

    def merge(self, rank: int) -> None:
        found = self.found[rank]
        share = torch.sigmoid(found["LSEpart"] - found["LSE"]).to(found["O"].dtype)
        found["O"] = torch.lerp(found["O"], found["Opart"], share[..., None])

    def output(self, rank: int) -> torch.Tensor:
        return self.found[rank]["O"]


class Ulysses:
    """Ulysses on two GPUs: its parts in order, the bytes that came, and O."""

    def __init__(self, two: Places, kernel: str, shards: list[Tensors]):
        self.two, self.kernel, self.shards = two, kernel, shards
        self.bytes_come = [0, 0]
        heads, self.n, d = shards[0]["Q"].shape
        self.half, N = heads // RANKS, RANKS * self.n
        self.o = [torch.empty_like(shard["Q"]) for shard in shards]
        self.whole = [{name: shards[rank]["Q"].new_empty(self.half, N, d) for name in "QKVO"} for rank in range(RANKS)]
        for rank in range(RANKS):
            for name in "QKV":
                self.whole[rank][name][:, self.rows(rank)] = shards[rank][name][self.heads(rank)]
        p = Attention(N, d, heads=self.half, dtype="fp16", acc_dtype="fp32")
        self.program = generate(iosim.SCHEDULES["flash2"], p, Tiling(64, 64)) if kernel == "generated" else None
        self.parts: dict[str, Part] = {"gather": self.gather, "attend": self.attend, "home": self.home}

    def rows(self, rank: int) -> slice:
        """The tokens of a GPU."""
        return slice(rank * self.n, (rank + 1) * self.n)

    def heads(self, rank: int) -> slice:
        """The heads that a GPU attends to."""
        return slice(rank * self.half, (rank + 1) * self.half)

    def gather(self, rank: int) -> None:
        self.bytes_come[rank] = 0
        for name in "QKV":
            there = self.shards[1 - rank][name][self.heads(rank)]
            self.bring(rank, self.whole[rank][name][:, self.rows(1 - rank)], there)

    def attend(self, rank: int) -> None:
        whole = self.whole[rank]
        if self.program:
            self.two.start(rank, self.program, whole)
        else:
            whole["O"] = pytorch(self.kernel, *(whole[name] for name in "QKV"))[0]

    def home(self, rank: int) -> None:
        self.bring(rank, self.o[rank][self.heads(1 - rank)], self.whole[1 - rank]["O"][:, self.rows(rank)])

    def bring(self, rank: int, here: torch.Tensor, there: torch.Tensor) -> None:
        """Rows of some heads come, head by head."""
        self.bytes_come[rank] += sum(self.two.bring(rank, *pair) for pair in zip(here, there, strict=True))

    def output(self, rank: int) -> torch.Tensor:
        self.o[rank][self.heads(rank)] = self.whole[rank]["O"][:, self.rows(rank)]
        return self.o[rank]


SCHEMES = {"ring": Ring, "ulysses": Ulysses}


def shards_of(two: Places, N: int, heads: int, d: int) -> list[Tensors]:
    """Q, K and V of each GPU's tokens."""
    torch.manual_seed(N)
    return [
        {name: torch.randn(heads, N // RANKS, d, device=two.place(rank), dtype=torch.float16) for name in "QKV"}
        for rank in range(RANKS)
    ]


def error_of(step: Ring | Ulysses, rank: int, rows: int = 32) -> float:
    """The largest error of the first rows of a GPU, against attention to all keys in fp32."""
    shards = step.shards
    q = shards[rank]["Q"][:, :rows].float()
    k, v = (torch.cat([shard[name].to(q.device) for shard in shards], 1).float() for name in "KV")
    right = torch.softmax(q @ k.transpose(1, 2) * q.shape[2] ** -0.5, 2) @ v
    return float((step.output(rank)[:, :rows].float() - right).abs().max())


def row_of(two: Two, scheme: str, kernel: str, N: int) -> dict[str, object]:
    """Milliseconds of the parts of a step and of the step, beside the bounds."""
    step = SCHEMES[scheme](two, kernel, shards_of(two, N, HEADS, WIDTH))
    two.done()
    (said,) = iosim.links(N, WIDTH, RANKS, schedules=scheme, heads=HEADS, dtype="fp16", acc_dtype="fp32",
                          hardware="h100").to_dict()["results"]  # fmt: skip
    repeats = REPEATS[kernel]
    two.step(step.parts)
    assert {*step.bytes_come} == {said["largest_received_bytes"]}, step.bytes_come
    beside = "hop" if scheme == "ring" else ""
    followed = two.milliseconds(step.parts, repeats)
    overlapped = two.milliseconds(step.parts, repeats, beside) if beside else None
    error = max(error_of(step, rank) for rank in range(RANKS))
    alone = {name: two.milliseconds({name: part}, repeats) for name, part in step.parts.items()}
    exchange = alone.get("hop", 0) or alone["gather"] + alone["home"]
    best = min(followed, overlapped or followed)
    return {
        "scheme": scheme, "kernel": kernel, "N": N, "heads": HEADS, "d": WIDTH, "dtype": "fp16",
        "parts": "; ".join(f"{name} {each:.4f}" for name, each in alone.items()),
        "links_ms": f"{exchange:.4f}", "arithmetic_ms": f"{sum(alone.values()) - exchange:.4f}",
        "followed_ms": f"{followed:.4f}", "overlapped_ms": "" if overlapped is None else f"{overlapped:.4f}",
        "bound_links_ms": f"{1e3 * said['link_seconds']:.4f}",
        "bound_arithmetic_ms": f"{1e3 * said['arithmetic_seconds']:.4f}",
        "bound_ms": f"{1e3 * said['seconds']:.4f}", "ratio": f"{best / (1e3 * said['seconds']):.3f}",
        "error": f"{error:.2e}",
        "gpu": torch.cuda.get_device_name(), "torch": torch.__version__,
    }  # fmt: skip


def main(path: Path) -> int:
    """The exit code: 1 if a case did not run, moved other bytes, or gave a wrong output."""
    two, rows, bad = Two(), [], 0
    for kernel in REPEATS:
        for scheme in SCHEMES:
            for N in TOKENS[: 2 if kernel == "generated" else 3]:
                try:
                    row = row_of(two, scheme, kernel, N)
                except Exception:
                    bad += 1
                    print(scheme, kernel, N, traceback.format_exc(), flush=True)
                    continue
                bad += float(str(row["error"])) >= 4e-3
                rows.append(row)
                write(path, rows)
                print(*row.values(), sep=",", flush=True)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
