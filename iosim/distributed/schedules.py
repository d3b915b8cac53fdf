"""The schedules of attention across GPUs: their texts, how they split a problem, and where they come from."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ..core.problem import Attention, Tensor
from ..core.tiling import Tiling
from ..errors import InputError, suggestion
from . import texts, texts_backward
from .across import Across

if TYPE_CHECKING:
    from ..core.machine import Machine
    from ..core.typing import Size
    from .texts import Text

    Splits = Callable[[Attention, int], list[Across]]


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
    "D": Tensor(ROWS, "state"),
    "dO": Tensor((*ROWS, "dv"), "input"),
    "dQ": Tensor((*ROWS, "d")),
    "dQheads": Tensor((*ROWS, "d")),
    "dK": Tensor((*KEYS, "d")),
    "dV": Tensor((*KEYS, "dv")),
}
"""The tensors of one sequence, with all heads. A token's row lies in one place."""


def parts(many: int) -> dict[str, Tensor]:
    """The partial results of `many` GPUs: N rows of each, one after the other."""

    def rows(p: Attention[Size]) -> Size:
        return many * p.N

    return {"Opart": Tensor((rows, "heads", "dv"), "output"), "LSEpart": Tensor((rows, "heads"), "state")}


def of_ring(t: Across) -> dict[str, Tensor]:
    """The tensors of a backward pass in which keys go round. Each member of a ring has its own sum for all keys, and
    each GPU of a group its own copy of a KV head that several have."""
    slots = t.apart * t.kv_heads

    def keys(p: Attention[Size]) -> Size:
        return t.ring * p.Nk

    found = {"Qkept": Tensor((*ROWS, "d"), "input"), "LSEkept": Tensor(ROWS, "state")}
    for name, axis in (("K", "d"), ("V", "dv")):
        found[f"{name}kept"] = Tensor(("Nk", slots, axis), "cache")
        found[f"d{name}part"] = Tensor((keys, slots, axis), "state")
        found[f"d{name}heads"] = Tensor(("Nk", slots, axis))
    return found


def of_mesh(t: Across) -> dict[str, Tensor]:
    """The tensors of a backward pass on a mesh: a copy of rows for each column, and one of keys for each row."""

    def rows(p: Attention[Size]) -> Size:
        return t.keys_apart * p.N

    def keys(p: Attention[Size]) -> Size:
        return t.rows_apart * p.Nk

    found = {"Qkept": Tensor((rows, "heads", "d"), "input"), "dQpart": Tensor((rows, "heads", "d"), "state")}
    for name, axis in (("K", "d"), ("V", "dv")):
        found[f"{name}kept"] = Tensor((keys, "kv_heads", axis), "cache")
        found[f"d{name}part"] = Tensor((keys, "kv_heads", axis), "state")
    return found


class Bound(NamedTuple):
    """A text for one split of a problem, as machines run it."""

    text: Callable[[Machine, Attention, Tiling], None]
    tensors: Mapping[str, Tensor]
    skips: bool = False
    outer: str = "queries"


@dataclass(frozen=True, eq=False)
class Scheme:
    """A way to do attention across GPUs."""

    name: str
    text: Text
    splits: Splits
    """`splits(p, ranks)`: the ways to split the problem that it may use. InputError if it cannot."""
    shape: str
    """How GPUs divide the work, in names of `Across`."""
    layout: str = "blocks"
    """Where the tokens lie: blocks, zigzag or striped; in decoding `decode`, where one GPU has all queries, or `heads`,
    where each GPU has some heads of all queries."""
    parts: Callable[[Across], int] = lambda t: 1
    """GPUs whose partial results of a row are kept."""
    more: Callable[[Across], Mapping[str, Tensor]] = lambda t: {}
    """Tensors that only this scheme has."""
    kind: str = "forward"
    """What it computes: `forward`, `backward` or `step`, which is both."""

    @property
    def decodes(self) -> bool:
        """Whether it is made for decoding."""
        return self.layout in ("decode", "heads")

    @property
    def passes_round(self) -> bool:
        """Whether keys or queries go round a ring, beside which a GPU computes."""
        return "ring" in self.shape

    @property
    def asks(self) -> dict[str, bool]:
        """What a floor is asked for beside the layout."""
        return {} if self.kind == "forward" else {self.kind: True}

    def flops_of_pair(self, p: Attention) -> int:
        """Operations of the matrix products for a visible pair of one head: two products forward, five backward."""
        back = 2 * (3 * p.d + 2 * p.dv)
        return {"forward": 2 * (p.d + p.dv), "backward": back, "step": 2 * (p.d + p.dv) + back}[self.kind]

    def split(self, t: Across) -> str:
        """How the GPUs divide the work, as `heads 4 x ring 2`."""
        names = ("ranks", "apart", "ring", "rows_apart", "keys_apart")
        return self.shape.format(**{name: getattr(t, name) for name in names})

    def floor_layout(self, t: Across) -> str:
        """The layout as the floors name it. In decoding their rows lie anywhere. Where groups have an early and a late
        chunk, each GPU of a group of even size has a block of one of them."""
        if self.layout == "zigzag" and t.apart > 1:
            return "free" if t.apart % 2 else "blocks"
        return "decode" if self.layout == "heads" else self.layout

    def bind(self, t: Across) -> Bound:
        """The text for a split, as machines run it."""
        return Bound(lambda chip, p, tiling: self.text(chip, p, t), self.tensors(t))

    def tensors(self, t: Across) -> dict[str, Tensor]:
        """The tensors of a split."""
        return {**TENSORS, **parts(self.parts(t)), **self.more(t)}

    def tiling(self, t: Across) -> Tiling:
        """The tiles of the outer level: the shards."""
        return Tiling(t.n or 1, t.nk)


# ---------------------------------------------------------------- the ways to split a problem


def check_tokens(p: Attention, ranks: int, pieces: int = 1, queries: bool = True) -> None:
    """Raise InputError unless each GPU has `pieces` equal pieces of the tokens, or of the keys alone."""
    for name, length in (("N", p.N), ("Nk", p.Nk)) if queries else (("Nk", p.Nk),):
        if ranks > length:
            raise InputError("--ranks", ranks, f"at most {name} = {length}", "each GPU needs a token")
        if length % (ranks * pieces):
            allowed = f"a divisor of {name} = {length}" if pieces == 1 else f"a divisor of {name} / {pieces}"
            raise InputError(
                "--ranks", ranks, f"{allowed}, so that each GPU has as many tokens", near(ranks, length // pieces)
            )


def near(ranks: int, length: int) -> str:
    """The hint with the divisors of a length that are next to a number of GPUs."""
    below = next((n for n in range(min(ranks, length), 0, -1) if length % n == 0), None)
    above = next((n for n in range(ranks + 1, min(2 * ranks, length) + 1) if length % n == 0), None)
    return f"as {' or '.join(str(n) for n in (below, above) if n)}"


def heads_divide(p: Attention, apart: int) -> bool:
    """Whether each of `apart` GPUs has equally many query heads, and whole KV heads or a part of one."""
    return p.heads % apart == 0 and (p.kv_heads % apart == 0 or apart % p.kv_heads == 0)


def ring_splits(p: Attention, ranks: int, layout: str = "blocks") -> list[Across]:
    """The one ring of all GPUs, or the mesh of one column, where each GPU gathers all keys."""
    check_tokens(p, ranks, 2 if layout == "zigzag" else 1)
    return [Across(p, ranks, layout=layout)]


def pass_q_splits(p: Attention, ranks: int) -> list[Across]:
    """The one ring of all GPUs, each with its part of the queries."""
    check_tokens(p, ranks)
    return [Across(p, ranks, keys_apart=ranks)]


def ulysses_splits(p: Attention, ranks: int) -> list[Across]:
    """The one group of all GPUs."""
    check_tokens(p, ranks)
    if ranks > p.heads:
        raise InputError("--ranks", ranks, f"at most --heads {p.heads} with ulysses", "usp takes rings of such groups")
    if not heads_divide(p, ranks):
        allowed = f"a divisor of --heads {p.heads} with ulysses, and a divisor or a multiple of --kv-heads {p.kv_heads}"
        raise InputError("--ranks", ranks, allowed, "usp takes groups of some of the GPUs")
    return [Across(p, ranks, apart=ranks)]


def usp_splits(p: Attention, ranks: int, layout: str = "blocks") -> list[Across]:
    """Every split that is neither a ring nor a group of all GPUs. In zigzag order each group has two chunks."""
    check_tokens(p, ranks)
    found = [u for u in divisors(ranks) if heads_divide(p, u)]
    if not found:
        raise InputError("--ranks", ranks, f"u x r with usp, where u > 1 divides --heads {p.heads} and r > 1", "ring")
    if layout == "zigzag":
        found = [u for u in found if p.N % (2 * ranks // u) == p.Nk % (2 * ranks // u) == 0]
    if not found:
        check_tokens(p, ranks, 2)
    return [Across(p, ranks, apart=u, layout=layout) for u in found]


def mesh_splits(p: Attention, ranks: int) -> list[Across]:
    """Every mesh of at least two rows and columns."""
    check_tokens(p, ranks)
    found = divisors(ranks)
    if not found:
        raise InputError("--ranks", ranks, "a x b with mesh, both above 1", "ring and pass-q take any number")
    return [Across(p, ranks, keys_apart=b) for b in found]


def divisors(ranks: int) -> list[int]:
    """The divisors of a number but 1 and itself."""
    return [n for n in range(2, ranks) if ranks % n == 0]


def tree_splits(p: Attention, ranks: int) -> list[Across]:
    """The keys in equal parts."""
    check_tokens(p, ranks, queries=False)
    return [Across(p, ranks)]


def gathered_splits(p: Attention, ranks: int) -> list[Across]:
    """The keys and the query heads in equal parts."""
    check_tokens(p, ranks, queries=False)
    if p.heads % ranks:
        allowed = f"a divisor of --heads {p.heads} with gathered-q: each GPU has as many heads of the queries"
        raise InputError("--ranks", ranks, allowed, "tree has all queries on one GPU")
    return [Across(p, ranks, apart=ranks, keys_apart=ranks)]


def splits_of(scheme: Scheme, p: Attention, ranks: int) -> list[Across]:
    """The ways to split a problem; none where the scheme refuses it."""
    try:
        return scheme.splits(p, ranks)
    except InputError:
        return []


# ---------------------------------------------------------------- the schemes

ROUND, IN_GROUPS, ON_MESH = "ring {ring}", "heads {apart} x ring {ring}", "{rows_apart} rows x {keys_apart} columns"


def all_gpus(t: Across) -> int:
    """Every GPU keeps a partial result of every row."""
    return t.ranks


def all_schemes() -> Iterator[Scheme]:
    """The schemes in the order of lists."""
    ring, needed = texts.pass_kv, partial(texts.pass_kv, needed=True)
    layouts = {
        "ring": "blocks",  # Liu, Zaharia and Abbeel 2023 (arXiv 2310.01889)
        "zigzag": "zigzag",  # Llama Team 2024 (arXiv 2407.21783), section 3.3.2
        "striped": "striped",  # Brandon et al. 2023 (arXiv 2311.09431)
    }
    for name, layout in layouts.items():
        yield Scheme(name, ring, partial(ring_splits, layout=layout), ROUND, layout)
    for name, layout in layouts.items():
        yield Scheme(f"{name}-needed", needed, partial(ring_splits, layout=layout), ROUND, layout)
    # a ring that rotates P times, so that keys come home, as it is coded
    yield Scheme("ring-coded", partial(ring, last_hop=True), ring_splits, ROUND)
    # Llama Team 2024: each GPU gathers all keys
    yield Scheme("all-gather", texts.mesh, ring_splits, "all {ranks}")
    # Yang et al. 2024 (arXiv 2411.01783)
    yield Scheme("pass-q", texts.pass_q, pass_q_splits, ROUND, parts=all_gpus)
    # Jacobs et al. 2023 (arXiv 2309.14509)
    yield Scheme("ulysses", ring, ulysses_splits, "heads {apart}")
    # Fang and Zhao 2024 (arXiv 2405.07719)
    yield Scheme("usp", ring, usp_splits, IN_GROUPS)
    yield Scheme("usp-zigzag", ring, partial(usp_splits, layout="zigzag"), IN_GROUPS, "zigzag")
    # Attention2D (arXiv 2503.15758), Mesh-Attention (arXiv 2512.20968)
    yield Scheme("mesh", texts.mesh, mesh_splits, ON_MESH, parts=lambda t: t.keys_apart)
    # Shyam et al. 2024 (arXiv 2408.04093)
    yield Scheme("tree", texts.tree, tree_splits, "tree {ranks}", "decode", all_gpus)
    # Yang et al. 2024, for decoding
    yield Scheme("gathered-q", texts.gathered_queries, gathered_splits, "heads {ranks}", "heads", all_gpus)


SCHEMES = {scheme.name: scheme for scheme in all_schemes()}
"""All schemes by name, in the order of lists."""


def in_backward(scheme: Scheme) -> Iterator[Scheme]:
    """A scheme for the backward pass, and for a training step, if it has them."""
    if scheme.decodes:
        return
    for kind, step in (("backward", False), ("step", True)):
        more = of_ring
        if scheme.text is texts.mesh:
            text: Text = texts_backward.mesh_step if step else texts_backward.mesh_backward
            more = of_mesh
        elif scheme.text is texts.pass_q:
            text = texts_backward.pass_q_step if step else texts_backward.pass_q_backward
            more = of_mesh
        else:
            last_hop, needed = scheme.name == "ring-coded", scheme.name.endswith("-needed")
            ring = texts_backward.pass_kv_step if step else texts_backward.pass_kv_backward
            text = partial(ring, last_hop=last_hop, needed=needed)
        yield replace(scheme, text=text, more=more, kind=kind)


_LATER = [one for scheme in SCHEMES.values() for one in in_backward(scheme)]
PASSES = {"forward": SCHEMES, **{kind: {s.name: s for s in _LATER if s.kind == kind} for kind in ("backward", "step")}}
"""The schemes of each pass, by name."""


def find_schemes(names: str | Iterable[str], kind: str = "forward") -> list[Scheme]:
    """The schemes of a text as `ring,usp:4x2`, or of several such texts, each once. InputError for an unknown name."""
    found = [names] if isinstance(names, str) else list(names)
    given, known = [name.strip().lower() for text in found for name in text.split(",")], PASSES[kind]
    schemes = []
    for name, colon, sides in (text.partition(":") for text in dict.fromkeys(given)):
        if name not in SCHEMES:
            raise InputError("--schedule", name, ", ".join(SCHEMES), suggestion(name, SCHEMES))
        if name not in known:
            raise InputError("--schedule", name, f"{', '.join(known)} with --pass {kind}", "others are forward passes")
        schemes.append(of_sides(known[name], sides) if colon else known[name])
    return schemes


def of_sides(scheme: Scheme, sides: str) -> Scheme:
    """A scheme that takes one split only: that of the numbers in its name, as `4x2` of `heads 4 x ring 2`."""

    def splits(p: Attention, ranks: int) -> list[Across]:
        found = {"x".join(re.findall(r"\d+", scheme.split(t))): t for t in scheme.splits(p, ranks)}
        if sides not in found:
            allowed = ", ".join(f"{scheme.name}:{each}" for each in found)
            raise InputError(
                "--schedule", f"{scheme.name}:{sides}", f"{allowed} with {ranks} GPUs", "as in the column split"
            )
        return [found[sides]]

    return replace(scheme, splits=splits)
