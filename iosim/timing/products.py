"""What matrix units read from shared memory: exactly, from the products of a schedule's text.

A product (m x k)(k x n) of a step takes its second factor B (k x n) from shared memory once for each group of m's rows
that an instruction has, and its first factor A (m x k) once for each width n of an instruction. A factor that a step
computed is in registers, as the accumulators of tensor cores are, and costs nothing as A. The rules of each kind of
unit are the rows of UNITS.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..core.arrays import plus
from ..core.shapes import groups_of
from ..core.watchers import Watcher
from ..units import dtype_bytes

if TYPE_CHECKING:
    from ..core.machine import Block, Input, Machine
    from ..core.shapes import Shape
    from ..core.typing import Size, Step
    from ..hardware import Hardware


class MatrixUnit(NamedTuple):
    """How a matrix unit takes the factors of a product from shared memory.

    `rows` is the number of rows of m that share one read of B; None if all do. `width` is the most columns of n that
    share one read of A; None if all do. `held`: A stays in registers for as long as its block is on chip, so it is read
    once. `always`: A is read from shared memory even if a step computed it. `at_least`: more may be read,
    so that a bound says less of tiles that use shared memory more.
    """

    rows: int | None
    width: int | None = None
    held: bool = False
    always: bool = False
    at_least: bool = False


UNITS = {
    "wgmma": MatrixUnit(64, 256),  # PTX ISA, wgmma.mma_async: m64, n up to 256; B in shared memory
    "mma.sync": MatrixUnit(16, None, held=True),  # PTX ISA, mma.m16n8k16: each warp loads all of B (ldmatrix)
    "tcgen05": MatrixUnit(128, 256),  # PTX ISA, tcgen05.mma: m128, n up to 256; A in shared or tensor memory
    "systolic": MatrixUnit(None, None, always=True),  # a chip of one's own: each factor once for each tile
}
CUDA_CORES = MatrixUnit(None, None, at_least=True)
"""Products without a matrix unit: each factor at least once for each tile."""
LANES = 32  # of a warp
MATRIX_BYTES = 2  # of the widest type that the units above multiply; wider ones are CUDA cores' in these presets


def unit_of(chip: Hardware | None, dtype: str) -> MatrixUnit:
    """The unit that multiplies a type on a chip, with the rows that its file states; without a chip it is wgmma."""
    name = "wgmma" if chip is None else chip.matrix_unit
    if name is None or (dtype_bytes(dtype) > MATRIX_BYTES and name != "systolic"):
        return CUDA_CORES
    unit = UNITS[name]
    rows = None if chip is None else chip.matrix_rows
    return unit if rows is None else unit._replace(rows=rows)


def instruction_rows(chip: Hardware, dtype: str) -> int:
    """The rows of a product that one instruction of a chip takes, on CUDA cores one for each lane of a warp; 1 where
    there is no such number."""
    own = unit_of(chip, dtype) is not CUDA_CORES and chip.matrix_unit
    return (UNITS[own].rows if own else LANES) or 1


class SharedReads(Watcher):
    """Words that the products of one head read from shared memory, in all launches."""

    def __init__(self, unit: MatrixUnit) -> None:
        self.unit = unit
        self._words: Size = 0
        self._loaded: dict[Block, str] = {}  # the tensors of blocks that came from HBM
        self._loads: dict[str, Size] = {}  # words of each tensor that were loaded
        self._firsts: set[str] = set()  # tensors that were a first factor

    @property
    def total(self) -> Size:
        """Words read, of both factors. What registers hold was read once for each load."""
        held = [self._loads[name] for name in sorted(self._firsts)] if self.unit.held else []
        return plus(self._words, sum(held))

    def start(self, machine: Machine) -> None:
        self.machine = machine

    def load(self, block: Block, tensor: str, words: Size) -> None:
        self._loaded[block] = tensor
        self._loads[tensor] = plus(self._loads.get(tensor, 0), words)

    def step(self, step: Step, outputs: tuple[Block, ...], inputs: tuple[Input, ...], flops: Size) -> None:
        factors = getattr(step, "flops", None)
        if factors is None:
            return
        _, *sizes = factors(*(x.shape for x in (*outputs, *inputs) if hasattr(x, "shape")))
        m, n, k = sizes if len(sizes) == 3 else (sizes[0], 1, sizes[1])  # a vector has one column
        words = plus(self._second((m, n, k)), self._first(inputs[0], (m, n, k)))  # type: ignore[arg-type]
        self._words = plus(self._words, words)

    def launch_ended(self) -> None:
        self._words = self.total
        self._loaded.clear()
        self._loads.clear()
        self._firsts.clear()

    def _second(self, sizes: Shape) -> Size:
        """Words of B."""
        m, n, k = sizes
        groups = () if self.unit.rows is None else (groups_of(m, self.unit.rows),)
        return self.machine.total((*groups, n, k))

    def _first(self, block: Block, sizes: Shape) -> Size:
        """Words of A: none from registers, nor, beside its load, of one that they hold."""
        m, n, k = sizes
        tensor = self._loaded.get(block.base or block)
        if tensor is None and not self.unit.always:
            return 0
        if self.unit.held and tensor is not None:
            self._firsts.add(tensor)
            return 0
        widths = () if self.unit.width is None else (groups_of(n, self.unit.width),)
        return self.machine.total((*widths, m, k))
