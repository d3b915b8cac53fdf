"""What launches move between DRAM and L2: the answer of `l2.py`."""

from __future__ import annotations

from dataclasses import dataclass, replace

EDGE = 0.4  # of the bytes: twice what a prediction may be off


@dataclass(frozen=True)
class Dram:
    """Bytes between DRAM and L2 during the launches. `first_bytes` of the reads are first touches; what is still
    dirty in the L2 at the end (`dirty_bytes`) was not written yet."""

    read_bytes: int
    write_bytes: int
    first_bytes: int
    dirty_bytes: int
    by_launch: tuple[tuple[int, int], ...] = ()  # read and written by the kernels
    least_bytes: int = 0  # read and written, with a little more room than the mean that read_bytes and write_bytes are,
    most_bytes: int = 0  # and with a little less
    idle_bytes: int = 0  # of the writes: read and written by the driver beside the kernels

    @property
    def reread_bytes(self) -> int:
        return self.read_bytes - self.first_bytes

    @property
    def total_bytes(self) -> int:
        return self.read_bytes + self.write_bytes

    @property
    def at_the_edge(self) -> bool:
        """Whether what is used again just about fills the L2, so that it matters where arrays lie."""
        return self.most_bytes - self.least_bytes > EDGE * self.total_bytes

    def beside(self, idle_bytes: int) -> Dram:
        """With what the driver writes."""
        more = {name: getattr(self, name) + idle_bytes for name in ("write_bytes", "least_bytes", "most_bytes")}
        return replace(self, **more, idle_bytes=idle_bytes)
