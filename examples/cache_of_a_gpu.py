"""A cache in place of the SRAM: what an LRU fetches for flash2 in tiles of 64x64, beside the explicit SRAM."""

import iosim

for size in ("64KB", "256KB"):
    (row,) = iosim.cache(N=512, d=64, M=size, tiles=(64, 64), policy="lru")
    print(f"{size}: {row['misses']} misses, {row['x_scratchpad']:.2f} times the explicit SRAM")
