"""Places blocks in shared memory: two blocks may share bytes if they are never alive at the same time.

The aim is that a kernel needs no more shared memory than the footprint, the peak of what is alive (`Capacity`).
"""

from __future__ import annotations

from dataclasses import dataclass

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
