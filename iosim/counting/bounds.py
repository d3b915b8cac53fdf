"""Bounds, each with its formula, kind, source and validity. An order is not a floor: its constant is unknown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from math import sqrt
from typing import TYPE_CHECKING, NamedTuple, cast, overload

from ..answer import Column, Columns, Row, Table, in_order, numbered
from ..core.problem import DENSE, Attention
from ..errors import InputError
from ..tables import at_most
from .floors import BACKWARD_CLASS, CLASS, backward_floor, forward_floor, held_words, selected_floor

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..core.typing import Size

DOCS = "docs/floors.md"
FLOORS = {"attention": forward_floor, "selected": selected_floor, "backward": backward_floor}
CLASSES = {"attention": CLASS, "selected": CLASS, "backward": BACKWARD_CLASS}
GIVEN = {"attention": "Q, K, V", "selected": "Q, K, V", "backward": "Q, K, V, dO"}
MOVED = {
    "attention": "each input read once, each output written once",
    "selected": "Q and the keys that one query chose read once, O written once",
    "backward": "Q, K, V, dO read once, dQ, dK, dV written once",
}
REACHED_BY = {
    "compulsory": "a schedule reaches it that reads each input once and writes each output once",
    "simple": "no schedule is known to reach it: it counts products only, and nothing for the sums",
    "latent": "flash2 with the largest query tile comes near it for large M, N and Nk without a mask",
    "latent II": "no schedule is known to reach it",
    "I": "flash2 with the largest query tile comes near it for large M, N and Nk without a mask, unless dv > d",
    "II": "no schedule is known to reach it; small-cache and small-cache-q move least for a small M, flash2 and its "
    "variants for a larger one",
    "backward": "flash2-bwd comes near it for large M, N and Nk without a mask if each of its adds counts once, "
    "unless dv > 2d",
    "I''": "no schedule is known to reach it",
    "II''": "no schedule is known to reach it",
    "I'": "no schedule is known to reach it",
    "II'": "no schedule is known to reach it",
}  # what is known of each form (docs/floors.md)
SEARCHED = "best known, from search"
COUNTED = "least of what was counted"
FA1 = "Dao et al. 2022 (arXiv 2205.14135)"


class Bound(NamedTuple):
    """A statement about the least traffic of a problem. Only a floor that is proven for a class of algorithms has
    `reads` and the fields after it."""

    name: str
    """The name that lists show."""
    words: int | float | None
    """Words over all heads. None if M is needed and was not given, or if no number is claimed for a single M."""
    kind: str
    """The claim: a floor, an order whose constant is unknown, existence, the best known, or the least counted."""
    source: str
    """The publication, with its theorem."""
    condition: str
    """The condition under which it holds, in words."""
    valid: bool | None
    """Whether the condition holds for this problem and M; None without M."""
    reads: int | None = None
    """The least number of words that are read, a part of `words`."""
    form: str | None = None
    """The form of the floor that binds; it, `segments` and `lam` are those of `Floor` (counting/floors.py)."""
    segments: int | None = None
    lam: float | None = None
    of_class: str = ""
    """The class of algorithms for which the floor holds. Empty: it is another bound."""
    reached_by: str | None = None
    by: str = ""
    """Of the least traffic of what was counted: the schedule with its tiles, as sentences call it."""
    """What would reach the form that binds, as far as is known."""


def as_row(bound: Bound) -> Row:
    """The keys of a bound's JSON: those of every bound, and for the floor of a class also its own."""
    names, every = {"lam": "lambda", "of_class": "class"}, {column.name for column in BOUND}
    values = bound._asdict().items()
    return {
        names.get(name, name): value for name, value in values if name in every or (bound.of_class and name != "by")
    }


def words_text(row: Row) -> object:
    """The words of a bound, of which an order has decimals."""
    words = row["words"]
    return f"{words:.1f}" if isinstance(words, float) else words


BOUND: Columns[Row] = (
    Column("name", "string", "bound"),
    Column("words", "number", "words", words_text),
    Column("kind", "string", "kind", spare=2),
    Column("source", "string"),
    Column("condition", "string", "valid", spare=1),
    Column("valid", "boolean", "holds here", "yes or no"),
)
SHOWN = ("name", "words", "kind", "valid", "condition")
OF_FLOOR: Columns[Row] = (
    Column("reads"),
    Column("form", "string"),
    Column("segments", "number"),
    Column("lambda", "number"),
    Column("class", "string"),
    Column("reached_by", "string"),
)


def bounds_table(bounds: Sequence[Bound], csv: str = "iosim bounds --csv") -> Table:
    """Bounds as a table. Columns that only a floor fills come last, and are there if there is a floor. `csv` is the
    command whose CSV has them."""
    rows = [as_row(bound) for bound in bounds]
    floor = [column for column in OF_FLOOR if any(column.name in row for row in rows)]
    return Table((*BOUND, *floor), rows, shown=in_order(BOUND, SHOWN), csv=csv)


BoundsOfFamily = Callable[[Attention, int | None, int | None], list[Bound]]
"""Returns the bounds of a family for a problem, M in words, and the least traffic of what was counted."""


@overload
def order_words(p: Attention, M_words: float) -> float: ...


@overload
def order_words(p: Attention[Size], M_words: Size) -> float | NDArray[np.float64]: ...


def order_words(p: Attention[Size], M_words: Size | float) -> float | NDArray[np.float64]:
    """N Nk d^2 / M over all heads: the order of FlashAttention's Theorem 2."""
    return p.instances * p.N * p.Nk * p.d * p.d / M_words


def bounds(p: Attention, M_bytes: int | None, attainable: int | None = None, family: str = "attention") -> list[Bound]:
    """The bounds that are known for a family of schedules. `attainable` is the least traffic of what was
    counted."""
    on_chip = (
        None if M_bytes is None else held_words(p, M_bytes) if family == "state" else int(p.on_chip_words(M_bytes))
    )
    found = BOUNDS_BY_FAMILY.get(family, attention_bounds)(p, on_chip, attainable)
    if family not in FLOORS:
        return found
    floors = proven(p, M_bytes, family)
    return [*floors, *found]


def proven(p: Attention, M_bytes: int | None, family: str) -> list[Bound]:
    """The compulsory words and the floor, under any mask."""
    prefix = "" if family == "attention" else f"{family}: "
    moved = MOVED[family]
    if p.mask is not DENSE:
        moved += ", of what the mask shows"
    try:
        held = None if M_bytes is None else held_words(p, M_bytes)
        least, most = FLOORS[family](p, None), FLOORS[family](p, held)
    except InputError as error:
        why = f"not counted: {error.hint or error.allowed}"
        return [
            Bound(f"{prefix}compulsory", None, "floor", moved, why, None),
            Bound(f"{prefix}floor", None, "floor", DOCS, why, None, of_class=CLASSES[family]),
        ]
    what = "exact gradients" if family == "backward" else "exact attention"
    inputs = f"{what} from {GIVEN[family]} alone, or by standard products"
    products = f"{what} by standard products"
    return [
        Bound(f"{prefix}compulsory", least.words, "floor", moved, inputs, True),
        Bound(f"{prefix}floor", most.words, "floor", DOCS, products, True, most.reads, most.form,
                    most.segments, most.lam, CLASSES[family], reached_by(p, most.form)),
    ]  # fmt: skip


def reached_by(p: Attention, form: str) -> str:
    """What is known to reach a form. Under a mask that is unknown where it is known of dense attention alone."""
    text = REACHED_BY[form]
    if form == "compulsory" and (p.mask is not DENSE or p.Nk == 1):
        text += ", but for rows that see one key: there O is V"
    return text if p.mask is DENSE or "without a mask" not in text else "no schedule is known to reach it under a mask"


def floor_of(p: Attention, M_bytes: int | None, family: str, chunk: int | None = None) -> int | None:
    """The floor of a family in words; None if there is none, as under a mask of tiles. With a state it is that of
    algorithms with chunks of so many tokens."""
    held = None if M_bytes is None else held_words(p, M_bytes)
    if family == "state":
        from .state_bounds import state_floor

        return state_floor(p, held, chunk).words
    if family not in FLOORS:
        return None
    try:
        found = FLOORS[family](p, held)
    except InputError:
        return None
    return found.words or None


def order_of(p: Attention, M_bytes: int | None, family: str) -> float | None:
    """The words of the order N^2 d^2 / M; None where it does not hold, as under a mask or for M > Nd."""
    words = None if M_bytes is None else int(p.on_chip_words(M_bytes))
    holds = family == "attention" and p.mask is DENSE and words and p.d**2 <= words <= p.N * p.d
    return order_words(p, words) if words and holds else None


def of_dense(table: BoundsOfFamily) -> BoundsOfFamily:
    """A function like `table`, which marks the bounds as not valid under a mask: they are proven for dense attention.

    A mask may leave out inputs and products, so the proof does not hold there.
    """

    @wraps(table)
    def checked(p: Attention, M_words: int | None, attainable: int | None) -> list[Bound]:
        found = table(p, M_words, attainable)
        if p.mask is DENSE:
            return found
        return [
            b if b.kind == COUNTED else b._replace(condition=f"dense attention; {b.condition}", valid=False)
            for b in found
        ]

    return checked


@of_dense
def attention_bounds(p: Attention, M_words: int | None, attainable: int | None) -> list[Bound]:
    """The published bounds of softmax attention."""
    words = M_words or 0
    known = words > 0
    order = order_words(p, words) if known else None
    inside = p.d <= words <= p.N * p.d if known else None
    large = words >= p.d**2 if known else None
    beyond = "M <= Nd; " if known and words > p.N * p.d else ""  # for a larger M the compulsory words exceed the order
    saha = order if large else p.instances * p.N * p.Nk * p.d / sqrt(words) if known else None
    # Theorem 2 is what FlashAttention moves, from M = d on; that no algorithm moves less is known from d^2 on
    return [
        Bound("N^2 d^2 / M", order, "order; the constant is unknown", f"{FA1}, Theorem 2", "d^2 <= M <= Nd",
              inside and large),
        Bound("Proposition 3", None, "existence, not a bound at one M", f"{FA1}, Proposition 3",
              "no exact algorithm has o(N^2 d^2 / M) for all M in [d, Nd]", inside),
        Bound("Saha and Ye 2024", saha, "order; the constant is unknown", "Saha and Ye 2024 (arXiv 2402.07443)",
              beyond + "M >= d^2: N^2 d^2 / M, any matrix product; M < d^2: N^2 d / sqrt(M), standard matrix product",
              not beyond if known else None),
        counted("attainable", attainable, known),
    ]  # fmt: skip


def counted(name: str, attainable: int | None, known: bool) -> Bound:
    """The least traffic of what was counted, as a bound. `known` says whether M is given."""
    return Bound(
        name,
        attainable,
        COUNTED,
        "iosim: the least of the schedules and tiles counted here that really "
        "fit; iosim bounds and iosim tune search all",
        "the schedules and tiles counted",
        attainable is not None if known else None,
    )


def named_by(found: Sequence[Bound], name: str) -> list[Bound]:
    """The bounds, of which the least traffic of what was counted names its schedule and tiles."""
    return [b._replace(by=name) if b.kind == COUNTED else b for b in found]


def of_all_schedules(found: Sequence[Bound], schedules: int | None) -> list[Bound]:
    """The bounds, whose least traffic comes from a search over all tiles of all schedules and not from single counts.
    `schedules` is the number of schedules; None: without M nothing was searched."""
    source = f"iosim: the least of all tiles of {schedules or 'the'} schedules that compute the same"
    what = "all schedules and tiles" if schedules else "all schedules and tiles, with --M"
    return [b._replace(kind=SEARCHED, source=source, condition=what) if b.kind == COUNTED else b for b in found]


def matmul_bounds(p: Attention, M_words: int | None, attainable: int | None) -> list[Bound]:
    """The bounds of C = A B with A (N, d), B (d, Nk), by standard multiplication: every product a_ik b_kj is formed."""
    matrices = (p.N * p.d, p.d * p.Nk, p.N * p.Nk)
    least = p.batch * (p.heads * (matrices[0] + matrices[2]) + p.kv_heads * matrices[1])  # heads of a group share B
    order = p.instances * p.N * p.d * p.Nk / sqrt(M_words) if M_words else None
    large = M_words < min(matrices) if M_words else None
    return [
        Bound("matmul: compulsory", least, "floor", "A and B read once, C written once",
              "from A and B alone", True),
        Bound("matmul: n m p / sqrt(M)", order, "order; the constant is unknown",
              "Hong and Kung 1981 (STOC), red-blue pebble game", "standard product; M below each matrix", large),
        Bound("matmul: 2 n m p / sqrt(M)", None if order is None else 2 * order,
              "leading term, reached; lower-order terms left out", "Smith et al. 2017 (arXiv 1702.02017)",
              "standard product; M below each matrix", large),
        counted("matmul: attainable", attainable, bool(M_words)),
    ]  # fmt: skip


@of_dense
def softmax_bounds(p: Attention, M_words: int | None, attainable: int | None) -> list[Bound]:
    """The bounds of P = softmax(S) of an N x Nk matrix. No bound depends on M: a schedule with an SRAM of three
    words moves only 1.5 times the floor."""
    words = (1 if p.Nk == 1 else 2) * p.instances * p.N * p.Nk  # the softmax of one number is 1
    return [
        Bound("softmax: compulsory", words, "floor", "S read once, P written once", "from S alone", True),
        counted("softmax: attainable", attainable, bool(M_words)),
    ]


def state_bounds(p: Attention, M_words: int | None, attainable: int | None) -> list[Bound]:
    """The floors of attention with a state, each with its class, for an SRAM of `M_words` of the narrowest type."""
    from . import state_bounds as of_state

    names = {"K": "state: compulsory"}
    return [
        *(
            Bound(names.get(f.name, f"state: {f.name}"), f.words, f.of_class, of_state.DOCS, f.condition, f.holds,
                  form=f.name, of_class=f.of_class)
            for f in of_state.statements(p, M_words)
        ),
        *(
            Bound(f"state: {name}", None, of_class, of_state.DOCS, "not proven: words of phi(k) follow from those of k",
                  False)
            for name, of_class in of_state.without_proof(p, M_words)
        ),
        counted("state: attainable", attainable, bool(M_words)),
    ]  # fmt: skip


def state_decode_bounds(p: Attention, M_words: int | None, attainable: int | None) -> list[Bound]:
    """The words that each step of decoding moves from an empty chip: its own, and those of the state that it reads."""
    return step_bounds("state-decode", p, 1, attainable, bool(M_words))


def state_verify_bounds(p: Attention, M_words: int | None, attainable: int | None) -> list[Bound]:
    """`state_decode_bounds` of steps of several tokens, drafts and the token before them."""
    from ..schedules.state_verify import verified

    return step_bounds("state-verify", p, cast("int", verified(p)), attainable, bool(M_words))


def step_bounds(family: str, p: Attention, tokens: int, attainable: int | None, fits: bool) -> list[Bound]:
    """The least words of N steps with so many tokens each, from an empty chip."""
    from ..schedules.state import beta_words, decay_words
    from .state_floors import EMPTY, StateProblem, step_reads

    one = StateProblem(p.N, p.d, p.dv, cast("int", decay_words(p)), beta_words(p), initial=True)
    words = p.instances * p.N * (tokens * sum(one.own) + step_reads(one))
    return [
        Bound(f"{family}: compulsory", words, "floor", "the state and own inputs read, O written, in each step", EMPTY,
              True),
        counted(f"{family}: attainable", attainable, fits),
    ]  # fmt: skip


def state_backward_bounds(p: Attention, M_words: int | None, attainable: int | None) -> list[Bound]:
    """The compulsory words of the gradients of attention with a state: those of each input and each gradient once."""
    from ..schedules.state import FINAL_STATE, INITIAL_STATE, beta_words, decay_words, length
    from .state_floors import StateProblem

    given, asked = bool(p[INITIAL_STATE]), bool(p[FINAL_STATE])
    n, decays = cast("int", length(p)), cast("int", decay_words(p))
    one = StateProblem(n, p.d, p.dv, decays, beta_words(p), given, asked)
    words = p.instances * (n * (4 * p.d + 3 * p.dv) + 2 * one.gates + (2 * given + asked) * one.state)
    return [
        Bound("state-bwd: compulsory", words, "floor", "q, k, v, gates, dO read once, their gradients written once",
              "from q, k, v, gates and dO alone", True),
        counted("state-bwd: attainable", attainable, bool(M_words)),
    ]  # fmt: skip


@of_dense
def backward_bounds(p: Attention, M_words: int | None, attainable: int | None) -> list[Bound]:
    """The published bounds of the gradients of softmax attention."""
    order = order_words(p, M_words) if M_words else None
    inside = p.d <= M_words <= p.N * p.d if M_words else None
    return [
        Bound("backward: N^2 d^2 / M", order, "order reached by Algorithm 4; the constant is unknown",
              f"{FA1}, Theorem 5", "d <= M <= Nd", inside),
        counted("backward: attainable", attainable, bool(M_words)),
    ]  # fmt: skip


def indexer_bounds(p: Attention, M_words: int | None, attainable: int | None) -> list[Bound]:
    """The words that any index moves: its inputs, and the indices of the chosen keys. With a single key nothing is
    chosen."""
    choices = p.batch * p.heads * p.N if p.gqa == "repeat" else p.batch * p.kv_heads * p.N
    rows = p.batch * p.heads * p.N
    inputs = rows * (p.d + 1) + p.batch * p.kv_heads * p.Nk * p.d
    from ..schedules.selected import TOP_K

    least = choices * p[TOP_K] + (inputs if p.Nk > 1 else 0)
    return [
        Bound("indexer: compulsory", least, "floor", "Q, weights and keys read once, the index written once",
              "from Q, weights and keys alone", True),
        counted("indexer: attainable", attainable, bool(M_words)),
    ]  # fmt: skip


def cache_bounds(p: Attention, M_words: int | None, attainable: int | None) -> list[Bound]:
    """The words that any write of new rows moves: each row and its slot once, and the row with its scales in the
    cache."""
    rope = p.d - p.dv if p.rope_apart else 0
    scaled = [p.d - rope, *([] if p.latent else [p.dv])]
    scales = sum(-(-width // p.scale_words) for width in scaled) if p.scale_words else 0
    row = 2 * (sum(scaled) + rope) + 1 + scales
    once = len(scaled) if p.kv_scales == "tensor" else 0
    least = p.batch * p.kv_heads * (p.N * row + once)
    return [
        Bound(
            "cache: compulsory",
            least,
            "floor",
            "rows and their slots read once, written once",
            "from rows and slots alone",
            True,
        ),
        counted("cache: attainable", attainable, bool(M_words)),
    ]


def selected_bounds(p: Attention, M_words: int | None, attainable: int | None) -> list[Bound]:
    """The least traffic counted for attention to chosen blocks. No bound has been published."""
    return [counted("selected: attainable", attainable, bool(M_words))]


BOUNDS_BY_FAMILY: dict[str, BoundsOfFamily] = {
    "matmul": matmul_bounds,
    "softmax": softmax_bounds,
    "state": state_bounds,
    "state-bwd": state_backward_bounds,
    "state-decode": state_decode_bounds,
    "state-verify": state_verify_bounds,
    "selected": selected_bounds,
    "indexer": indexer_bounds,
    "cache": cache_bounds,
    "backward": backward_bounds,
}
# Families other than the forward pass of attention. They have no ratio to N^2 d^2 / M or to Algorithm 0.
APART = tuple(BOUNDS_BY_FAMILY)


# ---------------------------------------------------------------- the answer in a sentence


def answer_of_bounds(bounds: Sequence[Bound]) -> str:
    """The sentence of a list of bounds: the floor of each family, and how far the best known is from it."""
    known = {bound.name: bound for bound in bounds}
    floors = [bound for bound in bounds if bound.name.endswith("floor")]
    if "state: compulsory" in known:
        floors = [max((b for b in bounds if b.form in ("K", "S") and b.valid), key=lambda b: b.words or 0)]
    return " ".join(answer_of_floor(bound, known) for bound in floors)


def answer_of_floor(floor: Bound, known: dict[str, Bound]) -> str:
    """The sentence about one floor."""
    prefix = "state: " if floor.name.startswith("state: ") else floor.name.removesuffix("floor")
    if floor.words is None:
        return f"No floor is known here: {floor.condition}."
    best = known.get(f"{prefix}attainable")
    text = f"{no_algorithm(floor)} moves fewer than {floor.words:,} words"
    if best is None or not best.valid or not best.words or not floor.words:
        return text + "."
    kind, comma, _ = best.kind.partition(",")
    found = f"the {kind}, {best.by}, moves" if best.by else f"the {best.kind}{comma} moves"
    if best.words == floor.words:
        return f"{text}, and {found} no more."
    return f"{text}; {found} {best.words:,}, within a factor of {at_most(best.words / floor.words)} of that."


def no_algorithm(floor: Bound) -> str:
    """The subject of the sentence about a floor. Compulsory words are the floor of every exact algorithm that has the
    inputs alone."""
    gradients = floor.name.startswith("backward")
    if floor.name.startswith("state: "):
        return f"{floor.of_class[0].upper()}{floor.of_class[1:]}"
    if floor.form == "compulsory":
        return no_exact(gradients)
    return none_of_class(gradients)


def no_exact(gradients: bool) -> str:
    """The subject of a sentence about all exact algorithms."""
    return f"No exact algorithm{' for the gradients' * gradients}"


def none_of_class(gradients: bool) -> str:
    """The subject of a sentence about the algorithms for which the floor is proven, which names their class."""
    return f"No algorithm for exact {'gradients' if gradients else 'attention'} by standard products"


def proof_of(floor: Bound) -> str:
    """How the proof that binds divides a run: `the floor divides a run into 9 segments (form I of docs/floors.md)`."""
    if floor.form == "compulsory":
        return "compulsory"
    if floor.segments is None:
        return f"form {floor.form}"
    lam = "" if floor.lam is None else f", lambda = {floor.lam:g}"
    return (
        f"the floor divides a run into {numbered(floor.segments, 'segment')} (form {floor.form} of docs/floors.md{lam})"
    )


def reached_lines(bounds: Sequence[Bound]) -> list[str]:
    """What would reach each floor, a line each. The last line has their classes, which a narrow table leaves out."""
    found = [b for b in bounds if b.reached_by and b.words]
    classes = [f"{b.name.split()[-1]} holds for {b.condition}" for b in bounds if b.kind == "floor"]
    last = [f"{'; '.join(classes)}; forms and proofs: {DOCS}"] if found else []
    return [*(f"{proof_of(b)}: {b.reached_by}" for b in found), *last]
