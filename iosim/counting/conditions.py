"""The conditions of a GPU: what `--hardware` implies beside M, in one place, and the note that says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import InputError
from ..units import dtype_bytes, parse_count, parse_registers

if TYPE_CHECKING:
    from ..hardware import Hardware

Fields = dict[str, Any]  # type: ignore[explicit-any]  # options of `Attention`, by name: each has a type of its own
ACCUMULATORS = "fp32"
BACK = "as GPU kernels have them; --paper-model gives the paper's model back"
UNSTATED = (
    "states no registers_per_sm_bytes: 256 KiB are assumed, as on NVIDIA's GPUs, whose published tiles are listed; 0 "
    "is a chip without registers"
)
VAIN = "--paper-model changes nothing without --hardware"


class Conditions(NamedTuple):
    """What a question is answered under: options of the problem, what sizes of best tiles are multiples of, and notes
    on what was implied. `implies` says whether a GPU decides what is not given; `chip` is that GPU, whose least time
    decides which tiles are best."""

    options: Fields
    multiple: int
    notes: tuple[str, ...] = ()
    implies: bool = False
    chip: Hardware | None = None

    def of(self, dtype: str, options: Mapping[str, object]) -> Fields:
        """The options of a problem of one of several types, under these conditions."""
        own = {**options, "dtype": dtype}
        return with_accumulators(own) if self.implies else own


PAPER = Conditions({}, 1)
"""The paper's model: every scalar is one word, and tiles have any size."""


def conditions(
    hardware: object,
    options: Mapping[str, object],
    tile_multiple: object = None,
    paper_model: bool = False,
    tiles: object = None,
) -> Conditions:
    """The conditions of a question about some `hardware`, with all that was given.

    A GPU accumulates in fp32, and its tensor cores take tiles in multiples of 16. What is given wins. Without
    `hardware`, or with `paper_model`, nothing is implied. `tiles` are those given, of which only `best` are searched.
    """
    from ..core.tiling import MMA

    check_registers(options.get("register_bytes"), names_of(hardware) if isinstance(hardware, str) else [])
    multiple = None if tile_multiple is None else parse_count(tile_multiple, "--tile-multiple")  # type: ignore[arg-type]
    if not hardware or paper_model:
        return Conditions({**options}, multiple or 1, (VAIN,) if paper_model and not hardware else ())
    own = with_accumulators(options)
    found = [f"{own['acc_dtype']} accumulators"] if own != options else []
    searched = tiles is None or "best" in str(tiles)
    if multiple is None and searched:
        found.append(f"best tiles of least time, in multiples of {MMA}")
    from ..hardware import load

    chips = [load(name) for name in (names_of(hardware) if isinstance(hardware, str) else [])]
    chip = chips[0] if len(chips) == 1 else None
    implied = [f"--hardware implies {' and '.join(found)}, {BACK}"] if found else []
    notes = (*implied, *(f"{c.name} {UNSTATED}" for c in chips if c.registers_per_sm_bytes is None))
    return Conditions(own, multiple or (MMA if searched else 1), notes, implies=True, chip=chip)


def with_accumulators(options: Mapping[str, object]) -> Fields:
    """The options of a problem, with the accumulators of a GPU if none are given and its type is narrower."""
    narrow = dtype_bytes(str(options.get("dtype") or "fp16")) < dtype_bytes(ACCUMULATORS)
    implied = options.get("acc_dtype") is None and narrow
    return {**options, **({"acc_dtype": ACCUMULATORS} if implied else {})}


def check_registers(given: object, presets: list[str]) -> None:
    """Raise InputError for more registers, a text or bytes, than an SM of a preset has."""
    if not isinstance(given, str | int) or not presets:
        return
    from ..hardware import load

    for chip in map(load, presets):
        room = chip.registers_per_sm_bytes
        if room is not None and parse_registers(given) > room:
            raise InputError("--registers", given, f"at most {room // 1024}KB, the registers of an SM of {chip.name}")


def names_of(hardware: str | None) -> list[str]:
    """The presets of `h100,h200`, each once."""
    return [] if hardware is None else list(dict.fromkeys(name.strip() for name in hardware.split(",")))
