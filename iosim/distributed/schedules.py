"""The schedules of attention across GPUs: their texts, their words and their room by hand, and where they come from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from ..core.problem import Attention, Tensor
from ..core.tiling import Tiling
from . import texts
from .across import Across

if TYPE_CHECKING:
    from ..core.machine import Machine
    from ..core.typing import Size
    from .texts import Text

    WordsOf = Callable[[Across], dict[str, int]]
    RoomOf = Callable[[Across], int]


ROWS, KEYS = ("N", "heads"), ("Nk", "kv_heads")
TENSORS = {
    "Q": Tensor((*ROWS, "d"), "input"),
    "K": Tensor((*KEYS, "d"), "cache"),
    "V": Tensor((*KEYS, "dv"), "cache"),
    "O": Tensor((*ROWS, "dv"), "output"),
    "Oheads": Tensor((*ROWS, "dv"), "output"),
    "LSE": Tensor(ROWS, "state"),
    "m": Tensor(ROWS, "state"),
    "l": Tensor(ROWS, "state"),
}
"""The tensors of one sequence, with all heads. A token's row lies in one place."""


def parts(many: int) -> dict[str, Tensor]:
    """The partial results of `many` GPUs: N rows of each, one after the other."""

    def rows(p: Attention[Size]) -> Size:
        return many * p.N

    return {"Opart": Tensor((rows, "heads", "dv"), "output"), "LSEpart": Tensor((rows, "heads"), "state")}


@dataclass(frozen=True)
class Bound:
    """A text for one split of a problem, as machines run it."""

    text: Callable[[Machine, Attention, Tiling], None]
    tensors: Mapping[str, Tensor]
    skips: bool = False
    outer: str = "queries"


@dataclass(frozen=True, eq=False)
class Scheme:
    """A way to do attention across GPUs. `words` and `room` are by hand, never from the text.

    `words(t)` are the words received over all GPUs for one sequence, by tensor. `room(t)` is the most words in the
    memory of a GPU at one time.
    """

    name: str
    text: Text
    summary: str
    source: str
    words: WordsOf
    room: RoomOf
    layout: str = "blocks"
    """Where the tokens lie: a name of `iosim.links.floors.LAYOUTS`."""
    splits: Callable[[Attention, int], list[Across]] = field(default=lambda p, ranks: [Across(p, ranks)])
    """The ways to split the problem that it may use; none if it cannot."""
    parts: Callable[[Across], int] = lambda t: 1
    """GPUs whose partial results of a row are kept."""

    def bind(self, t: Across) -> Bound:
        """The text for a split, as machines run it."""
        return Bound(lambda chip, p, tiling: self.text(chip, p, t), {**TENSORS, **parts(self.parts(t))})

    def tiling(self, t: Across) -> Tiling:
        """The tiles of the outer level: the shards."""
        return Tiling(t.n or 1, t.nk)


# ---------------------------------------------------------------- by hand


def width(p: Attention) -> dict[str, int]:
    """The words of a key's row, by tensor; V is in K if it is latent."""
    return {"K": p.d} if p.latent else {"K": p.d, "V": p.dv}


def pass_kv_words(t: Across, needed: bool = False, last_hop: bool = False) -> dict[str, int]:
    """Each GPU receives all keys but its own, of the KV heads that it works on: Nk (P - 1) in all. It receives Q of its
    heads from the other u - 1 GPUs of its group, and O of its tokens back from them.

    The keys of the other groups are (P - u) Nk of these. With `needed` they are those that a mask shows.
    """
    p, u = t.problem, t.apart
    keys = p.Nk * (u - 1) + (u * sum(t.hops.needed) if needed else p.Nk * (t.ranks - u))
    keys += p.Nk * u if last_hop and t.ring > 1 else 0
    exchanged = p.N * (u - 1) * (p.heads // u)
    return {
        "Q": exchanged * p.d,
        **{name: keys * t.kv_heads * words for name, words in width(p).items()},
        "Oheads": exchanged * p.dv,
    }


def pass_kv_room(t: Across, needed: bool = False) -> int:
    """Q, O, l and m of N / P tokens with all heads, or of as many words of other tokens; two shards of K and V: the own
    one and the one that came."""
    p = t.problem
    shard = t.apart * t.nk
    most = max((visit.keys for _, visit in t.hops.others), default=0) if needed else shard * (t.ring > 1)
    return t.n * p.heads * (p.d + p.dv + 2) + (shard + most) * t.kv_heads * sum(width(p).values())


def mesh_words(t: Across) -> dict[str, int]:
    """Each GPU gathers the queries of the b - 1 others of its row and the keys of the a - 1 others of its column, and
    receives b - 1 partial results of its own rows."""
    p, a, b = t.problem, t.rows_apart, t.keys_apart
    rows = p.N * (b - 1) * p.heads
    keys = {name: p.Nk * (a - 1) * p.kv_heads * words for name, words in width(p).items()}
    return {"Q": rows * p.d, **keys, "Opart": rows * p.dv, "LSEpart": rows}


def mesh_room(t: Across) -> int:
    """Queries and state of a row, keys of a column; then three partial results or two."""
    p, a, b = t.problem, t.rows_apart, t.keys_apart
    gathered = b * t.n * p.heads * (p.d + p.dv + 2) + a * t.nk * p.kv_heads * sum(width(p).values())
    return max(gathered, merging_room(p, t.n * p.heads))


def merging_room(p: Attention, rows: int) -> int:
    """O, l and m, and one partial result with its LSE."""
    return rows * (2 * p.dv + 3)


def pass_q_words(t: Across) -> dict[str, int]:
    """Every row goes to P - 1 other GPUs, and P - 1 partial results of it come back."""
    p, rows = t.problem, t.problem.N * (t.ranks - 1) * t.problem.heads
    return {"Q": rows * p.d, "Opart": rows * p.dv, "LSEpart": rows}


def pass_q_room(t: Across) -> int:
    """Own keys and own queries, and the queries that came, with O, l and m."""
    p, rows = t.problem, t.n * t.problem.heads
    own = t.nk * p.kv_heads * sum(width(p).values()) + rows * p.d
    came = rows * p.d * (t.ranks > 1)
    return max(own + came + rows * (p.dv + 2), merging_room(p, rows))


def decode_words(t: Across) -> dict[str, int]:
    """P - 1 GPUs receive each row, or P - 1 shares of each row are received; as many partial results are merged."""
    return pass_q_words(t)


def decode_room(t: Across) -> int:
    """All queries with O, l and m, and the own keys; then the partial results of the heads that are merged here."""
    p = t.problem
    gathered = p.N * p.heads * (p.d + p.dv + 2) + t.nk * p.kv_heads * sum(width(p).values())
    return max(gathered, merging_room(p, p.N * t.heads))


# ---------------------------------------------------------------- the ways to split a problem


def divides(p: Attention, ranks: int, pieces: int = 1) -> bool:
    """Whether the tokens are `pieces` equal pieces for each GPU."""
    return p.N % (ranks * pieces) == p.Nk % (ranks * pieces) == 0


def ring_splits(layout: str, p: Attention, ranks: int) -> list[Across]:
    """The one ring of all GPUs."""
    pieces = 2 if layout == "zigzag" else 1
    return [Across(p, ranks, layout=layout)] if divides(p, ranks, pieces) else []


def heads_divide(p: Attention, apart: int) -> bool:
    """Whether each of `apart` GPUs has equally many query heads, and whole KV heads or a part of one."""
    return p.heads % apart == 0 and (p.kv_heads % apart == 0 or apart % p.kv_heads == 0)


def ulysses_splits(p: Attention, ranks: int) -> list[Across]:
    """The one group of all GPUs."""
    return [Across(p, ranks, apart=ranks)] if divides(p, ranks) and heads_divide(p, ranks) else []


def usp_splits(p: Attention, ranks: int) -> list[Across]:
    """Every split that is neither a ring nor a group of all GPUs."""
    found = [u for u in range(2, ranks) if ranks % u == 0 and heads_divide(p, u) and divides(p, ranks)]
    return [Across(p, ranks, apart=u) for u in found]


def mesh_splits(p: Attention, ranks: int) -> list[Across]:
    """Every mesh of at least two rows and columns."""
    found = [b for b in range(2, ranks) if ranks % b == 0 and divides(p, ranks)]
    return [Across(p, ranks, keys_apart=b) for b in found]


def gather_splits(p: Attention, ranks: int) -> list[Across]:
    """The mesh of one column: each GPU gathers all keys."""
    return [Across(p, ranks)] if divides(p, ranks) else []


def pass_q_splits(p: Attention, ranks: int) -> list[Across]:
    """The one ring of all GPUs, each with its part of the queries."""
    return [Across(p, ranks, keys_apart=ranks)] if divides(p, ranks) else []


def tree_splits(p: Attention, ranks: int) -> list[Across]:
    """The keys in equal parts."""
    return [Across(p, ranks)] if p.Nk % ranks == 0 else []


def gathered_splits(p: Attention, ranks: int) -> list[Across]:
    """The keys and the query heads in equal parts."""
    found = p.Nk % ranks == 0 and p.heads % ranks == 0
    return [Across(p, ranks, apart=ranks, keys_apart=ranks)] if found else []


# ---------------------------------------------------------------- the schemes

RING = "Liu, Zaharia and Abbeel 2023 (arXiv 2310.01889)"
ULYSSES = "Jacobs et al. 2023 (arXiv 2309.14509)"
USP = "Fang and Zhao 2024 (arXiv 2405.07719)"
MESH = "Attention2D (arXiv 2503.15758), Mesh-Attention (arXiv 2512.20968)"
STRIPED = "Brandon et al. 2023 (arXiv 2311.09431)"
LLAMA3 = "Llama Team 2024 (arXiv 2407.21783), section 3.3.2"
PASS_Q = "Yang et al. 2024 (arXiv 2411.01783)"
TREE = "Shyam et al. 2024 (arXiv 2408.04093)"


def rings() -> list[Scheme]:
    """The rings that pass keys and values, by layout: all keys sent, or only those that a mask needs."""
    about = {"blocks": ("ring", RING), "zigzag": ("zigzag", LLAMA3), "striped": ("striped", STRIPED)}
    where = {"blocks": "in order", "zigzag": "with an early and a late chunk each", "striped": "in turn"}
    found = []
    for layout, (name, source) in about.items():
        splits = partial(ring_splits, layout)
        summary = f"keys go round, tokens lie {where[layout]}"
        found.append(Scheme(name, texts.pass_kv, summary, source, pass_kv_words, pass_kv_room, layout, splits))
    for layout, (name, source) in about.items():
        found.append(
            Scheme(
                f"{name}-needed",
                partial(texts.pass_kv, needed=True),
                f"{name}, only the keys that a mask needs",
                source,
                partial(pass_kv_words, needed=True),
                partial(pass_kv_room, needed=True),
                layout,
                partial(ring_splits, layout),
            )
        )
    return found


FORWARD = (
    *rings(),
    Scheme(
        "ring-coded",
        partial(texts.pass_kv, last_hop=True),
        "ring that rotates P times, so that keys come home",
        RING,
        partial(pass_kv_words, last_hop=True),
        pass_kv_room,
        splits=partial(ring_splits, "blocks"),
    ),
    Scheme("all-gather", texts.mesh, "each GPU gathers all keys", LLAMA3, mesh_words, mesh_room, splits=gather_splits),
    Scheme(
        "pass-q",
        texts.pass_q,
        "queries go round, partial results go home",
        PASS_Q,
        pass_q_words,
        pass_q_room,
        splits=pass_q_splits,
        parts=lambda t: t.ranks,
    ),
    Scheme(
        "ulysses",
        texts.pass_kv,
        "tokens exchanged for heads",
        ULYSSES,
        pass_kv_words,
        pass_kv_room,
        splits=ulysses_splits,
    ),
    Scheme(
        "usp",
        texts.pass_kv,
        "heads exchanged in groups, keys go round between them",
        USP,
        pass_kv_words,
        pass_kv_room,
        splits=usp_splits,
    ),
    Scheme(
        "mesh",
        texts.mesh,
        "queries gathered along rows, keys along columns",
        MESH,
        mesh_words,
        mesh_room,
        splits=mesh_splits,
        parts=lambda t: t.keys_apart,
    ),
)
DECODE = (
    Scheme(
        "tree",
        texts.tree,
        "decoding: queries broadcast, partial results merged along a tree",
        TREE,
        decode_words,
        decode_room,
        "decode",
        tree_splits,
        lambda t: t.ranks,
    ),
    Scheme(
        "gathered-q",
        texts.gathered_queries,
        "decoding: queries gathered, partial results summed and scattered; heads on all GPUs",
        PASS_Q,
        decode_words,
        decode_room,
        "free",
        gathered_splits,
        lambda t: t.ranks,
    ),
)
SCHEMES = {scheme.name: scheme for scheme in (*FORWARD, *DECODE)}
"""All schemes by name, in the order of lists."""
