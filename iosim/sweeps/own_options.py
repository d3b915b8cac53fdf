"""Options that `count` lacks and a command of `--what` has. Each is an axis of a sweep of that command."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..counting.sweep_axes import Asking, AxisValue, read_axis, split
from ..errors import InputError, suggestion
from ..masks.dropout import parse_dropout
from ..options import CHANCE, FACTOR, FLAG, LISTS, SEED, SIZE, TEXT, Option
from ..options import COUNT as COUNTS
from ..tracing import GRANULARITIES, POLICIES
from ..units import parse_bytes, parse_count, parse_factor

COUNT = "count"


class Own(NamedTuple):
    """An option of the commands `of`. `read` gives the values of its axis. `decides` is true if the columns of a row
    depend on the value."""

    option: Option
    of: tuple[str, ...]
    read: Callable[[AxisValue, str], Sequence[object] | None]
    decides: bool = False

    @property
    def help(self) -> str:
        """What it is, for the help of a sweep."""
        return f"{', '.join(self.of)}: {self.option.help}"


def numbers(least: int) -> Callable[[AxisValue, str], Sequence[object] | None]:
    """A reader of whole numbers from `least` on."""
    return lambda value, where: read_axis(value, where, lambda text: parse_count(text, where, least=least))


def one_of(*allowed: str) -> Callable[[AxisValue, str], Sequence[object]]:
    """A reader of these words."""

    def read(value: AxisValue, where: str) -> Sequence[object]:
        for word in split(value):
            if word not in allowed:
                raise InputError(where, word, ", ".join(allowed), suggestion(word, allowed))
        return split(value)

    return read


def flag(value: AxisValue, where: str) -> Sequence[object]:
    """The one value of a flag that is set."""
    if value is not True:
        raise InputError(where, value, "true or false")
    return [True]


def sizes(value: AxisValue, where: str) -> Sequence[object] | None:
    """Sizes in bytes. Words are not allowed, because their size differs from point to point."""
    if any("el" in part.lower() for part in split(value)):
        raise InputError(where, value, "bytes as 64 or 1KB in a sweep")
    return read_axis(value, where, lambda text: parse_bytes(text, 1, where))


def factors(value: AxisValue, where: str) -> Sequence[object]:
    """Factors from 1 on."""
    return [float(parse_factor(text, where)) for text in split(value)]


def probabilities(value: AxisValue, where: str) -> Sequence[object]:
    """Probabilities of dropout."""
    found = [parse_dropout(text, "0") for text in split(value)]
    return [chance.probability for chance in found if chance is not None]


def texts(value: AxisValue, where: str) -> Sequence[object]:
    """Texts, which the command reads at each point."""
    return split(value)


def groups(value: AxisValue, where: str) -> Sequence[object]:
    """Lists of names as `Q,K;V`."""
    several = (
        value.split(";") if isinstance(value, str) else list(value) if isinstance(value, list | tuple) else [value]
    )
    return list(dict.fromkeys(str(names).strip() for names in several))


ROWS = (
    Own(
        Option("by", TEXT, "traffic (default) or time.", metavar="WHAT"),
        ("tune",),
        one_of("traffic", "time"),
        decides=True,
    ),
    Own(
        Option("least_blocks", COUNTS, "least number of thread blocks.", metavar="COUNT"),
        ("tune",),
        numbers(1),
        decides=True,
    ),
    Own(
        Option("curve", FLAG, "show every M at which the answer changes.", False), ("tune", "cache"), flag, decides=True
    ),
    Own(
        Option("at_most", SIZE, "the least M at which at most so many bytes move.", metavar="SIZE"),
        ("tune",),
        sizes,
        decides=True,
    ),
    Own(
        Option("x_floor", FACTOR, "the M at which the least is within a factor of the floor.", metavar="FACTOR"),
        ("tune",),
        factors,
        decides=True,
    ),
    Own(Option("granularity", TEXT, "line (default), word or tile.", "line"), ("cache",), one_of(*GRANULARITIES)),
    Own(Option("line", SIZE, "bytes of a line (default: 64).", metavar="SIZE"), ("cache",), sizes),
    Own(
        Option("policy", TEXT, "lru, belady or both (default).", "both", metavar="NAME"), ("cache",), one_of(*POLICIES)
    ),
    Own(
        Option("tensors", LISTS, "only these, as Q,K; semicolons separate lists.", metavar="NAMES"), ("cache",), groups
    ),
    Own(Option("seed", SEED, "seed of random inputs (default: 0).", "0", metavar="COUNT"), ("check",), numbers(0)),
    Own(
        Option("dropout", CHANCE, "probability that an element of P is dropped.", metavar="P"),
        ("check",),
        probabilities,
    ),
    Own(
        Option("predict", TEXT, "generated: the times of the kernels that iosim generates.", metavar="WHAT"),
        ("tune", "roofline"),
        one_of("generated"),
        decides=True,
    ),
    Own(Option("decode", FLAG, "add rows for one query.", False), ("roofline",), flag, decides=True),
    Own(Option("ranks", COUNTS, "GPUs.", metavar="COUNT"), ("links",), numbers(1)),
    Own(Option("nodes", TEXT, "nodes x GPUs of a node, as 4x8.", metavar="AxB"), ("links",), texts),
    Own(
        Option("passes", TEXT, "forward (default), backward or step.", metavar="WHAT", word="pass"),
        ("links",),
        one_of("forward", "backward", "step"),
    ),
    Own(Option("link", TEXT, "bytes a second from the GPUs of a node.", metavar="RATE"), ("links",), texts),
    Own(Option("network", TEXT, "bytes a second from other nodes.", metavar="RATE"), ("links",), texts),
    Own(Option("memory", SIZE, "memory of a GPU.", metavar="SIZE"), ("links",), sizes),
    Own(Option("detail", FLAG, "a row for each pair of GPUs.", False), ("links",), flag, decides=True),
)
OWN = {own.option.name: own for own in ROWS}
OTHER_SCHEDULES = ("links",)
"""Commands whose schedules are not those of `iosim schedules`: they read the names themselves."""


def asking(what: str, values: dict[str, AxisValue]) -> Asking | None:
    """The additions of a sweep of the command `what` to a sweep of counts; None for `count`. Options in OWN are taken
    out of `values`. Raises InputError for an option that the command does not have."""
    own: dict[str, Sequence[object]] = {}
    if what in OTHER_SCHEDULES and (named := split(values.pop("schedules", None))):
        own["schedules"] = [",".join(named)]
    for name in [name for name in OWN if name in values]:
        value, where = values.pop(name), OWN[name].option.flag
        if value is None or value is False:
            continue
        if what not in OWN[name].of:
            raise InputError(where, f"--what {what}", " or ".join(f"--what {one}" for one in OWN[name].of))
        own[name] = OWN[name].read(value, where) or [None]
    return None if what == COUNT else Asking(own, M_of_each=what == "roofline")
