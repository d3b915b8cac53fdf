"""What each step of a server moves that replays a trace of requests: `python examples/replay_trace.py trace.jsonl`.

A line of a trace, as Mooncake has them, is a JSON object with `input_length`, `output_length`, and `hash_ids`: a
number for each block of 512 tokens of the input. A CSV file with the columns ContextTokens and GeneratedTokens, as
Azure's traces are, has no blocks: no request finds tokens that were computed before. There is no clock. In a step,
requests with their whole input decode one token each; then inputs are prefilled, the oldest first, in pieces of at
most CHUNK tokens. Waiting requests are let in while fewer than MAX_REQUESTS run, and find the whole blocks of their
input that were computed before, but compute at least one token. All of that shares MAX_TOKENS new tokens. Without a
file, three lines are replayed.
"""

import csv
import json
import sys
from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path

import iosim

BLOCK, CHUNK, MAX_TOKENS, MAX_REQUESTS = 512, 8192, 2048, 256
MODEL = {"d": 128, "heads": 32, "kv_heads": 8, "mask": "causal", "tiles": "128x64"}
WAYS = ("repeat", "pack", "FA2", "FA3", "cascade")
THREE = """{"input_length": 1300, "output_length": 3, "hash_ids": [1, 2, 3]}
{"input_length": 1500, "output_length": 5, "hash_ids": [1, 2, 4]}
{"input_length": 1400, "output_length": 2, "hash_ids": [1, 2, 3]}"""


@dataclass(eq=False)
class Running:
    """A request: of its tokens, `cached` lie in the cache, and others may have its blocks `held`."""

    input: int
    output: int
    blocks: list[int]
    cached: int = 0
    held: list[int] = field(default_factory=list)


def read(text):
    """The requests of a trace, in its order."""
    if "ContextTokens" in text.partition("\n")[0]:
        lengths = csv.DictReader(text.splitlines())
        return [Running(int(row["ContextTokens"]), int(row["GeneratedTokens"]), []) for row in lengths]
    rows = [json.loads(line) for line in text.splitlines() if line.strip()]
    return [Running(row["input_length"], row["output_length"], row["hash_ids"]) for row in rows]


def let_in(one, computed):
    """Give a request the whole blocks at the beginning of its input that were computed; a token is left to compute."""
    for block in one.blocks[: (one.input - 1) // BLOCK]:
        if block not in computed:
            break
        one.held.append(block)
    one.cached = len(one.held) * BLOCK


def keep(one, computed):
    """Keep the blocks that a request computed. If one was computed elsewhere meanwhile, nobody finds its copy."""
    for block in one.blocks[len(one.held) : min(one.cached, one.input) // BLOCK]:
        if block in computed:
            break
        computed.add(block)
        one.held.append(block)


def steps(requests):
    """The requests of each step, as `iosim.batch` takes them."""
    waiting, prefilling, decoding, computed = deque(requests), [], [], set()
    while waiting or prefilling or decoding:
        step = [(one, 1) for one in decoding[:MAX_TOKENS]]
        room, place = MAX_TOKENS - len(step), 0
        while room:
            if place == len(prefilling):
                if not waiting or len(decoding) + len(prefilling) >= MAX_REQUESTS:
                    break
                prefilling.append(waiting.popleft())
                let_in(prefilling[-1], computed)
            one = prefilling[place]
            step.append((one, min(one.input - one.cached, room, CHUNK)))
            room, place = room - step[-1][1], place + 1
        yield [{"new": new, "cached": one.cached, "hash_ids": [*one.held]} for one, new in step]
        for one, new in step:
            one.cached += new
            keep(one, computed)
        decoding += [one for one in prefilling if one.cached >= one.input]
        decoding = [one for one in decoding if one.cached < one.input + one.output - 1]
        prefilling = [one for one in prefilling if one.cached < one.input]


def row_of(requests):
    """The tokens of a step and the bytes of each way. Without a shared prefix a cascade is `pack`."""
    found = iosim.batch(requests, **MODEL)
    moved = {way.way: way.total_bytes for way in found}
    batch = found.batch
    row = {
        "requests": len(requests),
        "new": batch.new_tokens,
        "tokens": batch.tokens,
        "distinct": batch.distinct_tokens,
    }
    return row | {"once": found.distinct_bytes} | {way: moved.get(way, moved["pack"]) for way in WAYS}


def main():
    """Print a row for each step, and the bytes of each way over those of each word once."""
    total = Counter()
    for number, requests in enumerate(steps(read(Path(sys.argv[1]).read_text() if sys.argv[1:] else THREE))):
        row = row_of(requests)
        total.update(row)
        print("step", *row, sep=",") if number == 0 else None
        print(number, *row.values(), sep=",")
    shares = ", ".join(f"{way} {total[way] / total['once']:.3f}" for way in WAYS)
    print(f"times the bytes of each word once: {shares}")


if __name__ == "__main__":
    main()
