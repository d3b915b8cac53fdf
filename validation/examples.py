"""Examples for generated kernels: shapes of every schedule with inputs and answers, and the cases of the self-test.

They need NumPy only, so that tests run the same examples on a CPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from iosim.core.problem import Attention
from iosim.core.tiling import Tiling, parse_tiles
from iosim.gpu.cuda.machine import why_not
from iosim.gpu.cuda.program import Program
from iosim.gpu.outputs import answers_of, example_inputs
from iosim.masks import parse_mask
from iosim.masks.dropout import Dropout
from iosim.schedules import CORE, SCHEDULES, Schedule
from iosim.search.best import footprint

if TYPE_CHECKING:
    from iosim.core.typing import Arrays
    from iosim.gpu.outputs import HostRounding

Fields = dict[str, object]
"""Fields of `Attention`, without the mask."""

FP32: Fields = {"dtype": "fp32"}
FP16: Fields = {"dtype": "fp16", "acc_dtype": "fp32"}
BF16: Fields = {"dtype": "bf16", "acc_dtype": "fp32"}
HALF: Fields = {"dtype": "fp16"}  # sums in fp16 too
RAGGED: Fields = {"N": 200, "Nk": 333, "d": 40}
WHOLE: Fields = {"N": 512, "d": 64, "heads": 2}
TOKEN_SIZES: Fields = {"N": 96, "d": 32, "heads": 2}  # for tiles of one token
DECODE: Fields = {"N": 1, "Nk": 16384, "d": 128, "heads": 32, "kv_heads": 8}
DECODE_FP8: Fields = {**DECODE, "Nk": 3000, "kv_dtype": "fp8", "kv_scales": "tensor"}
LATENT: Fields = {"N": 1, "Nk": 2000, "d": 576, "dv": 512, "heads": 32, "kv_heads": 1, "gqa": "pack", "latent": True}
LATENT_FP8: Fields = {**LATENT, "kv_dtype": "fp8", "kv_scales": "128"}
CHUNK: Fields = {"N": 100, "Nk": 1024, "d": 64, "heads": 8, "kv_heads": 2, "gqa": "pack"}
NEW_ROWS: Fields = {"N": 50, "Nk": 300, "d": 576, "dv": 512}


@dataclass(frozen=True)
class Case:
    """A schedule with tiles, on a problem. `scale` multiplies Q."""

    schedule: str
    tiles: str
    sizes: Fields
    mask: str = "dense"
    scale: float = 1.0
    depth: int = 1

    @property
    def tiling(self) -> Tiling:
        return replace(parse_tiles(self.tiles), depth=self.depth)

    @property
    def problem(self) -> Attention:
        """The problem, without the options that the schedule cannot have."""
        return SCHEDULES[self.schedule].about(Attention(**self.sizes, mask=parse_mask(self.mask)))

    def __str__(self) -> str:
        sizes = " ".join(f"{name}={value}" for name, value in self.sizes.items())
        scale = f" x{self.scale:g}" if self.scale != 1 else ""
        return f"{self.schedule} {self.tiles} {sizes} {Path(self.mask).name}{scale}"


def examples() -> Iterator[Case]:
    """Examples of schedules outside the core, and of caches.

    Every schedule with kernels has two: ragged tiles of fp32 under a mask, and whole tiles of fp16 for the tensor
    cores.
    """
    for name, schedule in SCHEDULES.items():
        if name not in CORE and not why_not(schedule):
            yield from two_of(schedule)
    for name in ("split-kv", "paged"):
        yield Case(name, "16x64", {**DECODE, **FP16})
    yield Case(
        "flash2", "20x12", {**RAGGED, **FP32, "kv_dtype": "fp8", "kv_scales": "16", "visit_all": True}, "window:50"
    )
    caches = {"flash1": [LATENT], "flash2": [LATENT_FP8], "split-kv": [DECODE_FP8],
              "paged-split-kv": [LATENT_FP8, DECODE_FP8]}  # fmt: skip
    for name, sizes in ((name, sizes) for name, each in caches.items() for sizes in each):
        yield Case(name, "16x16", {**sizes, **FP16})
    for scales in ("128", "tensor"):
        options = {"latent": scales == "128", "kv_dtype": "fp8", "kv_scales": scales, "dtype": "bf16"}
        yield Case("cache-write", "1x1", {**NEW_ROWS, **options})
    for sizes in ({**LATENT_FP8, "top_k": 64, "key_block": 1, **FP16}, {**CHUNK, "top_k": 8, "key_block": 32, **FP16}):
        yield Case("selected", "16x16", sizes)
        yield Case("selected-keys-outside", "1x1", sizes)


def two_of(schedule: Schedule) -> Iterator[Case]:
    """The example with ragged tiles, and the one with whole tiles."""
    whole = {"dropout": Dropout(0.1, 7)} if schedule.drops else {}
    both = {"visit_all": True} if schedule.reads("visit_all") else {}
    mask = "causal" if schedule.skips and not both else "dense"
    if "ideal" in schedule.rules:
        yield Case(schedule.name, "1x1", {**TOKEN_SIZES, "Nk": 77, **FP32}, "window:50")
        yield Case(schedule.name, "1x1", {**TOKEN_SIZES, **FP16, **whole}, mask)
        return
    heads = {"heads": 4, "kv_heads": 2} if schedule.family == "attention" else {"heads": 2}
    yield Case(schedule.name, "48x32", {**RAGGED, **heads, **FP32, **both}, "window:50", depth=8)
    yield Case(schedule.name, "64x64", {**WHOLE, **FP16, **whole}, mask, depth=16)


def example_arrays(schedule: Schedule, program: Program, seed: int, rounded: HostRounding) -> tuple[Arrays, Arrays]:
    """(inputs, answers): arrays of shape (instances, *axes), as in `example_inputs` and `answers_of`."""
    inputs, instances = example_inputs(schedule, program, seed, rounded)
    answers = [answers_of(schedule, program, hbm) for hbm in instances]
    return inputs, {name: np.stack([answer[name] for answer in answers]) for name in answers[0]}


# ---------------------------------------------------------------- the cases of the self-test

TILED = ("standard-tiled", "flash1", "flash2")
SPARSE = ("block-sparse", "block-sparse-q")
SHAPES: list[tuple[Fields, str]] = [
    ({"N": 1, "d": 16}, "64x64"),
    ({"N": 50, "Nk": 33, "d": 24, "dv": 40, "heads": 2}, "16x16"),
    ({"N": 1000, "Nk": 777, "d": 64, "heads": 6, "kv_heads": 2}, "48x40"),
    ({"N": 2048, "d": 128, "heads": 2}, "64x64"),
    ({"N": 640, "d": 256, "heads": 3}, "32x32"),
    ({"N": 1024, "d": 80, "heads": 5}, "128x32"),
]
LARGE = [  # long sequences or many heads
    Case("flash2", "128x64", {"N": 16384, "d": 128, **FP16}),
    Case("flash2", "64x64", {"N": 16384, "d": 64, **FP16}, "causal"),
    Case("flash1", "64x64", {"N": 16384, "d": 64, **FP16}),
    Case("flash2", "64x64", {**DECODE, **FP16}),
    Case("standard-tiled", "128x128", {"N": 16384, "d": 64, **FP16}),
    Case("flash2", "64x64", {"N": 2048, "d": 64, "heads": 264, **FP16}),
    Case("flash1", "64x64", {"N": 1024, "d": 64, "heads": 264, **BF16}),
    Case("standard-tiled", "64x64", {"N": 1024, "d": 64, "heads": 132, **FP16}),
]


def cases(folder: Path) -> list[Case]:
    """The cases of the self-test, at least 60. Files of masks are written to `folder`."""
    standard = [Case("standard", "1x1", {"N": N, "d": d, **types})
                for (N, d), types in product([(1, 16), (96, 32), (257, 64)], [FP32, FP16, BF16])]  # fmt: skip
    return [*standard, *tiled(), *masked(folder), *grouped(), *LARGE, *examples()]


def tiled() -> Iterator[Case]:
    """The core schedules with tiles, in every shape and type that fits."""
    for name, (sizes, tiles), types in product(TILED, SHAPES, (FP32, FP16, BF16)):
        if fits({**sizes, **types}, tiles):
            yield Case(name, tiles, {**sizes, **types})


def fits(sizes: Fields, tiles: str) -> bool:
    """Whether flash1 with these tiles fits in 227 KB."""
    room = footprint(SCHEDULES["flash1"], Attention(**sizes), parse_tiles(tiles))
    return bool(room.peak_bytes <= 227 * 1024)


def masked(folder: Path) -> Iterator[Case]:
    """The schedules that skip tiles, under masks of every kind."""
    tiles_file, tokens_file = mask_files(folder)
    for name in SPARSE:
        for mask in ("causal", "window:200", "causal&window:100", "global:64|strided:64", f"file:{tiles_file}"):
            yield Case(name, "64x64", {"N": 1024, "d": 64, "heads": 4, **FP16}, mask)
        yield Case(name, "32x48", {"N": 777, "Nk": 1000, "d": 40, "heads": 3, **FP32}, "causal")
        yield Case(name, "16x32", {"N": 256, "d": 128, "heads": 2, **BF16}, f"file:{tokens_file}")
        yield Case(name, "64x64", {"N": 1024, "d": 64, **HALF}, "~causal")
    for name, masks in zip(SPARSE, (("causal&(window:100|sink:4)", "dilated:9:7"),
                                    ("causal&chunk:256", "documents:300,724")), strict=True):  # fmt: skip
        for mask in masks:
            yield Case(name, "48x32", {"N": 1024, "d": 64, "heads": 2, **FP16}, mask)


def grouped() -> Iterator[Case]:
    """Grouped queries, sums in fp16, and large scores."""
    for name in TILED:
        yield Case(name, "64x64", {"N": 500, "d": 64, "heads": 6, "kv_heads": 2, "batch": 3, **FP16}, "causal")
        yield Case(name, "48x32", {"N": 300, "d": 72, "heads": 2, **HALF}, "window:50")
        yield Case(name, "64x64", {"N": 512, "d": 64, **FP16}, scale=30.0)


def mask_files(folder: Path) -> tuple[Path, Path]:
    """Files of a random table of 16 x 16 tiles with empty lines, and of one of 256 x 256 tokens."""
    rng = np.random.default_rng(1)
    tiles, tokens = rng.random((16, 16)) < 0.4, rng.random((256, 256)) < 0.3
    tiles[3], tiles[:, 5], tokens[7], tokens[:, 9], tokens[64:80] = False, False, False, False, False
    for name, table in (("tiles.npy", tiles), ("tokens.npy", tokens)):
        np.save(folder / name, table)
    return folder / "tiles.npy", folder / "tokens.npy"
