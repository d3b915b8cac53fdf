"""The tiles of flash2 that move least on three GPUs, with fp32 accumulators and tiles that tensor cores can use."""

import iosim

for gpu in ("t4", "a100-80gb", "h100"):
    best = iosim.tune(N=8192, d=128, hardware=gpu, acc_dtype="fp32", tile_multiple=16, schedules="flash2").winner
    print(f"{gpu:10} {best.Br}x{best.Bc}: {best.total / 2**20:.1f} Mi words")
