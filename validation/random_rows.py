"""Rows drawn at random over all schedules and their options: types, caches, packed heads, masks, ragged sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random
from typing import NamedTuple

from iosim.core.problem import Attention
from iosim.core.tiling import Tiling
from iosim.errors import IosimError
from iosim.gpu.cuda.machine import generate, why_not
from iosim.gpu.jobs import ScheduleJob
from iosim.masks import parse_mask
from iosim.schedules import SCHEDULES, find, require

MASKS = ("causal", "window:9", "causal&window:33", "global:4|strided:5", "sink:3|window:20", "~causal", "chunk:24")
TYPES = (("fp16", "fp32"), ("fp16", "fp16"), ("bf16", "fp32"), ("fp32", "fp32"), ("fp32", "fp16"), ("bf16", "bf16"))
ROWS = (16, 16, 32, 48, 64, 20, 7)
WIDTHS = (16, 32, 64, 80, 128, 192, 24, 36)
MOST_SHARED_BYTES = 227 * 1024
TRIES = 200


class Range(NamedTuple):
    """How large problems are: the most queries, keys and heads, and the most queries of schedules of single words."""

    N: int
    Nk: int
    heads: int
    ideal: int
    work: float
    """The most products of N, Nk and d, over all heads."""


ON_CPU = Range(70, 150, 4, 12, 4e5)
ON_GPU = Range(1500, 9000, 32, 200, 2e10)


def draw(seed: int, count: int, sizes: Range) -> Iterator[ScheduleJob]:
    """So many rows. Every schedule comes up before one comes up again."""
    random, names = Random(seed), list[str]()
    for _ in range(count):
        names = names or random.sample(runs := [name for name, one in SCHEDULES.items() if not why_not(one)], len(runs))
        yield row_of(random, names.pop(), sizes)


def row_of(random: Random, name: str, sizes: Range) -> ScheduleJob:
    """A row of a schedule that a kernel can be generated for. Raises RuntimeError if none is found."""
    for _ in range(TRIES):
        try:
            job = ScheduleJob(name, *drawn(random, name, sizes))
            if possible(job, sizes):
                return job
        except IosimError:  # options that do not go together
            continue
    raise RuntimeError(f"no row of {name} in {TRIES} draws")


def drawn(random: Random, name: str, sizes: Range) -> tuple[Attention, Tiling]:
    """A problem that the schedule applies to, and tiles."""
    schedule, choice = find(name), random.choice
    ideal = "ideal" in schedule.rules
    N, Nk = (round(2 ** random.uniform(most.bit_length() / 3, most.bit_length())) for most in (sizes.N, sizes.Nk))
    N = 1 if random.random() < 0.15 else N
    N, Nk = (min(N, sizes.ideal), min(Nk, sizes.ideal)) if ideal else (min(N, sizes.N), min(Nk, sizes.Nk))
    (dtype, acc), d = choice(TYPES), choice(WIDTHS)
    options: dict[str, object] = {"dtype": dtype, "acc_dtype": acc, "lse": random.random() < 0.3}
    kv_heads = choice([n for n in (1, 2, 3) if n <= sizes.heads])
    options |= {"kv_heads": kv_heads, "heads": kv_heads * choice([1, 2, 4, 8][: sizes.heads.bit_length() - 1])}
    options |= {"splits": choice([1, 2, 4, 9]), "page_size": choice([7, 16, 64]), "keep_p": random.random() < 0.2}
    options |= {"top_k": choice([1, 3, 16]), "key_block": choice([1, 9, 64]), "elementwise": choice([0, 1])}
    options |= {"visit_all": random.random() < 0.2, "count_init": random.random() < 0.2}
    options |= cache_of(random, d) if schedule.reads("kv_dtype") else {}
    if random.random() < 0.4:
        options["gqa"] = "pack"
    elif schedule.reads("mask") or random.random() < 0.3:
        options["mask"] = parse_mask(choice(MASKS))
    rows = [min(choice(ROWS), most) for most in (N, Nk)]
    tiling = Tiling(1, 1) if ideal else Tiling(*rows, choice([1, 1, 3]), choice([1, 8, 16]))
    return schedule.about(Attention(N, d, Nk=Nk, **options)), tiling  # type: ignore[arg-type]


def cache_of(random: Random, d: int) -> Mapping[str, object]:
    """Options of the cache: latent rows, or K and V of another type, with scales or without."""
    kind = random.choice(["plain", "plain", "latent", "fp8", "latent fp8", "other"])
    latent = {"latent": True, "kv_heads": 1, "heads": random.choice([1, 4]), "dv": max(1, d - d // 3 // 8 * 8)}
    scales = random.choice(["tensor", "16"])
    found: dict[str, object] = latent if "latent" in kind else {}
    if "fp8" in kind:
        return {**found, "kv_dtype": "fp8", "kv_scales": "16" if found else scales}
    return {**found, "kv_dtype": "bf16"} if kind == "other" else found


def possible(job: ScheduleJob, sizes: Range) -> bool:
    """Whether a kernel fits and has no more work than allowed. Raises IosimError if none can be generated."""
    p = job.problem.packed
    if p.N * p.Nk * p.d * p.instances > sizes.work or (
        "ideal" in find(job.name).rules and max(p.N, p.Nk) > sizes.ideal
    ):
        return False
    require(find(job.name), job.problem)
    kernels = generate(find(job.name), job.problem, job.tiling).kernels
    return max(kernel.smem_bytes for kernel in kernels) <= MOST_SHARED_BYTES
