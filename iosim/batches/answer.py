"""The answer of `iosim batch`: what each way to run a batch moves, and the floor. Imports NumPy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Unpack

from ..answer import Answer, Column, Columns, Pieces, Row, Table, numbered, rounded
from ..core.problem import TENSORS, Attention, skips_tiles
from ..core.tiling import Tiling, read_tiles
from ..counting.bounds import DOCS
from ..counting.columns import problem_row
from ..counting.conditions import PAPER, Conditions, conditions
from ..counting.given import head_dimension, memory, without_memory
from ..counting.libraries import BY_NAME as LIBRARIES
from ..counting.libraries import IN_REGISTERS
from ..counting.notes import FOOTPRINT
from ..counting.on_gpu import microseconds
from ..counting.published import times_line
from ..counting.result import in_microseconds
from ..counting.run import TILE_RULES
from ..counting.sentence import cost_and_floor
from ..errors import InputError
from ..hardware import load
from ..masks import parse_mask
from ..schedules import SCHEDULES
from ..timing.bound import RESOURCES, without_rates
from ..units import format_bytes, parse_axis, parse_bytes, parse_count
from ..verdict import NEAR, Way, about, above, class_line, joined, verdict
from .asked import Batch
from .cascade import LEVEL
from .floor import BatchFloor, distinct_words, floor_of
from .moved import Moved, moved_by
from .ways import Way as WayToRun
from .ways import ways_of

if TYPE_CHECKING:
    from ..core.keywords import ProblemOptions
    from ..core.mask_types import Mask
    from ..core.tiling import TilesAsked
    from ..hardware import Hardware
    from ..timing.claim import Judged
    from .requests import Request

FA2_TILES = Tiling(128, 64)
USUAL_TILES = "no --M and no --tiles: counted with the tiles of FlashAttention-2 for d = 128, 128x64"
DENSE_MASK = "no mask: each new token sees all tokens of its request; servers run --causal"
MOST_SHOWN = 40  # shapes that people see
OF_SIZES = ("N", "Nk", "batch", "gqa")  # of a problem, which the requests, the layers and the ways say


@dataclass(frozen=True, repr=False)
class Batched(Answer):
    """The answer of `batch`: what each way to run a batch moves, over all heads and layers, and the floor."""

    batch: Batch
    """The requests, and what was asked of them."""
    floor: BatchFloor
    """The least words that any algorithm of the class of docs/floors.md moves for them."""
    ways: Sequence[Moved]
    """What each way moves."""
    detail: bool = False
    """Whether the rows are those of each tensor and of each shape."""
    under: Conditions = PAPER
    """The conditions of the question, of which only the notes are read."""
    claim: Judged | None = None
    """The judgement of a claim about the step."""

    def __getitem__(self, name: str) -> Moved:
        """What the way of this name moves. Raises KeyError if it was not counted."""
        return {way.way: way for way in self.ways}[name]

    def __iter__(self) -> Iterator[Moved]:
        """The ways, in their order."""
        return iter(self.ways)

    @property
    def least(self) -> Moved | None:
        """The way that moves the fewest bytes of those that fit, on a GPU of those of least time; None if none fits."""
        fitting = [way for way in self.ways if way.fits is not False]
        least = min(map(seconds, fitting), default=0.0)
        near = [way for way in fitting if seconds(way) <= NEAR * least]
        return min(near, key=lambda way: way.total_bytes, default=None)

    @property
    def distinct(self) -> dict[str, int]:
        """The words of Q, K, V and O, each once."""
        return self.batch.distinct

    @property
    def distinct_bytes(self) -> int:
        """The bytes of Q, K, V and O, each word once."""
        return once_bytes(self.batch.problem, self.distinct)

    @property
    def answer(self) -> str:
        """What is claimed, what moves least, how far that is from the floor, and what comes next."""
        return " ".join([*self.claimed, *self.lines])

    @property
    def claimed(self) -> list[str]:
        """The sentences about a claim; none if nothing is claimed."""
        bounds = [seconds(way) for way in self.ways if way.fits and way.at_least_seconds is not None]
        return [] if self.claim is None else self.claim.beside(bounds, "ways")

    @cached_property
    def lines(self) -> list[str]:
        """The sentences of the answer: on a GPU about the least time, else about the bytes."""
        if self.batch.chip is not None and (timed := [way for way in self.ways if way.fits is not False]):
            return lines_on_gpu(timed, self.batch.problem, self.batch.chip)
        ways = {way.way: as_way(way, self.batch.problem) for way in self.ways}
        room = self.batch.M_bytes
        if room is None and self.least is not None:
            room = self.least.sram_peak_bytes
        return verdict([*ways.values()], "move", room, ways.get("repeat"), lambda *two: self.why(*two))

    def why(self, best: Way, other: Way) -> str:
        """Why a way moves more bytes than the best one."""
        mine, its = self[best.name], self[other.name]
        each = ["once" if way.kv_times_read == 1 else f"{rounded(way.kv_times_read)} times" for way in (its, mine)]
        if its.kv_times_read > 1.005 * mine.kv_times_read and each[0] != each[1]:
            return f"keys and values are read {each[0]}, not {each[1]}"
        parts = [name for name in its.tensors if name not in mine.tensors]
        return f"{joined(parts)} {'goes' if len(parts) == 1 else 'go'} through HBM" if parts else ""

    def table(self) -> Table:
        return Table(PART, [*self.parts()]) if self.detail else self.counts()

    def counts(self) -> Table:
        """A row for each way."""
        about = [Column(name, kind).always(value) for name, (kind, value) in self.about().items()]  # type: ignore[arg-type]
        best = [k for k, way in enumerate(self.ways) if way is self.least]
        shown = WAY if self.batch.chip is not None else WAY[:-2]
        return Table([*WAY[:3], *about, *WAY[3:]], self.ways, shown=shown, best=best)

    def about(self) -> dict[str, tuple[str, object]]:
        """{column: (type, value)} of what all ways have in common."""
        b, p = self.batch, self.batch.problem
        whole = {
            "requests": b.shapes.requests,
            "new_tokens": b.new_tokens,
            "tokens": b.tokens,
            "distinct_tokens": b.distinct_tokens,
            "layers": b.layers,
            "d": p.d,
            "dv": p.dv,
            "heads": p.heads,
            "kv_heads": p.kv_heads,
            "M_bytes": b.M_bytes,
            "distinct_bytes": self.distinct_bytes,
            "floor_words": self.floor.words,
            "distinct_words": sum(self.distinct.values()),
            "floor_bytes": self.floor.bytes,
        }
        texts = {"dtype": p.dtype, "acc_dtype": str(p.acc_dtype), "kv_dtype": p.cache_dtype, "mask": str(p.mask)}
        return {name: ("integer", value) for name, value in whole.items()} | {
            name: ("string", text) for name, text in texts.items()
        }

    def parts(self) -> Iterator[Row]:
        """A row for the words of each tensor, and of each shape of a request."""
        shapes = [*self.batch.shapes.each()]
        for way in self.ways:
            for name, words in way.tensors.items():
                total = words["reads"] + words["writes"]
                yield {"way": way.way, "part": f"tensor {name}", **words, "total": total}
            for (new, tokens, times), moved, size in zip(shapes, *way.by_shape, strict=True):
                shape = {"part": f"request {new}:{tokens}", "new": new, "tokens": tokens, "times": times}
                yield {"way": way.way, **shape, "total": moved, "bytes": size}

    def pieces(self) -> Pieces:
        first, *reasons = self.lines
        timed = times_line(self.batch.chip, self.batch.problem)
        own = class_line([first])
        lines: Pieces = [
            *self.claimed,
            first,
            self.header(),
            self.counts(),
            *own,
            *timed,
            *([""] if reasons else []),
            *reasons,
        ]
        return [*lines, "", *self.shown_details()] if self.detail else lines

    def shown_details(self) -> Pieces:
        """The words of each tensor, and those of the shapes with the most words."""
        tensors, each = ([row for row in self.parts() if ("new" in row) == of_shape] for of_shape in (False, True))
        shown = sorted(each, key=lambda row: -int(str(row["total"])))[: MOST_SHOWN * len(self.ways)]
        more = len(each) - len(shown)
        left = [f"and {numbered(more, 'row')} more: --csv and --json have all"] if more else []
        return [Table(PART, tensors, shown=PART_TENSOR), "", Table(PART, shown, shown=PART_SHAPE), *left]

    def header(self) -> str:
        """The lines above the table."""
        b, p = self.batch, self.batch.problem
        values = f", dv = {p.dv}" if p.dv != p.d else ""
        layers = "" if b.layers == 1 else f", {b.layers} layers"
        memory = "M not given" if b.M_bytes is None else f"M = {format_bytes(b.M_bytes)}"
        tokens = f"{b.new_tokens:,} new of {numbered(b.tokens, 'token')}"
        saved = "" if b.distinct_tokens == b.tokens else f", {b.distinct_tokens:,} of them distinct"
        least = "at least " * (p.cache_dtype != p.dtype)  # as if all words had the narrower type
        return (
            f"batch: {numbered(b.shapes.requests, 'request')}, {tokens}{saved}\n"
            f"d = {p.d}{values}, heads {p.heads} (kv {p.kv_heads}){layers}, {p.dtype} in HBM, {p.acc_dtype} "
            f"accumulators{p.cache_text}, mask {p.mask}, {memory}\n"
            f"each word once: {sum(self.distinct.values()):,} words, {format_bytes(self.distinct_bytes)}\n"
            f"floor: {self.floor.words:,} words, {least}{format_bytes(self.floor.bytes)} "
            f"({' and '.join(self.floor.forms)}: {DOCS})\n"
        )

    def to_dict(self) -> Row:
        problem = {name: value for name, value in problem_row(self.batch.problem).items() if name not in OF_SIZES}
        return {
            "problem": {**problem, "layers": self.batch.layers},
            "batch": {name: value for name, (_, value) in self.about().items() if name not in problem},
            "floor": self.floor._asdict(),
            "distinct": self.distinct,
            "ways": [{name: value for name, value in asdict(way).items() if name != "by_shape"} for way in self.ways],
            **({"details": [*self.parts()]} if self.detail else {}),
            "claim": None if self.claim is None else self.claim.to_dict(),
            "answer": self.answer,
            "notes": self.notes,
        }

    def summary(self) -> str:
        return f"{numbered(self.batch.shapes.requests, 'request')}, {numbered(len(self.ways), 'way')}"

    @property
    def notes(self) -> list[str]:
        """Notes on what a GPU implies, on tiles that nobody gave, and on a missing mask."""
        b = self.batch
        unmasked = [] if b.single or str(b.problem.mask) != "dense" else [DENSE_MASK]
        blind = {s.name for s in (*SCHEDULES.values(), LEVEL) if not skips_tiles(s, b.problem)}
        visits = [w.way for w in self.ways if w.way not in LIBRARIES and blind & {*w.schedule.split(", ")}]
        hidden = [f"{', '.join(visits)} skip{'s' * (len(visits) == 1)} nothing under the mask"]
        hidden = hidden if visits and not b.single and str(b.problem.mask) != "dense" else []
        return [*self.under.notes, *without_rates(self.under.chip, b.problem.dtype), *unmasked, *hidden]


MOST_SHAPES = 10_000
"""Distinct shapes from which on the floor without M is that of an SRAM of any size: each way its own takes long."""


def with_room(batch: Batch, ways: Sequence[Moved]) -> tuple[BatchFloor, list[Moved]]:
    """(the floor beside the way that moves the fewest bytes, the ways beside theirs): without M each floor is that of
    an SRAM with room for the tiles, unless there are too many shapes."""
    rooms = [way.smem_peak_bytes if batch.problem.divided else way.sram_peak_bytes for way in ways]
    if len(batch.shapes) > MOST_SHAPES:
        rooms = [0] * len(rooms)
    floors = {room: floor_of(batch, room) for room in {*rooms}}
    beside = [floors[room] for room in rooms]
    least = min(zip(ways, beside, strict=True), key=lambda one: one[0].total_bytes)[1]
    ratios = [way.total / one.words if one.words else None for way, one in zip(ways, beside, strict=True)]
    return least, [replace(way, ratio_to_floor=ratio) for way, ratio in zip(ways, ratios, strict=True)]


def lines_on_gpu(ways: Sequence[Moved], p: Attention, chip: Hardware) -> list[str]:
    """The way of least time, of equal ones that of the fewest bytes; and what is next."""
    order = sorted(ways, key=seconds)
    near = [way for way in order if seconds(way) <= NEAR * seconds(order[0])]
    best = min(near, key=lambda way: way.total_bytes)
    takes = f"{best.way} takes at least {microseconds(seconds(best))} on {chip.name}: {RESOURCES[str(best.binds)]}"
    moves = as_way(best, p).shown or about(best.total_bytes)
    lines = [f"{takes}; it moves {moves}{beside_floor(best.ratio_to_floor)}."]
    equal, after = [way.way for way in near if way is not best], next((w for w in order if w not in near), None)
    parts = [f"{joined(equal)} take{'s' * (len(equal) == 1)} at least as long"] if equal else []
    if after is not None:
        longer = rounded(seconds(after) / seconds(best))
        parts.append(f"{after.way} is next, with at least {longer} times as long: {RESOURCES[str(after.binds)]}")
    return [*lines, "; ".join(parts) + "."] if parts else lines


def beside_floor(ratio: float | None) -> str:
    """How far a way is from the floor; nothing where there is none."""
    if not ratio:
        return ""
    over = f"{rounded(ratio)} times" if ratio >= 2 else above(ratio)
    return ", which is the floor" if ratio == 1 else f", {over} the floor"


def once_bytes(p: Attention, distinct: Mapping[str, int]) -> int:
    """The bytes of distinct words by tensor."""
    return sum(int(p.in_bytes(TENSORS[name], words)) for name, words in distinct.items())


def seconds(way: Moved) -> float:
    """The least seconds of a way on a GPU."""
    return way.at_least_seconds or 0.0


def as_way(way: Moved, p: Attention) -> Way:
    """A way as the verdict compares it."""
    share = way.ratio_to_floor
    shown, floor = cost_and_floor(p, way.total, way.total_bytes, round(way.total / share)) if share else ("", "")
    return Way(way.way, way.total_bytes, way.fits, way.smem_peak_bytes, share, floor, shown)


WAY: Columns[Moved] = (
    Column("way", "string", "way"),
    Column("schedule", "string", "schedule", spare=4),
    Column("tiles", "string", "tiles", spare=5),
    Column("fits", "boolean", "fits", lambda way: {True: "yes", False: "NO", None: "-"}[way.fits], spare=3),
    Column("smem_peak_bytes"),
    Column("blocks", heading="blocks", spare=6),
    Column("grid_blocks"),
    Column("lengths_bytes"),
    Column("largest_block", "number", "largest block", ".2f", spare=7),
    Column("reads", heading="reads", spare=2),
    Column("writes", heading="writes", spare=1),
    Column("total", heading="total words"),
    Column("read_bytes", heading="read bytes", spare=8),
    Column("write_bytes"),
    Column("total_bytes", heading="bytes", cell="bytes"),
    Column("flops"),
    Column("kv_times_read", "number", "K, V read", ".3f"),
    Column("ratio_to_floor", "number", "x floor", ".3f"),
    Column("source", "string"),
    Column("at_least_seconds", "number", "us at least", lambda way: in_microseconds(way.at_least_seconds), spare=10),
    Column("binds", "string", "binds", spare=9),
)
PART: Columns[Row] = (
    Column("way", "string", "way"),
    Column("part", "string", "part"),
    Column("new"),
    Column("tokens"),
    Column("times"),
    Column("reads"),
    Column("writes"),
    Column("total"),
    Column("bytes"),
)
PART_TENSOR: Columns[Row] = (
    *PART[:2],
    Column("reads", heading="reads"),
    Column("writes", heading="writes"),
    Column("bytes", heading="bytes", cell="bytes"),
)
PART_SHAPE: Columns[Row] = (
    *PART[:2],
    Column("times", heading="requests"),
    Column("total", heading="words of each"),
    Column("bytes", heading="bytes of each", cell="bytes"),
)


def read_chunk(text: str | int) -> int:
    """The tokens of a prefill chunk."""
    return parse_count(text, "--chunk")


def with_attention(
    requests: Sequence[Request],
    d: int | None,
    M: int | str | None,
    *,
    hardware: str | None,
    paper_model: bool,
    ways: str | Sequence[str],
    tiles: TilesAsked | None,
    tile_multiple: int | None,
    mask: str | Mask,
    layers: int,
    chunks: int | str | Sequence[int],
    detail: bool,
    **options: Unpack[ProblemOptions],
) -> Batched:
    """What one step moves in layers with attention, as `batch` of question.py is asked."""
    for name in OF_SIZES:
        if name in options:
            raise InputError(f"batch: keyword {name}", options[name], "requests", "they say how many there are")  # type: ignore[literal-required]
    rule, under = read_tiles(tiles), conditions(hardware, options, tile_multiple, paper_model, tiles)
    if rule == "paper" or rule == "ideal":
        raise InputError("--tiles", rule, "best, or Br x Bc as in 128x64", "all requests of a launch have one tile")
    size = memory(M, hardware)
    problem = Attention(1, head_dimension(d), mask=parse_mask(mask), batch=layers, **under.options)
    if problem.mask.tile_units:
        raise InputError("--mask", str(problem.mask), "a mask of tokens", "the tiles of ways differ")
    M_bytes = None if size is None else parse_bytes(size, problem.word_bytes)
    if M_bytes is None and rule in TILE_RULES:
        raise without_memory()
    tiling = rule if isinstance(rule, Tiling) else None
    if M_bytes is None and rule is None:
        tiling, under = FA2_TILES, under._replace(notes=(*under.notes, USUAL_TILES))
    listed = [chunks] if isinstance(chunks, int | str) else chunks
    sizes = tuple(size for text in listed for size in parse_axis(text, "--chunk", read_chunk))
    sms = None if hardware is None else load(hardware).sms
    asked = Batch(problem, requests, layers, M_bytes, tiling, under.multiple, sizes, sms, under.chip)
    names = [name.strip() for name in (ways.split(",") if isinstance(ways, str) else ways) if name.strip()]
    return answered(asked, ways_of(asked, names), under, detail)


def answered(asked: Batch, ways: Sequence[WayToRun], under: Conditions, detail: bool) -> Batched:
    """The answer about a batch, for some ways."""
    asked = replace(asked, distinct=distinct_words(asked))
    floor = floor_of(asked)
    apart = asked.chip is not None  # kernels of a GPU keep S and O in registers
    kernels = [
        way.name for way in ways if (apart or way.name in LIBRARIES) and asked.M_bytes and not asked.problem.divided
    ]
    together = floor_of(asked, IN_REGISTERS["register_bytes"]).words if kernels else floor.words
    floors = dict.fromkeys(kernels, together)
    found = [moved_by(asked, way, floors.get(way.name, floor.words), detail) for way in ways]
    if asked.M_bytes is None:
        floor, found = with_room(asked, found)
        under = under._replace(notes=(*under.notes, FOOTPRINT))
    if not isinstance(asked.tiles, Tiling) and all(way.fits is False for way in found):
        raise InputError("--M", str(asked.M_bytes), "an SRAM in which some tile fits", "give --tiles as 64x64")
    if kernels:
        names = "all ways" if len(kernels) == len(ways) > 1 else ", ".join(kernels)
        beside = f"{names}: S and O are in registers beside M, and x floor is that of M and 256 KiB of "
        under = under._replace(notes=(*under.notes, f"{beside}registers together: {together:,} words"))
    return Batched(asked, floor, found, detail, under)
