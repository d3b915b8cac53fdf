"""The least time of a launch on a GPU, from data sheets alone: timing/bound.py with the work of each program.

Programs need not be alike. Some multiprocessor runs as many as an equal share of all, rounded up, and one runs the
program with most work: neither can take less than the rate of a multiprocessor allows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..core.arrays import total
from ..timing.bound import LaunchTime, memory_bytes, rates_of, seconds_of
from ..timing.work import Work as LaunchWork
from .walk.code import DOTS, READS
from .walk.work import DTYPES, Arithmetic, Work
from .ways import WAYS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..hardware import Hardware
    from .walk.code import Code
    from .walk.numbers import Integers
    from .ways import Way

PEAK_OF = {**DTYPES, "f32": "fp16"}  # products of 32 bits may be taken in tf32, which no preset states: no faster


def work_of_programs(
    code: Code, times: Mapping[int, Integers], programs: int, chip: Hardware | None
) -> dict[str, Integers]:
    """{part of Work: that of each program}. `times` says how often each program ran a block."""
    found = {name: np.zeros(programs, np.int64) for name in Work._fields}  # a program is walked turn by turn: few
    for block, parts in Arithmetic(code, chip).found.items():
        for name, many in zip(Work._fields, np.array(parts, dtype=np.int64).sum(0), strict=True):
            if block in times and many:
                found[name] += many * times[block]
    return found


def read_once(code: Code, chip: Hardware | None) -> int:
    """The bytes that products read from shared memory if each runs once."""
    return sum(work.smem_read_bytes for parts in Arithmetic(code, chip).found.values() for work in parts)


def least_time(
    code: Code,
    ways: Mapping[str, Mapping[str, Way]],
    each: Mapping[str, Integers],
    chip: Hardware,
    again: Mapping[tuple[str, str], int],
) -> LaunchTime:
    """The least time of a launch. HBM moves distinct bytes, those of `again` once, which arguments have in common, and
    the L2 at most the bytes of the sectors of each request."""
    served = {kind: sum(min(way[kind].bytes, way[kind].sector_bytes) for way in ways.values()) for kind in WAYS}
    work = LaunchWork(
        read_bytes=served[READS],
        write_bytes=sum(served.values()) - served[READS],
        matrix_flops=total(each["flops"]),
        exps=total(each["exponentials"]),
        smem_read_bytes=total(each["smem_read_bytes"]),
        smem_write_bytes=total(each["smem_write_bytes"]),
        blocks=len(each["flops"]),
        touched={(k, n): way[k].distinct_bytes - again.get((n, k), 0) for n, way in ways.items() for k in WAYS},
    )
    times = seconds_of(work, memory_bytes([work], chip)[0], fastest(code, chip), 1.0)
    amounts = {
        "matrix": each["flops"],
        "exp": each["exponentials"],
        "shared": each["smem_read_bytes"] + each["smem_write_bytes"],
    }
    return LaunchTime(work, {k: t * (turns(amounts[k], chip.sms) if k in amounts else 1) for k, t in times.items()})


def fastest(code: Code, chip: Hardware) -> dict[str, int]:
    """The rates of a chip, with the highest peak of the types that products have; none if one is not stated."""
    types = {PEAK_OF.get(o.operand_types[0].element, "") for o in code.operations() if o.name in DOTS} or {"fp16"}
    rates = [rates_of(chip, dtype) for dtype in types]
    peaks = [rate.pop("matrix", None) for rate in rates]
    return rates[0] | ({} if None in peaks else {"matrix": max(peak for peak in peaks if peak)})


def turns(each: Integers, sms: int) -> float:
    """How much longer multiprocessors take than if all were always busy: as that with the longest program, or with most
    of programs that each take at least the shortest."""
    whole = total(each)
    longest = max(int(each.max()), -(-len(each) // sms) * int(each.min()))
    return max(1.0, sms * longest / whole) if whole else 1.0
