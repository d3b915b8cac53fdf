"""How far the best known schedule is from the proven floor, at powers of two of M, and where the gap is largest."""

import iosim

gaps = {}
for power in range(10, 21):
    best = iosim.tune(N=8192, d=128, M=2**power).winner
    gaps[2**power] = best.ratio_to_floor
    print(
        f"M = {2**power:>9,} B: {best.schedule:16} {best.total:>13,} words, {best.ratio_to_floor:.3f} times the floor"
    )
print(f"the largest gap is at M = {max(gaps, key=gaps.get):,} B: between these two a proof or a schedule is missing")
