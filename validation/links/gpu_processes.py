"""iosim's texts of attention across GPUs as real processes.

Each process runs the text for its own GPU, with NumPy, and has only the words that lie there at the start; all others
are NaN. What is not its own it asks of other processes, and the bytes that come through the pipes are counted.

A load that names its sender is asked of that process, which may pass on what it received. Any other load is asked of
all, and each sends what it has at home. A process that does not have the words yet answers when it has them.

In the backward text of a ring each GPU adds up the parts of dK and dV that others made, and receives as many shards as
make up the sum that goes round. Here the sum goes round: a process receives it from the left, adds its own part, and
passes it on (`OneGpu.sum_of_others`).

`run(cases, ranks)` answers for each case its results, O or gradients, and {(sender, receiver): bytes}.
"""

import multiprocessing as mp
from collections import Counter
from multiprocessing.connection import wait
from threading import Event, Lock, Thread

import numpy as np

from iosim.core.numeric import Numeric, slices
from iosim.distributed.schedules import PASSES, of_ring

RESULTS = {"forward": ("O",), "backward": ("dQ", "dK", "dV"), "step": ("O", "dQ", "dK", "dV")}


SUMS = {"dKpart": "dK sum", "dVpart": "dV sum"}
"""Tensors of gradients of keys, and those of their sums that go round a ring: one for each hop."""


class Memory:
    """The words of one process: `home` lie here for good, `passing` came from others. None of them is NaN."""

    def __init__(self, rank, shapes):
        self.rank, self.lock = rank, Lock()
        self.home = {name: np.full(shape, np.nan) for name, shape in shapes.items()}
        self.passing = {name: np.full(shape, np.nan) for name, shape in shapes.items()}

    def keep(self, kind, tensor, index, values):
        """Put values into `home` or `passing`."""
        with self.lock:
            kind[tensor][index] = values

    def here(self, tensor, index, passing):
        """The values at an index; NaN where there is none. Words that only pass are among them if `passing`."""
        with self.lock:
            found = self.home[tensor][index].copy()
            return np.where(np.isnan(found), self.passing[tensor][index], found) if passing else found


class Server(Thread):
    """Answers what other processes ask for, as soon as the words are here. A request is (tensor, index, wanted,
    passing)."""

    def __init__(self, memory, requests, data):
        super().__init__(daemon=True)
        self.memory, self.requests, self.data, self.over = memory, requests, data, Event()

    def run(self):
        open_ = {}
        while not self.over.is_set():
            for pipe in wait(list(self.requests.values()), timeout=0.001):
                peer = next(peer for peer, other in self.requests.items() if other is pipe)
                open_[peer] = pipe.recv()  # a process has one request at a time; a new one ends the last
            for peer, (tensor, index, wanted, passing) in list(open_.items()):
                values = self.memory.here(tensor, index, passing)
                ready = wanted & ~np.isnan(values)
                if ready.any() and not (passing and (ready != wanted).any()):
                    self.data[peer].send(ready)
                    self.data[peer].send_bytes(np.ascontiguousarray(values[ready]).tobytes())
                    open_[peer] = (tensor, index, wanted & ~ready, passing)
        for pipe in self.requests.values():  # that others could answer
            while pipe.poll():
                pipe.recv()


class OneGpu(Numeric):
    """The machine of one process: of loops over GPUs it runs its own iteration only. All processes wait for each other
    after such a loop, because the next one may change what others still need. The sum of a shard's gradients begins on
    the GPU that is `begins` places after that of the shard; None if no sum goes round."""

    def __init__(self, t, memory, asked, data, barrier, begins):
        super().__init__(t.run, memory.home)
        self.memory, self.asked, self.data, self.barrier, self.received = memory, asked, data, barrier, Counter()
        self.t, self.begins, self.summed = t, begins, set()

    def _walk(self, length, size, where, parallel):
        outermost = parallel and self._depth == 0
        for tile in super()._walk(length, size, where, parallel):
            if not outermost or tile.index == self.memory.rank:
                yield tile
        if outermost:
            self.barrier.wait()

    def _fetch(self, block, tensor, where):
        index = slices(block.shape)
        if tensor in SUMS and block.sender is not None and self.begins is not None:
            block.value = np.zeros(self.array(tensor)[index].shape)
            if tensor not in self.summed:  # all hops at once; what the text adds after this is zero
                self.summed.add(tensor)
                block.value += self.sum_of_others(tensor)
            return
        own = np.full(self.array(tensor).shape, block.own is True)
        if isinstance(block.own, tuple) and block.own:
            own[slices(self.shape_of(tensor, block.own))] = True
        own = own[index]
        values = np.where(own, self.memory.here(tensor, index, passing=False), np.nan)
        if not own.all():
            self._receive(values, tensor, index, ~own, None if block.sender is None else block.sender.start)
        block.value = values

    def sum_of_others(self, tensor):
        """The sum of the gradients of this GPU's shard over the other members of its ring, in hops."""
        t, rank = self.t, self.memory.rank
        group, each, slots = rank // t.apart, t.nk * t.apart, rank % t.apart * t.kv_heads
        left = (group - 1) % t.ring * t.apart + rank % t.apart

        def made(shard):
            """What this GPU has made of the gradients of a shard."""
            first = group * t.problem.Nk + shard % t.ring * each
            return self.memory.home[tensor][first : first + each, slots : slots + t.kv_heads]

        total = made(group - self.begins)
        for hop in range(t.ring - self.begins):
            self.memory.keep(self.memory.home, SUMS[tensor], hop, total)
            total = np.full(total.shape, np.nan)
            self._receive(total, SUMS[tensor], hop, np.full(total.shape, True), left)
            shard = (group - self.begins - 1 - hop) % t.ring
            if shard != group:
                total = total + made(shard)
        return total if self.begins else total - made(group)

    def _receive(self, values, tensor, index, wanted, sender):
        """Fill the wanted words of an array from other processes."""
        peers = list(self.data) if sender is None else [sender]
        for peer in peers:
            self.asked[peer].send((tensor, index, wanted, sender is not None))
        while wanted.any():
            for pipe in wait([self.data[peer] for peer in peers], timeout=60) or [None]:
                if pipe is None:
                    raise TimeoutError(f"GPU {self.memory.rank} waits for {tensor}")
                peer = next(peer for peer, other in self.data.items() if other is pipe)
                ready, payload = pipe.recv(), pipe.recv_bytes()
                self.received[peer] += len(payload)
                values[ready], wanted = np.frombuffer(payload), wanted & ~ready
        self.memory.keep(self.memory.passing, tensor, index, values)

    def _put(self, block, tensor):
        self.memory.keep(self.memory.home, tensor, slices(block.shape), block.value)


def start_of(scheme, t, rank, whole):
    """The part of each tensor that lies on a GPU at the start: its tokens. Of Q in decoding: its heads, or all."""
    rows, keys, heads = slice(rank * t.n, (rank + 1) * t.n), slice(rank * t.nk, (rank + 1) * t.nk), slice(None)
    if scheme.name == "tree":
        rows = slice(None) if rank == 0 else slice(0)
    elif scheme.name == "gathered-q":
        rows, heads = slice(None), slice(rank * t.heads, (rank + 1) * t.heads)
    return {tensor: (keys,) if tensor in ("K", "V") else (rows, heads) for tensor in whole}


def worker(rank, cases, pipes, barrier, answers):
    """One GPU: all cases, one after the other."""
    (asked, requests, data_in, data_out) = pipes
    for number, (kind, name, t, whole) in enumerate(cases):
        scheme = PASSES[kind][name]
        bound = scheme.bind(t)
        shapes = {tensor: t.run.shape(spec) for tensor, spec in bound.tensors.items()}
        shard = {"dKpart": t.problem.d, "dVpart": t.problem.dv}
        shapes |= {SUMS[x]: (t.ring, t.nk * t.apart, t.kv_heads, width) for x, width in shard.items()}
        memory = Memory(rank, shapes)
        for tensor, index in start_of(scheme, t, rank, whole).items():
            memory.keep(memory.home, tensor, index, whole[tensor][index])
        begins = None if scheme.more is not of_ring or name.endswith("-needed") else int(name != "ring-coded")
        machine = OneGpu(t, memory, asked, data_in, barrier, begins)
        server = Server(memory, requests, data_out)
        server.start()
        machine.run(bound, scheme.tiling(t))
        server.over.set()
        server.join()
        results = {tensor: memory.home[tensor] for tensor in RESULTS[kind]}
        answers.put((number, rank, results, dict(machine.received)))
        barrier.wait()


def run(cases, ranks):
    """Run cases, each (pass, name of a scheme, split, {tensor: array}), on as many processes as there are ranks.

    Answers a list of ({result: array}, {(sender, receiver): bytes}).
    """
    start = mp.get_context("spawn")
    barrier, answers = start.Barrier(ranks), start.Queue()
    ends = {
        (a, b, kind): start.Pipe(duplex=False) for a in range(ranks) for b in range(ranks) for kind in "rd" if a != b
    }
    processes = []
    for me in range(ranks):
        others = [peer for peer in range(ranks) if peer != me]
        pipes = (
            {peer: ends[me, peer, "r"][1] for peer in others},  # what I ask
            {peer: ends[peer, me, "r"][0] for peer in others},  # what I am asked
            {peer: ends[peer, me, "d"][0] for peer in others},  # what comes
            {peer: ends[me, peer, "d"][1] for peer in others},  # what goes
        )
        processes.append(start.Process(target=worker, args=(me, cases, pipes, barrier, answers)))
    for process in processes:
        process.start()
    try:
        found = [answers.get(timeout=120) for _ in range(ranks * len(cases))]
    finally:
        for process in processes:
            process.join(5)
            process.terminate()
    return [joined([one[1:] for one in found if one[0] == number]) for number in range(len(cases))]


def joined(answers):
    """The results of all GPUs, each word from the GPU that has it, and the bytes by pair."""
    whole, moved = {}, {}
    for rank, results, received in answers:
        for tensor, part in results.items():
            before = whole.get(tensor, part)
            whole[tensor] = np.where(np.isnan(before), part, before)
        moved |= {(peer, rank): n for peer, n in received.items() if n}
    return whole, moved
