"""A claimed time or rate beside what a GPU allows: possible or not, by which resource, and what it would have to mean.

The judgement needs only the least work of a problem, {"memory": bytes, "matrix": FLOPs, "exp": exponentials}, and the
rates of a data sheet. A rate is that of the least bytes or FLOPs, as people print it: 700 TFLOP/s is the time in which
the FLOPs of the visible scores are computed at that rate.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ..core.problem import narrowed
from ..errors import InputError
from ..hardware import load, names
from ..units import DTYPE_BYTES, dtype_bytes, format_rate, microseconds, microseconds_apart
from ..verdict import about, joined, times
from .bound import rates_of, times_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..core.problem import Attention
    from ..hardware import Hardware

WHERE = "--claim"
ALLOWED = "a time as 215us, 0.2ms or 1.5s, bytes a second as 3.5TB/s, or operations a second as 700TFLOP/s"
_CLAIM = re.compile(r"([\d,]*\.?\d+)\s*([munµμ]?s|[kmgtp]?b/s|[kmgtp]?flops?(?:/s)?)", re.IGNORECASE)
SECONDS = {"s": 0, "ms": -3, "us": -6, "µs": -6, "μs": -6, "ns": -9}  # powers of ten
DECIMAL = {"": 0, "k": 3, "m": 6, "g": 9, "t": 12, "p": 15}
THINGS = {"memory": "bytes", "matrix": "FLOPs", "exp": "exponentials"}
WORDS = {"memory": "HBM", "matrix": "products", "exp": "exponentials"}


class Claim(NamedTuple):
    """A claimed number: seconds (`of` is empty), or the rate of a resource: `memory` (bytes a second) or `matrix`
    (FLOPs a second)."""

    text: str
    value: float
    of: str = ""

    def seconds(self, work: Mapping[str, int]) -> float:
        """The time that is claimed for some work."""
        return work[self.of] / self.value if self.of else self.value


def parse_claim(text: str, flops: bool = True) -> Claim:
    """The claim that a text makes; units of rates are decimal. Raises InputError for any other text, and without
    `flops` for FLOPs a second: where nobody knows how many are needed."""
    match = _CLAIM.fullmatch(text.strip()) if isinstance(text, str) else None
    number = match[1].replace(",", "") if match else "0"
    if match is None or not float(number):
        raise InputError(WHERE, text, ALLOWED)
    unit = match[2].lower()
    if unit in SECONDS:
        return Claim(text.strip(), float(f"{number}e{SECONDS[unit]}"))
    of = "matrix" if "flop" in unit else "memory"
    if of == "matrix" and not flops:
        raise InputError(WHERE, text, "a time or bytes a second with a state", "its FLOPs depend on chunks")
    return Claim(text.strip(), float(f"{number}e{DECIMAL[re.sub('flop.*|b/s', '', unit)]}"), of)


@dataclass(frozen=True)
class Judged:
    """A claim beside the least time that a GPU allows for some work.

    `times` are the least seconds by resource, `meanings` what could make an impossible claim true.
    """

    claim: Claim
    seconds: float
    """The time that is claimed."""
    work: Mapping[str, int]
    times: Mapping[str, float]
    chip: Hardware
    dtype: str
    meanings: tuple[str, ...] = ()

    @property
    def binds(self) -> str:
        """The resource that takes longest."""
        return max(self.times, key=self.times.__getitem__, default="memory")

    @property
    def least(self) -> float:
        """The least seconds; 0 if no rate is stated."""
        return self.times.get(self.binds, 0.0)

    @property
    def possible(self) -> bool:
        """Whether the claimed time is no less than the least."""
        return self.seconds >= self.least

    def beside(self, bounds: Sequence[float], of: str) -> list[str]:
        """The judgement, and a sentence if a possible time is less than all `bounds` of what is shown below."""
        short = self.possible and bounds and self.seconds < min(bounds)
        return [*self.lines(), *([f"It is less than the bound of all {of} below."] if short else [])]

    def lines(self) -> list[str]:
        """The judgement in sentences: possible or not and why, then what it would have to mean."""
        shown, (claimed, least) = self.claim.text, microseconds_apart(self.seconds, self.least)
        if self.claim.of:
            whole = amount(self.claim.of, self.work[self.claim.of])
            shown += f", which is {claimed} for the {whole} that are needed,"
        why = f"the {least} that {self.reason()} at least on {self.chip.name}"
        if self.possible:
            share = f"{times(self.seconds, self.least)} times " if 0 < self.least < self.seconds else ""
            return [f"Possible: {shown} is {share}{why}."]
        why += self.beyond()
        one_of = "one of these: " * (len(self.meanings) > 1)
        meant = f"It would have to mean {one_of}{'; '.join(self.meanings)}." if self.meanings else ""
        return [f"Impossible: {shown} is less than {why}.", *([meant] if meant else [])]

    def beyond(self) -> str:
        """That a claimed rate of what does not bind is more than the data sheet has; empty if it is not."""
        rate = rates_of(self.chip, self.dtype).get(self.claim.of, 0)
        if self.binds == self.claim.of or not 0 < rate < self.claim.value:
            return ""
        speed = format_rate(rate) if self.claim.of == "memory" else f"{rate:.3g} FLOP/s"
        return f", and {self.claim.text} is more than its {speed}"

    def reason(self) -> str:
        """What takes so long: `4.00 GiB of HBM take`."""
        whole = amount(self.binds, self.work.get(self.binds, 0))
        kind = f"{self.dtype} {WORDS[self.binds]}" if self.binds == "matrix" else WORDS[self.binds]
        rate = rates_of(self.chip, self.dtype).get(self.binds, 0)
        speed = format_rate(rate) if self.binds == "memory" else f"{rate:.3g} a second"
        return f"{kind} ({whole} at {speed}) take{'s' * (self.binds == 'memory')}"

    def to_dict(self) -> dict[str, object]:
        """The keys of the JSON."""
        return {
            "claim": self.claim.text,
            "claimed_seconds": self.seconds,
            "possible": self.possible,
            "at_least_seconds": self.least,
            "binds": self.binds,
            "meanings": list(self.meanings),
        }


def judged(
    claim: Claim,
    work: Mapping[str, int],
    chip: Hardware,
    dtype: str,
    others: Mapping[str, Mapping[str, int]],
    instead: Mapping[str, int] | None = None,
) -> Judged:
    """A claim about some work on a chip. `others` is the least work if the problem had another type, {type: work};
    `instead` are other ways to do it, {text: least bytes}."""
    found = Judged(claim, claim.seconds(work), work, times_of(work, rates_of(chip, dtype)), chip, dtype)
    if found.possible:
        return found
    meanings = [
        *other_ways(found, instead or {}),
        *warm_l2(found),
        *other_types(found, others),
        *other_units(found),
        *less_work(found),
        *other_gpus(found),
    ]
    return Judged(claim, found.seconds, work, found.times, chip, dtype, tuple(meanings))


def other_ways(found: Judged, instead: Mapping[str, int]) -> list[str]:
    """The other ways with which it is possible."""
    rates = rates_of(found.chip, found.dtype)
    least = {text: max(times_of({"memory": size}, rates).values(), default=0.0) for text, size in instead.items()}
    return [f"{text} (at least {microseconds(s)})" for text, s in least.items() if s <= found.seconds]


def warm_l2(found: Judged) -> list[str]:
    """That the L2 held bytes before the kernel began, if nothing but HBM is too slow and that is enough."""
    size, rates = found.chip.l2_bytes, rates_of(found.chip, found.dtype)
    bytes_ = found.work["memory"]
    rest = max(0, bytes_ - size)
    late = [name for name, many in found.times.items() if many > found.seconds]
    slow = bytes_ / rates["l2"] if "l2" in rates else 0.0
    if late != ["memory"] or not size or max(rest / rates["memory"], slow) > found.seconds:
        return []
    return [f"a warm L2, which holds {about(size)}" + (f", {about(rest)} less than is needed" if rest else "")]


def other_types(found: Judged, others: Mapping[str, Mapping[str, int]]) -> list[str]:
    """A type with which it is possible, if the chip states its peak."""
    allowed = []
    for dtype, work in others.items():
        rates = rates_of(found.chip, dtype)
        least = max(times_of(work, rates).values(), default=0.0)
        if "matrix" in rates and least <= found.claim.seconds(work):
            allowed.append(f"{dtype} (at least {microseconds(least)})")
    return [f"another type, {' or '.join(allowed)}"] if allowed else []


def other_units(found: Judged) -> list[str]:
    """That units for multiplications took exponentials, if nothing but exponentials is too slow."""
    late = [name for name, many in found.times.items() if many > found.seconds]
    return ["exponentials that multiply-adds compute, as a polynomial"] if late == ["exp"] else []


def less_work(found: Judged) -> list[str]:
    """That work was left out of a time, or that a rate counts more work than is needed."""
    if found.claim.of:
        more = times(found.least, found.seconds)
        return [f"{more} times the {THINGS[found.claim.of]} that are needed, or more, were counted"]
    percents = (f"{found.seconds / found.least:.{digits}%}" for digits in range(1, 17))
    share = next((text for text in percents if 0 < float(text[:-1]) < 100), "less than all").replace("%", " %")
    return [f"work that was left out: the time is enough for {share} of the {THINGS[found.binds]}"]


def other_gpus(found: Judged) -> list[str]:
    """The presets on which it is possible, of those that state the rates."""
    allowed = []
    for chip in map(load, names()):
        least = times_of(found.work, rates_of(chip, found.dtype))
        if least.keys() >= found.times.keys() and max(least.values()) <= found.seconds:
            allowed.append(chip.name)
    return [f"another GPU, as {joined(allowed)}"] if allowed else []


def in_narrower_types(p: Attention) -> dict[str, Attention]:
    """{type of fewer bytes: the problem in it}, of those that it can have."""
    found = {}
    for name in DTYPE_BYTES:
        with suppress(InputError):
            if dtype_bytes(name) < p.word_bytes:
                found[name] = narrowed(p, dtype=name)
    return found


def amount(resource: str, many: int) -> str:
    """Work for people: `4.00 GiB`, `1.1e+12 FLOP`, `2.15e+09`."""
    return about(many) if resource == "memory" else f"{many:.3g}" + " FLOP" * (resource == "matrix")
