"""Examples of every registered schedule: inputs of all instances for its kernels, and the answers to them.

The self-test on a GPU uses them, and so do the tests that run kernels on a CPU: they need NumPy only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Required, TypedDict, cast

import numpy as np
from numpy.typing import NDArray

from ..core.problem import DENSE, Attention
from ..core.tiling import Tiling
from ..cuda.machine import can_generate
from ..cuda.program import Program
from ..masks.dropout import Dropout
from ..schedules import CORE, SCHEDULES, Schedule

if TYPE_CHECKING:
    from ..core.typing import Array

HostArray = NDArray[np.generic]  # type: ignore[explicit-any]  # NumPy's own class holds an Any
HostArrays = dict[str, HostArray]
HostRounding = Callable[[NDArray[np.float64], str], HostArray]  # (array, dtype)


class Types(TypedDict, total=False):
    """The element types of a problem: fields of `Attention`."""

    dtype: str
    acc_dtype: str


class ProblemFields(Types, total=False):
    """Fields of `Attention`, without the mask."""

    N: Required[int]
    d: Required[int]
    Nk: int
    dv: int
    batch: int
    heads: int
    kv_heads: int
    dropout: Dropout
    gqa: str
    latent: bool
    kv_dtype: str
    kv_scales: str
    top_k: int
    key_block: int


EXAMPLE_TYPES: dict[str, Types] = {"fp32": {"dtype": "fp32"}, "fp16": {"dtype": "fp16", "acc_dtype": "fp32"}}
RAGGED: ProblemFields = {"N": 200, "Nk": 333, "d": 40}
WHOLE: ProblemFields = {"N": 512, "d": 64, "heads": 2}
TOKEN_SIZES: ProblemFields = {"N": 96, "d": 32, "heads": 2}  # for tiles of one token
DECODE: ProblemFields = {"N": 1, "Nk": 16384, "d": 128, "heads": 32, "kv_heads": 8}

MLA: ProblemFields = {
    "N": 1,
    "Nk": 2000,
    "d": 576,
    "dv": 512,
    "heads": 32,
    "kv_heads": 1,
    "gqa": "pack",
    "latent": True,
}
CACHES: list[ProblemFields] = [MLA, {**MLA, "kv_dtype": "fp8", "kv_scales": "128"},
                               {**DECODE, "Nk": 3000, "kv_dtype": "fp8", "kv_scales": "tensor"}]  # fmt: skip

CHUNK: ProblemFields = {"N": 100, "Nk": 1024, "d": 64, "heads": 8, "kv_heads": 2, "gqa": "pack"}


def shapes() -> Iterator[tuple[str, str, ProblemFields, str, int]]:
    """(schedule, tiles, sizes, mask, depth) of each example.

    Every schedule with kernels that is not a core schedule has two: ragged tiles of fp32 under a mask, and whole tiles
    of fp16 for the tensor cores. `Schedule.about` later drops the options that a schedule cannot have.
    """
    for name, schedule in SCHEDULES.items():
        if name in CORE or not can_generate(schedule):
            continue
        ideal = "ideal" in schedule.rules
        ragged: ProblemFields = {**TOKEN_SIZES, "Nk": 77} if ideal else {**RAGGED, "heads": 2}
        if schedule.family == "attention" and not ideal:
            ragged = {**ragged, "heads": 4, "kv_heads": 2}
        yield name, "1x1" if ideal else "48x32", {**ragged, **EXAMPLE_TYPES["fp32"]}, "window:50", 1 if ideal else 8
        sizes = TOKEN_SIZES if ideal else WHOLE
        whole: ProblemFields = {**sizes, **EXAMPLE_TYPES["fp16"]}
        if schedule.drops:
            whole = {**whole, "dropout": Dropout(0.1, 7)}
        yield name, "1x1" if ideal else "64x64", whole, "causal" if schedule.skips else "dense", 1 if ideal else 16
    for name in ("split-kv", "paged"):
        yield name, "16x64", {**DECODE, **EXAMPLE_TYPES["fp16"]}, "dense", 1
    yield "flash2", "20x12", {**RAGGED, "dtype": "fp32", "kv_dtype": "fp8", "kv_scales": "16"}, "window:50", 1
    for name, n in (("flash1", 0), ("flash2", 1), ("split-kv", 2), ("paged-split-kv", 1), ("paged-split-kv", 2)):
        yield name, "16x16", {**CACHES[n], **EXAMPLE_TYPES["fp16"]}, "dense", 1
    for scales in ("128", "tensor"):
        new: ProblemFields = {"N": 50, "Nk": 300, "d": 576, "dv": 512, "latent": scales == "128"}
        yield "cache-write", "1x1", {**new, "kv_dtype": "fp8", "kv_scales": scales, "dtype": "bf16"}, "dense", 1
    mla: ProblemFields = {**CACHES[1], "top_k": 64, "key_block": 1, **EXAMPLE_TYPES["fp16"]}
    chunk: ProblemFields = {**CHUNK, "top_k": 8, "key_block": 32, **EXAMPLE_TYPES["fp16"]}
    for sizes in (mla, chunk):
        yield "selected", "16x16", sizes, "dense", 1
        yield "selected-keys-outside", "1x1", sizes, "dense", 1


def visible_pairs(p: Attention, tiling: Tiling) -> NDArray[np.bool_] | None:
    """(N, Nk) booleans, or None where nothing is hidden."""
    return None if p.mask is DENSE else p.mask.bind(p, tiling, True).visible(0, p.N, 0, p.Nk)


def example_inputs(
    schedule: Schedule, p: Attention, tiling: Tiling, program: Program, seed: int, rounded: HostRounding,
    scaled: Mapping[str, float] = MappingProxyType({}),
) -> tuple[HostArrays, list[HostArrays]]:  # fmt: skip
    """(inputs, arrays of each instance). Inputs have the shape (instances, *axes).

    They are multiplied by the factors of `scaled`, by tensor, and then rounded by `rounded`. The query heads of a group
    share K and V.
    """
    rng, visible, group = np.random.default_rng(seed), visible_pairs(p, tiling), p.heads // p.kv_heads
    instances: list[HostArrays] = []
    for head in range(p.instances):
        hbm = cast("HostArrays", schedule.example(rng, p, visible))
        for name, array in program.arrays.items():
            if name in hbm and array.instances < p.instances and head % group:
                hbm[name] = instances[-1][name]
            elif name in hbm and array.dtype != "int32":
                hbm[name] = rounded(np.asarray(hbm[name], np.float64) * scaled.get(name, 1.0), array.dtype)
        instances.append(hbm)
    inputs = {
        name: np.stack([hbm[name] for hbm in instances[:: group if array.instances < p.instances else 1]])
        for name, array in program.arrays.items()
        if name in instances[0]
    }
    return inputs, instances


def answers_of(schedule: Schedule, p: Attention, tiling: Tiling, hbm: HostArrays) -> HostArrays:
    """The answers of one instance, in float64, to its rounded inputs."""
    return cast("HostArrays", schedule.answer(cast("dict[str, Array]", hbm), p, visible_pairs(p, tiling)))


def example_arrays(
    schedule: Schedule, p: Attention, tiling: Tiling, program: Program, seed: int, rounded: HostRounding
) -> tuple[HostArrays, HostArrays]:
    """(inputs, answers): arrays of shape (instances, *axes), as in `example_inputs` and `answers_of`."""
    inputs, instances = example_inputs(schedule, p, tiling, program, seed, rounded)
    answers = [answers_of(schedule, p, tiling, hbm) for hbm in instances]
    return inputs, {name: np.stack([answer[name] for answer in answers]) for name in answers[0]}
