"""The tiles of flash2 that allow the least time on three GPUs, as `iosim tune --hardware` finds them."""

import iosim

for gpu in ("t4", "a100-80gb", "h100"):
    best = iosim.tune(N=8192, d=128, hardware=gpu, schedules="flash2").winner
    print(f"{gpu:10} {best.Br}x{best.Bc}: {best.total / 2**20:.1f} Mi words, {best.binds} binds")
