"""Bytes that attention keeps in device memory, the largest N for a budget, tiles on chip, and the rows of a grid."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Unpack, cast

from ..answer import Column, Columns, Row, Table, numbered
from ..core.arrays import last_true
from ..core.options import CACHE, SIZES, TYPES
from ..core.problem import TENSORS, Attention
from ..core.tiling import S, parse_tiles, tiles_text
from ..counting.given import head_dimension
from ..counting.layers import LayerKind, kept_bytes, split_layers
from ..counting.names import takes_options
from ..counting.passes import COMBINATIONS
from ..errors import InputError
from ..schedules import SCHEDULES
from ..search.best import footprint
from ..units import LARGEST_COUNT, binary, parse_axis, parse_bytes, parse_count
from ..verdict import about

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..core.keywords import ProblemOptions
    from ..core.tiling import TilesAsked
    from ..core.typing import Size

    Axis = int | str | Sequence[int | str]

MOST_PROGRAMS = 2**16
MOST_LENGTHS = 100_000  # rows of an axis of N: some seconds, and some hundred MB


def percent(row: Row) -> str:
    """The share of the score traffic, for people."""
    return f"{100 * cast('float', row['score_traffic_share']):.1f} %"


OF_LENGTH: Columns[Row] = (
    Column("N", heading="N"),
    Column("Nk", heading="Nk", spare=2),
    Column("S_bytes", heading="S", cell="bytes"),
    Column("S_and_P_bytes", heading="S and P", cell="bytes"),
    Column("score_traffic_bytes", heading="score traffic", cell="bytes", spare=3),
    Column("score_traffic_share", "number", "score traffic share", percent, spare=1),
    Column("Q_bytes", heading="Q", cell="bytes"),
    Column("KV_bytes", heading="KV", cell="bytes"),
    Column("O_bytes", heading="O", cell="bytes"),
    Column("l_and_m_bytes", heading="l and m", cell="bytes"),
    Column("LSE_bytes", heading="LSE", cell="bytes"),
)
OF_BUDGET: Columns[Row] = (
    Column("kept beside Q, K, V, O", "string", "kept beside Q, K, V, O"),
    Column("largest_N", heading="largest N"),
    Column("bytes", heading="bytes", cell="bytes"),
    Column("budget_bytes", heading="budget", cell="bytes"),
)
OF_LAYERS: Columns[Row] = (
    Column("N", heading="N"),
    Column("Nk", heading="Nk", spare=1),
    Column("kept", "string", "kept"),
    Column("tensors", "string", "tensors"),
    Column("layer_bytes", heading="of a layer", cell="bytes"),
    Column("layers", heading="layers"),
    Column("bytes", heading="bytes", cell="bytes"),
)
OF_TILES: Columns[Row] = (
    Column("Br", heading="Br"),
    Column("Bc", heading="Bc"),
    Column("QKV_bytes", heading="QKV", cell="bytes"),
    Column("footprint_bytes", heading="footprint", cell="bytes"),
)
OF_GRID: Columns[Row] = (
    Column("program", heading="program"),
    Column("batch_head", heading="batch head"),
    Column("block", heading="block"),
    Column("batch", heading="batch"),
    Column("head", heading="head"),
    Column("first_row", heading="first row"),
    Column("rows", heading="rows"),
)


class Kept(NamedTuple):
    """Tensors that a way to compute attention keeps in device memory: beside Q, K, V and O, or `alone`."""

    name: str
    tensors: tuple[str, ...]
    alone: bool = False

    def needed(self, p: Attention) -> int:
        """The bytes of a problem that are kept."""
        beside = () if self.alone else ("Q", "O", *self.tensors)
        return bytes_together(p, *p.cache_tensors, *beside)


INFERENCE = "nothing (inference)"
KEPT = (
    Kept("S and P", ("S", "P")),
    Kept("P in the place of S", ("S",)),
    Kept("l and m (FlashAttention)", ("l", "m")),
    Kept("LSE (FlashAttention-2)", ("LSE",)),
    Kept(INFERENCE, ()),
    Kept("the KV cache alone", (), alone=True),
)
OF_LEAD = {
    "S and P": "with S and P",
    "LSE (FlashAttention-2)": "with the LSE of FlashAttention-2",
    "the KV cache alone": "with the KV cache alone",
}
"""{way of KEPT: how the sentence above a budget's table says it}."""


@takes_options(reads=[option.name for option in (*SIZES, *TYPES, *CACHE)])
def memory(
    N: Axis | None = None,
    d: int | None = None,
    *,
    model: str | None = None,
    budget: int | str | None = None,
    tiles: TilesAsked | None = None,
    grid: bool = False,
    layers: int | str | None = None,
    **options: Unpack[ProblemOptions],
) -> Table:
    """Bytes that attention keeps in device memory: a Table.

    - With `N`, one length, several, or an axis as `1024:32768:x2`: bytes of scores, inputs, row statistics, KV cache.
    - With `N` and `layers`: the KV cache of a model, and what each way to compute attention keeps between a forward and
      a backward pass. With kinds of layers, as `"gdn*36, attention*12"`: states and KV beside each other.
    - With a `budget`, as `12GB`: the largest N whose tensors fit in it, of all `layers`, for each way to compute
      attention and for the KV cache alone.
    - With `tiles`, as `64x64` or `64x64,128x64`: bytes of tiles on chip. With `N` and `grid`: the rows of
      each program of a one-dimensional grid.

    - With `model`, a config.json: its heads, head dimension and layers, where they are not given.

    Other options are the sizes and types of `count`: a mask or a schedule changes no size. Raises InputError for
    whatever is not allowed.
    """
    Nk = options.pop("Nk", None)
    p, text = Attention(1, head_dimension(d), **options), None if tiles is None else tiles_text(tiles)  # type: ignore[misc]  # no causal
    return memory_of(p, N, Nk, budget, text, grid, layers)


def memory_of(
    p: Attention,
    N: Axis | None,
    Nk: int | None,
    budget: int | str | None,
    tiles: str | None,
    as_grid: bool,
    layers: int | str | None = None,
) -> Table:
    """The answer of `memory` for a problem. The problem's own lengths are not used."""
    ways = {"--budget": budget, "--tiles": tiles, "--N": N}
    asked = {name for name, value in ways.items() if value is not None}
    allowed = {"--N", "--tiles"} if as_grid else set(ways)
    if asked != allowed if as_grid else len(asked) != 1:
        found = " and ".join(sorted(asked)) or "nothing"
        raise InputError("memory", found, "one of --N, --budget, --tiles; or --grid with --N and --tiles")
    many, states = (None, []) if layers is None else split_layers(layers)
    if layers is not None and tiles is not None:
        raise InputError("--layers", layers, "with --N or --budget")
    if budget is not None and many == 0:
        raise InputError("--layers", layers, "layers with attention as well, for a --budget", "a state has one size")
    if tiles is not None:
        columns, rows = (OF_TILES, tiles_on_chip(tiles, p)) if N is None else (OF_GRID, rows_of_grid(N, tiles, p))
    elif N is not None and many is not None:
        columns, rows = (
            OF_LAYERS,
            [row for length in lengths_of(N) for row in of_layers(of_length(p, length, Nk), many, states)],
        )
    elif N is not None:
        columns, rows = OF_LENGTH, sizes_of_axis(N, p, Nk)
    else:
        beside = sum(kind.layers * kept_bytes(kind, p) for kind in states)
        columns, rows = (
            OF_BUDGET,
            largest_lengths(cast("int | str", budget), p, Nk, 1 if many is None else many, beside),
        )
    title = f"d = {p.d}, " + ", ".join(f"{name.strip('-')} {ways[name]}" for name in sorted(asked))
    title += f", {numbered(many, 'layer')}" if many and not states else f", --layers {layers}" if states else ""
    table = Table(columns, rows, title)
    return replace(table, text=[lead(rows), "", table]) if lead(rows) else table


def lead(rows: Sequence[Row]) -> str:
    """The sentence above a table: of the longest sequence, or of the keys and values that fit in a budget."""
    last = cast("dict[str, int]", rows[-1] if rows else {})
    if "S_and_P_bytes" in last:
        scores, rest = last["S_and_P_bytes"], last["Q_bytes"] + last["KV_bytes"] + last["O_bytes"]
        where = f"At N = {last['N']:,}" + (f", Nk = {last['Nk']:,}" if last["Nk"] != last["N"] else "")
        return f"{where} S and P take {about(scores)}, and Q, K, V and O {about(rest)}."
    if "largest_N" in last:
        size, most = (
            binary(last["budget_bytes"]),
            {row["kept beside Q, K, V, O"]: cast("int", row["largest_N"]) for row in rows},
        )
        ways = [f"{most[name]:,} {text}" for name, text in OF_LEAD.items() if name in most]
        return f"{size} hold at most N = {'; '.join(ways)}."
    if "layer_bytes" in last:
        first = cast("dict[str, int]", next(row for row in reversed(rows) if row["kept"] == rows[0]["kept"]))
        whole = numbered(first["layers"], "layer")
        return f"At N = {first['N']:,} the {first['kept']} of {whole} takes {about(first['bytes'])}."
    return ""


def bytes_together(p: Attention[S], *names: str) -> S:
    """Bytes of tensors in HBM."""
    return cast("S", sum(cast("Size", p.whole_bytes(TENSORS[name])) for name in names))


def tensor_sizes(p: Attention[Size]) -> Row:
    """The row of a problem: bytes of its tensors, over batch and heads. With arrays of problems, its columns.

    The score traffic is one write and one read of both S and P. Its share refers to the traffic of Algorithm 0, which
    also moves Q, K, V and O once.
    """
    traffic = cast("int", 2 * bytes_together(p, "S", "P"))  # or an array
    return {
        "N": p.N,
        "Nk": p.Nk,
        "S_bytes": bytes_together(p, "S"),
        "S_and_P_bytes": bytes_together(p, "S", "P"),
        "score_traffic_bytes": traffic,
        "score_traffic_share": traffic / (traffic + bytes_together(p, "Q", *p.cache_tensors, "O")),
        "Q_bytes": bytes_together(p, "Q"),
        "KV_bytes": bytes_together(p, *p.cache_tensors),
        "O_bytes": bytes_together(p, "O"),
        "l_and_m_bytes": bytes_together(p, "l", "m"),
        "LSE_bytes": bytes_together(p, "LSE"),
    }


def of_length(p: Attention, N: int, Nk: int | None) -> Attention:
    """The problem with N queries and Nk keys; with N keys if Nk is None."""
    return replace(p, N=N, Nk=N if Nk is None else Nk)


def lengths_of(axis: Axis) -> list[int]:
    """Each N of an axis, as 1024,4096 or 1024:32768:x2 or [1024, 4096]. At most MOST_LENGTHS of them."""
    values = [axis] if isinstance(axis, int | str) else axis
    read = (N for v in values for N in parse_axis(v, "--N", lambda text: parse_count(text, "--N")))
    lengths = list(dict.fromkeys(read))
    if not lengths:
        raise InputError("--N", "no length", "one or more, as 1024:32768:x2")
    if len(lengths) > MOST_LENGTHS:
        raise InputError("--N", f"{len(lengths)} lengths", f"at most {MOST_LENGTHS}", "take larger steps")
    return lengths


def of_layers(p: Attention, layers: int, states: Sequence[LayerKind] = ()) -> list[Row]:
    """The rows of a model: its KV cache, the states of layers that have these, and what each way keeps between a
    forward and a backward pass beside them."""
    ways = {("+".join(c.stored), sum(c.stored_bytes(p).values())): c.forward for c in reversed(COMBINATIONS)}
    kept = [("KV cache", "+".join(p.cache_tensors), bytes_together(p, *p.cache_tensors), layers)] if layers else []
    kept += [(f"states of {kind.name}", "S", kept_bytes(kind, p), kind.layers) for kind in states]
    if not states:
        kept += [
            (
                f"for the backward pass of {name}" if stored else "recomputed forward pass",
                stored or "nothing",
                size,
                layers,
            )
            for (stored, size), name in reversed(ways.items())
        ]
    return [
        {
            "N": p.N,
            "Nk": p.Nk,
            "kept": what,
            "tensors": names,
            "layer_bytes": size,
            "layers": many,
            "bytes": many * size,
        }
        for what, names, size, many in kept
    ]


def sizes_of_axis(axis: Axis, p: Attention, Nk: int | None) -> list[Row]:
    """A row for each N of an axis."""
    import numpy as np

    lengths = lengths_of(axis)
    largest = tensor_sizes(cast("Attention[Size]", of_length(p, max(lengths), Nk)))
    exact = sum(cast("int", size) for name, size in largest.items() if name.endswith("_bytes")) < 2**53
    N = np.array(lengths, np.int64 if exact else object)  # floats divide int64 below 2^53 as Python divides integers
    many = replace(cast("Attention[Size]", p), N=N, Nk=N if Nk is None else np.full_like(N, Nk))
    columns = tensor_sizes(many)
    cells = zip(*(np.broadcast_to(np.asarray(column), N.shape).tolist() for column in columns.values()), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in cells]


def largest_lengths(budget: int | str, p: Attention, Nk: int | None, layers: int = 1, beside: int = 0) -> list[Row]:
    """A row for each entry of KEPT: the largest N = Nk whose tensors of all layers fit in the budget, with the bytes of
    the states beside them; 0 if none does."""
    if Nk is not None:
        raise InputError("--budget", f"--Nk {Nk} as well", "a budget without --Nk: it is for N = Nk")
    budget_bytes = parse_bytes(budget, p.word_bytes, "--budget")
    rows = []
    for way in KEPT:

        def needed(N: int, way: Kept = way) -> int:
            own = replace(p, N=N, Nk=N)
            if way.name == INFERENCE:  # a layer after the other, of which only K and V stay
                return way.needed(own) + (layers - 1) * bytes_together(own, *p.cache_tensors) + beside
            return layers * way.needed(own) + beside

        N = last_true(lambda N: needed(N) <= budget_bytes, LARGEST_COUNT)
        row = {"kept beside Q, K, V, O": way.name, "largest_N": N, "bytes": needed(N) if N else 0}
        rows.append({**row, "budget_bytes": budget_bytes})
    return rows


def tiles_on_chip(tiles: str, p: Attention) -> list[Row]:
    """A row for each tiling as in 64x64,128x64: bytes of a tile of Q, K and V together, and the footprint of flash2,
    which also holds O, S, l and m."""
    rows: list[Row] = []
    for text in tiles.split(","):
        t = parse_tiles(text)
        tile = of_length(p, max(t.rows_q, t.rows_k), None)
        inputs = (t.rows_q * p.d + t.rows_k * (p.d + p.dv)) * p.word_bytes
        row = {"Br": t.rows_q, "Bc": t.rows_k, "QKV_bytes": inputs}
        rows.append({**row, "footprint_bytes": int(footprint(SCHEDULES["flash2"], tile, t).peak_bytes)})
    return rows


def rows_of_grid(N: Axis, tiles: str, problem: Attention) -> list[Row]:
    """A row for each program of a one-dimensional grid: its head and its rows.

    Programs are numbered (batch index x heads + head) x Tr + block, where a block is a tile of query rows.
    """
    p, t = of_length(problem, parse_count(cast("int | str", N), "--N"), None), parse_tiles(tiles)
    blocks = -(-p.N // t.rows_q)
    if p.instances * blocks > MOST_PROGRAMS:
        raise InputError("--grid", f"{p.instances * blocks} programs", f"at most {MOST_PROGRAMS}")
    rows: list[Row] = []
    for program in range(p.instances * blocks):
        instance, block = divmod(program, blocks)
        b, h = divmod(instance, p.heads)
        first = block * t.rows_q
        row = {"program": program, "batch_head": instance, "block": block, "batch": b, "head": h}
        rows.append({**row, "first_row": first, "rows": min(t.rows_q, p.N - first)})
    return rows
