"""What the launches of one pass of attention with a state move in all, beside the nearest schedule: `--as gdn`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from typing import TYPE_CHECKING, cast

from ..answer import Column, Table, numbered
from ..core.folded import Folded
from ..core.problem import Attention
from ..core.tiling import Tiling
from ..core.watchers import Traffic
from ..counting.state_floors import StateProblem, compulsory_words
from ..errors import InputError, IosimError
from ..schedules import SCHEDULES
from ..schedules.state import FINAL_STATE, INITIAL_STATE, NORMALISE, RULE, beta_words, decay_words, key_heads, rule_of
from .nearest import Nearest, Words, distance, plain_name

if TYPE_CHECKING:
    from .explain import Explained

OF_STATE = ("state-fused", "state-saved", "state-split", "state-tiles")
ARGUMENTS = {
    "U": ("u",),
    "Unew": ("v_new", "vn", "u_new"),
    "W": ("w",),
    "H": ("h", "states"),
    "S0": ("h0", "initial_state", "s0"),
    "SN": ("ht", "final_state", "sn"),
    "A": ("a", "akk", "ai"),
    "g": ("g", "gk", "gate", "g_cumsum", "s"),
    "beta": ("beta", "b"),
    "Q": ("q", "query"),
    "K": ("k", "key"),
    "V": ("v", "value"),
    "O": ("o", "out", "output"),
}
"""{tensor: names of arguments} as kernels have them; `s` is what a kernel of cumulated gates reads."""
TENSORS = {name: tensor for tensor, names in ARGUMENTS.items() for name in names}
CHUNKS = (1, 16, 32, 64, 128, 256)


@dataclass(frozen=True)
class PassOfState:
    """The words of all launches by tensor, beside those of the nearest schedule, for a problem with a state."""

    problem: Attention
    launches: int
    nearest: Nearest

    @property
    def rows(self) -> int:
        """Tokens of all value heads."""
        return self.problem.N * self.problem.instances

    @property
    def compulsory(self) -> int:
        """The words that every exact algorithm reads and writes, over all heads."""
        p, shared = self.problem, self.problem.heads // cast("int", key_heads(self.problem))
        given, asked, sums = (bool(p[option]) for option in (INITIAL_STATE, FINAL_STATE, NORMALISE))
        decays = shared * cast("int", decay_words(p))
        one = StateProblem(p.N, p.d, p.dv * shared, decays, shared * beta_words(p), given, asked, sums)
        return p.instances // shared * sum(compulsory_words(one))

    def moved(self) -> tuple[int, int]:
        """Words read and written."""
        both = self.nearest.kernel.values()
        return sum(r for r, _ in both), sum(w for _, w in both)

    @property
    def sentence(self) -> str:
        """`5 launches read 2,250.0625 words and write 811 a token and value head: ...`"""
        reads, writes = self.moved()
        each = f"read {per(reads, self.rows)} words and write {per(writes, self.rows)} a token and value head"
        if self.launches == 1:
            each = each.replace("read", "reads", 1).replace("write", "writes", 1)
        times = (reads + writes) / self.compulsory
        least = f"no exact algorithm moves fewer than {per(self.compulsory, self.rows)}: this is {times:.3g} times that"
        how = "The words are those of" if self.nearest.equal else "Nearest is"
        return f"{self.launches} launch{'es' * (self.launches > 1)} {each}; {least}. {how} {self.nearest.name}."

    def table(self) -> Table:
        """A row for each tensor: words read and written by the launches, and by the nearest schedule."""
        own, other = self.nearest.kernel, self.nearest.words
        rows = [(name, *own.get(name, (0, 0)), *other.get(name, (0, 0))) for name in {**own, **other}]
        names = ("tensor", "reads", "writes", f"reads of {self.nearest.schedule}", f"writes of {self.nearest.schedule}")
        return Table([Column(name, "string" if not i else "integer", of=at(i)) for i, name in enumerate(names)], rows)

    def lines(self) -> Iterator[str]:
        """The differences, a line each."""
        if not self.nearest.equal:
            yield f"{self.nearest.name} is {self.nearest.distance_words:,} words away:"
            yield from ("  " + line for line in self.nearest.differences())

    def to_dict(self) -> dict[str, object]:
        """The keys of the JSON."""
        reads, writes = self.moved()
        return {
            "rule": str(self.problem[RULE]),
            "reads": reads,
            "writes": writes,
            "reads_per_token": reads / self.rows,
            "writes_per_token": writes / self.rows,
            "compulsory_words": self.compulsory,
            "nearest": self.nearest.to_dict(),
        }


def at(i: int):  # type: ignore[no-untyped-def]
    """The function that takes one of several values."""
    return lambda row: row[i]


def per(words: int, rows: int) -> str:
    """Words over rows, exact where four decimals are enough."""
    return f"{float(Fraction(words, rows)):,.4f}".rstrip("0").rstrip(".")


def pass_of(answers: Sequence[Explained], problem: Attention, given: Mapping[str, str]) -> PassOfState:
    """The pass that launches make in all. `given` names arguments that are called otherwise: {argument: tensor}."""
    if wrong := [tensor for tensor in given.values() if tensor not in ARGUMENTS]:
        raise InputError("--as", wrong[0], ", ".join(ARGUMENTS), "as in --as gdn:Q=query,O=result")
    moved: dict[str, tuple[int, int]] = {}
    for answer in answers:
        for name, ways in answer.ways.items():
            tensor = given.get(name) or tensor_of(name, answer.ways, rule_of(problem).delta)
            words = ways["reads"].words, ways["writes"].words + ways["atomics"].words
            before = moved.get(tensor, (0, 0))
            moved[tensor] = before[0] + answer.launches * words[0], before[1] + answer.launches * words[1]
    moved = {name: both for name, both in moved.items() if both != (0, 0)}
    ends = (("initial_state", "S0" in moved), ("final_state", "SN" in moved))
    problem = replace(problem, own=(*problem.own, *ends))
    sizes = {v for a in answers for v in a.constants.values() if isinstance(v, int) and not isinstance(v, bool) and v}
    return PassOfState(problem, sum(a.launches for a in answers), nearest_of(moved, problem, sizes))


def tensor_of(name: str, others: Collection[str], delta: bool) -> str:
    """The tensor of the rule that an argument is, by its name and those beside it. With the delta rule `v` of a kernel
    of states is u before the state is taken from it, and `v` of a kernel of outputs is u after that. A kernel of gates
    alone writes their sums to `o`."""
    plain, beside = plain_name(name), {plain_name(other) for other in others}
    if plain == "v" and delta and "h" in beside:
        return "Unew" if "q" in beside else "U"
    if plain in ("o", "s") and {"s", "o"} <= beside and not beside & {"q", "k", "v", "h"}:
        return "g"
    return TENSORS.get(plain, name)


def nearest_of(words: Words, problem: Attention, sizes: Collection[int]) -> Nearest:
    """The schedule, the chunk and the blocks of columns whose words differ least from `words`. Of equal ones, the sizes
    of the kernels' constants are preferred, and the larger ones."""
    chunks = sorted({min(c, problem.N) for c in {*CHUNKS, *sizes}}, reverse=True)
    columns = sorted({min(c, problem.dv) for c in {16, 32, 64, 128, problem.dv, *sizes}}, reverse=True)
    found = {
        (name, chunk, width): own
        for name, chunk, width in product([name for name in OF_STATE if name in SCHEDULES], chunks, columns)
        if (own := counted(name, problem, chunk, width)) is not None
    }
    chosen = min(found, key=lambda key: (distance(found[key], words), key[1] not in sizes, key[2] not in sizes))
    name, chunk, width = chosen
    blocks = -(-problem.dv // width)
    tiles = f"with chunks of {numbered(chunk, 'token')}" + (f" and {blocks} blocks of columns" if blocks > 1 else "")
    return Nearest(name, tiles, found[chosen], words)


def counted(name: str, problem: Attention, chunk: int, columns: int) -> dict[str, tuple[int, int]] | None:
    """The words of a schedule over all heads; None if it is not about this problem."""
    traffic, schedule = Traffic(), SCHEDULES[name]
    try:
        Folded(schedule.about(problem), traffic).run(schedule, Tiling(chunk, 1, cols_o=columns))
    except (IosimError, AttributeError, TypeError):
        return None
    n = problem.instances
    return {tensor: (n * int(reads), n * int(writes)) for tensor, (reads, writes) in traffic.tensors.items()}
