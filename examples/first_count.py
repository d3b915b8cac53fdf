"""What FlashAttention-2 moves for 8,192 tokens in an SRAM of 100 KB, and how far that is from the proven floor."""

import iosim

report = iosim.count(N=8192, d=128, M="100KB")
flash2 = report["flash2"]
print(f"flash2 with tiles {flash2.Br}x{flash2.Bc} moves {flash2.total:,} words")
print(f"that is {flash2.ratio_to_floor:.3f} times the floor")
