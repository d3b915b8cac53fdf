"""`iosim roofline`."""

from __future__ import annotations

from ..counting.given import check_registers, counts, memories, names_of
from .answer import Output, answer_all
from .command import D, N, Need, named_command
from .options import (
    PLACES,
    chip_options,
    hardware_option,
    outputs,
    own_option,
    problem_options,
    sram_option,
    tile_options,
    variant_options,
)


@named_command("roofline", needs=(N, D, Need("hardware")), axes=PLACES, usual="core")
@problem_options
@sram_option
@hardware_option("Peaks, measured rates and M of a preset, as h100, or a FILE.toml; see iosim hardware.")
@tile_options
@variant_options
@chip_options
@own_option("decode", "Add rows for one query over the same keys.")
@outputs
def command(
    M: str | None, hardware: str | None, schedules: tuple[str, ...], tiles: str | None,
    tile_multiple: str, decode: bool, output: Output, **given: str | bool | None,
) -> None:  # fmt: skip
    """FLOPs by kind, intensity, ridge, and which resource binds, launch by launch, with three times.

    Two times are the ideal roofline: what the peaks of the --hardware allow, with every word from HBM, and with an
    ideal L2. The third is the predicted time of the generated kernels, by the model of iosim verify. It needs measured
    rates: those of h100, h200, or a file of iosim calibrate. M is what one block of the --hardware may use, unless it
    is given.

    Example: iosim roofline --N 8192 --d 128 --heads 32 --hardware H100 --decode
    """
    from itertools import product

    from ..errors import InputError
    from ..studies import roofline
    from ..units import parse_count

    values = counts(given)
    if hardware is None:
        raise InputError("--hardware", "nothing", "a preset: see iosim hardware", "as --hardware h100")
    multiple = parse_count(tile_multiple, "--tile-multiple")
    names = names_of(hardware)
    check_registers(given, names)
    parts = []
    for name, (label, size) in product(names, memories(given, M, None)):
        found = roofline.roofline(
            hardware=name, M=size, schedules=schedules, tiles=tiles, tile_multiple=multiple, decode=decode, **values
        )
        parts.append(({**({"hardware": name} if len(names) > 1 else {}), **label}, found))
    answer_all(parts, output)
