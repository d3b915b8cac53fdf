"""A step of a server, from a model's config.json: the way to run it that moves least, and how far that is from once."""

from pathlib import Path

import iosim

CONFIG = str(Path(__file__).with_name("config.json"))
for requests in ("1:4096", "32 * 1:4096", "32 * 1:4096, 2048:8192"):
    step = iosim.batch(requests, model=CONFIG, hardware="h100", causal=True)
    least = min(step.ways, key=lambda way: way.total_bytes)
    share = least.total_bytes / step.distinct_bytes
    print(f"{requests:22} {least.way:16} {least.total_bytes / 2**30:7.2f} GiB, {share:.2f} times each word once")
