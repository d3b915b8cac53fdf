"""The count of one scheme with one split: words and bytes on links, the floor, memory, work, and times at the peaks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, lcm
from typing import TYPE_CHECKING, NamedTuple

from ..core.folded import Folded
from ..core.levels import Inside
from ..core.problem import DENSE
from ..core.watchers import Capacity, Traffic
from ..counting.floors import narrowest_bytes
from ..errors import InputError
from .floors import DeviceFloor, floor_across
from .inside import Below

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

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return self.ranks // self.node


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
    hides_from_tokens: int | None
    """The tokens of a GPU from which a hop takes no longer than the arithmetic of a visit; None if keys and queries do
    not come one shard after the other."""
    exchange_seconds: float | None
    """The time of the links for what arithmetic waits for, or what waits for arithmetic: all but the hops of a ring."""
    hop_seconds: float | None
    """The time of the links for the hops of a ring, beside which a GPU computes."""

    @property
    def inside_seconds(self) -> float | None:
        """The time inside a GPU: the longer of that of the arithmetic and that of the HBM, which happen at once."""
        found = [one for one in (self.arithmetic_seconds, self.hbm_seconds) if one is not None]
        return max(found) if self.arithmetic_seconds is not None else None

    @property
    def seconds(self) -> float | None:
        """The time of the exchange, and after it the longest of the hops, the arithmetic and the HBM."""
        if self.exchange_seconds is None or self.hop_seconds is None or self.inside_seconds is None:
            return None
        return self.exchange_seconds + max(self.hop_seconds, self.inside_seconds)


class Received(NamedTuple):
    """What one GPU receives: words and bytes, all and from other nodes. Exchanged bytes do not come in the hops of a
    ring."""

    words: int = 0
    bytes: int = 0
    far_words: int = 0
    far_bytes: int = 0
    far_statistics: int = 0
    exchanged_bytes: int = 0
    far_exchanged_bytes: int = 0

    def seconds(self, machines: Machines) -> tuple[float, float] | None:
        """The times of the links for (what is exchanged, the hops of a ring); None if a rate is not known."""
        link, network = machines.link_bytes_per_second, machines.network_bytes_per_second
        if not link or (machines.nodes > 1 and not network):
            return None

        def time(near: int, far: int) -> float:
            return max(near / link, far / network if network else 0.0)

        near, far = self.exchanged_bytes - self.far_exchanged_bytes, self.far_exchanged_bytes
        return time(near, far), time(self.bytes - self.far_bytes - near, self.far_bytes - far)


class InMemory(Capacity):
    """The words and bytes in the memory of a GPU. There keys and values have the type in which they are sent."""

    def start(self, machine: Machine) -> None:
        p = machine.p

        def width(tensor: Tensor | None) -> int:
            return p.hbm_bytes(tensor) if tensor and tensor.kind == "cache" else p.sram_bytes(tensor)

        self._width = width


def counted(scheme: Scheme, t: Across, machines: Machines) -> LinkResult:
    """The count of a scheme with one split."""
    p, P, batch = t.problem, t.ranks, t.problem.batch
    traffic, room = Traffic(), InMemory()
    inside = None if machines.M_bytes is None else Inside(Below(t, machines.M_bytes, machines.multiple))
    once = Inside(Below(t, None))
    Folded(t.run, traffic, room, once, *filter(None, [inside])).run(scheme.bind(t), scheme.tiling(t))
    words = {name: batch * int(reads) for name, (reads, _) in traffic.tensors.items() if reads}
    widths, each = widths_of(scheme, t), received(scheme, t, machines)
    work = scheme.by_hand.work(t)
    total, total_bytes = sum(words.values()), sum(n * widths[name] for name, n in words.items())
    needed, memory = batch * sum(scheme.by_hand.needed(t).values()), batch * int(room.peak_bytes)
    fits = None if machines.memory_bytes is None else memory <= machines.memory_bytes
    floor = floor_of(scheme, t, len(set(work)) == 1, machines.memory_bytes if fits else None)
    free = sum(words.get(name, 0) for name in STATISTICS)
    pair = scheme.flops_of_pair(p) * batch
    far = between_nodes(scheme, t, each, machines)
    largest = batch * max(one.bytes for one in each)
    link = link_time(largest, far, machines)
    exchange, hop = serial_times(batch, each, machines)
    peak, rate, least = machines.flops_per_second, machines.hbm_bytes_per_second, mean(batch * int(once.bytes), P)
    return LinkResult(
        schedule=scheme.name,
        split=scheme.split(t),
        layout=scheme.layout,
        received_words=total,
        mean_received_words=mean(total, P),
        largest_received_words=batch * max(one.words for one in each),
        received_bytes=total_bytes,
        mean_received_bytes=mean(total_bytes, P),
        largest_received_bytes=largest,
        tensors=words,
        floor_words=floor.received_words if floor else None,
        theorem=floor.theorem if floor else None,
        condition=floor.condition if floor else None,
        ratio_to_floor=(total - free) / floor.received_words if floor else None,
        needed_words=needed,
        needed_to_sent=needed / total if total else 1.0,
        hbm_words=None if inside is None else mean(batch * int(inside.total), P),
        hbm_bytes=None if inside is None else mean(batch * int(inside.bytes), P),
        hbm_least_bytes=least,
        memory_bytes=memory,
        fits=fits,
        balance=sum(work) / (P * max(work)),
        flops=pair * sum(work),
        largest_flops=pair * max(work),
        network_bytes=far.largest_bytes if far else None,
        node_words=far.words if far else None,
        node_floor_words=far.floor.received_words if far and far.floor else None,
        node_theorem=far.floor.theorem if far and far.floor else None,
        ratio_to_node_floor=(far.words - far.statistics) / far.floor.received_words if far and far.floor else None,
        link_seconds=link,
        arithmetic_seconds=pair * max(work) / peak if peak else None,
        hbm_seconds=least / rate if rate else None,
        hides_from_tokens=hides_from(scheme, t, machines),
        exchange_seconds=exchange,
        hop_seconds=hop,
    )


def best_split(scheme: Scheme, splits: list[Across], machines: Machines) -> tuple[Scheme, Across, LinkResult]:
    """The split of a scheme that fits and receives the fewest bytes on the slowest links, with its count."""

    def cost(t: Across) -> tuple[int, int]:
        """Of the GPU that receives most, the bytes that come from other nodes, and all bytes."""
        each = received(scheme, t, machines)
        return max(one.far_bytes for one in each), max(one.bytes for one in each)

    found = sorted(splits, key=cost) if len(splits) > 1 else splits
    best = next((t for t in found if len(found) == 1 or has_room(scheme, t, machines)), found[0])
    return scheme, best, counted(scheme, best, machines)


def has_room(scheme: Scheme, t: Across, machines: Machines) -> bool:
    """Whether a split fits in the memory of a GPU."""
    if machines.memory_bytes is None:
        return True
    room = InMemory()
    Folded(t.run, room).run(scheme.bind(t), scheme.tiling(t))
    return t.problem.batch * int(room.peak_bytes) <= machines.memory_bytes


def mean(total: int, ranks: int) -> float:
    """The mean over the GPUs, whole where it is."""
    return total // ranks if total % ranks == 0 else total / ranks


def widths_of(scheme: Scheme, t: Across) -> dict[str, int]:
    """The bytes of a word of each tensor on a link."""
    return {name: t.problem.hbm_bytes(tensor) for name, tensor in scheme.tensors(t).items()}


def received(scheme: Scheme, t: Across, machines: Machines) -> list[Received]:
    """What GPUs receive for one sequence: all GPUs, or with one node those that may receive most."""
    hand, widths = scheme.by_hand, widths_of(scheme, t)
    if machines.nodes == 1:
        return [by_one(scheme, t, r, widths, machines.node) for r in hand.busiest(t)]
    apart = (n for n in (machines.node, t.apart, t.keys_apart) if n < t.ranks)  # a group of all has no others beside it
    first = lcm(*apart) if hand.in_turn else t.ranks
    return [by_one(scheme, t, r, widths, machines.node) for r in range(first)] * (t.ranks // first)


def by_one(scheme: Scheme, t: Across, r: int, widths: dict[str, int], node: int) -> Received:
    """What one GPU receives for one sequence. Only a ring has hops, and they come from other groups."""
    found, ring = [0] * len(Received._fields), scheme.by_hand.hop is not None and t.ring > 1
    own = range(r // node * node, r // node * node + node)
    group = range(r // t.apart * t.apart, r // t.apart * t.apart + t.apart) if ring else range(t.ranks)
    both = range(max(own.start, group.start), min(own.stop, group.stop))
    for arrival in scheme.by_hand.arrivals(t, r):
        words, w = arrival.total, widths[arrival.tensor]
        if not words:
            continue
        far = words - arrival.within(own) if node < t.ranks else 0
        exchanged = words if not ring else arrival.within(group) if t.apart > 1 else 0
        found[0] += words
        found[1] += words * w
        found[2] += far
        found[3] += far * w
        found[4] += far * (arrival.tensor in STATISTICS)
        found[5] += exchanged * w
        found[6] += (exchanged - arrival.within(both)) * w if far and exchanged else 0
    return Received(*found)


def pairs_of(scheme: Scheme, t: Across) -> Iterator[tuple[int, int, int, int]]:
    """(sender, receiver, words, bytes) for each pair of GPUs between which words move, over all sequences."""
    widths, batch = widths_of(scheme, t), t.problem.batch
    if t.ranks**2 > MOST_PAIRS_OF_GPUS:
        raise InputError("--detail", f"{t.ranks} GPUs", f"at most {int(MOST_PAIRS_OF_GPUS**0.5)}", "leave it out")
    for r in range(t.ranks):
        words: Counter[int] = Counter()
        moved: Counter[int] = Counter()
        for sender, name, n in scheme.by_hand.senders(t, r):
            words[sender] += batch * n
            moved[sender] += batch * n * widths[name]
        for sender in sorted(words):
            if words[sender]:
                yield sender, r, words[sender], moved[sender]


# ---------------------------------------------------------------- floors


def floor_of(scheme: Scheme, t: Across, balanced: bool, memory_bytes: int | None) -> DeviceFloor | None:
    """The floor for the layout and the balance of a scheme, and for a memory that it fits in; None if no word must
    move or no theorem holds."""
    p = t.problem
    memory = None if memory_bytes is None else memory_bytes // narrowest_bytes(p)
    try:
        found = floor_across(
            p, t.ranks, layout=scheme.floor_layout(t), balanced=balanced, memory_words=memory, **scheme.asks
        )
    except InputError:  # a mask whose pairs cannot be counted
        return None
    return found if found.received_words else None


# ---------------------------------------------------------------- nodes


class Far(NamedTuple):
    """What moves between nodes: words summed over all nodes, and the bytes of the GPU that receives most of them."""

    words: int
    statistics: int
    largest_bytes: int
    largest_near_bytes: int
    floor: DeviceFloor | None


def between_nodes(scheme: Scheme, t: Across, each: list[Received], machines: Machines) -> Far | None:
    """What moves between nodes, over all sequences; None with one node. Nodes are devices too, so P3 holds for them."""
    if machines.nodes == 1:
        return None
    batch = t.problem.batch
    return Far(
        batch * sum(one.far_words for one in each),
        batch * sum(one.far_statistics for one in each),
        batch * max(one.far_bytes for one in each),
        batch * max(one.bytes - one.far_bytes for one in each),
        node_floor(scheme, t, machines),
    )


def node_layout(scheme: Scheme, t: Across, node: int) -> str | None:
    """How the tokens of nodes lie, for a floor; None where no theorem is known. Without a mask any equal parts are
    blocks."""
    if scheme.layout in ("decode", "heads"):
        return "decode"
    if scheme.layout == "blocks" or t.problem.mask is DENSE:
        return "blocks"
    return "zigzag" if scheme.layout == "zigzag" and t.apart == node else None


def node_floor(scheme: Scheme, t: Across, machines: Machines) -> DeviceFloor | None:
    """The floor of nodes as devices; None where it is not known."""
    layout = node_layout(scheme, t, machines.node)
    if layout is None:
        return None
    try:
        found = floor_across(t.problem, machines.nodes, layout=layout, **scheme.asks)
    except InputError:
        return None
    return found if found.received_words else None


def link_time(largest: int, far: Far | None, machines: Machines) -> float | None:
    """The time of the links of the GPU that needs most: links of a node and the network work at the same time."""
    link, network = machines.link_bytes_per_second, machines.network_bytes_per_second
    if far is None:
        return largest / link if link else None
    if not (link and network):
        return None
    return max(far.largest_near_bytes / link, far.largest_bytes / network)


def serial_times(batch: int, each: list[Received], machines: Machines) -> tuple[float, float] | tuple[None, None]:
    """The times of the links for (what is exchanged, the hops of a ring), each of the GPU that needs most; None if a
    rate is not known."""
    times = [found for found in (one.seconds(machines) for one in set(each)) if found is not None]
    if not times:
        return None, None
    exchange, hop = (batch * max(column) for column in zip(*times, strict=True))
    return exchange, hop


# ---------------------------------------------------------------- where a hop hides


def hides_from(scheme: Scheme, t: Across, machines: Machines) -> int | None:
    """The least tokens of a GPU at which the arithmetic of a mean visit takes as long as its hop, at the peaks.

    A hop brings n tokens, and in a dense visit each meets the n tokens that are there. The GPUs of a group share their
    tokens.
    """
    rate, peak = slowest(machines), machines.flops_per_second
    if scheme.by_hand.hop is None or t.ring == 1 or not rate or not peak:
        return None
    moved, operations = scheme.by_hand.hop(t)
    share = Fraction(sum(t.hops.pairs), t.problem.N * t.problem.Nk)
    return ceil(moved * Fraction(peak, operations * rate) / share / t.apart)


def slowest(machines: Machines) -> int | None:
    """The rate of the slowest link that a ring of all GPUs goes over."""
    return machines.link_bytes_per_second if machines.nodes == 1 else machines.network_bytes_per_second
