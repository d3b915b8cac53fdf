"""Attention with a state: its rules and options, the sizes that follow, its inputs, and parts of its schedules.

S_t = A_t S_(t-1) + k_t u_t^T and o_t = S_t^T q_t. A rule says what A_t and u_t are, and how many words of gates a token
has. A chunk is `rows_q` tokens, and a block of columns of the state is `cols_o` of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypedDict, cast

from ..core.arrays import anywhere, at_first, smaller
from ..core.dependent_tiles import Each, Moved, Stretch
from ..core.options import KEY_HEADS, OF_STATE
from ..core.problem import DENSE, Tensor, every, narrowed
from ..core.tiling import Tiling
from ..errors import InputError
from ..options import COUNT_OR_0, FLAG, TYPE, Kind, Option, declare, one_of
from ..oracles import state as oracle
from ..steps.softmax import zeros
from ..steps.state import OF_HEAD, cumulate, features, more_features

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np

    from ..core.machine import Block, Input, Machine
    from ..core.problem import Attention
    from ..core.shapes import Tile
    from ..core.typing import Arrays, Bools, Size, Words
    from .registry import Answer, Example


class Rule(NamedTuple):
    """What A_t and u_t are: a decay `none`, `fixed` (a number of the head), `scalar` (a word a token) or `diagonal` (d
    words); and whether u_t is that of the delta rule, b_t (v_t - (A_t S_(t-1))^T k_t), or v_t."""

    decay: str
    delta: bool
    also: tuple[str, ...] = ()
    """Models that have it."""
    phi: bool = False
    """Whether it may have features of q and k, and a normaliser."""


RULES = {
    "linear": Rule("none", False, phi=True),
    "fixed": Rule("fixed", False, ("retnet",)),
    "scalar": Rule("scalar", False, ("mamba2",)),
    "diagonal": Rule("diagonal", False, ("gla",)),
    "delta": Rule("none", True, ("deltanet",)),
    "delta-scalar": Rule("scalar", True, ("gdn",)),
    "delta-diagonal": Rule("diagonal", True, ("kda",)),
}
BY_NAME = {name: rule for own, rule in RULES.items() for name in (own, *rule.also)}
GATES = "gates of --rule come on top"
USUAL_CHUNK = 64  # of published kernels

RULE = Option(
    OF_STATE,
    Kind(one_of(*BY_NAME)),
    "The rule of a state: linear, retnet (fixed), mamba2 (scalar), gla (diagonal), deltanet (delta), gdn "
    "(delta-scalar) or kda (delta-diagonal).",
    "",
    metavar="RULE",
)
CHUNK = Option("chunk", COUNT_OR_0, "Tokens of a chunk of a state (default: the best in M, or 64).", 0, "COUNT")
COLUMNS = Option(
    "state_columns", COUNT_OR_0, "Columns of a block of the state (default: all, or the best in M).", 0, "COUNT"
)
INITIAL_STATE = Option("initial_state", FLAG, "A state before the first token is given.", False)
FINAL_STATE = Option("final_state", FLAG, "The state after the last token is stored.", False)
STATE_DTYPE = Option("state_dtype", TYPE, "Type of states in HBM (default: that of --acc-dtype).", "", metavar="TYPE")
NORMALISE = Option("normalise", FLAG, "Linear attention with phi = elu + 1, each row divided by its weights.", False)
FEATURES = Option("features", COUNT_OR_0, "Words of phi(q) and phi(k), made on chip (default: no phi).", 0, "COUNT")
PADDING = Option("padding", COUNT_OR_0, "Tokens at the end that are padding, and do not move.", 0, "COUNT")
RING = Option("ring", COUNT_OR_0, "Rows (k, u) of a ring beside the state (default: the best).", 0, metavar="ROWS")
DRAFTS = Option("drafts", COUNT_OR_0, "Drafts of a verification, which has one token more (default: 4).", 4, "COUNT")
ACCEPTED = Option("accepted", COUNT_OR_0, "Drafts that are accepted in each (default: all).", metavar="COUNT")
SNAPSHOTS, REPLAY = "snapshots", "replay"
ROLLBACK = Option(
    "rollback",
    Kind(one_of(SNAPSHOTS, REPLAY)),
    "What a rejected draft goes back to: snapshots (the state after each token is stored) or replay (default; rows "
    "(k, u) are, and those accepted are added again).",
    REPLAY,
    metavar="HOW",
)
OF_STEP = (RULE, INITIAL_STATE, STATE_DTYPE, KEY_HEADS)
"""The options of every schedule of a state, decoding included."""
OF_PROBLEM = (*OF_STEP, FINAL_STATE, NORMALISE, FEATURES, PADDING)
"""Those of every schedule of whole sequences."""
for _option in (*OF_PROBLEM, CHUNK, COLUMNS, RING, DRAFTS, ACCEPTED, ROLLBACK):
    declare(_option)

# ---------------------------------------------------------------- what a problem says


def rule_of(p: Attention[Size]) -> Rule:
    """The rule of a problem; that of linear attention if none is given."""
    return BY_NAME[str(p[RULE]) or "linear"]


def decay_words(p: Attention[Size]) -> Size:
    """The words of A_t of a token and value head that are read."""
    return {"none": 0, "fixed": 0, "scalar": 1, "diagonal": p.d}[rule_of(p).decay]


def beta_words(p: Attention[Size]) -> int:
    """The words of b_t of a token and value head."""
    return int(rule_of(p).delta)


def gate_words(p: Attention[Size]) -> Size:
    """The words of all gates of a token and value head."""
    return decay_words(p) + beta_words(p)


def key_words(p: Attention[Size]) -> Size:
    """The rows of a state: the words of phi(k), or of k."""
    return p[FEATURES] if p[FEATURES] else p.d


def state_words(p: Attention[Size]) -> Size:
    """The words of the state of a value head, with the sum of its keys if outputs are normalised."""
    return key_words(p) * p.dv + (key_words(p) if p[NORMALISE] else 0)


def key_heads(p: Attention[Size]) -> Size:
    """Heads of q and k; p.heads are those of v, of gates and of states."""
    return p[KEY_HEADS] if p[KEY_HEADS] else p.heads


def state_type(p: Attention[Size]) -> str:
    """The element type of states in HBM."""
    return str(p[STATE_DTYPE] or p.acc_dtype)


def group(p: Attention[Size]) -> Size:
    """G, the value heads of one problem, which share its keys: 1 unless --gqa pack made them one."""
    return p.choice_rows


def alone(p: Attention[Size]) -> bool:
    """Whether a problem is that of one value head."""
    return every(p.choice_rows == 1)


def value_rows(p: Attention[Size]) -> Size:
    """The tokens of all value heads."""
    return p.N * group(p)


def state_rows(p: Attention[Size]) -> Size:
    """The rows of the states of all value heads, one below the other."""
    return key_words(p) * group(p)


def length(p: Attention[Size]) -> Size:
    """The tokens that are not padding."""
    return p.N - p[PADDING]


def tokens(p: Attention[Size]) -> Size | Tile:
    """The tokens that are not padding, to loop over."""
    return Stretch(p.N, 0, length(p)) if p[PADDING] else p.N


def columns(p: Attention[Size], t: Tiling[Size]) -> Size:
    """The columns of a block of the state, at most all."""
    return p.dv if t.cols_o is None else smaller(t.cols_o, p.dv)


def by_heads(p: Attention) -> Attention:
    """Tiles of a state and gradients are of one value head, which is not packed; a state takes no mask, but --padding;
    --normalise is of --schedule state-fused, --features of --rule linear."""
    return narrowed(whole_keys(p), gqa="repeat", choice_rows=1)


def whole_keys(p: Attention) -> Attention:
    """A state takes no mask, but --padding; --normalise is of --schedule state-fused, --features of --rule linear."""
    return narrowed(with_state(p), normalise=False)


def without_delta(p: Attention) -> Attention:
    """Values of the delta rule need whole keys, and so do features and a normaliser; value heads are not packed; no
    mask, but --padding."""
    rule = rule_of(p)
    simple = next(name for name, other in RULES.items() if other.decay == rule.decay and not other.delta)
    return narrowed(by_heads(p), features=0, **({OF_STATE: simple} if rule.delta else {}))


def with_state(p: Attention) -> Attention:
    """A state is causal by itself and takes no mask, but --padding; --normalise and --features are of --rule linear,
    and value heads that are packed have no normaliser."""
    check_heads(p)
    padding = smaller(p[PADDING], p.N - 1)
    own = {} if rule_of(p).phi else {"normalise": False, "features": 0}
    own |= {"normalise": False} if p.gqa == "pack" else {}
    return narrowed(p, Nk=p.N, mask=DENSE, keep_p=False, padding=padding, **own)


def check_heads(p: Attention) -> None:
    """Raise InputError for key heads that do not divide the value heads."""
    ragged = p.heads % key_heads(p) != 0
    if anywhere(ragged):
        keys, values = at_first(ragged, key_heads(p), p.heads)
        raise InputError("--key-heads", keys, f"a divisor of --heads {values}, which are value heads")


def tiles_named(**usual: int | None) -> Callable[[Attention, bool], Tiling | None]:
    """A function of the tiles that --chunk and --state-columns name (`Schedule.named_tiles`). Where no M is given,
    those that are not given are usual ones; where it is, None stands for a search. `usual` are other sizes."""

    def named(p: Attention, memory: bool) -> Tiling | None:
        if memory and not (p[CHUNK] and (p[COLUMNS] or not usual)):
            return None
        sizes = {name: p[COLUMNS] if name == "cols_o" and p[COLUMNS] else size for name, size in usual.items()}
        return Tiling(p[CHUNK] or USUAL_CHUNK, 1, **cast("dict[str, int]", sizes))

    return named


def sizes_of_state(p: Attention) -> dict[str, tuple[int, ...]]:
    """The lengths that sizes divide. Those that are given are not exceeded."""
    return {"rows_q": (p[CHUNK] or p.N,), "cols_o": (p[COLUMNS] or p.dv,), "depth": (cast("int", key_words(p)),)}


# ---------------------------------------------------------------- tensors, inputs and the expected output


def vectors(p: Attention[Size]) -> Size:
    """The words of a decay in HBM: the axis of `g`."""
    return decay_words(p)


TENSORS_OF_STATE = {
    "Q": Tensor(("N", "d"), "input"),
    "K": Tensor(("N", "d"), "input"),
    "V": Tensor((value_rows, "dv"), "input"),
    "O": Tensor((value_rows, "dv"), "output", 0.0),
    "g": Tensor((value_rows, vectors), "scale"),
    "beta": Tensor((value_rows,), "input"),
    "S0": Tensor((state_rows, "dv"), "state", dtype=state_type),
    "SN": Tensor((state_rows, "dv"), "state", dtype=state_type),
    "z0": Tensor((key_words,), "state", dtype=state_type),
    "zN": Tensor((key_words,), "state", dtype=state_type),
}


def example(rng: np.random.Generator, p: Attention, visible: Bools | None) -> Arrays:
    """Random q, k, v, gates and first states of one value head, or of all that share the keys."""
    hbm, rows = oracle.tokens(rng, p.N, p.d, p.dv), cast("int", value_rows(p))
    hbm["V"] = rng.normal(size=(rows, p.dv)) if rows > p.N else hbm["V"]
    words = cast("int", decay_words(p))
    gates: Arrays = {"g": -rng.exponential(0.1, size=(rows, words))} if words else {}
    if rule_of(p).delta:
        gates["beta"] = rng.uniform(size=rows)
    first = rng.normal(size=(cast("int", state_rows(p)), p.dv))
    return {**hbm, **gates, "S0": first, "z0": rng.uniform(1, 2, size=len(first))}


def log_decays(hbm: Arrays, p: Attention) -> Arrays:
    """The log decays of all tokens, (N, 1) or (N, d), under the name g."""
    import numpy as np

    same = {"none": 0.0, "fixed": float(OF_HEAD.array())}.get(rule_of(p).decay)
    return {"g": hbm["g"] if same is None else np.full((p.N, 1), same)}


def answer(hbm: Arrays, p: Attention, visible: Bools | None) -> Arrays:
    """O, and the state after the last token if it is asked for, by the recurrence of each value head."""
    import numpy as np

    if alone(p):
        return answer_of_head(hbm, p)
    own = {name: len(hbm[name]) // p.choice_rows for name in ("V", "g", "beta", "S0") if name in hbm}
    heads = [
        answer_of_head({**hbm, **{name: hbm[name][h * n : h * n + n] for name, n in own.items()}}, p)
        for h in range(p.choice_rows)
    ]
    return {name: np.concatenate([head[name] for head in heads]) for name in heads[0]}


def answer_of_head(hbm: Arrays, p: Attention) -> Arrays:
    """The answer of one value head."""
    import numpy as np

    n, m = cast("int", length(p)), cast("int", key_words(p))
    q, k = (oracle.phi(hbm[x], m) if p[FEATURES] or p[NORMALISE] else hbm[x] for x in "QK")
    first, sums = (hbm[x] if p[INITIAL_STATE] else np.zeros(hbm[x].shape) for x in ("S0", "z0"))
    if p[NORMALISE]:
        o, last, z = oracle.normalised(q[:n], k[:n], hbm["V"][:n], first, sums)
    else:
        beta = hbm.get("beta")
        found = oracle.recurrence(q[:n], k[:n], hbm["V"][:n], log_decays(hbm, p)["g"], beta, first)
        o, last, z = found.outputs, found.states[-1], sums
    outputs = np.zeros((p.N, p.dv))
    outputs[:n] = o
    asked = ({"SN": last} | ({"zN": z} if p[NORMALISE] else {})) if p[FINAL_STATE] else {}
    return {"O": outputs, **asked}


class StateFields(TypedDict):
    """Fields that all schedules of a state share."""

    family: str
    example: Example
    answer: Answer


FORWARD: StateFields = {
    "family": "state",
    "example": example,
    "answer": answer,
}

# ---------------------------------------------------------------- parts of schedules


class State(NamedTuple):
    """A block of the state on chip, and the sum of keys if outputs are normalised. r and x are its rows and columns."""

    S: Block
    z: Block | None
    r: Tile
    x: Tile


def blocks(chip: Machine, p: Attention, width: Size) -> Iterator[tuple[Tile, Tile]]:
    """The blocks of so many columns of the state, as its rows and their columns. Each goes through all tokens by
    itself."""
    for x in chip.tiles(p.dv, width, parallel=True):
        for r in chip.tiles(state_rows(p), state_rows(p)):
            yield r, x


class Head(NamedTuple):
    """A value head of those that share a key: `h` says which, or None if it is alone."""

    h: Tile | None

    def rows(self, p: Attention, c: Tile) -> Tile:
        """The rows of its values, gates and outputs of the tokens c."""
        return c if self.h is None else Moved(c.length * group(p), c, ((c.length, self.h), (1, c)))

    def state(self, p: Attention, r: Tile) -> Tile:
        """The rows of its state, of the rows r of all of them."""
        if self.h is None:
            return r
        own = Each(state_rows(p), self.h, key_words(p))
        return Moved(r.length, own, ((1, r), (1, own)))


def value_heads(chip: Machine, p: Attention) -> Iterator[Head]:
    """The value heads that share a key, one by one."""
    if alone(p):
        yield Head(None)
    else:
        for h in chip.tiles(group(p), 1):
            yield Head(h)


def shared(chip: Machine, p: Attention, name: str, c: Tile) -> Block | None:
    """Rows that value heads share, read before the first of them. One that is alone reads them where it needs them."""
    return None if alone(p) else rows_of(chip, p, name, c)


def first_state(chip: Machine, p: Attention, r: Tile, x: Tile) -> State:
    """A block of the state before the first token: given, or 0."""
    if p[INITIAL_STATE]:
        return State(chip.load("S0", r, x), chip.load("z0", r) if p[NORMALISE] else None, r, x)
    S = chip.compute("SN", (r, x), zeros)
    return State(S, chip.compute("zN", (r,), zeros) if p[NORMALISE] else None, r, x)


def last_state(chip: Machine, p: Attention, state: State) -> None:
    """Store a block of the state after the last token, if it is asked for."""
    if p[FINAL_STATE]:
        chip.store(state.S, "SN", state.r, state.x)
        if state.z is not None:
            chip.store(state.z, "zN", state.r)


def decays(
    chip: Machine, p: Attention, c: Tile, r: Tile | None = None, tensor: str = "g", append: Tile | None = None
) -> tuple[Input, ...]:
    """The gates of a chunk as the last input of a step: the sums of its log decays, or nothing. With r, those of these
    rows of the state. `append` is their place among the rows of a ring."""
    kind = rule_of(p).decay
    if kind in ("none", "fixed"):
        return (OF_HEAD,) if kind == "fixed" else ()
    g = chip.load(tensor, c, r) if r is not None and kind == "diagonal" else chip.load(tensor, c)
    if append is not None:
        chip.store(g, "gring", append)
    chip.update(g, cumulate)
    return (g,)


def rows_of(chip: Machine, p: Attention, name: str, c: Tile) -> Block:
    """The rows of q or k of a chunk, as features if the rule has some."""
    x = chip.load(name, c)
    if p[FEATURES]:
        y = chip.compute(name, (c, p[FEATURES]), more_features, x)
        chip.free(x)
        return y
    if p[NORMALISE]:
        chip.update(x, features)
    return x


# ---------------------------------------------------------------- by hand (words of one head)


def gate_traffic(p: Attention, decays: int = 1, betas: int = 1) -> Words:
    """The words of the gates, read so many times."""
    n = cast("int", length(p) * group(p))
    words = {"g": decays * n * cast("int", decay_words(p)), "beta": betas * n * beta_words(p)}
    return {name: (each, 0) for name, each in words.items() if each}


def state_traffic(p: Attention) -> Words:
    """The words of a state that is given, and of one that is asked for."""
    m = cast("int", key_words(p))
    s = cast("int", state_rows(p)) * p.dv
    words = {"S0": (p[INITIAL_STATE], s), "SN": (p[FINAL_STATE], s)}
    words |= {"z0": (p[INITIAL_STATE] and p[NORMALISE], m), "zN": (p[FINAL_STATE] and p[NORMALISE], m)}
    moved = {name: size for name, (there, size) in words.items() if there}
    return {name: (0, size) if name.endswith("N") else (size, 0) for name, size in moved.items()}
