"""The events of a run, and the traffic of a cache in place of the explicit SRAM.

In reading order: event_file.py writes the events, and event_reader.py reads them. accesses.py turns them into a string
of accesses. cache.py replays such a string through an LRU, with the distances of reuse_distance.py, and through
Belady's optimum. cache_answer.py sets caches beside the explicit SRAM.
"""

GRANULARITIES = ("line", "word", "tile")
POLICIES = ("lru", "belady", "both")
