"""Floors across devices: the least words that p devices receive from one another, for a problem and a layout.

The theorems are in theorems.py, their statements and proofs in docs/distributed-proofs.md. `floor_across` takes the
largest of those whose conditions hold. The words are those of Q, K, V and O, and of their gradients; statistics (LSE,
maxima, D) are free.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from ..core.problem import DENSE
from ..counting.floors import check_dropout, seen_by_group
from ..errors import InputError
from .theorems import (
    balanced_floor,
    blocks_and_balance_floor,
    blocks_floor,
    causal_blocks_floor,
    causal_striped_floor,
    causal_zigzag_floor,
    decoding_floor,
    memory_floor,
    segment_work,
)

if TYPE_CHECKING:
    from ..core.problem import Attention
    from ..masks.visible import Visible

LAYOUTS = {
    "blocks": "device r has the r-th of p blocks of tokens",
    "zigzag": "device r has the blocks r and 2p - 1 - r of 2p",
    "striped": "token i is on device i modulo p",
    "decode": "each device has a block of the keys of a problem, and a row lies on any one device",
    "free": "any layout",
}

IN_WORDS = {"P1": "balanced work", "P2": "limited memory", "P3": "equal blocks", "P3s": "equal blocks, both passes",
            "P4": "blocks, balanced work", "decoding": "blocks of keys"}  # fmt: skip
"""What a theorem is a floor for; the others have names that say it."""


class DeviceFloor(NamedTuple):
    """The least words that devices receive from one another, and the theorem that says so."""

    received_words: int
    """Summed over the devices, words that are forwarded included."""
    mean_received_words: Fraction
    """`received_words` by the number of devices. Some device receives at least as many."""
    theorem: str
    """P1, P2, P3, P3s, P4, `causal blocks`, `causal zigzag`, `causal striped` or `decoding`; `none` if none holds."""
    condition: str
    """A sentence that says why the theorem holds here."""


class Pass(NamedTuple):
    """What one pass of attention needs, in words: alpha for a row, beta for a key, and pi = alpha beta.

    `pi` is None where the segment lemma has no proof, so P1 and P2 do not hold.
    """

    name: str
    alpha: int
    beta: int
    pi: int | None


class Found(NamedTuple):
    """A floor of all problems together, with its theorem and the sentence on its condition."""

    words: int
    theorem: str
    condition: str


class Asked(NamedTuple):
    """A problem on several devices. `problems` is KV heads x sequences, and `group` the query heads of a KV head."""

    problem: Attention
    ranks: int
    layout: str
    seen: Visible

    @property
    def problems(self) -> int:
        return self.problem.batch * self.problem.kv_heads

    @property
    def group(self) -> int:
        return self.problem.heads // self.problem.kv_heads

    @property
    def dense(self) -> bool:
        """Whether every row sees every key."""
        p = self.problem
        return p.mask is DENSE or (p.mask.is_causal and p.N == 1)

    @property
    def causal(self) -> bool:
        """Whether row i sees the keys up to i, of as many keys as rows."""
        p = self.problem
        return not self.dense and p.mask.is_causal and p.Nk == p.N


def floor_across(
    problem: Attention,
    ranks: int,
    *,
    backward: bool = False,
    layout: str = "blocks",
    balanced: bool = False,
    memory_words: int | None = None,
    step: bool = False,
) -> DeviceFloor:
    """The floor of attention on `ranks` devices: the largest of the theorems that hold for what is asked.

    `layout` is a name of `LAYOUTS`: where the words of a row and of a key start and end. `balanced` says that each
    device does the same work, counted in products with V (of a backward pass in all its products). `memory_words` is
    the memory of one device. `backward` asks for the gradients, in a run that starts from the layout alone; `step` for
    forward and backward pass in one run, which may keep copies in between.

    InputError for a layout that the ranks do not divide, for dropout, and for a mask whose pairs cannot be counted.
    """
    check(problem, ranks, layout, memory_words)
    asked = Asked(problem, ranks, layout, seen_by_group(problem, None))
    nothing = "no theorem says that a word must move here" if ranks > 1 else "one device receives nothing"
    found = [Found(0, "none", nothing)]
    if ranks > 1:
        found += candidates(asked, passes(problem, backward, step), balanced, memory_words)
    best = max(found, key=lambda one: one.words)
    return DeviceFloor(best.words, Fraction(best.words, ranks), best.theorem, best.condition)


def check(problem: Attention, ranks: int, layout: str, memory_words: int | None) -> None:
    """Raise InputError for what no floor can be asked of."""
    check_dropout(problem)
    if ranks < 1:
        raise InputError("ranks", ranks, "at least 1")
    if memory_words is not None and memory_words < 1:
        raise InputError("memory_words", memory_words, "at least 1")
    if layout not in LAYOUTS:
        raise InputError("layout", layout, ", ".join(LAYOUTS))
    blocks = 2 * ranks if layout == "zigzag" else ranks
    tokens = {"free": [], "decode": [problem.Nk]}.get(layout, [problem.N, problem.Nk])
    for size in tokens:
        if size % blocks:
            needs = f"a divisor of the {size:,} tokens" if blocks == ranks else f"half a divisor of {size:,} tokens"
            raise InputError("ranks", ranks, f"{needs}, with layout {layout}", "layout free has no blocks")


def passes(problem: Attention, backward: bool, step: bool) -> list[Pass]:
    """The passes whose floors are floors of what is asked. A step contains both passes, and has a floor of its own."""
    d, dv = problem.d, problem.dv
    key = d if problem.latent else d + dv
    forward = Pass("forward", d + dv, key, (d + dv) * key if dv <= d else 4 * d * dv)
    gradients = Pass("backward", 2 * d + dv, 2 * (d + dv), (2 * d + dv) * 2 * (d + dv) if dv <= 2 * d else None)
    both = Pass("step", 2 * (d + dv), 2 * (d + dv), None)
    if problem.latent:  # V in K: no theorem about a backward pass
        return [] if backward and not step else [forward]
    return [both, forward, gradients] if step else [gradients] if backward else [forward]


def candidates(asked: Asked, found: list[Pass], balanced: bool, memory: int | None) -> Iterator[Found]:
    """The floors of all theorems that hold."""
    for one in found:
        yield from by_layout(asked, one)
        if one.pi is not None and asked.seen.pairs:
            yield from by_work(asked, one, one.pi, balanced, memory)
        if balanced and one.name == "forward" and (asked.dense or asked.causal) and asked.layout in CAUSAL:
            yield from by_both(asked, one)


def by_layout(asked: Asked, one: Pass) -> Iterator[Found]:
    """P3 and its like: floors of a layout, whatever the memory and the balance. None for `free` or another mask."""
    if asked.layout == "decode" and asked.dense:
        yield of_decoding(asked, one)
    elif asked.layout in CAUSAL and asked.dense:
        yield of_blocks(asked, one)
    elif asked.layout in CAUSAL and asked.causal:
        yield of_causal(asked, one)


def of_decoding(asked: Asked, one: Pass) -> Found:
    """P3 for rows that lie anywhere."""
    p, rows, keys = asked.ranks, asked.group * asked.problem.N, asked.problem.Nk // asked.ranks
    words = decoding_floor(p, rows, keys, one.alpha, one.beta)
    why = f"all rows see all keys, which lie in {p:,} equal blocks, and {large(rows, keys, one)}"
    return Found(asked.problems * words, "decoding", why)


def of_blocks(asked: Asked, one: Pass) -> Found:
    """P3, or P3s for a step."""
    p, rows, keys = asked.ranks, asked.group * asked.problem.N // asked.ranks, asked.problem.Nk // asked.ranks
    words = blocks_floor(p, rows, keys, one.alpha, one.beta)
    why = f"all rows see all keys, both lie in {p:,} equal parts"
    return Found(asked.problems * words, "P3s" if one.name == "step" else "P3", f"{why}, and {large(rows, keys, one)}")


def of_causal(asked: Asked, one: Pass) -> Found:
    """P3 for a causal mask, in one of the layouts of context parallelism."""
    tokens = asked.problem.N // asked.ranks // (2 if asked.layout == "zigzag" else 1)
    words = CAUSAL[asked.layout](asked.ranks, asked.group, tokens, one.alpha, one.beta)
    enough = large(asked.group * tokens, tokens, one)
    if asked.layout == "striped":
        enough = f"{tokens:,} tokens on a device are at least min({one.alpha:,}, {one.beta:,} / {asked.group})"
    why = f"the mask is causal, {LAYOUTS[asked.layout]}, and {enough}"
    return Found(asked.problems * words, f"causal {asked.layout}", why)


def large(rows: int, keys: int, one: Pass) -> str:
    """The condition that P3's floors need beside the layout, as it holds for a block of `rows` rows and `keys` keys."""
    if keys >= one.alpha:
        return f"{keys:,} keys in a block are at least the {one.alpha:,} words of a row"
    return f"{rows:,} rows in a block are at least the {one.beta:,} words of a key"


CAUSAL = {"blocks": causal_blocks_floor, "zigzag": causal_zigzag_floor, "striped": causal_striped_floor}


def by_work(asked: Asked, one: Pass, pi: int, balanced: bool, memory: int | None) -> Iterator[Found]:
    """P1 if the work is balanced, and P2 if memory is limited: floors of any layout and any mask."""
    seen, problems, p = asked.seen, asked.problems, asked.ranks
    pairs = problems * seen.pairs
    held = problems * (one.alpha * seen.rows + one.beta * seen.keys)  # each input word is on one device at the start
    share = Fraction(problems * (seen.pairs + seen.any_rows - seen.rows), p)  # of all visible pairs
    once = "each input word starts on one device"
    if balanced:
        words = balanced_floor(pairs, share, pi, held)
        yield Found(words, "P1", f"each device does 1/{p:,} of the work, and {once}")
    if memory is not None:
        least_busy = pairs - (p - 1) * share  # what is left for a device if the others do their whole share
        busy = p if balanced and least_busy > segment_work(memory, pi) else int(pairs > segment_work(memory, pi))
        words = memory_floor(pairs, memory, pi, held, busy, p, least_busy if balanced else 0)
        yield Found(words, "P2", f"the memory of each device holds {memory:,} words, and {once}")


def by_both(asked: Asked, one: Pass) -> Iterator[Found]:
    """P4: a dense or causal forward pass in blocks whose work is balanced."""
    problem, p, seen = asked.problem, asked.ranks, asked.seen
    tokens, rows, keys = problem.N // p, asked.group * problem.N // p, problem.Nk // p
    own = rows * keys if asked.dense else asked.group * tokens * (tokens + 1) // 2
    share = Fraction(seen.pairs + seen.any_rows - seen.rows, p) - (seen.any_rows - seen.rows)
    if one.alpha == one.beta and problem.dv <= problem.d:
        words = blocks_and_balance_floor(p, asked.problems * (share - own), max(rows, keys), one.alpha)
        mask = "all rows see all keys" if asked.dense else "the mask is causal"
        blocks = f"rows and keys lie in {p:,} equal parts of {rows:,} and {keys:,} with one at least {one.alpha:,}"
        yield Found(words, "P4", f"{mask}, {blocks}, and each device does 1/{p:,} of the work")
