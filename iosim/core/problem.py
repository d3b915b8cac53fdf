"""The problem: sizes, heads, element types and options of attention. Machines and schedules read the same one.

Q is (N, d), K is (Nk, d), V is (Nk, dv), O is (N, dv), for each of batch x heads instances. A schedule describes one
instance, and its counts are multiplied by `instances`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, NamedTuple, cast

from ..errors import InputError, suggestion
from ..units import dtype_bytes, parse_count

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from .machine import Tile
    from .tiling import Tiling
    from .typing import Dropout, Mask, Size, Test, Values

    S = TypeVar("S", bound=Size, default=int, covariant=True)
else:
    from typing import TypeVar

    S = TypeVar("S")  # the type of a size: an int, or a Size in an Attention[Size] and a Tiling[Size]


class Tensor(NamedTuple):
    """A tensor in HBM: its axes, and its kind, which decides its element types."""

    axes: tuple[str, ...]
    """The lengths of its axes: names of fields of `Attention`, as ("N", "d"), or numbers."""
    kind: str = "output"
    """`input` has the type `dtype` everywhere, `output` has `dtype` in HBM and `acc_dtype` on chip, `state` has
    `acc_dtype` everywhere, `cache` has `kv_dtype` in HBM and `dtype` on chip, `scale` is fp32 and `index` a 32-bit
    integer everywhere."""
    initial: float | None = None
    """The value the host fills in before the schedule starts."""

    @property
    def shared(self) -> bool:
        """Whether the query heads of a group share it: an input along the keys, such as K and V, or their pages."""
        return self.kind in ("input", "cache", "scale", "index") and self.axes[0] in OF_KEYS


OF_KEYS = ("Nk", "cache_rows", "pages", "scale_rows", "page_scale_rows")  # first axes of what belongs to a KV head


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

    tile_units = False
    columns = None

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
GQA = ("repeat", "pack")
MOST_STAGES = 64
KV_SCALES = ("none", "tensor")
INDEX, INDEX_BYTES = "int32", 4
SAME_TYPE = {"scale": "fp32", "index": INDEX}  # kinds of tensors whose type is the same in every problem


@dataclass(frozen=True)
class Attention(Generic[S]):
    """Softmax attention of N queries over Nk keys, in batch x heads instances.

    Q is (N, d), K (Nk, d), V (Nk, dv), and O (N, dv). Sizes may be NumPy integer arrays (an Attention[Size]). One walk
    then counts all of them. Raises InputError for a value that is not allowed.
    """

    N: S
    """Queries."""
    d: S
    """Words of a query and of a key: the head dimension."""
    Nk: S = None  # type: ignore[assignment]
    """Keys; N unless given."""
    dv: S = None  # type: ignore[assignment]
    """Words of a value; d unless given."""
    batch: S = 1  # type: ignore[assignment]
    """Sequences. Each has its own Q, K and V."""
    heads: S = 1  # type: ignore[assignment]
    """Query heads of a sequence."""
    kv_heads: S = None  # type: ignore[assignment]
    """Heads of K and V, a divisor of `heads`; as many as `heads` unless given."""
    dtype: str = "fp16"
    """The element type in HBM: fp64, fp32, fp16, bf16 or fp8."""
    acc_dtype: str | None = None
    """The element type of accumulators: O, S, P, l and m on chip, and l, m and LSE in HBM. `dtype` unless given."""
    mask: Mask = DENSE
    """The keys that each query sees. `iosim.masks.parse_mask` makes one from text."""
    lse: bool = False
    """Whether the log-sum-exp of each row is stored. A schedule that cannot store it ignores the option."""
    keep_p: bool = False
    """Whether P is stored. A schedule that stores P anyway, or has no P to store, ignores the option or refuses it."""
    elementwise: int = 0
    """The number of unfused passes over the N x Nk scores of standard attention."""
    count_init: bool = False
    """Whether to count the writes with which the host fills O, l and m before Algorithm 1 (Dao et al. 2022) starts."""
    splits: int = 4
    """The number of shares that split-kv and paged-split-kv cut the keys into."""
    page_size: int = 16
    """Rows of a page of the KV cache of paged and paged-split-kv."""
    gqa: str = "repeat"
    """The way query heads share a KV head: `repeat` (each one loads K and V for itself) or `pack` (see `packed`)."""
    register_bytes: int = 0
    """Registers of a thread block that tiles may live in, in bytes (core/placement.py)."""
    stages: int = 1
    """Tiles of the innermost loop that are in flight at a time."""
    top_k: int = 16
    """The number of blocks of keys that each query chooses, for selected."""
    key_block: int = 64
    """Keys of a block, for selected."""
    choice_rows: int = 1
    """Queries that share a choice of blocks; `packed` sets it to those of all heads of a group."""
    latent: bool = False
    """Whether V is the first dv words of each row of K, as in MLA. A schedule that loads a tile of both then loads it
    once. A schedule that ignores the option reads the same words again, as V."""
    kv_dtype: str | None = None
    """The element type of K and V in HBM; `dtype` unless given. On chip they have `dtype`."""
    kv_scales: str = "none"
    """The fp32 scales of K and V: `none`, `tensor` (one for K and one for V), or the number of words of a row that
    share one. The last d - dv words of latent rows then lie apart, as Krope, of type `dtype` and without scales."""
    dropout: Dropout | None = None
    """A `masks.dropout.Dropout`, or None. It moves no word: its factors are computed from (row, column) where they are
    needed."""

    def __post_init__(self) -> None:
        defaults = {"Nk": self.N, "dv": self.d, "kv_heads": self.heads, "acc_dtype": self.dtype}
        for name, value in defaults.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        dtype_bytes(self.dtype)
        dtype_bytes(str(self.acc_dtype), "--acc-dtype")
        for name in ("N", "Nk", "d", "dv", "batch", "heads", "kv_heads"):
            value = getattr(self, name)
            if isinstance(value, str):
                number = str(parse_count(value, name)) if value.strip()[-1:].isalpha() else value.strip()
                raise InputError(name, value, "a whole number", f"{name}={number}, without quotes")
            if not hasattr(value, "dtype"):  # arrays were checked where their axis was read
                parse_count(value, "--" + name.replace("_", "-"))
        parse_count(self.elementwise, "--elementwise", least=0)
        parse_count(self.splits, "--splits")
        parse_count(self.page_size, "--page-size")
        parse_count(self.register_bytes, "--registers", least=0)
        parse_count(self.stages, "--stages", most=MOST_STAGES)
        self._check_cache()
        for name in ("top_k", "key_block", "choice_rows"):
            if not hasattr(value := getattr(self, name), "dtype"):
                parse_count(value, "--" + name.replace("_", "-"))
        heads, kv_heads = cast("tuple[Size, Size]", (self.heads, self.kv_heads))
        ragged = heads % kv_heads
        if ragged if isinstance(ragged, int) else ragged.any():
            raise InputError("--kv-heads", self.kv_heads, f"a divisor of --heads {self.heads}")
        if self.gqa not in GQA:
            raise InputError("--gqa", self.gqa, " or ".join(GQA), suggestion(str(self.gqa), GQA))
        if self.gqa == "pack" and not (
            self.mask is DENSE or (str(self.mask).strip() == "causal" and every(self.N == 1))
        ):
            raise InputError("--gqa", f"pack with --mask {self.mask}", "a dense mask, or causal with --N 1",
                             "--gqa repeat goes with every mask")  # fmt: skip

    def _check_cache(self) -> None:
        """Raise InputError for rows of K and V that contradict each other."""
        if self.kv_dtype is not None:
            dtype_bytes(self.kv_dtype, "--kv-dtype")
        if self.kv_scales not in KV_SCALES:
            object.__setattr__(self, "kv_scales", str(parse_count(self.kv_scales, "--kv-scales")))
        d, dv = cast("tuple[Size, Size]", (self.d, self.dv))
        if self.latent and not every(dv <= d):
            raise InputError("--dv", self.dv, f"at most --d {self.d} with --latent", "V is the first dv words of K")

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
    def page_scale_rows(self) -> S:
        """Rows of the scales of a KV cache in pages."""
        return cast("S", self.cache_rows if self.scale_words else 1)

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
        each tile of K and V. Its mask is dense: with `causal`, pack allows only one query, which sees every key.
        """
        if self.gqa != "pack":
            return self
        N, heads, kv_heads = cast("tuple[Size, Size, Size]", (self.N, self.heads, self.kv_heads))
        rows = cast("S", N * (heads // kv_heads))
        shared = self.choice_rows * cast("int", heads // kv_heads)
        return replace(self, N=rows, heads=self.kv_heads, mask=DENSE, gqa="repeat", choice_rows=shared)

    @property
    def share_rows(self) -> S:
        """Keys in one share of split-kv. The last share may have fewer."""
        return cast("S", -(-self.Nk // self.splits))

    @property
    def shares(self) -> S:
        """The number of shares that have keys: at most `splits`."""
        return cast("S", -(-self.Nk // self.share_rows))

    @property
    def partial_rows(self) -> S:
        """Rows of the partial results of split-kv: N for each share."""
        shares, N = cast("tuple[Size, Size]", (self.shares, self.N))
        return cast("S", shares * N)

    @property
    def pages(self) -> S:
        """The number of pages in the KV cache of paged."""
        return cast("S", -(-self.Nk // self.page_size))

    @property
    def share_pages(self) -> S:
        """Pages in one share of paged-split-kv. The last share may have fewer."""
        return cast("S", -(-self.pages // self.splits))

    @property
    def page_shares(self) -> S:
        """The number of shares that have pages: at most `splits`."""
        return cast("S", -(-self.pages // self.share_pages))

    @property
    def page_partial_rows(self) -> S:
        """Rows of the partial results of paged-split-kv: N for each share."""
        shares, N = cast("tuple[Size, Size]", (self.page_shares, self.N))
        return cast("S", shares * N)

    @property
    def choices(self) -> S:
        """Choices of blocks: one for each query, or for the queries that share one."""
        N = cast("Size", self.N)
        return cast("S", N // self.choice_rows)

    @property
    def choices_made(self) -> S:
        """The number of pairs of a choice and one of its blocks."""
        return cast("S", cast("Size", self.choices) * self.top_k)

    @property
    def choices_each(self) -> S:
        """The number of choices that each block is in, if blocks are chosen evenly."""
        Nk = cast("Size", self.Nk)
        return cast("S", -(-cast("Size", self.choices_made) // (Nk // self.key_block)))

    @property
    def chosen_blocks(self) -> S:
        """The number of blocks that are in some choice. The last one may be in fewer choices than the others."""
        return cast("S", -(-cast("Size", self.choices_made) // cast("Size", self.choices_each)))

    @property
    def choice_results(self) -> S:
        """Rows of the partial results of selected-keys-outside: one for each query and block that it chose."""
        return cast("S", cast("Size", self.choices_made) * self.choice_rows)

    @property
    def cache_rows(self) -> S:
        """Rows in the KV cache of paged. Rows of its last page that hold no key are never read."""
        return cast("S", self.pages * self.page_size)

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
        if tensor.kind == "cache":
            return self.cache_dtype
        return str(self.acc_dtype) if tensor.kind == "state" else SAME_TYPE.get(tensor.kind, self.dtype)

    def sram_type(self, tensor: Tensor | None) -> str:
        """The element type of a block on chip. A block that belongs to no tensor has the type `acc_dtype`."""
        kind = tensor.kind if tensor else ""
        return self.dtype if kind in ("input", "cache") else SAME_TYPE.get(kind, str(self.acc_dtype))

    def hbm_bytes(self, tensor: Tensor) -> int:
        """Bytes of one word of a tensor in HBM."""
        return bytes_of(self.hbm_type(tensor))

    def sram_bytes(self, tensor: Tensor | None) -> int:
        """Bytes of one word of a block on chip."""
        return bytes_of(self.sram_type(tensor))

    def shape(self, tensor: Tensor) -> tuple[S, ...]:
        """The lengths of a tensor's axes. An axis is given by the name of a field or by a number."""
        return tuple([getattr(self, axis) if isinstance(axis, str) else axis for axis in tensor.axes])

    def tiled(self, tiling: Tiling[Size], skips: bool = True) -> Attention[S]:
        """The problem with its mask bound to tile sizes. Without `skips` the mask only hides scores, and no tile is
        left out."""
        return with_mask(self, self.mask.bind(self, tiling, skips))


def with_mask(problem: Attention[S], mask: Mask = DENSE) -> Attention[S]:
    """The problem with another mask, or with none: like `replace`, but without repeating the checks."""
    if mask is problem.mask:
        return problem
    other = object.__new__(type(problem))
    vars(other).update(vars(problem), mask=mask)
    return other


def bytes_of(dtype: str) -> int:
    """Bytes of one word of a type, or of an index."""
    return INDEX_BYTES if dtype == INDEX else dtype_bytes(dtype)


def every(test: Test) -> bool:
    """Whether the test is true; for an array, whether all elements are."""
    return test if isinstance(test, bool) else bool(test.all())
