"""The rows of a replay: a row a step, as a table, as files and folders of `iosim sweep`, and a summary. Imports NumPy.

Steps have many requests of equal shapes. So each distinct shape of the whole trace is counted once, by every way, and
the sums of a step are looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, cast

import numpy as np

from ..answer import Answer, Column, Columns, Pieces, Row, Table, Type
from ..cells import Cells, Chunk
from ..schedules.decode import SPLITS
from ..sweeps.identity import NO_INPUTS
from .asked import Batch
from .cascade import LEVEL, MERGE
from .launches import Launch, rows
from .moved import by_shape, counted
from .requests import Request
from .rules import unlike
from .shapes import Shapes
from .trace import Policy, Steps, replayed
from .ways import BY_NAME, no_levels

if TYPE_CHECKING:
    from ..core.typing import Size, Tiling
    from ..schedules import Schedule
    from .shapes import Whole

EACH = ("repeat", "pack", "split", "paged", "paged-tiles", "paged-split", "FA3")
"""Ways that treat every request by itself, whatever else is in its step."""
CHUNK_STEPS = 4096
PART_STEPS = 2**16


def column_of(way: str) -> str:
    """The column of the bytes of a way."""
    return f"{way.replace('-', '_')}_bytes"


@dataclass(frozen=True)
class Traced:
    """A trace and what is asked of it. `problem` has the problem, the tiles and the SRAM, and no requests."""

    path: str
    policy: Policy
    problem: Batch

    @property
    def steps(self) -> Steps:
        """The steps of the replay."""
        return replayed(self.path, self.policy)

    @cached_property
    def distinct(self) -> tuple[Batch, Whole]:
        """(a batch of all requests of all steps, the shape of each of them)."""
        steps = self.steps
        keys, of, times = np.unique(steps.new << 48 | steps.tokens, return_inverse=True, return_counts=True)
        new, tokens = keys >> 48, keys & (1 << 48) - 1
        shapes = zip(new.tolist(), tokens.tolist(), times.tolist(), strict=True)
        return replace(self.problem, requests=[Request(*shape) for shape in shapes]), of

    @cached_property
    def bytes_of_shapes(self) -> dict[str, Whole]:
        """The bytes of each distinct shape, by the name of each way. FlashAttention-2 packs heads or not, as the
        other requests of a step decide, so it has two."""
        batch, _ = self.distinct
        single = replace(batch, requests=[Request(1, 1)])
        ways = [BY_NAME[name] for name in EACH if not BY_NAME[name].fails(batch)]
        found = {way.name: bytes_of(batch, way.launches(batch)) for way in ways}
        if not unlike(batch):
            tiles = cast("Tiling", BY_NAME["FA2"].launches(single)[0].tiles)
            found["FA2"] = bytes_of(batch, rows(batch, False, tiles=tiles))
            found["FA2 packed"] = bytes_of(batch, rows(batch, batch.group > 1, tiles=tiles))
        return found

    @cached_property
    def columns(self) -> dict[str, Whole]:
        """The columns of all steps."""
        steps, (batch, of) = self.steps, self.distinct
        starts, p = steps.starts, self.problem.problem
        requests = np.diff(np.append(starts, len(of)))
        tokens, new = np.add.reduceat(steps.tokens, starts), np.add.reduceat(steps.new, starts)
        longest = np.maximum.reduceat(steps.tokens, starts)
        distinct = tokens - steps.saved
        row, token = words_bytes(batch)
        found = {
            "step": np.arange(len(starts)),
            "requests": requests,
            "new_tokens": new,
            "tokens": tokens,
            "distinct_tokens": distinct,
            "longest_tokens": longest,
            "distinct_bytes": p.batch * (p.heads * new * row + p.kv_heads * distinct * token),
        }
        return {**found, **{column_of(way): each for way, each in self.bytes_of_ways.items()}}

    @cached_property
    def bytes_of_ways(self) -> dict[str, Whole]:
        """The bytes of each step, by the name of each way."""
        starts, (batch, of) = self.steps.starts, self.distinct
        found = {way: np.add.reduceat(each[of], starts) for way, each in self.bytes_of_shapes.items()}
        if "FA2 packed" in found:
            single = np.maximum.reduceat(self.steps.new, starts) == 1
            found["FA2"] = np.where(single, found.pop("FA2 packed"), found["FA2"])
        if not no_levels(batch):
            found["cascade"] = self.cascade_bytes()
        return found

    def cascade_bytes(self) -> Whole:
        """The bytes of a cascade in each step, as `ways.cascade` has them: nodes, what is left of each request below
        one, their merges, and requests without a shared prefix."""
        steps, (batch, of) = self.steps, self.distinct
        common, packs = steps.common, batch.group > 1

        def moved(schedule: Schedule, new: Whole, tokens: Whole, splits: Size = 1, sees_all: bool = True) -> Whole:
            each = Shapes(new, tokens, np.ones_like(new), np.full_like(new, -1))
            options = {SPLITS.name: splits} if SPLITS in schedule.options else {}
            one = counted(batch, Launch(schedule, each, packs, options, sees_all=sees_all))
            return np.broadcast_to(np.asarray(one.read_bytes + one.write_bytes, np.int64), new.shape)

        below = common.levels > 0
        each = np.where(below, 0, self.bytes_of_shapes["pack" if packs else "repeat"][of])
        if below.any():
            new, rest = steps.new[below], (steps.tokens - common.prefix)[below]
            each[below] += by_pair(new, rest, lambda n, tokens: moved(LEVEL, n, tokens, sees_all=False))
            parts = common.levels[below] + 1
            each[below] += by_pair(new, parts, lambda n, splits: moved(MERGE, n, np.ones_like(n), splits))
        total: Whole = np.add.reduceat(each, steps.starts)
        if below.any():
            np.add.at(
                total, steps.node_steps, by_pair(common.node_new, common.node_tokens, lambda *n: moved(LEVEL, *n))
            )
        return total


def by_pair(first: Whole, second: Whole, values: Callable[[Whole, Whole], Whole]) -> Whole:
    """A value for each pair of numbers, from one for each distinct pair."""
    keys, of = np.unique(first << 48 | second, return_inverse=True)
    return values(keys >> 48, keys & (1 << 48) - 1)[of]


def bytes_of(batch: Batch, launches: Sequence[Launch]) -> Whole:
    """The bytes of one request of each shape."""
    return np.array(by_shape(batch, [counted(batch, launch) for launch in launches])[1], np.int64)


def words_bytes(batch: Batch) -> tuple[int, int]:
    """(the bytes of Q and O for a new token of a head, those of keys and values for a token of a KV head)."""
    from ..core.problem import TENSORS, narrowed

    p = narrowed(batch.problem, N=1, Nk=1)
    names = [name for name in p.cache_tensors if p.scale_words or TENSORS[name].axes[0] != "scale_rows"]
    each = {name: p.length(TENSORS[name].axes[1]) * p.hbm_bytes(TENSORS[name]) for name in ("Q", "O", *names)}
    return each.pop("Q") + each.pop("O"), sum(each.values())


# ---------------------------------------------------------------- a folder of parts, as sweeps have


class StepRows:
    """The rows of a replay in numbered chunks, for the files of sweeps."""

    unit = "steps"
    int64 = True

    def __init__(self, traced: Traced) -> None:
        self.traced = traced

    @property
    def shown(self) -> tuple[str, ...]:
        """The columns of a row."""
        return tuple(self.traced.columns)

    @property
    def types(self) -> dict[str, Type]:
        """The type of each column."""
        return dict.fromkeys(self.shown, "integer")

    def __len__(self) -> int:
        return -(-len(self.traced.steps.starts) // CHUNK_STEPS)

    def __getitem__(self, number: int) -> Chunk:
        part = slice(number * CHUNK_STEPS, (number + 1) * CHUNK_STEPS)
        return Chunk({name: Cells.full(values[part]) for name, values in self.traced.columns.items()})

    def rows_of_part(self, asked: int = 0) -> int:
        """The rows of a part, rounded to whole chunks."""
        return -(-(asked or PART_STEPS) // CHUNK_STEPS) * CHUNK_STEPS


@dataclass(frozen=True)
class TraceWork:
    """A replay in parts, as `iosim.sweeps.parts.Work` is a sweep in parts. `kind` is csv, jsonl or parquet."""

    traced: Traced
    kind: str
    part_rows: int = 0
    inputs = NO_INPUTS

    @cached_property
    def chunks(self) -> StepRows:
        return StepRows(self.traced)

    @property
    def rows(self) -> int:
        """The steps of the replay."""
        return len(self.traced.steps.starts)

    def steps_of(self, rows: int, chunks: int) -> int:
        """The progress for some rows."""
        return rows

    def __len__(self) -> int:
        return -(-self.rows // self.chunks.rows_of_part(self.part_rows))

    def chunks_of(self, part: int) -> range:
        """The numbers of the chunks of a part."""
        each = self.chunks.rows_of_part(self.part_rows) // CHUNK_STEPS
        return range(part * each, min(len(self.chunks), (part + 1) * each))

    def describe(self) -> dict[str, object]:
        """Everything that decides the bytes of the parts, as values of JSON."""
        from ..counting.columns import given_row
        from ..sweeps.place import file_digest

        asked = self.traced.problem
        return {
            "what": "batch",
            "format": self.kind,
            "part_rows": self.chunks.rows_of_part(self.part_rows),
            "trace": file_digest(self.traced.path),
            **self.traced.policy._asdict(),
            **{name: str(value) for name, value in given_row(asked.problem).items()},
            "M_bytes": asked.M_bytes,
            "tiles": str(asked.tiles),
            "columns": list(self.chunks.shown),
        }


# ---------------------------------------------------------------- the summary


@dataclass(frozen=True, repr=False)
class Replayed(Answer):
    """The answer of `iosim batch --trace`: a row a step, and a summary over the trace."""

    traced: Traced
    noted: tuple[str, ...] = ()

    @property
    def totals(self) -> Mapping[str, int]:
        """The sums of the columns over all steps."""
        return {name: int(values.sum()) for name, values in self.traced.columns.items() if name != "step"}

    @property
    def logical_over_distinct(self) -> float:
        """The tokens of all requests over the distinct ones, summed over the steps."""
        return self.totals["tokens"] / self.totals["distinct_tokens"]

    @property
    def longest_over_mean(self) -> float:
        """The tokens of a step's longest request over the mean of its requests, on average over the steps."""
        of = self.traced.columns
        return float(np.mean(of["longest_tokens"] * of["requests"] / of["tokens"]))

    @property
    def ways(self) -> list[Row]:
        """The bytes of each way over all steps, and their ratio to each word once."""
        once = self.totals["distinct_bytes"]
        totals = {way: int(values.sum()) for way, values in self.traced.bytes_of_ways.items()}
        return [{"way": way, "total_bytes": n, "ratio_to_distinct": n / once} for way, n in totals.items()]

    @property
    def answer(self) -> str:
        """The summary in sentences."""
        return " ".join(self.lines())

    def lines(self) -> list[str]:
        """The sentences of the summary."""
        best = min(self.ways, key=lambda row: cast("int", row["total_bytes"]))
        return [
            f"{best['way']} moves least: {best['ratio_to_distinct']:.3f} times the bytes of each word once.",
            f"The requests of a step have {self.logical_over_distinct:.3f} times as many tokens as are distinct.",
            f"The longest has {self.longest_over_mean:.2f} times the mean, on average over the steps.",
        ]

    @property
    def notes(self) -> list[str]:
        return list(self.noted)

    def table(self) -> Table:
        of = self.traced.columns
        rows = [dict(zip(of, row, strict=True)) for row in zip(*(v.tolist() for v in of.values()), strict=True)]
        return Table([Column(name) for name in of], rows)

    def pieces(self) -> Pieces:
        policy, p = self.traced.policy, self.traced.problem.problem
        limits = f"at most {policy.max_tokens:,} new tokens and {policy.max_requests} requests a step"
        chunk = f", {policy.chunk} new tokens of an input" if policy.chunk else ""
        steps = len(self.traced.steps.starts)
        head = (
            f"trace: {steps:,} steps, {limits}{chunk}\n"
            f"d = {p.d}, heads {p.heads} (kv {p.kv_heads}), {p.dtype} in HBM, {p.acc_dtype} accumulators{p.cache_text}"
            f", mask {p.mask}\n{self.totals['tokens']:,} tokens over all steps, {self.totals['distinct_tokens']:,} of "
            f"them distinct in their step, {self.totals['new_tokens']:,} new\n"
        )
        first, *reasons = self.lines()
        return [first, head, Table(OF_WAYS, self.ways), "", *reasons]

    def to_dict(self) -> Row:
        return {
            "trace": self.traced.path,
            "policy": self.traced.policy._asdict(),
            "steps": len(self.traced.steps.starts),
            "totals": {**self.totals},
            "logical_over_distinct": self.logical_over_distinct,
            "longest_over_mean": self.longest_over_mean,
            "ways": self.ways,
            "answer": self.answer,
            "notes": self.notes,
        }

    def summary(self) -> str:
        return f"{len(self.traced.steps.starts)} steps; {self.answer}"


OF_WAYS: Columns[Row] = (
    Column("way", "string", "way"),
    Column("total_bytes", heading="bytes", cell="bytes"),
    Column("ratio_to_distinct", "number", "x each word once", ".3f"),
)
