"""The shapes that are measured: generated kernels, tuned kernels, and the attention kernels that PyTorch ships."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from random import Random

from iosim.core.problem import Attention
from iosim.core.tiling import Tiling, parse_tiles
from iosim.gpu.cuda.machine import generate
from iosim.gpu.jobs import PYTORCHS, Job, ScheduleJob, torch_job
from iosim.gpu.tuned.launch import tuned as kernel_of
from iosim.masks import parse_mask
from iosim.schedules import SCHEDULES, find
from iosim.search.best import best_tiles
from validation.examples import examples

# Sets of shapes drawn at random: seed, and name in tables. Beside it what the set showed, mended before the next.
DRAWS = {
    "random-01": (20261121, "random 1"),  # what the models and kernels lacked
    "random-02": (20261122, "random 2"),  # the model of the L2, and of warps with unequal work, was incomplete
    "random-03": (20261123, "random 3"),  # the two partitions of the L2 are not alike
    "random-04": (20261124, "random 4"),  # code that runs once costs time
    "random-05": (20261125, "random 5"),  # long sums of large scores must be split
    "random-06": (20261126, "random 6"),  # nothing new
    "random-07": (20261127, "random 7"),  # separate arrays leave the L2 earlier than one piece of memory
    "random-08": (20261128, "random 8"),  # the last tile of an axis may be as long as one warp's share
    "random-09": (20261129, "random 9"),  # DRAM bytes depend on addresses, so several runs are needed
    "random-10": (20261130, "random 10"),  # parts of pages leave the L2 earlier than whole pages
    "random-11": (20261201, "random 11"),  # all blocks of a head wait for a tile from DRAM
    "random-12": (20261202, "random 12, unseen"),  # drawn after models of time and kernels were finished
}
UNSEEN = "random-12"
OWN = ("generated", "tuned", *DRAWS)  # the sets of our kernels
MASK_FILE = "file:validation/mask_16x16.txt"  # 0/1 for 16 x 16 tiles of 64: an empty row and an empty column in it


def jobs_of(part: str) -> list[Job]:
    """A set by its name: one of OWN, `family`, `torch`, `math`, `serving` or `sweep`."""
    chosen = {"generated": generated, "tuned": tuned, "torch": torch, "math": math, "serving": serving, "sweep": sweep,
              "family": family, "levels": levels, "shifted": shifted,
              "token_masks": token_masks, "backward": backward, "state": state}  # fmt: skip
    return drawn(DRAWS[part][0]) if part in DRAWS else chosen[part]()


def held_out(number: int) -> bool:
    """Every third job of a part was not looked at when the models of DRAM and time were chosen (declared on 21 November
    2026, before a prediction was compared with a counter)."""
    return number % 3 == 2


def generated() -> list[Job]:
    """At least 60 shapes: every core schedule, ragged and masked, N 1 to 16384, d 16 to 256, three types."""
    rows = [
        # schedule, N, d, heads, tiles, dtype, acc, mask, more
        ("standard", 64, 16, 1, "1x1", "fp32", "fp32", "dense"),
        ("standard", 128, 64, 4, "1x1", "fp32", "fp32", "dense"),
        ("standard", 100, 32, 2, "1x1", "fp16", "fp32", "causal"),
        ("flash2", 1, 64, 1, "16x16", "fp32", "fp32", "dense"),
        ("flash1", 1, 64, 8, "16x16", "fp16", "fp32", "dense"),
        ("flash2", 7, 16, 3, "16x16", "fp32", "fp32", "dense"),
        ("flash1", 33, 16, 2, "16x16", "bf16", "fp32", "causal"),
    ]
    for name, tiles, dtype in product(("standard-tiled", "flash1", "flash2"), ("64x64",), ("fp32", "fp16", "bf16")):
        rows.append((name, 2048, 64, 132, tiles, dtype, "fp32", "dense"))
    for name, d in product(("standard-tiled", "flash1", "flash2"), (16, 32, 128)):
        rows.append((name, 1024, d, 32, "64x64" if d < 128 else "64x32", "fp16", "fp32", "dense"))
    for name in ("standard-tiled", "flash1", "flash2"):
        rows += [
            (name, 1000, 64, 6, "48x40", "fp32", "fp32", "dense"),
            (name, 1000, 64, 6, "48x48", "fp16", "fp32", "dense"),
            (name, 777, 80, 12, "64x32", "fp16", "fp32", "causal"),
            (name, 4096, 64, 8, "64x64", "fp16", "fp16", "dense"),
        ]
    rows += [
        ("flash1", 512, 256, 16, "32x32", "fp16", "fp32", "dense"),
        ("flash2", 512, 256, 16, "32x32", "fp16", "fp32", "dense"),
        ("flash2", 1024, 256, 8, "32x32", "fp32", "fp32", "dense"),
        ("flash1", 4096, 128, 132, "64x64", "fp16", "fp32", "dense"),
        ("flash2", 8192, 128, 32, "64x64", "fp16", "fp32", "dense"),
        ("flash2", 8192, 64, 32, "128x64", "fp16", "fp32", "dense"),
        ("flash2", 16384, 64, 4, "128x64", "fp16", "fp32", "dense"),
        ("flash1", 16384, 64, 1, "128x128", "fp16", "fp32", "dense"),
        ("flash2", 1024, 64, 264, "64x64", "fp16", "fp32", "dense"),
        ("flash1", 1024, 64, 264, "64x64", "fp16", "fp32", "dense"),
        ("standard-tiled", 4096, 64, 16, "64x64", "fp16", "fp32", "dense"),
        ("standard-tiled", 1024, 64, 264, "64x64", "fp16", "fp32", "dense"),
    ]
    for name, mask in product(("block-sparse", "block-sparse-q"), ("causal", "window:100", "window:64|global:32")):
        rows += [
            (name, 2048, 64, 32, "64x64", "fp16", "fp32", mask),
            (name, 1000, 64, 5, "48x32", "fp32", "fp32", mask),
        ]
    for name in ("block-sparse", "block-sparse-q"):
        rows += [
            (name, 1024, 64, 32, "64x64", "fp16", "fp32", MASK_FILE),
            (name, 4096, 128, 16, "64x64", "bf16", "fp32", "causal"),
            (name, 4096, 64, 66, "64x64", "fp16", "fp32", "causal&window:512"),
        ]
    jobs = [_job(*row) for row in rows]
    grouped = Attention(1000, 64, Nk=777, heads=6, kv_heads=2, batch=2, dtype="fp16", acc_dtype="fp32", lse=True)
    jobs += [ScheduleJob(name, grouped, Tiling(48, 48)) for name in ("flash1", "flash2", "standard-tiled")]
    family = ("memory-efficient", "flash2-one-room", "attention-2pass")
    jobs += [_job(name, 2048, 64, 32, "64x64", "fp16", "fp32", mask) for name in family for mask in ("dense", "causal")]
    decode = Attention(1, 128, Nk=8192, heads=32, dtype="fp16", acc_dtype="fp32", splits=8)
    return [*jobs, ScheduleJob("split-kv", decode, Tiling(16, 64))]


def family() -> list[Job]:
    """Every schedule outside the core on the examples of the self-test, and the caches of servers at larger sizes."""
    jobs = []
    for case in examples():
        jobs.append(ScheduleJob(case.schedule, replace(case.problem, dropout=None), case.tiling))
    types = {"dtype": "bf16", "acc_dtype": "fp32"}
    latent = Attention(1, 576, Nk=8192, dv=512, batch=4, heads=128, kv_heads=1, gqa="pack", latent=True, **types)
    flash_mla = replace(latent, kv_dtype="fp8", kv_scales="128", page_size=64, splits=8)
    grouped = Attention(1, 128, Nk=20000, heads=32, kv_heads=8, gqa="pack", splits=16, **types)
    tensor = replace(grouped, kv_dtype="fp8", kv_scales="tensor")
    rows_of_cache = Attention(4096, 576, Nk=65536, dv=512, latent=True, kv_dtype="fp8", kv_scales="128", **types)
    chosen = Attention(64, 128, Nk=8192, heads=16, kv_heads=1, gqa="pack", top_k=16, key_block=64, **types)
    rows = [
        ("flash2", "64x16", latent), ("split-kv", "32x32", replace(latent, splits=8)), ("flash2", "64x16", flash_mla),
        ("paged-split-kv", "32x32", flash_mla), ("paged", "16x16", replace(grouped, page_size=16)),
        ("split-kv", "16x64", tensor), ("paged-split-kv", "16x64", replace(tensor, page_size=128)),
        ("flash2", "64x64", Attention(2048, 128, heads=8, kv_dtype="fp8", kv_scales="64", **types)),
        ("selected", "16x64", chosen), ("cache-write", "1x1", rows_of_cache),
    ]  # fmt: skip
    large = Attention(2048, 64, heads=8, **types)
    rows += [(name, "64x64", large) for name in ("flash1-bwd", "flash2-bwd", "flash2-bwd-second-pass")]
    rows += [(name, "64x64", replace(large, mask=parse_mask("causal")))
             for name in ("block-sparse-bwd", "block-sparse-q-bwd")]  # fmt: skip
    return jobs + [ScheduleJob(name, p, parse_tiles(tiles)) for name, tiles, p in rows]


def levels() -> list[Job]:
    """Tuned kernels and ten generated ones, whose reads of shared memory are compared with the counted ones."""
    own = [job for job in tuned() if isinstance(job, ScheduleJob)]
    rows = [(64, "64x64", "fp16"), (64, "128x64", "fp16"), (64, "64x64", "bf16"), (128, "64x64", "fp16"),
            (128, "128x64", "fp16"), (32, "64x128", "fp16"), (64, "32x32", "fp16"), (64, "16x64", "fp16"),
            (64, "48x80", "fp16"), (64, "64x64", "fp32")]  # fmt: skip
    return own + [_job("flash2", 2048, d, 32, tiles, dtype, "fp32", "dense") for d, tiles, dtype in rows]


def shifted() -> list[Job]:
    """The examples of `family` under a mask of positions whose last query stands at the last key."""
    return [job for job in family() if moved_since(job)]


def token_masks() -> list[Job]:
    """Kernels that load the bits of a function's mask, or the documents of tokens, from HBM."""
    band, near = (f"py:validation/token_masks.py:{name}" for name in ("band", "near"))
    rows = [
        ("flash2", 544, 544, 32, 32, "32x32", "fp16", band), ("flash2", 544, 544, 32, 32, "32x32", "fp32", near),
        ("flash1", 544, 544, 32, 32, "32x32", "fp32", near), ("flash2", 1024, 1024, 64, 16, "64x64", "fp32", band),
        ("standard-tiled", 544, 544, 32, 32, "32x32", "fp32", band), ("flash2", 550, 550, 32, 8, "16x48", "fp32", near),
        ("flash2", 500, 701, 24, 8, "33x50", "fp32", near), ("flash2-bwd", 544, 544, 32, 32, "32x32", "fp32", band),
        ("flash2", 544, 544, 32, 32, "32x32", "fp32", f"{near}&causal"),
        ("flash2", 544, 544, 32, 32, "32x32", "fp32", f"causal&{near}"),
        ("flash2", 544, 544, 32, 32, "32x32", "fp32", f"~{band}"),
        ("flash2", 4100, 4100, 64, 8, "64x64", "fp32", "documents:2000,2100"),
    ]  # fmt: skip
    return [
        ScheduleJob(name, Attention(N, d, Nk=Nk, heads=n, acc_dtype=acc, mask=parse_mask(mask)), parse_tiles(tiles))
        for name, N, Nk, d, n, tiles, acc, mask in rows
    ]


def state() -> list[Job]:
    """Kernels of every schedule of attention with a state: every kind of gate, whole and ragged, with and without a
    state before the first token and after the last."""
    first, last, both = {"initial_state": True}, {"final_state": True}, {"initial_state": True, "final_state": True}
    rows = [  # rule, N, heads, dtype, chunk, more
        ("linear", 2048, 16, "bf16", 32, {}), ("mamba2", 2048, 16, "bf16", 32, {}),
        ("gdn", 2048, 16, "bf16", 32, {}), ("gla", 1024, 16, "bf16", 16, {}), ("kda", 1024, 16, "bf16", 16, {}),
        ("retnet", 1000, 6, "fp32", 48, {}), ("deltanet", 1000, 6, "fp16", 32, last),
        ("gdn", 1000, 6, "fp32", 20, both), ("kda", 500, 6, "fp32", 13, first),
        ("linear", 1000, 6, "fp16", 64, {"normalise": True}),
    ]  # fmt: skip
    others = [  # schedule, rule, N, dtype, tiles, columns and rows of a block of the state, more
        ("state-saved", "mamba2", 1024, "bf16", 64, 32, 0, {}), ("state-saved", "gdn", 1024, "bf16", 64, 32, 0, {}),
        ("state-saved", "kda", 500, "fp32", 24, 20, 0, {}), ("state-split", "gdn", 1000, "fp16", 32, 16, 0, {}),
        ("state-saved", "retnet", 777, "fp32", 48, 64, 0, both), ("state-saved", "gla", 512, "bf16", 32, 16, 0, first),
        ("state-saved", "deltanet", 777, "fp16", 32, 24, 0, last),
        ("state-split", "mamba2", 777, "bf16", 64, 32, 0, first), ("state-split", "kda", 300, "fp32", 20, 24, 0, last),
        ("state-split", "linear", 1000, "fp32", 32, 64, 0, {"padding": 100}),
        ("state-tiles", "mamba2", 1024, "bf16", 64, 32, 32, {}), ("state-tiles", "gla", 500, "fp32", 24, 20, 24, first),
        ("state-tiles", "linear", 777, "fp16", 32, 48, 64, both),
        ("state-decode", "linear", 64, "fp16", 1, 64, 0, {}), ("state-decode", "mamba2", 64, "bf16", 1, 32, 0, {}),
        ("state-decode", "gdn", 64, "bf16", 1, 16, 0, {}), ("state-decode", "kda", 50, "fp32", 1, 24, 0, first),
        ("state-decode", "gdn", 64, "bf16", 1, 64, 0, {"state_dtype": "bf16"}),
        ("state-ring", "linear", 64, "bf16", 1, 64, 0, {"ring": 11}),
        ("state-ring", "gdn", 60, "bf16", 1, 32, 0, {"ring": 16}),
        ("state-ring", "mamba2", 64, "fp16", 1, 64, 0, {"ring": 8}),
        ("state-ring", "kda", 50, "fp32", 1, 24, 0, {"ring": 7, **first}),
        ("state-verify", "gdn", 24, "bf16", 1, 32, 0, {"ring": 4, "accepted": 2}),
        ("state-verify", "kda", 10, "fp32", 1, 24, 0, {"rollback": "snapshots", "drafts": 3, "accepted": 1, **first}),
        ("state-bwd", "linear", 512, "bf16", 32, 0, 0, {}), ("state-bwd", "mamba2", 512, "bf16", 32, 0, 0, {}),
        ("state-bwd", "retnet", 333, "fp32", 24, 0, 0, both), ("state-bwd", "gla", 333, "fp32", 16, 0, 0, both),
        ("state-bwd-saved", "mamba2", 512, "bf16", 32, 0, 0, {}),
        ("state-bwd-saved", "gla", 250, "fp32", 16, 0, 0, last),
        ("state-bwd-saved", "deltanet", 512, "bf16", 32, 0, 0, {}),
        ("state-bwd-saved", "gdn", 333, "fp32", 20, 0, 0, both),
        ("state-bwd-saved", "kda", 250, "fp32", 13, 0, 0, first),
    ]  # fmt: skip
    options = {"acc_dtype": "fp32", "dv": 64}
    return [
        ScheduleJob(
            "state-fused", Attention(N, 64, heads=n, dtype=dtype, rule=rule, **options, **more), Tiling(chunk, 1)
        )
        for rule, N, n, dtype, chunk, more in rows
    ] + [
        ScheduleJob(
            name,
            Attention(N, 64, heads=8, dtype=dtype, rule=rule, **options, **more),
            Tiling(chunk, 1, depth=depth or 1, cols_o=columns or None),
        )
        for name, rule, N, dtype, chunk, columns, depth, more in others
    ]


def backward() -> list[Job]:
    """Backward passes that store P or dS, or dV in panels, and flash2 with its short query tile first: ragged, under
    masks, with shared heads, in fp32 and fp16. Small: the same steps in NumPy take one row and one key at a time."""
    ragged = Attention(70, 40, Nk=93, dv=56, heads=2, kv_heads=1, dtype="fp32")
    whole = Attention(64, 32, dv=128, dtype="fp16", acc_dtype="fp32")
    own = {  # rows_o and cols_o of each
        "flash2-bwd-stored-ds": ("rows_o=5/cols_o=24", "rows_o=16/cols_o=32"),
        "flash2-bwd-stored-p-ds": ("rows_o=56/cols_o=24", "rows_o=64/cols_o=32"),
        "flash2-bwd-panels": ("rows_o=64/cols_o=24", "rows_o=64/cols_o=64"),
    }
    jobs: list[Job] = []
    for name, mask in product(own, ("dense", "causal", "window:50")):
        for p, first, more in zip((ragged, whole), ("48x40/depth=8", "16x32/depth=16"), own[name], strict=True):
            tiling = parse_tiles(f"{first}/{more}", more=("depth", "rows_o", "cols_o"))
            jobs.append(ScheduleJob(name, replace(p, mask=parse_mask(mask)), tiling))
    rows = [
        ("flash2", 1000, 64, 6, "96x48", "fp16", "causal"),
        ("flash2", 2048, 64, 32, "96x64", "fp16", "causal"),
        ("flash2", 777, 80, 12, "64x32", "bf16", "causal&window:200"),
        ("block-sparse-q", 1000, 40, 5, "56x24", "fp32", "causal"),
        ("flash2", 1000, 64, 6, "48x48", "fp16", "dense"),
    ]
    for name, N, d, heads, tiles, dtype, mask in rows:
        p = Attention(N, d, heads=heads, dtype=dtype, acc_dtype="fp32", mask=parse_mask(mask), short_tile="first")
        jobs += [ScheduleJob(name, p, parse_tiles(tiles)), ScheduleJob(name, replace(p, own=()), parse_tiles(tiles))]
    return jobs


def moved_since(job: Job) -> bool:
    """Whether a job of 2026-11-22 is another problem today: its mask speaks of positions, and keys are cached; or its
    schedule is gone, as those of linear attention, which are a rule of a state now."""
    return job.name not in (*SCHEDULES, *PYTORCHS) or is_shifted(job)


def is_shifted(job: Job) -> bool:
    """Whether keys are cached under a mask that speaks of positions."""
    return str(job.problem.mask) not in ("dense", "causal") and job.problem.Nk != job.problem.N


def _job(name: str, N: int, d: int, heads: int, tiles: str, dtype: str, acc: str, mask: str) -> Job:
    rows_q, rows_k = map(int, tiles.split("x"))
    visits = mask != "dense" and find(name).reads("visit_all")
    problem = Attention(N, d, heads=heads, dtype=dtype, acc_dtype=acc, mask=parse_mask(mask), visit_all=visits)
    return ScheduleJob(name, problem, Tiling(rows_q, rows_k))


DRAWN = 36
MOST_FLOPS, MOST_SHARED_BYTES = 3e11, 227 * 1024
CHOICES = {
    "schedule": ("standard-tiled", "flash1", "flash2", "block-sparse", "block-sparse-q", "memory-efficient",
                 "attention-2pass"),
    "d": (16, 32, 48, 64, 80, 96, 128, 256),
    "rows": (16, 32, 48, 64, 96, 128),
    "heads": (1, 2, 5, 8, 16, 40, 132, 264),
    "types": (("fp16", "fp32"), ("bf16", "fp32"), ("fp16", "fp16"), ("fp32", "fp32")),
    "mask": ("causal", "window:100", "causal&window:512", "window:64|global:32"),
}  # fmt: skip


def drawn(seed: int) -> list[Job]:
    """Shapes drawn at random, with N log-uniform from 64 to 8192."""
    draw, jobs = Random(seed), []
    while len(jobs) < DRAWN:
        name, d, heads, types = (draw.choice(CHOICES[key]) for key in ("schedule", "d", "heads", "types"))
        N, tiling = round(2 ** draw.uniform(6, 13)), Tiling(draw.choice(CHOICES["rows"]), draw.choice(CHOICES["rows"]))
        mask = parse_mask(draw.choice(CHOICES["mask"]) if name.startswith("block-sparse") else "dense")
        p = Attention(N, d, heads=heads, dtype=types[0], acc_dtype=types[1], mask=mask)
        if 4 * N * N * d * heads <= MOST_FLOPS and min(tiling.rows_q, tiling.rows_k) <= N and _fits(name, p, tiling):
            jobs.append(ScheduleJob(name, p, tiling))
    return jobs


def _fits(name: str, problem: Attention, tiling: Tiling) -> bool:
    kernels = generate(find(name), problem, tiling).kernels
    return max(kernel.smem_bytes for kernel in kernels) <= MOST_SHARED_BYTES


def tuned() -> list[Job]:
    """Shapes of the tuned kernels whose speed is of interest, and PyTorch's FlashAttention-2 on the same shapes."""
    jobs = []
    for N, d, heads in ((8192, 128, 32), (4096, 128, 32), (4096, 64, 32), (2048, 128, 64), (1000, 64, 32)):
        problem = Attention(N, d, heads=heads, dtype="fp16", acc_dtype="fp32")
        jobs.append(_tuned("flash2", problem))
        jobs.append(torch_job("torch-flash", replace(problem, lse=True)))  # PyTorch's kernels store one
    causal = Attention(8192, 128, heads=32, dtype="fp16", acc_dtype="fp32", mask=parse_mask("causal"))
    jobs.append(_tuned("block-sparse-q", causal))
    jobs.append(torch_job("torch-flash", replace(causal, lse=True)))
    for N, d, heads in ((4096, 64, 16), (8192, 128, 8), (2048, 128, 64)):
        problem = Attention(N, d, heads=heads, dtype="fp16", acc_dtype="fp16")
        jobs.append(_tuned("standard-tiled", problem))
    return jobs


def _tuned(name: str, problem: Attention) -> Job:
    return ScheduleJob(name, problem, kernel_of(name, problem).tiling, tuned=True)


SWEEP_M = (16384, 24576, 32768, 49152, 65536, 98304, 131072, 196608, 232448)  # bytes of shared memory


def sweep_sizes() -> list[tuple[Job, int]]:
    """Jobs that show the bound: flash1, flash2 and standard-tiled with the best tiles for each M, which must differ."""
    problem, found = Attention(8192, 64, heads=16, dtype="fp16", acc_dtype="fp32"), []
    for name in ("flash1", "flash2", "standard-tiled"):
        tilings = {size: best_tiles(find(name), problem, size, 16) for size in SWEEP_M}
        found += [(ScheduleJob(name, problem, tiling), size) for size, tiling in tilings.items() if tiling]
    return found


def sweep() -> list[Job]:
    return [job for job, _ in sweep_sizes()]


def torch() -> list[Job]:
    """20 shapes for each of flash and cuDNN, 6 for memory-efficient: ragged, causal, small and large."""
    shapes = [
        (1, 32, 1024, 64), (1, 32, 4096, 64), (1, 32, 1024, 128), (1, 32, 4096, 128), (1, 32, 8192, 128),
        (1, 16, 8192, 64), (1, 32, 4097, 128), (1, 16, 2048, 64), (4, 8, 2048, 128), (1, 8, 16384, 128),
        (1, 32, 1000, 64), (2, 12, 3000, 64), (1, 40, 512, 128),
    ]  # fmt: skip
    causal = [shapes[n] for n in (0, 1, 3, 4, 6, 8, 10)]
    problems = [_problem(*shape, "dense") for shape in shapes] + [_problem(*shape, "causal") for shape in causal]
    few = [problems[n] for n in (0, 1, 3, 6, 13, 15)]
    decode = [_problem(1, 32, 1, 128, "dense", Nk=8192), _problem(4, 16, 1, 64, "dense", Nk=16384)]
    named = (("torch-flash", problems), ("torch-cudnn", problems), ("torch-efficient", few))
    return [torch_job(name, problem) for name, chosen in named for problem in chosen] + [
        torch_job("torch-flash", problem) for problem in decode
    ]


def math() -> list[Job]:
    """Shapes for PyTorch without a fused kernel: ragged, causal, tall and wide, three types, decoding."""
    problems = [
        _problem(1, 8, 1024, 64, "dense"), _problem(1, 32, 1024, 128, "dense"), _problem(1, 16, 4096, 64, "dense"),
        _problem(2, 12, 1000, 64, "dense"), _problem(1, 8, 2048, 128, "causal"), _problem(1, 8, 512, 256, "dense"),
        _problem(1, 16, 2048, 128, "dense", dtype="fp32"), _problem(1, 8, 1024, 64, "dense", dtype="bf16"),
        _problem(1, 32, 1, 128, "dense", Nk=8192),
    ]  # fmt: skip
    return [torch_job("torch-math", problem) for problem in problems]


def serving() -> list[Job]:
    """What servers run: decoding and prefill with grouped queries, and FlexAttention with and without masks. Besides,
    ragged sizes without a fused kernel."""
    grouped = [  # batch, heads, kv_heads, N, Nk, d
        (1, 32, 8, 1, 20000, 128), (1, 32, 8, 1, 8192, 128), (1, 64, 8, 1, 4096, 64), (4, 32, 8, 1, 8192, 128),
        (1, 32, 4, 1, 16384, 128), (1, 48, 8, 1, 1000, 128), (1, 32, 8, 4, 8192, 128), (1, 32, 8, 2048, 2048, 128),
    ]  # fmt: skip
    problems = [_problem(b, heads, N, d, "dense", Nk=Nk, kv_heads=kv) for b, heads, kv, N, Nk, d in grouped]
    jobs = [torch_job("torch-flash", p) for p in problems]
    jobs += [torch_job("torch-cudnn", problems[n]) for n in (1, 7)]
    for batch, heads, N, d in ((1, 12, 700, 64), (1, 8, 300, 64), (1, 8, 1500, 128)):
        jobs.append(torch_job("torch-math", _problem(batch, heads, N, d, "dense")))
    masks = ("dense", "causal", "causal&window:512", "window:100", "causal|global:64")
    flex = [_problem(1, 16, 4096, 128, mask) for mask in masks] + [
        _problem(1, 16, 4096, 64, mask) for mask in masks[:2]
    ]
    flex += [_problem(1, 16, 2000, 128, "causal"), *(problems[n] for n in (0, 1, 3, 6, 7))]
    return jobs + [torch_job("torch-flex", p) for p in flex]


def _problem(batch: int, heads: int, N: int, d: int, mask: str, dtype: str = "fp16", **more: int) -> Attention:
    lse = True  # PyTorch's kernels store one
    return Attention(
        N, d, batch=batch, heads=heads, dtype=dtype, acc_dtype="fp32", lse=lse, mask=parse_mask(mask), **more
    )
