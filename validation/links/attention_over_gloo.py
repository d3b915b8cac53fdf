"""Context-parallel attention of PyTorch 2.13 over gloo on a CPU, with the bytes that each rank receives counted twice.

The ring, and the all-gather, are PyTorch's own template functions (private names). Ulysses is two all-to-all exchanges
around PyTorch's attention, as in DeepSpeed and yunchang. `run(case)` starts a process for each rank and answers

    mode_bytes    the bytes that each rank receives from others, from the operands of the collectives (a dispatch mode)
    device_bytes  the bytes that the loopback device carried in all, headers included; None outside a network namespace.
                  The least of three runs: on a busy machine TCP sends some segments twice
    error         the largest error of O, dQ, dK, dV against attention in float64, as a share of the largest element

This file imports nothing of iosim.
"""

import os
import socket
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
REPEATS = 3


@dataclass(frozen=True)
class Case:
    """One run. `scheme` is ring, all-gather or ulysses; `layout` is blocks or zigzag."""

    scheme: str
    layout: str
    causal: bool
    ranks: int
    dtype: str
    tokens: int
    heads: int
    kv_heads: int
    d: int


MOVE_NOTHING = ("wait_tensor", "_wrap_tensor_autograd")


class ReceivedBytes(TorchDispatchMode):
    """Counts the bytes that this rank receives from others in the collectives that run under it."""

    def __init__(self, rank: int, ranks: int):
        super().__init__()
        self.rank, self.ranks, self.bytes, self.calls = rank, ranks, 0, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.name()
        if "all_to_all_single" in name:
            self.add(args[0], args[1])
        elif "all_gather_into_tensor" in name:
            self.add(args[0], [args[0].shape[0]] * self.ranks)
        elif name.startswith(("_c10d_functional", "c10d")) and not any(free in name for free in MOVE_NOTHING):
            raise NotImplementedError(f"{name} is not counted")
        return func(*args, **(kwargs or {}))

    def add(self, sent: torch.Tensor, rows: list[int]) -> None:
        """`rows[r]` rows of the shape of `sent` come from rank r."""
        self.calls += 1
        width = sent[:1].numel() * sent.element_size()
        self.bytes += width * sum(n for r, n in enumerate(rows) if r != self.rank)


def positions(case: Case, rank: int) -> torch.Tensor:
    """The tokens of a rank."""
    if case.layout == "blocks":
        return torch.arange(case.tokens).chunk(case.ranks)[rank]
    chunks = torch.arange(case.tokens).chunk(2 * case.ranks)
    return torch.cat([chunks[rank], chunks[2 * case.ranks - 1 - rank]])


def flash(query, key, value, is_causal=False, **_):
    return aten._scaled_dot_product_flash_attention_for_cpu(query, key, value, 0.0, is_causal)


def flash_backward(grad_out, query, key, value, out, logsumexp, is_causal, **_):
    return aten._scaled_dot_product_flash_attention_for_cpu_backward(
        grad_out, query, key, value, out, logsumexp, 0.0, is_causal
    )


Pass = Callable[[], tuple[torch.Tensor, ...]]


def ring(case: Case, q, k, v, do) -> tuple[Pass, Pass]:
    """PyTorch's ring: the forward pass, and the backward pass that uses its result."""
    from torch.distributed.tensor.experimental import _attention as public
    from torch.distributed.tensor.experimental._context_parallel import _attention as template

    public.set_rotate_method("alltoall" if case.scheme == "ring" else "allgather")
    public._cp_options.enable_load_balance = case.layout == "zigzag"
    group, kept = dist.group.WORLD, []

    def forward():
        kept[:] = template._templated_ring_attention(group, 2, flash, q, k, v, is_causal=case.causal)[:2]
        return (kept[0],)

    def backward():
        return template._templated_ring_attention_backward(
            group, 2, flash_backward, do, "grad_out", q, k, v, *kept, is_causal=case.causal
        )[:3]

    return forward, backward


def exchange(x: torch.Tensor, ranks: int, scatter: int, gather: int) -> torch.Tensor:
    """All-to-all: each rank gives a part of axis `scatter` to each other, and joins what it gets along `gather`."""
    import torch.distributed._functional_collectives as collectives

    parts = torch.stack(x.chunk(ranks, dim=scatter)).contiguous()
    got = collectives.wait_tensor(collectives.all_to_all_single(parts, [1] * ranks, [1] * ranks, dist.group.WORLD))
    return torch.cat(list(got.unbind()), dim=gather)


def ulysses(case: Case, q, k, v, do) -> tuple[Pass, Pass]:
    """Heads are scattered and tokens gathered, and back. Needs as many KV heads as ranks, or a multiple."""
    group, kept = case.heads // case.kv_heads, []

    def to_heads(x):
        return exchange(x, case.ranks, 1, 2)

    def to_tokens(x):
        return exchange(x, case.ranks, 2, 1)

    def forward():
        a, b, c = to_heads(q), to_heads(k), to_heads(v)
        b, c = b.repeat_interleave(group, 1), c.repeat_interleave(group, 1)
        kept[:] = a, b, c, *flash(a, b, c, case.causal)[:2]
        return (to_tokens(kept[3]),)

    def backward():
        a, b, c, out, lse = kept
        dq, dk, dv = flash_backward(to_heads(do), a, b, c, out, lse, case.causal)
        dk, dv = (x.unflatten(1, (-1, group)).sum(2) for x in (dk, dv))
        return tuple(to_tokens(x) for x in (dq, dk, dv))

    return forward, backward


SCHEMES = {"ring": ring, "all-gather": ring, "ulysses": ulysses}


def inputs(case: Case) -> tuple[torch.Tensor, ...]:
    """Q, K, V and dO of the whole sequence, the same in every process."""
    make = torch.Generator().manual_seed(7)
    shapes = [(1, h, case.tokens, case.d) for h in (case.heads, case.kv_heads, case.kv_heads, case.heads)]
    return tuple(torch.randn(shape, generator=make).to(getattr(torch, case.dtype)) for shape in shapes)


def truth(case: Case, q, k, v, do) -> list[torch.Tensor]:
    """O, dQ, dK, dV in float64."""
    group = case.heads // case.kv_heads
    q, k, v = (x.double().requires_grad_() for x in (q, k, v))
    scores = q @ k.repeat_interleave(group, 1).transpose(2, 3) / case.d**0.5
    if case.causal:
        scores = scores.masked_fill(torch.ones(case.tokens, case.tokens).triu(1).bool(), float("-inf"))
    out = scores.softmax(-1) @ v.repeat_interleave(group, 1)
    return [out.detach(), *torch.autograd.grad(out, (q, k, v), do.double())]


def worker(rank: int, case: Case, port: int, answers) -> None:
    """One rank: runs the forward pass, then the backward pass, and notes what it received in each."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=case.ranks)
    mine = positions(case, rank)
    found, results = {"rank": rank, "mode_bytes": {}, "device_bytes": {}}, []
    passes = SCHEMES[case.scheme](case, *(x[:, :, mine].contiguous() for x in inputs(case)))
    for name, one in zip(("forward", "backward"), passes, strict=True):
        counters, seen = [], [carried()]
        for _ in range(REPEATS):
            with ReceivedBytes(rank, case.ranks) as counter:
                last = one()
            counters.append(counter.bytes)
            seen.append(carried())
        assert len({*counters}) == 1
        found["mode_bytes"][name] = counters[0]
        found["device_bytes"][name] = None if None in seen else min(b - a for a, b in pairwise(seen))
        results += last
    answers.put(found | {"results": [x.double().numpy() for x in results]})
    dist.barrier()
    dist.destroy_process_group()


def carried() -> int | None:
    """Bytes that the loopback device has carried, read while all ranks wait. None if it is the machine's own."""
    dist.barrier()
    found = None
    if os.environ.get("IOSIM_OWN_LOOPBACK"):
        lines = Path("/proc/net/dev").read_text().splitlines()
        found = int(next(line for line in lines if line.strip().startswith("lo:")).split(":")[1].split()[0])
    dist.barrier()
    return found


def error(case: Case, ranks: list[dict]) -> float:
    """The largest error of a rank's O, dQ, dK, dV, as a share of the largest element."""
    shares = []
    for name, exact in enumerate(truth(case, *inputs(case))):
        for one in ranks:
            part = exact[:, :, positions(case, one["rank"])]
            shares.append((torch.from_numpy(one["results"][name]) - part).abs().max() / exact.abs().max())
    return max(shares).item()


def run(case: Case) -> dict:
    """What the ranks of a case counted: {"mode_bytes": {pass: [bytes of rank 0, ...]}, "device_bytes": {pass: bytes},
    "error": largest share}."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    answers = mp.get_context("spawn").SimpleQueue()
    processes = mp.spawn(worker, (case, port, answers), nprocs=case.ranks, join=False)
    ranks = []
    while not processes.join(timeout=0.1) or not answers.empty():
        if not answers.empty():
            ranks.append(answers.get())
    ranks.sort(key=lambda found: found["rank"])
    return {
        "case": asdict(case),
        "mode_bytes": {name: [one["mode_bytes"][name] for one in ranks] for name in ("forward", "backward")},
        "device_bytes": ranks[0]["device_bytes"],
        "error": error(case, ranks),
    }
