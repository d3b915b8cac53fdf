"""Where blocks lie in shared memory: offsets from lifetimes, so that the room needed is the footprint itself."""

from __future__ import annotations

from dataclasses import dataclass

ALIGNMENT = 16  # bytes, of blocks whose size is a multiple of it; others keep the power of two that divides theirs


@dataclass(frozen=True)
class Life:
    """A block of `size` bytes that lives from event `start` until before event `end`."""

    start: int
    end: int
    size: int

    def meets(self, other: Life) -> bool:
        return self.start < other.end and other.start < self.end

    @property
    def alignment(self) -> int:
        return min(ALIGNMENT, self.size & -self.size)


def place(lives: list[Life]) -> tuple[list[int], int]:
    """(offset of each block, bytes in all). First fit, best aligned and largest first: blocks that all live together
    then leave no gap, whatever their sizes. Lifetimes that overlap in other ways may need more than their peak."""
    offsets: dict[int, int] = {}
    for k in sorted(range(len(lives)), key=lambda k: (-lives[k].alignment, -lives[k].size, lives[k].start)):
        others = sorted((offsets[o], offsets[o] + lives[o].size) for o in offsets if lives[o].meets(lives[k]))
        offset = 0
        for low, high in others:
            if offset + lives[k].size <= low:
                break
            offset = max(offset, -(-high // lives[k].alignment) * lives[k].alignment)
        offsets[k] = offset
    return [offsets[k] for k in range(len(lives))], max(
        (offsets[k] + life.size for k, life in enumerate(lives)), default=0
    )


def peak(lives: list[Life]) -> int:
    """The most bytes that live at one time: no placement needs less."""
    return max((sum(x.size for x in lives if x.start <= life.start < x.end) for life in lives), default=0)
