"""The cases of the self-test: sizes, dtypes, masks, heads, and every schedule's own example."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ..core.problem import Attention
from ..core.tiling import Tiling, parse_tiles
from ..schedules import SCHEDULES
from ..search.best import footprint
from .examples import ProblemFields, Types, shapes


@dataclass(frozen=True)
class Case:
    """A schedule with tiles, on a problem. `scale` multiplies Q."""

    schedule: str
    tiles: str
    sizes: ProblemFields
    mask: str = "dense"
    scale: float = 1.0
    depth: int = 1

    @property
    def tiling(self) -> Tiling:
        return replace(parse_tiles(self.tiles), depth=self.depth)

    def __str__(self) -> str:
        sizes = " ".join(f"{name}={value}" for name, value in self.sizes.items())
        scale = f" x{self.scale:g}" if self.scale != 1 else ""
        return f"{self.schedule} {self.tiles} {sizes} {Path(self.mask).name}{scale}"


def cases(folder: Path) -> list[Case]:
    """The cases of the self-test, at least 60. Files of masks are written to `folder`."""
    tiles_file, tokens_file = mask_files(folder)
    fp32, fp16 = Types(dtype="fp32"), Types(dtype="fp16", acc_dtype="fp32")
    bf16, half = Types(dtype="bf16", acc_dtype="fp32"), Types(dtype="fp16")
    found = [Case("standard", "1x1", {"N": N, "d": d, **t}) for (N, d), t in
             itertools.product([(1, 16), (96, 32), (257, 64)], [fp32, fp16, bf16])]  # fmt: skip
    for name, (sizes, tiles) in itertools.product(["standard-tiled", "flash1", "flash2"], SHAPES):
        found += [Case(name, tiles, {**sizes, **t}) for t in (fp32, fp16, bf16) if fits(sizes, tiles, t)]
    for name in ("block-sparse", "block-sparse-q"):
        for mask in ("causal", "window:200", "causal&window:100", "global:64|strided:64", f"file:{tiles_file}"):
            found.append(Case(name, "64x64", {"N": 1024, "d": 64, "heads": 4, **fp16}, mask))
        found.append(Case(name, "32x48", {"N": 777, "Nk": 1000, "d": 40, "heads": 3, **fp32}, "causal"))
        found.append(Case(name, "16x32", {"N": 256, "d": 128, "heads": 2, **bf16}, f"file:{tokens_file}"))
        found.append(Case(name, "64x64", {"N": 1024, "d": 64, **half}, "~causal"))
    found += [Case(name, "48x32", {"N": 1024, "d": 64, "heads": 2, **fp16}, mask) for name, mask in (
        ("block-sparse", "causal&(window:100|sink:4)"), ("block-sparse", "dilated:9:7"),
        ("block-sparse-q", "causal&chunk:256"), ("block-sparse-q", "documents:300,724"),
    )]  # fmt: skip
    for name in ("standard-tiled", "flash1", "flash2"):
        found.append(Case(name, "64x64", {"N": 500, "d": 64, "heads": 6, "kv_heads": 2, "batch": 3, **fp16}, "causal"))
        found.append(Case(name, "48x32", {"N": 300, "d": 72, "heads": 2, **half}, "window:50"))
        found.append(Case(name, "64x64", {"N": 512, "d": 64, **fp16}, scale=30.0))
    found += [Case(name, tiles, {**sizes, **t}, mask) for name, tiles, sizes, t, mask in large(fp16, bf16)]
    return found + [Case(name, tiles, sizes, mask, depth=depth) for name, tiles, sizes, mask, depth in shapes()]


def large(fp16: Types, bf16: Types) -> list[tuple[str, str, ProblemFields, Types, str]]:
    """(schedule, tiles, sizes, types, mask) of cases with long sequences or many heads."""
    decode: ProblemFields = {"N": 1, "Nk": 16384, "d": 128, "heads": 32, "kv_heads": 8}
    return [
        ("flash2", "128x64", {"N": 16384, "d": 128}, fp16, "dense"),
        ("flash2", "64x64", {"N": 16384, "d": 64}, fp16, "causal"),
        ("flash1", "64x64", {"N": 16384, "d": 64}, fp16, "dense"),
        ("flash2", "64x64", decode, fp16, "dense"),
        ("standard-tiled", "128x128", {"N": 16384, "d": 64}, fp16, "dense"),
        ("flash2", "64x64", {"N": 2048, "d": 64, "heads": 264}, fp16, "dense"),
        ("flash1", "64x64", {"N": 1024, "d": 64, "heads": 264}, bf16, "dense"),
        ("standard-tiled", "64x64", {"N": 1024, "d": 64, "heads": 132}, fp16, "dense"),
    ]


SHAPES: list[tuple[ProblemFields, str]] = [
    ({"N": 1, "d": 16}, "64x64"),
    ({"N": 50, "Nk": 33, "d": 24, "dv": 40, "heads": 2}, "16x16"),
    ({"N": 1000, "Nk": 777, "d": 64, "heads": 6, "kv_heads": 2}, "48x40"),
    ({"N": 2048, "d": 128, "heads": 2}, "64x64"),
    ({"N": 640, "d": 256, "heads": 3}, "32x32"),
    ({"N": 1024, "d": 80, "heads": 5}, "128x32"),
]


def fits(sizes: ProblemFields, tiles: str, types: Types) -> bool:
    """Whether flash1 with these tiles fits in 227 KB."""
    problem: ProblemFields = {**sizes, **types}
    room = footprint(SCHEDULES["flash1"], Attention(**problem), parse_tiles(tiles))
    return bool(room.peak_bytes <= 227 * 1024)


def mask_files(folder: Path) -> tuple[Path, Path]:
    """Files of a random table of 16 x 16 tiles with empty lines, and of one of 256 x 256 tokens."""
    rng = np.random.default_rng(1)
    tiles, tokens = rng.random((16, 16)) < 0.4, rng.random((256, 256)) < 0.3
    tiles[3], tiles[:, 5], tokens[7], tokens[:, 9], tokens[64:80] = False, False, False, False, False
    for name, table in (("tiles.npy", tiles), ("tokens.npy", tokens)):
        np.save(folder / name, table)
    return folder / "tiles.npy", folder / "tokens.npy"
