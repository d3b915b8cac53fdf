"""The count of one scheme with one split: words and bytes on links, the floor, memory, work, and times at the peaks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, lcm
from typing import TYPE_CHECKING, NamedTuple

from ..core.folded import Folded
from ..core.levels import Inside
from ..core.problem import DENSE
from ..core.watchers import Capacity, Watcher
from ..counting.floors import narrowest_bytes
from ..errors import InputError
from .arrivals import Loads
from .floors import DeviceFloor, floor_across
from .inside import Below
from .needed import needed, work_of

if TYPE_CHECKING:
    from ..core.machine import Machine
    from ..core.problem import Tensor
    from .across import Across
    from .schedules import Scheme

STATISTICS = ("LSEpart", "LSE", "D")
"""Tensors of statistics of rows, which the floors have for free."""
MOST_PAIRS_OF_GPUS = 2**17  # whose words are listed one by one


class Machines(NamedTuple):
    """The GPUs of a question. Rates are bytes and operations a second; None where they are not known.

    `node` is the number of GPUs of a node; all GPUs are one node if it is `ranks`.
    """

    ranks: int
    node: int
    M_bytes: int | None = None
    multiple: int = 1
    memory_bytes: int | None = None
    link_bytes_per_second: int | None = None
    network_bytes_per_second: int | None = None
    flops_per_second: int | None = None
    hbm_bytes_per_second: int | None = None
    exps_per_second: int | None = None
    l2_bytes_per_second: int | None = None

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return self.ranks // self.node

    def seconds(self, near: int, far: int) -> float | None:
        """The time in which a GPU receives bytes of its node and, at the same time, of others; None if a rate is not
        known."""
        link, network = self.link_bytes_per_second, self.network_bytes_per_second
        if not link or (self.nodes > 1 and not network):
            return None
        return max(near / link, far / network if network else 0.0)


@dataclass(frozen=True)
class LinkResult:
    """The count of one scheme with one split, over all heads and sequences."""

    schedule: str
    """The name of the scheme."""
    split: str
    """How the GPUs divide the work: `ring 8`, `heads 8`, `heads 4 x ring 2`, `2 rows x 4 columns`."""
    layout: str
    """Where the tokens lie: `blocks`, `zigzag`, `striped`, or `decode` and `heads` for decoding."""
    received_words: int
    """Words that GPUs receive from one another, summed over the GPUs."""
    mean_received_words: float
    """`received_words` by the number of GPUs."""
    largest_received_words: int
    """Words that the GPU receives that receives most."""
    received_bytes: int
    """Bytes that GPUs receive, summed over the GPUs."""
    mean_received_bytes: float
    """`received_bytes` by the number of GPUs."""
    largest_received_bytes: int
    """Bytes that the GPU receives that receives most."""
    tensors: dict[str, int]
    """Words received, by tensor."""
    floor_words: int | None
    """The least words that any schedule of this layout and balance receives, summed over the GPUs; None if no theorem
    says that one must."""
    theorem: str | None
    """The theorem that says so."""
    condition: str | None
    """Why it holds here."""
    ratio_to_floor: float | None
    """Words received but those of row statistics, over the floor."""
    needed_words: int
    """Words received that the mask needs."""
    needed_to_sent: float
    """`needed_words` over `received_words`; 1 if nothing is received."""
    hbm_words: float | None
    """Words that the schedules inside a GPU move between its memory and its SRAM, the mean over the GPUs."""
    hbm_bytes: float | None
    """The same in bytes."""
    hbm_least_bytes: float
    """The bytes that come from the memory of a GPU and go there if an L2 saves all that is read again: each schedule
    inside reads and writes each word once, the mean over the GPUs."""
    memory_bytes: int
    """Bytes of device memory that attention needs in a GPU at one time."""
    fits: bool | None
    """Whether that is at most the memory of a GPU."""
    balance: float
    """The mean work of the GPUs over that of the one with most: what can be reached of the ideal speed."""
    flops: int
    """Operations of the matrix products of the visible pairs, over all GPUs."""
    largest_flops: int
    """Those of the GPU with most work."""
    network_bytes: int | None
    """Bytes that come from other nodes to the GPU that receives most of them; None with one node."""
    node_words: int | None
    """Words that nodes receive from one another, summed over the nodes; None with one node."""
    node_floor_words: int | None
    """The least words that nodes of this layout receive from one another."""
    node_theorem: str | None
    """The theorem that says so."""
    ratio_to_node_floor: float | None
    """Words between nodes but those of row statistics, over that floor."""
    link_seconds: float | None
    """The time of the links at their peak rates, of the GPU that needs most."""
    arithmetic_seconds: float | None
    """The time of the matrix products at the peak rate, of the GPU with most work."""
    hbm_seconds: float | None
    """The time of `hbm_least_bytes` at the rate of the HBM."""
    exp_seconds: float | None
    """The time of one exponential for each score of the GPU with most work."""
    l2_seconds: float | None
    """The time of `hbm_bytes`, which multiprocessors load and store, at the rate of the L2."""
    hides_from_tokens: int | None
    """The tokens of a GPU from which a hop takes no longer than the arithmetic of a visit; None if keys and queries do
    not come one shard after the other."""
    exchange_seconds: float | None
    """The time of the links for what arithmetic waits for, or what waits for arithmetic: all but the hops of a ring."""
    hop_seconds: float | None
    """The time of the links for the hops of a ring, beside which a GPU computes."""

    @property
    def inside_seconds(self) -> float | None:
        """The least time inside a GPU: the longest of its resources, which work at once (timing/bound.py)."""
        each = self.arithmetic_seconds, self.hbm_seconds, self.exp_seconds, self.l2_seconds
        return max(one for one in each if one is not None) if self.arithmetic_seconds is not None else None

    @property
    def seconds(self) -> float | None:
        """The time of the exchange, and after it the longer of the hops and of the time inside a GPU."""
        if self.exchange_seconds is None or self.hop_seconds is None or self.inside_seconds is None:
            return None
        return self.exchange_seconds + max(self.hop_seconds, self.inside_seconds)


class InMemory(Capacity):
    """The words and bytes in the memory of a GPU. There keys and values have the type in which they are sent."""

    def start(self, machine: Machine) -> None:
        p = machine.p

        def width(tensor: Tensor | None) -> int:
            return p.hbm_bytes(tensor) if tensor and tensor.kind == "cache" else p.sram_bytes(tensor)

        self._width = width


class Received(NamedTuple):
    """What one GPU receives for one sequence: words and bytes, all and from other nodes. Exchanged bytes do not come in
    the hops of a ring."""

    words: int = 0
    bytes: int = 0
    far_words: int = 0
    far_bytes: int = 0
    far_statistics: int = 0
    exchanged_bytes: int = 0
    far_exchanged_bytes: int = 0


class Split:
    """One run of a scheme with one split: what is loaded from other GPUs, and the room that it takes."""

    def __init__(self, scheme: Scheme, t: Across, machines: Machines):
        self.scheme, self.t, self.machines = scheme, t, machines
        self.loads, room = Loads(t), InMemory()
        self.run(self.loads, room)
        self.memory_bytes = t.problem.batch * int(room.peak_bytes)
        has = machines.memory_bytes
        self.fits = None if has is None else self.memory_bytes <= has
        self.widths = {name: t.problem.hbm_bytes(tensor) for name, tensor in scheme.tensors(t).items()}
        self.each = self._received()

    def run(self, *watchers: Watcher) -> None:
        """Run the text for all GPUs at once."""
        Folded(self.t.run, *watchers).run(self.scheme.bind(self.t), self.scheme.tiling(self.t))

    @property
    def rings(self) -> bool:
        """Whether something goes round a ring."""
        return self.scheme.passes_round and self.t.ring > 1

    @property
    def cost(self) -> tuple[int, int]:
        """Of the GPU that receives most, the bytes that come from other nodes, and all bytes."""
        return self.most("far_bytes"), self.most("bytes")

    def most(self, field: str) -> int:
        """The largest number of any GPU."""
        return max(getattr(one, field) for one in self.each)

    def _received(self) -> list[Received]:
        """What GPUs receive: all GPUs, or of those that receive alike some, each as often as its place in the list."""
        t, node = self.t, self.machines.node
        apart = (n for n in (node, t.apart, t.keys_apart) if n < t.ranks)  # a group of all has no others beside it
        first = (lcm(*apart) if self.machines.nodes > 1 else 1) if self.loads.in_turn else t.ranks
        return [self._by(r) for r in range(first)] * (t.ranks // first)

    def _by(self, r: int) -> Received:
        """What one GPU receives. Only a ring has hops, and they come from other groups."""
        found, node, u, ranks = [0] * len(Received._fields), self.machines.node, self.t.apart, self.t.ranks
        own = range(r // node * node, r // node * node + node)
        group = range(r // u * u, r // u * u + u) if self.rings else range(ranks)
        both = range(max(own.start, group.start), min(own.stop, group.stop))
        for arrival in self.loads.arrivals(r):
            words, w = arrival.total, self.widths[arrival.tensor]
            far = words - arrival.within(own) if node < ranks else 0
            exchanged = words if not self.rings else arrival.within(group) if u > 1 else 0
            far_exchanged = exchanged - arrival.within(both) if far and exchanged else 0
            statistics = far * (arrival.tensor in STATISTICS)
            more = words, words * w, far, far * w, statistics, exchanged * w, far_exchanged * w
            found = [a + b for a, b in zip(found, more, strict=True)]
        return Received(*found)

    def serial_seconds(self) -> tuple[float | None, float | None]:
        """The times of the links for (what is exchanged, the hops of a ring), each of the GPU that needs most."""
        times = []
        for one in set(self.each):
            near, far = one.exchanged_bytes - one.far_exchanged_bytes, one.far_exchanged_bytes
            hop = self.machines.seconds(one.bytes - one.far_bytes - near, one.far_bytes - far)
            times.append((self.machines.seconds(near, far), hop))
        exchange, hops = ([time for time in column if time is not None] for column in zip(*times, strict=True))
        batch = self.t.problem.batch
        return (batch * max(exchange), batch * max(hops)) if exchange else (None, None)

    def hides_from(self, pairs: int) -> int | None:
        """The least tokens of a GPU at which the arithmetic of a mean visit takes as long as its hop, at the peaks.

        A hop brings n tokens, and in a dense visit each meets the n tokens that are there. The GPUs of a group share
        their tokens. A last hop that brings keys home is not counted.
        """
        t, p, gpus = self.t, self.t.problem, self.machines
        rate = gpus.link_bytes_per_second if gpus.nodes == 1 else gpus.network_bytes_per_second
        if not self.rings or not rate or not gpus.flops_per_second or not pairs:
            return None
        tokens = t.nk * t.apart if t.keys_apart == 1 else t.n
        hops = [load for load in self.loads.found if load.sender is not None and load.own != ()]
        moved = Fraction(sum(x.words * self.widths[x.tensor] for x in hops), t.ranks * (t.ring - 1) * tokens)
        operations, share = self.scheme.flops_of_pair(p) * t.heads, Fraction(pairs, p.heads * p.N * p.Nk)
        return ceil(moved * Fraction(gpus.flops_per_second, operations * rate) / share / t.apart)

    def pairs(self) -> Iterator[tuple[int, int, int, int]]:
        """(sender, receiver, words, bytes) for each pair of GPUs between which words move, over all sequences."""
        t = self.t
        if t.ranks**2 > MOST_PAIRS_OF_GPUS:
            raise InputError("--detail", f"{t.ranks} GPUs", f"at most {int(MOST_PAIRS_OF_GPUS**0.5)}", "leave it out")
        for r in range(t.ranks):
            found: dict[int, Counter[str]] = {}
            for arrival in self.loads.arrivals(r):
                for sender in arrival.senders:
                    if sender != r and arrival.of(sender):
                        found.setdefault(sender, Counter())[arrival.tensor] += t.problem.batch * arrival.of(sender)
            for sender, words in sorted(found.items()):
                yield sender, r, words.total(), sum(n * self.widths[name] for name, n in words.items())

    # ------------------------------------------------------------ floors

    def floor(self, balanced: bool) -> DeviceFloor | None:
        """The floor for the layout and the balance, and for a memory that it fits in."""
        has = self.machines.memory_bytes if self.fits else None
        memory = None if has is None else has // narrowest_bytes(self.t.problem)
        return self._floor(self.t.ranks, self.scheme.floor_layout(self.t), balanced, memory)

    def node_floor(self, balanced: bool) -> DeviceFloor | None:
        """The floor of nodes as devices, which are balanced if GPUs are; None with one node, or if no word must move.

        Without a mask any equal parts are blocks. In zigzag order each node of a group of an even number has a block.
        """
        layout, nodes, node = self.scheme.layout, self.machines.nodes, self.machines.node
        if self.scheme.decodes:
            layout = "decode"
        elif self.t.problem.mask is DENSE or (layout == "zigzag" and self.t.apart % (2 * node) == 0):
            layout = "blocks"
        known = layout in ("decode", "blocks") or (layout == "zigzag" and self.t.apart == node)
        return self._floor(nodes, layout if known else "free", balanced) if nodes > 1 else None

    def _floor(
        self, devices: int, layout: str, balanced: bool = False, memory: int | None = None
    ) -> DeviceFloor | None:
        """A floor; None if no word must move, no theorem holds, or the pairs of the mask cannot be counted."""
        more = {"balanced": balanced, "memory_words": memory, **self.scheme.asks}
        try:
            found = floor_across(self.t.problem, devices, layout=layout, **more)  # type: ignore[arg-type]
        except InputError:
            return None
        return found if found.received_words else None


def best_split(scheme: Scheme, splits: Sequence[Across], machines: Machines) -> Split:
    """The split of a scheme that fits and receives the fewest bytes on the slowest links, of those that can be counted
    under the mask. InputError if none can."""
    found, errors = [], []
    for t in splits:
        try:
            found.append(Split(scheme, t, machines))
        except InputError as error:
            errors.append(error)
    if not found:
        raise errors[0]
    found.sort(key=lambda split: split.cost)
    return next((split for split in found if split.fits is not False), found[0])


def counted(split: Split) -> LinkResult:
    """The count of a scheme with one split."""
    scheme, t, machines = split.scheme, split.t, split.machines
    p, P, batch = t.problem, t.ranks, t.problem.batch
    once = Inside(Below(t, None))
    inside = None if machines.M_bytes is None else Inside(Below(t, machines.M_bytes, machines.multiple))
    split.run(once, *filter(None, [inside]))
    words: dict[str, int] = {}
    for load in split.loads.found:
        words[load.tensor] = words.get(load.tensor, 0) + batch * load.words
    total, total_bytes = sum(words.values()), sum(n * split.widths[name] for name, n in words.items())
    work, seen = work_of(scheme, t), batch * sum(needed(scheme, t, split.loads.found).values())
    balanced = len(set(work)) == 1
    floor, node_floor = split.floor(balanced), split.node_floor(balanced)
    free = sum(words.get(name, 0) for name in STATISTICS)
    pair, nodes = scheme.flops_of_pair(p) * batch, machines.nodes > 1
    far, far_free = (batch * sum(getattr(one, of) for one in split.each) for of in ("far_words", "far_statistics"))
    largest, far_largest = batch * split.most("bytes"), batch * split.most("far_bytes")
    near_largest = batch * max(one.bytes - one.far_bytes for one in split.each)
    exchange, hop = split.serial_seconds()
    least = mean(batch * int(once.bytes), P)
    moved = None if inside is None else mean(batch * int(inside.bytes), P)
    peak, rate = machines.flops_per_second, machines.hbm_bytes_per_second
    exps, l2 = machines.exps_per_second, machines.l2_bytes_per_second
    return LinkResult(
        schedule=scheme.name,
        split=scheme.split(t),
        layout=scheme.layout,
        received_words=total,
        mean_received_words=mean(total, P),
        largest_received_words=batch * split.most("words"),
        received_bytes=total_bytes,
        mean_received_bytes=mean(total_bytes, P),
        largest_received_bytes=largest,
        tensors=words,
        floor_words=floor.received_words if floor else None,
        theorem=floor.theorem if floor else None,
        condition=floor.condition if floor else None,
        ratio_to_floor=(total - free) / floor.received_words if floor else None,
        needed_words=seen,
        needed_to_sent=seen / total if total else 1.0,
        hbm_words=None if inside is None else mean(batch * int(inside.total), P),
        hbm_bytes=moved,
        hbm_least_bytes=least,
        memory_bytes=split.memory_bytes,
        fits=split.fits,
        balance=sum(work) / (P * max(work)) if max(work) else 1.0,
        flops=pair * sum(work),
        largest_flops=pair * max(work),
        network_bytes=far_largest if nodes else None,
        node_words=far if nodes else None,
        node_floor_words=node_floor.received_words if node_floor else None,
        node_theorem=node_floor.theorem if node_floor else None,
        ratio_to_node_floor=(far - far_free) / node_floor.received_words if node_floor else None,
        link_seconds=machines.seconds(near_largest, far_largest),
        arithmetic_seconds=pair * max(work) / peak if peak else None,
        hbm_seconds=least / rate if rate else None,
        exp_seconds=batch * max(work) / exps if exps else None,
        l2_seconds=moved / l2 if l2 and moved is not None else None,
        hides_from_tokens=split.hides_from(sum(work)),
        exchange_seconds=exchange,
        hop_seconds=hop,
    )


def mean(total: int, ranks: int) -> float:
    """The mean over the GPUs, whole where it is."""
    return total // ranks if total % ranks == 0 else total / ranks
