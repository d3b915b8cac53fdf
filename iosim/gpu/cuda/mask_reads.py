"""The sectors that generated kernels load to see whether a token may see another: words of the kernel, not of the
schedule. It needs no GPU.

A mask of a file or a function, and long documents, are tables in HBM. A step that hides reads an entry for each score
of a tile, in the requests of cuda/tiles.cuh: lanes have neighbouring pieces of the block of scores, and look at the
first word of each piece, then at the second, and so on. Tiles in which nothing is hidden are not looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from ...core.machine import Machine
from ...core.watchers import Watcher
from ...hardware import SECTOR_BYTES
from ...masks.atoms import Documents
from ...masks.expression import Atom, Join, atoms
from ...masks.files import MaskFile
from ...masks.mask import BoundMask, Part
from .copies import CHUNK_BYTES
from .expressions import Expressions
from .mask_tables import CONSTANT_BYTES, Tables
from .plan import make_plan
from .record import Body, Recorder, StepNode, statements
from .warp_split import LANES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...core.machine import Block, Input, ScheduleLike, ScheduleText
    from ...core.mask_types import Mask
    from ...core.problem import Attention
    from ...core.tiling import Tiling
    from ...core.typing import Size, Step
    from ...masks.expression import Expr

    Numbers = NDArray[np.int64]

ENTRY_BYTES = 4  # of a table of documents; tables of files and functions have bits
SECTORS = 2**40  # more than a table has


class MaskReads(NamedTuple):
    """What the steps that hide load from the tables of a mask, over all heads."""

    scores: int
    """The scores that are looked at: each needs an entry of every table, or none if another atom decides."""
    read_bytes: int
    """The bytes of the sectors that the requests touch, each request by itself."""
    exact: bool
    """Whether the kernel loads just these, and not fewer."""


def mask_reads(schedule: ScheduleLike | ScheduleText, problem: Attention, tiling: Tiling) -> MaskReads | None:
    """What the kernels of a schedule load from the tables of the problem's mask; None if these are no arguments."""
    p = problem.packed
    recorder = Recorder(p).run(schedule, tiling)
    mask = recorder.p.mask
    if not isinstance(mask, BoundMask) or not (
        tables := [atom for atom in atoms(mask.mask.expr) if is_argument(atom, mask)]
    ):
        return None
    launches = [Hidden.of(cast("Attention", recorder.p), body) for body in recorder.launches]
    watcher = Lookups(mask, tables, launches)
    Machine(p, watcher).run(schedule, tiling)
    n, alone = int(problem.packed.instances), isinstance(plain(mask.mask.expr), Atom)
    exact = (
        alone and not isinstance(tables[0].value, Documents) and all(found is None or found.alike for found in launches)
    )
    return MaskReads(n * watcher.scores, n * watcher.sectors * SECTOR_BYTES, exact)


def plain(expr: Expr) -> Expr:
    """An expression without the negation in front of it."""
    return expr.parts[0] if isinstance(expr, Join) and expr.op == "~" else expr


def is_argument(atom: Atom, mask: BoundMask) -> bool:
    """Whether an atom reads a table that is too large to be a constant."""
    if isinstance(atom.value, int):
        return False
    if isinstance(atom.value, Documents):
        return ENTRY_BYTES * int(mask.Nk) > CONSTANT_BYTES
    size = atom.value.size if isinstance(atom.value, MaskFile) else (int(mask.N), int(mask.Nk))
    return prod(size) > 8 * CONSTANT_BYTES


class Hidden(NamedTuple):
    """How the steps of a launch that hide go over a block of scores."""

    together: int
    """Neighbouring scores of a lane."""
    pieces: int
    """Lanes side by side in a row."""
    rows: int
    """Consecutive rows of a team."""
    guarded: bool
    """Whether they are left out where nothing is hidden."""
    alike: bool
    """Whether all of them do so in the same way, and every lane of a team has as many pieces as the others."""

    @classmethod
    def of(cls, p: Attention, body: Body) -> Hidden | None:
        """The steps of a launch; None if it hides nothing."""
        plan, c = make_plan(p, body, True), Expressions(Tables(p.mask))
        found = []
        for node in (node for node in statements(body) if isinstance(node, StepNode)):
            for part in (x for x in node.arguments if isinstance(x, Part)):
                block = node.outputs[0]
                rows, columns = plan.extents(block)
                width = p.sram_bytes(block.tensor)
                together = CHUNK_BYTES // width if columns * width % CHUNK_BYTES == 0 else 1
                pieces = -(-columns // together)
                even = min(plan.rows, rows) * pieces % plan.team == 0
                found.append(cls(together, pieces, plan.rows, bool(c.unless_whole(part)), even))
        return found[0]._replace(alike=found[0].alike and len({*found}) == 1) if found else None


class Lookups(Watcher):
    """The scores that a run looks at in one head, and the sectors of its requests."""

    def __init__(self, mask: BoundMask, tables: Sequence[Atom], launches: Sequence[Hidden | None]) -> None:
        self.mask, self.tables, self.launches = mask, tables, iter(launches)
        self.whole = Tables(cast("Mask", mask)).whole
        self.scores = self.sectors = 0
        self.launch_ended()

    def launch_ended(self) -> None:
        self.hidden = next(self.launches, None)

    def step(self, step: Step, outputs: tuple[Block, ...], inputs: tuple[Input, ...], flops: Size) -> None:
        for part in inputs:
            if isinstance(part, Part) and self.hidden is not None:
                self._hide(part, self.hidden)

    def _hide(self, part: Part, how: Hidden) -> None:
        """Count a tile, unless nothing is hidden in it."""
        m, x0, y0 = self.mask, int(part.i.start), int(part.j.start)
        if how.guarded and self.whole[x0 // int(m.rows_q), y0 // int(m.rows_k)]:
            return
        rows, row = int(part.i.size), np.arange(int(part.i.size))[:, None, None]
        piece, k = np.arange(-(-int(part.j.size) // how.together))[:, None], np.arange(how.together)
        lane = (row % how.rows) * how.pieces + piece
        turns = -(-min(how.rows, rows) * how.pieces // LANES)
        request = ((row // how.rows) * turns + lane // LANES) * how.together + k
        self.scores += request.size
        for atom in self.tables:
            for sector in sectors_of(atom, m, x0 + row, y0 + piece * how.together + k):
                self.sectors += len(np.unique(request * SECTORS + sector))


def sectors_of(atom: Atom, m: BoundMask, x: Numbers, y: Numbers) -> list[Numbers]:
    """The sectors of the entries that an atom reads for queries x and keys y, table by table, from the first on."""
    N, Nk = int(m.N), int(m.Nk)
    if isinstance(atom.value, Documents):
        return [place * ENTRY_BYTES // SECTOR_BYTES for place in (x + (Nk - N), y)]
    file = atom.value if isinstance(atom.value, MaskFile) else None
    rows, keys = (1, 1) if file is None else file.entry(N, Nk, int(m.rows_q), int(m.rows_k))
    columns = Nk if file is None else file.size[1]
    return [((x // rows) * columns + y // keys) // (8 * SECTOR_BYTES)]
