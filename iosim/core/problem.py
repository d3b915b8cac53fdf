"""The problem: sizes, heads, element types and options of attention. Machines and schedules read the same one.

Q is (N, d), K is (Nk, d), V is (Nk, dv), O is (N, dv), for each of batch x heads instances. A schedule describes one
instance, and its counts are multiplied by `instances`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeAlias, Unpack, cast

from ..errors import InputError
from ..options import COUNT, FLAG, KV_SCALES, MASK, PROBLEM, Option, Value, declared, place
from ..units import DTYPE_BYTES, LARGEST_COUNT, PACKED, dtype_bytes, parse_count
from .arrays import anywhere, at_first
from .options import KEY_HEADS, OF_EVERY_PROBLEM, OF_STATE
from .shapes import product, same
from .tiling import S as S

if TYPE_CHECKING:
    from .keywords import MoreOptions
    from .mask_types import Dropout, Mask
    from .shapes import Tile
    from .tiling import Tiling
    from .typing import Size, Test, Values

    Axis: TypeAlias = "str | int | Callable[[Attention[Size]], Size]"


class Tensor(NamedTuple):
    """A tensor in HBM: its axes, and its kind, which decides its element types."""

    axes: tuple[Axis, ...]
    """The lengths of its axes: names of fields of `Attention`, as ("N", "d"), numbers, or functions of the problem."""
    kind: str = "output"
    """`input` has the type `dtype` everywhere, `output` has `dtype` in HBM and `acc_dtype` on chip, `state` has
    `acc_dtype` everywhere, `cache` has `kv_dtype` in HBM and `dtype` on chip, `scale` has `scale_dtype` in HBM and is
    fp32 on chip, and `index` is a 32-bit integer everywhere."""
    initial: float | None = None
    """The value the host fills in before the schedule starts."""
    of_keys: bool = False
    """Whether it belongs to a KV head though its first axis is not the keys: it has pages, for example."""
    dtype: Callable[[Attention[Size]], str] | None = None
    """`dtype(p)`: its type in HBM, where that is not the one of its kind."""

    @property
    def shared(self) -> bool:
        """Whether the query heads of a group share it: an input along the keys, such as K and V, or their pages."""
        along = self.of_keys or self.axes[0] in ("Nk", "scale_rows")
        return along and self.kind in ("input", "cache", "scale", "index")


TENSORS = {
    "Q": Tensor(("N", "d"), "input"),
    "K": Tensor(("Nk", "k_words"), "cache"),
    "V": Tensor(("Nk", "dv"), "cache"),
    "Krope": Tensor(("Nk", "rope_words"), "input"),
    "Kscale": Tensor(("scale_rows", "k_scales"), "scale"),
    "Vscale": Tensor(("scale_rows", "v_scales"), "scale"),
    "O": Tensor(("N", "dv"), "output", 0.0),
    "S": Tensor(("N", "Nk"), "output"),
    "P": Tensor(("N", "Nk"), "output"),
    "l": Tensor(("N",), "state", 0.0),
    "m": Tensor(("N",), "state", float("-inf")),
    "LSE": Tensor(("N",), "state"),
}


class Dense:
    """The mask that hides nothing. Its lines and parts are None, so that a schedule needs no case for it."""

    tile_units = is_causal = False
    columns = None

    def in_tiles(self, rows_q: Size, rows_k: Size) -> Dense:
        return self

    def short_first(self) -> Dense:
        return self

    def column(self, j: Tile) -> None: ...

    def row(self, i: Tile) -> None: ...

    def part(self, i: Tile, j: Tile) -> None: ...

    def bind(self, problem: Attention[Size], tiling: Tiling[Size], skips: bool = True) -> Dense:
        return self

    def __str__(self) -> str:
        return "dense"

    def __reduce__(self) -> str:
        """Pickle as the one object `DENSE`, because other code tests for it with `is`."""
        return "DENSE"


DENSE = cast("Mask", Dense())  # it has no counts and no table; as its lines are None, nothing asks for them
Own = tuple[tuple[str, Value], ...]
"""Options that schedules declare: (name, value) for those that are not at their defaults, by name."""
CHOICE_ROWS = Option("choice_rows", COUNT, "", 1)  # not on the command line
USUAL: dict[str, Value] = {
    **{option.name: option.default for option in OF_EVERY_PROBLEM.values()},
    "mask": DENSE,
    "choice_rows": CHOICE_ROWS.default,
    "dropout": None,
}  # the default of each option of every problem
CHECKED = {o.name: o for o in (*OF_EVERY_PROBLEM.values(), CHOICE_ROWS) if o.kind not in (MASK, FLAG)}
INDEX, INDEX_BYTES = "int32", 4
SAME_TYPE = {"scale": "fp32", "index": INDEX}  # kinds of tensors whose type on chip is the same in every problem


@dataclass(frozen=True, init=False)
class Attention(Generic[S]):
    """Softmax attention of N queries over Nk keys, in batch x heads instances.

    Q is (N, d), K (Nk, d), V (Nk, dv), and O (N, dv). Sizes may be NumPy integer arrays (an Attention[Size]). One walk
    then counts all of them. Raises InputError for a value that is not allowed.
    """

    N: S
    """Queries."""
    d: S
    """Words of a query and of a key: the head dimension."""
    Nk: S
    """Keys; N unless given."""
    dv: S
    """Words of a value; d unless given."""
    batch: S
    """Sequences. Each has its own Q, K and V."""
    heads: S
    """Query heads of a sequence."""
    kv_heads: S
    """Heads of K and V, a divisor of `heads`; as many as `heads` unless given."""
    dtype: str
    """The element type in HBM: fp64, fp32, fp16, bf16, fp8 or int8."""
    acc_dtype: str
    """The element type of accumulators: O, S, P, l and m on chip, and l, m and LSE in HBM. `dtype` unless given."""
    kv_dtype: str | None
    """The element type of K and V in HBM, which may be int4; `dtype` unless given. On chip they have `dtype`."""
    scale_dtype: str
    """The element type of scales in HBM. On chip they are fp32."""
    kv_scales: str
    """The scales of K and V: `none`, `tensor` (one for K and one for V), or the number of words of a row that
    share one. The last d - dv words of latent rows then lie apart, as Krope, of type `dtype` and without scales."""
    latent: bool
    """Whether V is the first dv words of each row of K, as in MLA. A schedule that loads a tile of both then loads it
    once. A schedule that ignores the option reads the same words again, as V."""
    mask: Mask
    """The keys that each query sees. `iosim.masks.parse_mask` makes one from text."""
    count_init: bool
    """Whether to count the writes with which the host fills O, l and m before Algorithm 1 (Dao et al. 2022) starts."""
    lse: bool
    """Whether the log-sum-exp of each row is stored. A schedule that cannot store it ignores the option."""
    keep_p: bool
    """Whether P is stored. A schedule that stores P anyway, or has no P to store, ignores the option or refuses it."""
    visit_all: bool
    """Whether a schedule that reads this option visits the tiles that the mask hides, too. The mask then only hides
    scores."""
    gqa: str
    """The way query heads share a KV head: `repeat` (each one loads K and V for itself) or `pack` (see `packed`)."""
    register_bytes: int
    """Registers of a thread block that tiles may live in, in bytes (core/placement.py)."""
    stages: int
    """Tiles of the innermost loop that are in flight at a time."""
    choice_rows: int
    """Queries that share a choice of blocks, or value heads that share a key; `packed` sets it to those of all heads of
    a group."""
    dropout: Dropout | None
    """A `masks.dropout.Dropout`, or None. It moves no word: its factors are computed from (row, column) where they are
    needed."""
    own: Own
    """The options that schedules declare, by name, without those at their defaults. `problem[OPTION]` reads one."""

    def __init__(
        self,
        N: S,
        d: S,
        Nk: S | None = None,
        dv: S | None = None,
        batch: S | None = None,
        heads: S | None = None,
        kv_heads: S | None = None,
        own: Own = (),
        **options: Unpack[MoreOptions],
    ) -> None:
        chosen: dict[str, Value] = {name: value for name, value in options.items() if value is not None}  # type: ignore[misc]
        given = {**USUAL, **chosen}
        given |= {"N": N, "d": d, "Nk": or_else(Nk, N), "dv": or_else(dv, d), "batch": or_else(batch, 1)}
        given["heads"] = or_else(heads, 1)
        given["kv_heads"] = or_else(kv_heads, given["heads"])
        given["acc_dtype"] = or_else(given["acc_dtype"], given["dtype"])
        more = dict(own) | {name: given.pop(name) for name in chosen if name not in USUAL}
        vars(self).update(given, own=tuple(sorted(self._declared(more), key=lambda each: place(each[0]))))
        self._check()

    def _declared(self, options: Mapping[str, Value]) -> Iterator[tuple[str, Value]]:
        """The options that schedules declare, checked, without those at their defaults. Raises TypeError for others."""
        for name, value in options.items():
            option = declared(name)
            if option is None:
                raise TypeError(f"Attention() got an unexpected keyword argument {name!r}")
            found = checked(option, value)
            if not same(found, option.default):
                yield name, found

    def _check(self) -> None:
        """Check each option that is not at its default by its row, and then all of them together. Raises InputError."""
        given = vars(self)
        for name, option in CHECKED.items():
            if (value := given[name]) is not None and value is not option.default:
                given[name] = checked(option, value)
        d, dv = cast("tuple[Size, Size]", (self.d, self.dv))
        if self.latent and not every(dv <= d):
            dv_there, d_there = at_first(dv > d, dv, d)
            raise InputError("--dv", dv_there, f"at most --d {d_there} with --latent", "V is the first dv words of K")
        heads, kv_heads = cast("tuple[Size, Size]", (self.heads, self.kv_heads))
        ragged = heads % kv_heads
        if ragged if isinstance(ragged, int) else ragged.any():
            kv_there, heads_there = at_first(ragged != 0, kv_heads, heads)
            raise InputError("--kv-heads", kv_there, f"a divisor of --heads {heads_there}")
        if isinstance(self.mask, str):
            raise InputError("mask", self.mask, "a mask", f"iosim.masks.parse_mask({self.mask!r}) makes one")
        plain = self.mask is DENSE or (self.mask.is_causal and every(self.N == 1))
        if self.scale_dtype != "fp32" and self.kv_scales == "none":
            raise InputError("--scale-dtype", self.scale_dtype, "with --kv-scales", "as --kv-scales 32, or tensor")
        if self.gqa == "pack" and not plain:
            raise InputError(
                "--gqa",
                f"pack with --mask {self.mask}",
                "a dense mask, or causal with --N 1",
                "--gqa repeat goes with every mask",
            )

    def __getitem__(self, option: Option) -> S:
        """The value of an option that a schedule declares."""
        return cast("S", dict(self.own).get(option.name, option.default))

    if not TYPE_CHECKING:  # in iosim's own code `problem[OPTION]` is checked

        def __getattr__(self, name: str) -> Value:
            """The value of a declared option by its name, as `problem.splits`."""
            option = None if name.startswith("_") else declared(name)
            if option is None:
                raise AttributeError(f"a problem has no {name!r}")
            return self[option]

    def values(self) -> dict[str, Value]:
        """Its options by name: those of every problem, and those that schedules declare and that are not at their
        defaults."""
        found = dict(vars(self))
        return found | dict(found.pop("own"))

    def unusual(self) -> dict[str, Value]:
        """Its options that are not at their defaults, by name, sizes and types included."""
        p = self
        usual = {**USUAL, "N": p.N, "Nk": p.N, "d": p.d, "dv": p.d, "kv_heads": 1, "acc_dtype": USUAL["dtype"]}
        found = {name: getattr(p, name) for name in OF_EVERY_PROBLEM}
        return {name: value for name, value in found.items() if value != usual[name]} | dict(p.own)

    @property
    def computed(self) -> list[Value]:
        """What a kernel computes. Problems for which it is equal have the same result, whatever accumulates it."""
        names = [name for name, row in OF_EVERY_PROBLEM.items() if row.heading == PROBLEM]
        own = {name: getattr(self, name) for name in names if name not in ("acc_dtype", "kv_dtype", "mask")}
        return [*own.values(), self.cache_dtype, self.dropout, "causal" if self.mask.is_causal else self.mask]

    @property
    def cache_dtype(self) -> str:
        """The element type of K and V in HBM."""
        return self.kv_dtype or self.dtype

    @property
    def cache_tensors(self) -> tuple[str, ...]:
        """The tensors that hold K and V in HBM."""
        rows = ("K",) if self.latent else ("K", "V")
        scales = () if self.kv_scales == "none" else tuple(f"{name}scale" for name in rows)
        return (*rows, *(("Krope",) if self.rope_apart else ()), *scales)

    @property
    def cache_text(self) -> str:
        """The unusual properties of K and V in HBM, as a text after a comma; empty if there are none."""
        how = {"none": "", "tensor": " with a scale each"}
        scales = how.get(self.kv_scales, f" with a scale for each {self.kv_scales} words")
        scales += f" ({self.scale_dtype})" if self.scale_dtype != "fp32" else ""
        unusual = self.cache_dtype != self.dtype or scales
        return (", V in the rows of K" if self.latent else "") + (
            f", K and V {self.cache_dtype}{scales}" if unusual else ""
        )

    @property
    def scale_words(self) -> int:
        """The words of a row of K or V that share a scale; 0 if there are no such scales."""
        return 0 if self.kv_scales in KV_SCALES else int(self.kv_scales)

    @property
    def rope_apart(self) -> bool:
        """Whether the last words of latent rows lie apart, without scales and in the type of Q."""
        return self.latent and self.scale_words > 0 and not every(self.dv == self.d)

    @property
    def rope_words(self) -> S:
        """Words of a row of K that lie apart."""
        d, dv = cast("tuple[Size, Size]", (self.d, self.dv))
        return cast("S", d - dv if self.rope_apart else 0)

    @property
    def k_words(self) -> S:
        """Words of a row of K, without those that lie apart."""
        return self.dv if self.rope_apart else self.d

    @property
    def k_scales(self) -> S:
        """Scales of a row of K, or the only one."""
        return cast("S", -(-self.k_words // self.scale_words) if self.scale_words else 1)

    @property
    def v_scales(self) -> S:
        """Scales of a row of V, or the only one."""
        return cast("S", -(-self.dv // self.scale_words) if self.scale_words else 1)

    @property
    def scale_rows(self) -> S:
        """Rows of the scales of K and of V."""
        return cast("S", self.Nk if self.scale_words else 1)

    @property
    def instances(self) -> S:
        """Heads of all sequences: batch x heads."""
        batch, heads = cast("tuple[Size, Size]", (self.batch, self.heads))
        return cast("S", batch * heads)

    @property
    def divided(self) -> bool:
        """Whether the chip is more than one SRAM: tiles may live in registers, or several are in flight."""
        return self.register_bytes > 0 or self.stages > 1

    def on_chip_words(self, M_bytes: Size) -> Size:
        """The words of type `dtype` that an SRAM of M and the registers for tiles hold together, rounded down."""
        return (M_bytes + self.register_bytes) // self.word_bytes

    @property
    def packed(self) -> Attention[S]:
        """The problem that machines run: this one, unless `gqa` is pack.

        With pack, the query heads that share a KV head become one head. It has the queries of all of them, which share
        each tile of K and V. Its mask is dense: with `causal`, pack allows only one query, which sees every key. With a
        state the value heads of a key head become one, of as many states.
        """
        if self.gqa != "pack":
            return self
        own = dict(self.own)
        if KEY_HEADS.name in own or OF_STATE in own:
            keys = cast("Size", own.get(KEY_HEADS.name) or self.heads)
            group = cast("Size", self.heads) // keys
            return narrowed(self, heads=keys, kv_heads=keys, key_heads=0, gqa="repeat", choice_rows=group)
        N, heads, kv_heads = cast("tuple[Size, Size, Size]", (self.N, self.heads, self.kv_heads))
        rows = cast("S", packed_rows(N, heads // kv_heads))
        shared = self.choice_rows * cast("int", heads // kv_heads)
        return replace(self, N=rows, heads=self.kv_heads, mask=DENSE, gqa="repeat", choice_rows=shared)

    @property
    def word_bytes(self) -> int:
        """Bytes of one word of type `dtype`."""
        return dtype_bytes(self.dtype)

    @property
    def acc_bytes(self) -> int:
        """Bytes of one word of type `acc_dtype`."""
        return dtype_bytes(str(self.acc_dtype))

    def dropout_part(self, i: Tile, j: Tile) -> Values | None:
        """Dropout over one tile, or None where there is none."""
        return None if self.dropout is None else self.dropout.part(i, j)

    def hbm_type(self, tensor: Tensor) -> str:
        """The element type of a tensor in HBM."""
        if tensor.dtype is not None:
            return tensor.dtype(self)
        if tensor.kind in ("cache", "scale"):
            return self.cache_dtype if tensor.kind == "cache" else self.scale_dtype
        return str(self.acc_dtype) if tensor.kind == "state" else SAME_TYPE.get(tensor.kind, self.dtype)

    def sram_type(self, tensor: Tensor | None) -> str:
        """The element type of a block on chip. A block that belongs to no tensor has the type `acc_dtype`."""
        kind = tensor.kind if tensor else ""
        return self.dtype if kind in ("input", "cache") else SAME_TYPE.get(kind, str(self.acc_dtype))

    def hbm_bytes(self, tensor: Tensor) -> int:
        """Bytes of one word of a tensor in HBM. InputError if two words share a byte."""
        if (name := self.hbm_type(tensor)) == PACKED:
            known = f"{', '.join(DTYPE_BYTES)} here"
            raise InputError("--kv-dtype", name, known, "count, tune, memory and batch know int4")
        return bytes_of(name)

    def in_bytes(self, tensor: Tensor, words: Size) -> Size:
        """Bytes in HBM of words of a tensor. Of int4 they are whole rows: two words share a byte, and each row begins
        with a byte of its own."""
        if self.hbm_type(tensor) != PACKED:
            return words * self.hbm_bytes(tensor)
        width = cast("Size", self.shape(tensor)[-1])
        return words // width * -(-width // 2)

    def whole_bytes(self, tensor: Tensor) -> S:
        """Bytes of a tensor in HBM, over batch and heads. K and V count once for each KV head."""
        heads = self.kv_heads if tensor.shared else self.heads
        lengths = cast("tuple[Size, ...]", (self.batch, heads, *self.shape(tensor)))
        return cast("S", self.in_bytes(tensor, product(lengths)))

    def sram_bytes(self, tensor: Tensor | None) -> int:
        """Bytes of one word of a block on chip."""
        return bytes_of(self.sram_type(tensor))

    def shape(self, tensor: Tensor) -> tuple[S, ...]:
        """The lengths of a tensor's axes."""
        return tuple([getattr(self, axis) if type(axis) is str else self.length(axis) for axis in tensor.axes])

    def length(self, axis: Axis) -> S:
        """The length of an axis, given by the name of a field, by a number, or by a function of the problem."""
        found = getattr(self, axis) if isinstance(axis, str) else axis(self) if callable(axis) else axis
        return cast("S", found)

    def tiled(self, tiling: Tiling[Size], skips: bool = True) -> Attention[S]:
        """The problem with its mask bound to tile sizes. Without `skips` the mask only hides scores, and no tile is
        left out."""
        return with_mask(self, self.mask.bind(self, tiling, skips))


def narrowed(problem: Attention[S], **options: object) -> Attention[S]:
    """The problem with other values of some options, those that schedules declare included."""
    return replace(problem, **options)  # type: ignore[arg-type]


def packed_rows(queries: Size, group: Size, where: str = "--gqa pack", hint: str = "--gqa repeat packs none") -> Size:
    """The rows of the query heads that share a KV head. InputError for more than int64 is sure to hold."""
    if anywhere(wrong := queries > LARGEST_COUNT // group):
        many, heads = at_first(wrong, queries, group)
        found = f"{many} queries of each of {heads} query heads of a KV head"
        raise InputError(where, found, f"at most {LARGEST_COUNT} packed rows", hint)
    return queries * group


def with_mask(problem: Attention[S], mask: Mask = DENSE) -> Attention[S]:
    """The problem with another mask, or with none: like `replace`, but without repeating the checks."""
    if mask is problem.mask:
        return problem
    other = object.__new__(type(problem))
    vars(other).update(vars(problem), mask=mask)
    return other


def skips_tiles(schedule: object, problem: Attention[Size]) -> bool:
    """Whether a schedule leaves out the tiles that a mask of the problem hides. A bare function does."""
    visits = problem.visit_all and "visit_all" in getattr(schedule, "options", ())
    return getattr(schedule, "skips", True) and not visits


def mask_matters(schedule: object, problem: Attention[Size]) -> bool:
    """Whether the mask changes what a schedule moves."""
    return problem.mask is not DENSE and skips_tiles(schedule, problem)


def as_moved(schedule: object, problem: Attention[S]) -> Attention[S]:
    """The problem of the same words: without a mask that only hides scores."""
    return problem if mask_matters(schedule, problem) else with_mask(problem)


def bytes_of(dtype: str) -> int:
    """Bytes of one word of a type, or of an index."""
    return INDEX_BYTES if dtype == INDEX else dtype_bytes(dtype)


def every(test: Test) -> bool:
    """Whether the test is true; for an array, whether all elements are."""
    return test if isinstance(test, bool) else bool(test.all())


def or_else(value: object, usual: object) -> object:
    """The value, or the usual one if it is None."""
    return usual if value is None else value


def checked(option: Option, value: object) -> Value:
    """The value of an option as its row reads it. Arrays were checked where their axis was read."""
    if hasattr(value, "dtype"):
        return value
    if isinstance(value, str) and option.kind.type == "integer":
        number = str(parse_count(value, option.name)) if value.strip()[-1:].isalpha() else value.strip()
        raise InputError(option.name, value, "a whole number", f"{option.name}={number}, without quotes")
    return option.read(cast("str | int", value))
