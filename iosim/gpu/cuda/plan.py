"""The plan of a launch, made before it is written: tensor cores, threads and teams, and the places of blocks.

Two blocks may share bytes of shared memory if they are never alive at the same time. The aim is that a kernel needs no
more shared memory than the footprint, the peak of what is alive (`Capacity`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...core.machine import Block
from ...core.shapes import Tile, product
from ...core.tiling import MMA
from ...steps.softmax import Operands
from .record import Body, FreeNode, LoadNode, LoopNode, NewNode, StepNode, StoreNode, statements
from .warp_split import FEW_ROWS, LANES, LEAST_ROWS, TEAM_ROWS

if TYPE_CHECKING:
    from ...core.problem import Attention
    from ...core.typing import Size


ALIGNMENT = 16  # bytes


@dataclass(frozen=True)
class Life:
    """A block of `size` bytes that lives from event `start` until before event `end`."""

    start: int
    end: int
    size: int

    def meets(self, other: Life) -> bool:
        """Whether the two blocks are alive at the same time."""
        return self.start < other.end and other.start < self.end

    @property
    def alignment(self) -> int:
        """The alignment of its offset in bytes: the largest power of two, up to ALIGNMENT, that divides its size."""
        return min(ALIGNMENT, self.size & -self.size)


def place_blocks(lives: list[Life]) -> tuple[list[int], int]:
    """(offset of each block, bytes in all).

    Blocks are placed one by one, each at the lowest offset that is free during its life; those with the largest
    alignment come first, then the largest. So blocks that are all alive at one time leave no gaps. Lives that overlap
    in other ways may need more than their peak.
    """
    offsets: dict[int, int] = {}
    for k in sorted(range(len(lives)), key=lambda k: (-lives[k].alignment, -lives[k].size, lives[k].start)):
        others = sorted((offsets[o], offsets[o] + lives[o].size) for o in offsets if lives[o].meets(lives[k]))
        offset = 0
        for low, high in others:
            if offset + lives[k].size <= low:
                break
            offset = max(offset, -(-high // lives[k].alignment) * lives[k].alignment)
        offsets[k] = offset
    ends = [offsets[k] + life.size for k, life in enumerate(lives)]
    return [offsets[k] for k in range(len(lives))], max(ends, default=0)


ALL_ROWS = 1 << 20  # rows of a team of all threads: more than any block has
MOST_WARPS = 8  # of a thread block whose teams are warps
MOST_SHARING = 512  # threads that share each row, if a tile has fewer than FEW_ROWS
ROW_WORDS = 32  # words of the largest tile for each thread: as many as fit in registers with 1024 threads

# A multiprocessor of compute capability 9.0 (NVIDIA): its shared memory, the extra shared memory of each block, its
# registers, and the most blocks that it holds.
SM_SHARED_BYTES, BLOCK_EXTRA_BYTES = 228 * 1024, 1024
SM_REGISTERS = 65_536
SM_BLOCKS = 32
PRODUCT_REGISTERS, OTHER_REGISTERS = 128, 64  # for a thread of a launch, with and without a matrix product


@dataclass(frozen=True)
class Plan:
    """The plan of one launch. A team of threads, a warp or the whole thread block, owns rows of every block."""

    threads: int
    """Threads of a thread block."""
    team: int
    """Threads of a team."""
    rows: int
    """Consecutive rows that a team owns, before the next team's rows follow."""
    tensor_cores: bool
    offsets: dict[Block, int]
    """The start of each block in shared memory, in bytes."""
    smem_bytes: int
    whole: frozenset[Block]
    """Blocks that matrix products read whole. All threads load them together, and no team owns their rows."""

    @property
    def blocks(self) -> int:
        """The thread blocks that a multiprocessor should hold at once: as many as fit in its shared memory while each
        thread still has the registers that it needs."""
        by_memory = SM_SHARED_BYTES // (self.smem_bytes + BLOCK_EXTRA_BYTES)
        by_registers = SM_REGISTERS // (self.threads * (PRODUCT_REGISTERS if self.whole else OTHER_REGISTERS))
        return max(1, min(by_memory, by_registers, SM_BLOCKS))

    def extents(self, block: Block) -> tuple[int, int]:
        """Rows and columns that a block has room for."""
        sizes = [padded_size(x, self.tensor_cores) for x in block.shape]
        return sizes[0], sizes[1] if len(sizes) > 1 else 1

    def span(self, p: Attention, block: Block) -> tuple[int, int]:
        """(first byte, end) of a block in shared memory."""
        base = block.base or block
        low = self.offsets[base]
        return low, low + product(self.extents(base)) * p.sram_bytes(base.tensor)


def mark_of(step: object) -> Operands:
    """The mark of a step; for a step without one, a mark that claims nothing."""
    mark = getattr(step, "operands", None)
    return mark if isinstance(mark, Operands) else Operands()


def padded_size(x: Tile | Size, rounded: bool) -> int:
    """Words that a block reserves along an axis; `rounded` tiles are multiples of 16."""
    size = x.extent if isinstance(x, Tile) else x
    return -(-int(size) // MMA) * MMA if rounded and isinstance(x, Tile) else int(size)


def make_plan(p: Attention, body: Body, allowed: bool, row_words: int = ROW_WORDS) -> Plan:
    """The plan of a launch. `allowed`: tensor cores may be used. `row_words`: words of the largest tile for each thread
    where all threads share each row."""
    tensor_cores = allowed and suits_tensor_cores(p, body)
    rows, words = shape_of_work(body)
    if tensor_cores:
        team, own, threads = LANES, MMA, LANES * min(MOST_WARPS, -(-rows // MMA))
    elif rows >= FEW_ROWS:
        own = TEAM_ROWS if rows >= LEAST_ROWS else 1  # 8 words of l or m are one sector of 32 bytes
        team, threads = LANES, LANES * min(MOST_WARPS, -(-rows // own))
    else:
        own = ALL_ROWS
        team = threads = min(MOST_SHARING, LANES * -(-words // (LANES * row_words)))
    offsets, smem = lay_out(p, body, tensor_cores)
    return Plan(threads, team, own, tensor_cores, offsets, smem, read_whole(body))


def shape_of_work(body: Body) -> tuple[int, int]:
    """(the most rows that a step writes, the words of the largest tile). Blocks of whole axes do not count as tiles:
    they are loaded once."""
    outputs = [block for node in statements(body) if isinstance(node, StepNode) for block in node.outputs]
    blocks = [node.block for node in statements(body) if isinstance(node, NewNode)]
    rows = max((padded_size(block.shape[0], False) for block in outputs or blocks), default=1)
    tiles = [block for block in blocks if isinstance(block.shape[0], Tile)]
    return rows, max((product(padded_size(x, False) for x in block.shape) for block in tiles), default=1)


def suits_tensor_cores(p: Attention, body: Body) -> bool:
    """Whether there is a matrix product, and all of them are on 16-bit inputs in tiles of at least 16 x 16."""
    products = [node for node in statements(body) if isinstance(node, StepNode) and mark_of(node.step).tensor_inputs]
    blocks = [x for node in products for x in node.arguments if isinstance(x, Block)]
    wide = all(x.extent >= MMA if isinstance(x, Tile) else x % MMA == 0 for block in blocks for x in block.shape)
    inputs = [node.arguments[k] for node in products for k in mark_of(node.step).tensor_inputs]
    tensors = [x.tensor for x in inputs if isinstance(x, Block)]
    narrow = p.dtype in ("fp16", "bf16") and all(tensor and tensor.kind in ("input", "cache") for tensor in tensors)
    return bool(products) and wide and narrow and not any(block.base for block in blocks)


def read_whole(body: Body) -> frozenset[Block]:
    """The blocks that steps only read, and always whole."""
    whole: set[Block] = set()
    own: set[Block] = set()
    for node in statements(body):
        if isinstance(node, StepNode):
            for k, x in enumerate(node.arguments):
                if isinstance(x, Block):
                    (whole if k in mark_of(node.step).reads_whole else own).add(x.base or x)
    return frozenset(whole - own)


def lay_out(p: Attention, body: Body, rounded: bool) -> tuple[dict[Block, int], int]:
    """(offset of every block in bytes, bytes of shared memory in all)."""
    begins: dict[Block, int] = {}
    ends: dict[Block, int] = {}
    for time, node in enumerate(statements(body)):
        if isinstance(node, NewNode):
            begins[node.block] = time
        elif isinstance(node, FreeNode):
            ends[node.block] = time
    blocks = list(begins)
    lives = [
        Life(begins[b], ends[b], product(padded_size(x, rounded) for x in b.shape) * p.sram_bytes(b.tensor))
        for b in blocks
    ]
    offsets, smem = place_blocks(lives)
    return dict(zip(blocks, offsets, strict=True)), smem


def tensors_of(body: Body) -> tuple[list[str], list[str]]:
    """(names of the tensors that a launch reads, of those it writes), each in order of first use."""
    reads = dict.fromkeys(node.tensor for node in statements(body) if isinstance(node, LoadNode))
    writes = dict.fromkeys(node.tensor for node in statements(body) if isinstance(node, StoreNode))
    return list(reads), list(writes)


def grid_loop(body: Body) -> LoopNode | None:
    """The parallel loop that makes up a launch; its iterations become thread blocks. None if the launch has anything
    outside of such a loop, or adds: these kernels load, add and store, so one thread block takes the iterations in
    turn."""
    adds = any(isinstance(node, StoreNode) and node.adds for node in statements(body))
    if len(body) == 1 and isinstance(body[0], LoopNode) and body[0].parallel and not adds:
        return body[0]
    return None
