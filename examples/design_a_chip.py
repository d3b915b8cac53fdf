"""A chip of your own: how much SRAM a block needs for a goal, and what limits the time with it."""

from pathlib import Path

import iosim

CHIP = str(Path(__file__).with_name("my_chip.toml"))
found = iosim.least_M(N=8192, d=128, at_most="64MiB", hardware=CHIP)
print(f"64 MiB for a head of 8,192 tokens need M = {found.M_bytes:,} B; below {found.none_below:,} B no schedule can")
best = iosim.tune(N=8192, d=128, heads=32, hardware=CHIP, schedules="flash2").winner
print(f"My chip: flash2 {best.Br}x{best.Bc} takes at least {best.at_least_seconds * 1e6:.0f} us; {best.binds} binds")
