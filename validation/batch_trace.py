"""Replays a public trace with several limits of requests, and keeps what docs/batch.md says of it.

    PYTHONPATH=. python3 validation/batch_trace.py conversation_trace.jsonl

The trace is FAST25-release/traces/conversation_trace.jsonl of kvcache-ai/Mooncake. It is not kept here; its SHA-256 is.
"""

import csv
import hashlib
import sys
from pathlib import Path

import iosim

KEPT = Path(__file__).parent / "batch_trace.csv"
FIELDS = {"d": 128, "heads": 32, "kv_heads": 8, "tiles": "128x64"}


def rows(trace):
    """A row for each limit of requests."""
    sha256 = hashlib.sha256(Path(trace).read_bytes()).hexdigest()
    for requests in (16, 32, 64, 128, 256):
        found = iosim.replay(trace, **FIELDS, max_tokens=8192, max_requests=requests)
        yield {
            "sha256": sha256,
            "max_tokens": 8192,
            "max_requests": requests,
            "steps": len(found.table().rows),
            **{name: found.totals[name] for name in ("tokens", "distinct_tokens", "new_tokens")},
            "logical_over_distinct": f"{found.logical_over_distinct:.3f}",
            "longest_over_mean": f"{found.longest_over_mean:.2f}",
            **{f"{way['way']} x each word once": f"{way['ratio_to_distinct']:.3f}" for way in found.ways},
        }


if __name__ == "__main__":
    found = list(rows(sys.argv[1]))
    with KEPT.open("w", newline="") as file:
        writer = csv.DictWriter(file, found[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)
