"""Traces of requests in the format of Mooncake, and their replay under one policy without a clock. Imports NumPy.

A line of a trace is a JSON object with `input_length`, `output_length`, and `hash_ids`: a number for each block of 512
tokens of the input. Equal numbers stand for equal tokens from the first one on.

The policy. Requests wait in the order of the trace, and the next one is always there. In a step, running requests that
have their whole input decode one token each, the oldest first. Then inputs are prefilled, the oldest first, in pieces
of at most `chunk` tokens, and waiting requests are let in while fewer than `max_requests` run. All that shares
`max_tokens` new tokens. A request that is let in finds the whole blocks of its input that were computed before, but
computes at least one token. Blocks that were computed stay in the cache. The piece that ends an input gives the first
output token; each later one takes a step with one new token.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..errors import InputError
from .requests import BLOCK_TOKENS, Part, Request, number

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Whole = NDArray[np.int64]

NEEDED = ("input_length", "output_length", "hash_ids")
MAX_TOKENS, MAX_REQUESTS = 8192, 256


class Arrival(NamedTuple):
    """A request of a trace: tokens of its input and of its output, and the number of each block of its input."""

    input: int
    output: int
    blocks: tuple[int, ...]


class Policy(NamedTuple):
    """What a step may have: new tokens, requests, and new tokens of one input; 0 is no limit of a piece."""

    max_tokens: int = MAX_TOKENS
    max_requests: int = MAX_REQUESTS
    chunk: int = 0


class Common(NamedTuple):
    """What the requests of a step have in common: their prefix tree (asked.py), in numbers."""

    prefix: Whole
    """The first tokens of each request that another one has too."""
    levels: Whole
    """The nodes of the tree that they lie in."""
    node_new: Whole
    """The new tokens of all requests below each node."""
    node_tokens: Whole
    """The tokens of each node."""


class Step(NamedTuple):
    """A step of a replay: new tokens and all tokens of each request, and the tokens that several have in common, once
    for each request but the first. Once the next step is asked for, the `members` have changed."""

    new: Whole
    tokens: Whole
    saved: int
    members: Sequence[Running]
    common: Common


def read_trace(path: str) -> list[Arrival]:
    """The requests of a trace. InputError names the line of a fault."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.readlines()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8"
        raise InputError("--trace", path, "a trace that can be read", why) from None
    found = [arrival(line, f"{path}, line {k}") for k, line in enumerate(lines, 1) if line.strip()]
    if not found:
        raise InputError("--trace", path, "a trace with at least one request", f"each line has {', '.join(NEEDED)}")
    return found


def arrival(line: str, where: str) -> Arrival:
    """The request of a line."""
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise InputError(f"{where}, column {error.colno}", line.strip(), "a JSON object", error.msg) from None
    if not isinstance(row, Mapping) or any(name not in row for name in NEEDED[:2]):
        raise InputError(where, line.strip(), f"an object with {', '.join(NEEDED)}", "the format of Mooncake's traces")
    tokens, output = (number(row[name], f"{where}, {name}", 1) for name in NEEDED[:2])
    blocks = row.get("hash_ids") or []
    if not isinstance(blocks, list) or not all(isinstance(one, int) for one in blocks):
        raise InputError(f"{where}, hash_ids", str(blocks), "a list of numbers")
    if len(blocks) > -(-tokens // BLOCK_TOKENS):
        raise InputError(f"{where}, hash_ids", f"{len(blocks)} blocks", f"at most one for each {BLOCK_TOKENS} tokens")
    return Arrival(tokens, output, tuple(blocks))


# ---------------------------------------------------------------- the replay


@dataclass(eq=False)
class Running:
    """A request that runs. Of its input, `done` tokens are in the cache, and the blocks in `held` are those that others
    may have too."""

    asked: Arrival
    done: int
    held: list[int] = field(default_factory=list)

    @property
    def left(self) -> int:
        """Tokens of its input that are not computed."""
        return self.asked.input - self.done


Piece = tuple[Running, int]
"""A request, and the tokens of its input that a step computes."""


class Cache:
    """The blocks that were computed, and how many running requests have each of them."""

    def __init__(self) -> None:
        self.users: dict[int, int] = {}
        self.saved = 0

    def found(self, asked: Arrival) -> list[int]:
        """The whole blocks at the beginning of an input that were computed; one token is left to compute."""
        most = (asked.input - 1) // BLOCK_TOKENS
        blocks = []
        for block in asked.blocks[:most]:
            if block not in self.users:
                break
            blocks.append(block)
        return blocks

    def take(self, blocks: Iterable[int]) -> None:
        """Count one more request that has these blocks."""
        for block in blocks:
            users = self.users[block]
            self.saved += BLOCK_TOKENS * (users > 0)
            self.users[block] = users + 1

    def leave(self, blocks: Iterable[int]) -> None:
        """Count one request fewer that has these blocks."""
        for block in blocks:
            self.users[block] -= 1
            self.saved -= BLOCK_TOKENS * (self.users[block] > 0)

    def common(self, members: Sequence[Running], new: Whole) -> Common:
        """What the requests of a step have in common; they alone count as users. A node is the blocks in a row that the
        same requests have, and the requests of a block are among those of the block before it."""
        prefix, levels, users = [], [], self.users
        sums: dict[int, int] = {}
        lengths: dict[int, int] = {}
        for one, some in zip(members, new.tolist(), strict=True):
            depth = shared = before = node = 0
            for block in one.held:
                number = users[block]
                if number < 2:
                    break
                if number != before:
                    depth, before, node = depth + 1, number, block
                    sums[node], lengths[node] = sums.get(node, 0) + some, 0
                lengths[node] += BLOCK_TOKENS
                shared += BLOCK_TOKENS
            prefix.append(shared)
            levels.append(depth)
        columns = prefix, levels, [*sums.values()], [*lengths.values()]
        return Common(*(np.array(column, np.int64) for column in columns))

    def computed(self, one: Running, before: int) -> None:
        """Keep the whole blocks that a request computed after its first `before` tokens. If one of them was computed
        elsewhere in the meantime, this request has a copy of its own from there on, which nobody else finds."""
        for place in range(before // BLOCK_TOKENS, min(one.done // BLOCK_TOKENS, len(one.asked.blocks))):
            if place == len(one.held) and (block := one.asked.blocks[place]) not in self.users:
                self.users[block] = 1
                one.held.append(block)


class Replay:
    """The replay of a trace: `step` is the step that is next, and `end` ends it."""

    def __init__(self, arrivals: Iterable[Arrival], policy: Policy) -> None:
        self.waiting, self.policy, self.cache = deque(arrivals), policy, Cache()
        self.prefilling: list[Running] = []
        self.decoding: list[Running] = []
        self.tokens = np.zeros(0, np.int64)  # of each decoding request, in its next step
        self.left = np.zeros(0, np.int64)  # steps that each of them still takes

    def __iter__(self) -> Iterator[Step]:
        while self.waiting or self.prefilling or self.decoding:
            decoded = min(len(self.decoding), self.policy.max_tokens)
            pieces = self.pieces(self.policy.max_tokens - decoded)
            yield self.step(decoded, pieces)
            self.decode(decoded)
            self.prefill(pieces)

    def step(self, decoded: int, pieces: Sequence[Piece]) -> Step:
        """The step of the first `decoded` decoding requests and of some pieces of inputs. Requests that have nothing to
        do in it read no blocks."""
        members = [*self.decoding[:decoded], *(one for one, _ in pieces)]
        idle = self.decoding[decoded:] + [one for one in self.prefilling if one not in members]
        for one in idle:
            self.cache.leave(one.held)
        new = np.array([1] * decoded + [some for _, some in pieces], np.int64)
        saved, common = self.cache.saved, self.cache.common(members, new)
        for one in idle:
            self.cache.take(one.held)
        ends = np.array([one.done + some for one, some in pieces], np.int64)
        return Step(new, np.concatenate([self.tokens[:decoded], ends]), saved, members, common)

    def pieces(self, room: int) -> list[Piece]:
        """The pieces of inputs that a step computes, within so many new tokens."""
        found = []
        for one in self.prefilling:
            if some := min(one.left, room, self.policy.chunk or room):
                found.append((one, some))
                room -= some
        while room and self.waiting and len(self.decoding) + len(self.prefilling) < self.policy.max_requests:
            one = self.let_in(self.waiting.popleft())
            some = min(one.left, room, self.policy.chunk or room)
            found.append((one, some))
            room -= some
        return found

    def let_in(self, asked: Arrival) -> Running:
        """Let a request in, with the blocks of its input that are there."""
        blocks = self.cache.found(asked)
        one = Running(asked, len(blocks) * BLOCK_TOKENS, blocks)
        self.cache.take(blocks)
        self.prefilling.append(one)
        return one

    def decode(self, decoded: int) -> None:
        """End the step of the first `decoded` decoding requests."""
        self.tokens[:decoded] += 1
        self.left[:decoded] -= 1
        if self.left[:decoded].all():
            return
        stays = self.left > 0
        for place in np.flatnonzero(~stays).tolist():
            self.cache.leave(self.decoding[place].held)
        self.decoding = [self.decoding[place] for place in np.flatnonzero(stays).tolist()]
        self.tokens, self.left = self.tokens[stays], self.left[stays]

    def prefill(self, pieces: Sequence[Piece]) -> None:
        """End the step of pieces of inputs. A request whose input is done decodes from the next step on."""
        for one, some in pieces:
            before, one.done = one.done, one.done + some
            self.cache.computed(one, before)
        ready = [one for one, _ in pieces if one.left == 0]
        self.prefilling = [one for one in self.prefilling if one.left]
        for one in ready:
            if one.asked.output == 1:
                self.cache.leave(one.held)
        lasting = [one.asked for one in ready if one.asked.output > 1]
        self.decoding += [one for one in ready if one.asked.output > 1]
        self.tokens = np.append(self.tokens, [asked.input + 1 for asked in lasting]).astype(np.int64)
        self.left = np.append(self.left, [asked.output - 1 for asked in lasting]).astype(np.int64)


class Steps(NamedTuple):
    """All steps of a replay. Step k has the requests from `starts[k]` on, up to those of the next step."""

    new: Whole
    tokens: Whole
    starts: Whole
    saved: Whole
    """The tokens of each step that several requests have in common, once for each request but the first."""
    common: Common
    """What they have in common, with the nodes of all steps one after the other."""
    node_steps: Whole
    """The step of each node."""


@lru_cache(maxsize=2)
def replayed(path: str, policy: Policy) -> Steps:
    """All steps of the replay of a file."""
    new, tokens, saved, common = [], [], [], []
    for step in Replay(read_trace(path), policy):
        new.append(step.new)
        tokens.append(step.tokens)
        saved.append(step.saved)
        common.append(step.common)
    lengths = np.array([len(one) for one in new])
    starts = np.cumsum(lengths) - lengths
    nodes = np.repeat(np.arange(len(common)), [len(one.node_new) for one in common])
    together = Common(*map(np.concatenate, zip(*common, strict=True)))
    return Steps(np.concatenate(new), np.concatenate(tokens), starts, np.array(saved, np.int64), together, nodes)


def requests_at(path: str, policy: Policy, wanted: int) -> list[Request]:
    """The requests of one step of a replay, with their prefixes. InputError if there are fewer steps."""
    place = -1
    for place, step in enumerate(Replay(read_trace(path), policy)):
        if place == wanted:
            shapes = zip(step.new.tolist(), step.tokens.tolist(), step.members, strict=True)
            return [Request(new, tokens, 1, prefix_of(one)) for new, tokens, one in shapes]
    raise InputError("--step", wanted, f"from 0 to {place}, the steps of this replay")


def prefix_of(one: Running) -> tuple[Part, ...]:
    """The blocks that a running request may have in common with others."""
    return tuple(Part(("#", block), BLOCK_TOKENS) for block in one.held)
