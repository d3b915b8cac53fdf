"""The page of `iosim links`: the answer, a player that shows its scheme on few GPUs side by side, and the table.

The player has a run of a text across GPUs as a lane for each GPU, event by event. The run is a numeric one, which knows
where each word lies. So each tile that comes has the GPU that sends it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ..answer import numbered
from ..core.numeric import Numeric, slices
from ..core.problem import DENSE, Attention, narrowed
from ..core.text_lines import box
from ..drawing.colours import ink_on, tensor_colours
from ..drawing.page import document, rows_table, section
from ..drawing.player import Played, section_of, small_mask
from ..errors import InputError, IosimError
from .answer import Links, answer_lines
from .counted import LinkResult, Machines, best_split, counted
from .messages import Message, Messages
from .schedules import PASSES, Scheme

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..core.machine import Block
    from ..core.problem import Tensor
    from ..core.typing import Size
    from ..core.watchers import Event
    from .across import Across


Rectangle = tuple[int, int, int, int]
"""(first row, rows, first head, heads)."""
Tiles = list[tuple["int | None", Rectangle]]
"""The GPU that sends each tile, and where it lies."""
RESULTS = ("O", "dQ", "dK", "dV")


class OnGpus(Played):
    """Records the events of a run with the GPU of each, the phase, and what it receives or keeps."""

    def __init__(self, messages: Messages) -> None:
        super().__init__()
        self.messages = messages
        self.turns: list[tuple[int, int]] = []
        """(phase, GPU) of each frame. A phase is a loop over GPUs: they wait for one another at its end."""
        self.moved: dict[int, Message] = {}
        """What a frame receives; of a store, what it keeps."""

    def load(self, block: Block, tensor: str, words: Size) -> None:
        if words:
            self.moved[len(self.frames)] = self.messages.found[-1]
        super().load(block, tensor, words)

    def store(self, block: Block, tensor: str, words: Size) -> None:
        self.moved[len(self.frames)] = Message(self.messages.gpu, tensor, slices(block.shape))
        super().store(block, tensor, words)

    def keep(self, event: Event) -> None:
        self.turns.append(self.messages.turn)
        super().keep(event)

    def width(self, name: str) -> int:
        """The words of a head of a row of a tensor or a block."""
        axes = self.tensors[name].axes if name in self.tensors else ()
        return int(self.messages.machine.p.length(axes[2])) if len(axes) > 2 else 1

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """The tensors of the run, by name."""
        return self.messages.machine.tensors


@dataclass(frozen=True)
class Lane:
    """The run of one GPU: its events as player.js takes them, and the phase of each."""

    gpu: int
    events: list[list[object]]
    phases: list[int]

    @property
    def words(self) -> list[int]:
        """The words that come with each event."""
        return [int(event[6]) for event in self.events]  # type: ignore[call-overload]

    @property
    def peak(self) -> int:
        """The most words of attention in the GPU at one time."""
        return max((sum(event[7].values()) for event in self.events), default=0)  # type: ignore[attr-defined]


def recorded(scheme: Scheme, t: Across) -> OnGpus:
    """What happens on each GPU. Values do not matter, so that there are no inputs."""
    messages = Messages(t.ranks)
    seen = OnGpus(messages)
    Numeric(t.run, {}, messages, seen).run(scheme.bind(t), scheme.tiling(t))
    return seen


def lanes_of(seen: OnGpus) -> list[Lane]:
    """The runs of all GPUs."""
    numbers = {(line.function, line.number): k for k, (line, _) in enumerate(box(seen.lines))}
    lanes = [Lane(gpu, [], []) for gpu in range(seen.messages.ranks)]
    for k, (phase, gpu) in enumerate(seen.turns):
        for event in events_of(seen, k, numbers):
            lanes[gpu].events.append(event)
            lanes[gpu].phases.append(phase)
    return lanes


def events_of(seen: OnGpus, number: int, numbers: Mapping[tuple[str, int], int]) -> Iterator[list[object]]:
    """The events of a frame as player.js takes them: one for each tile, with the GPU that sends it. The columns of a
    row are the words of all its heads."""
    frame, message = seen.frames[number], seen.moved.get(number)
    kind, name = str(frame.event["event"]), str(frame.event["name"])
    lines, wide = [numbers[line] for line in frame.lines if line in numbers], seen.width(name)
    if message is None:
        row, rows, head, heads = (int(frame.event[key]) for key in ("row", "rows", "column", "columns"))  # type: ignore[call-overload]
        tiles: Tiles = [(None, (row, rows, head, heads))]
    else:
        tiles = tiles_of(seen.messages, message, kind == "load")
    for sender, (row, rows, head, heads) in tiles:
        words = 0 if sender is None else rows * heads * wide
        yield [kind, name, row, rows, head * wide, heads * wide, words, frame.inside, lines, 0, sender]


def tiles_of(messages: Messages, message: Message, comes: bool) -> Tiles:
    """(sender, rectangle) of the tiles that come with a message; without `comes`, (None, rectangle) of those that lie
    here."""
    who = messages.senders(message)
    who = who[:, :, 0] if who.ndim > 2 else who
    rows = np.arange(len(messages.home(message.tensor)))[message.place[0]]
    found: Tiles = []
    for rank in np.unique(who).tolist():
        if comes == (rank >= 0):
            heads = np.flatnonzero((who == rank).any(axis=0))
            first = int(np.arange(messages.home(message.tensor).shape[1])[message.place[1]][heads[0]])
            found += [
                (rank if comes else None, (start, many, first, len(heads)))
                for start, many in stretches(rows[(who == rank).any(axis=1)])
            ]
    return found


def stretches(places: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """(first, number) of each stretch of consecutive places."""
    ends = [0, *(np.flatnonzero(np.diff(places) != 1) + 1).tolist(), len(places)]
    for a, b in pairwise(ends):
        yield int(places[a]), b - a


def clocks(lanes: Sequence[Lane]) -> list[list[int]]:
    """The time of each event of each lane, in words: those that its GPU has received in this phase, from the time on
    at which all GPUs ended the phase before."""
    begins, now = {}, 0
    for phase in sorted({phase for lane in lanes for phase in lane.phases}):
        begins[phase] = now
        now += max(sum(words_in(lane, phase)) for lane in lanes)
    found = []
    for lane in lanes:
        done: Counter[int] = Counter()
        times = []
        for phase, words in zip(lane.phases, lane.words, strict=True):
            done[phase] += words
            times.append(begins[phase] + done[phase])
        found.append(times)
    return found


def words_in(lane: Lane, phase: int) -> list[int]:
    """The words that come with the events of a phase."""
    return [words for at, words in zip(lane.phases, lane.words, strict=True) if at == phase]


# ---------------------------------------------------------------- the data of the player


def data_of(scheme: Scheme, t: Across) -> dict[str, object]:
    """The data of player.js, as values of JSON."""
    seen = recorded(scheme, t)
    lanes, here = lanes_of(seen), lying(seen)
    text = [source for _, source in box(seen.lines)]
    tensors = {name: shape_of(seen, name, lanes) for name in shown(seen, lanes, here)}
    names = dict.fromkeys([*tensors, *(name for frame in seen.frames for name in frame.inside)])
    runs = [
        {
            "name": f"GPU {lane.gpu}",
            "tiles": "",
            "tensors": tensors,
            "events": lane.events,
            "clock": clock,
            "here": {name: cells_of(here[name] == lane.gpu, tensors[name]) for name in tensors if name in here},
            "text": text,
            "peak": lane.peak,
        }
        for lane, clock in zip(lanes, clocks(lanes), strict=True)
    ]
    colours = {name: [colour, ink_on(colour)] for name, colour in tensor_colours([*names]).items()}
    return {"M": max(lane.peak for lane in lanes), "gpus": True, "runs": runs, "colours": colours}


def lying(seen: OnGpus) -> dict[str, NDArray[np.int64]]:
    """{tensor: the GPU that has each word, rows x words of a row} of what lies on GPUs when the run begins."""
    kept = {message.tensor for k, message in seen.moved.items() if seen.frames[k].event["event"] == "store"}
    return {name: rows_of(seen.messages.home(name)) for name in seen.messages.machine.homes if name not in kept}


def rows_of(array: NDArray[np.int64]) -> NDArray[np.int64]:
    """An array with the words of all heads side by side."""
    return array.reshape(len(array), -1)


def shown(seen: OnGpus, lanes: Sequence[Lane], here: Mapping[str, object]) -> list[str]:
    """The tensors of the picture: those that lie there at the start, those of which words come, and the results."""
    come = {str(event[1]) for lane in lanes for event in lane.events if event[6]}
    return [name for name in seen.messages.machine.homes if name in here or name in come or name in RESULTS]


def shape_of(seen: OnGpus, name: str, lanes: Sequence[Lane]) -> list[int]:
    """[rows, columns, rows of a cell, columns of a cell] of a tensor. A cell is as large as the smallest tile of it
    that comes or is kept."""
    rows, columns = rows_of(seen.messages.machine.homes[name]).shape
    tiles = [event for lane in lanes for event in lane.events if event[1] == name and event[0] in ("load", "store")]
    high, wide = (min((int(event[k]) for event in tiles), default=whole) for k, whole in ((3, rows), (5, columns)))  # type: ignore[call-overload]
    own = rows // seen.messages.ranks  # of a GPU
    return [rows, columns, min(high, max(1, own)), wide]


def cells_of(here: NDArray[np.bool_], shape: Sequence[int]) -> list[int]:
    """The numbers of the cells whose words lie here."""
    _, _, high, wide = shape
    return np.flatnonzero(here[::high, ::wide]).tolist()


OF_ROWS = "Received by a GPU from others. No schedule of the same layout and balance receives less than the floor."
GPUS = (2, 4)  # of an example; a mesh and usp need four
TOKENS, MOST_TOKENS = 8, 32  # of a GPU of an example; of a question that is played as it is
HEADS, WIDE = 2, 4  # KV heads, query heads of each and words of a row, of an example
MOST_HEADS, MOST_WIDE = 8, 16  # of a question that is played as it is


# ---------------------------------------------------------------- what is played


def example(found: Links) -> tuple[Scheme, Across, LinkResult]:
    """The scheme of the answer, and the split that is played, with its count: that of the question if it is small, else
    one of a small problem."""
    scheme, p, gpus = PASSES[found.passes][found.best.schedule], found.problem, found.machines
    if not is_watchable(p, gpus.ranks):
        p, gpus = small_case(scheme, p)
    split = best_split(scheme, scheme.splits(p, gpus.ranks), gpus)
    return scheme, split.t, counted(split)


def is_watchable(p: Attention, ranks: int) -> bool:
    """Whether a question is played as it is: few GPUs, tokens and heads."""
    few = max(p.N, p.Nk) <= MOST_TOKENS * ranks and max(p.d, p.dv) <= MOST_WIDE
    return ranks <= max(GPUS) and few and p.heads <= MOST_HEADS and p.batch == 1


def small_case(scheme: Scheme, p: Attention) -> tuple[Attention, Machines]:
    """A small problem for a scheme, and as few GPUs as it takes. Tokens, widths and heads keep their proportions where
    they can, and the mask its form."""
    for ranks in GPUS:
        small = smaller(p, ranks, scheme.decodes)
        try:
            scheme.splits(small, ranks)
        except InputError:
            continue
        return small, Machines(ranks, ranks)
    raise InputError("-o", f"a page of {scheme.name}", "a scheme that fits on 2 or 4 GPUs", "--schedule ring")


def smaller(p: Attention, ranks: int, decoding: bool) -> Attention:
    """The problem with few tokens, heads and words of a row."""
    by, narrow = max(1.0, max(p.N, p.Nk) / (TOKENS * ranks)), max(1.0, max(p.d, p.dv) / WIDE)
    kv_heads, group = min(p.kv_heads, HEADS), min(p.heads // p.kv_heads, HEADS)

    def tokens(length: int) -> int:
        return 2 * ranks * max(1, round(length / by / (2 * ranks)))

    sizes = {"N": min(p.N, HEADS) if decoding else tokens(p.N), "Nk": tokens(p.Nk)}
    sizes |= {"d": max(1, round(p.d / narrow)), "dv": max(1, round(p.dv / narrow))}
    dense = narrowed(p, **sizes, batch=1, heads=kv_heads * group, kv_heads=kv_heads, mask=DENSE)
    try:
        return replace(dense, mask=small_mask(p.mask, by))
    except IosimError:  # a mask from a file, or one whose lengths no longer add up
        return dense


# ---------------------------------------------------------------- the page


def links_page(found: Links) -> str:
    """The page of an answer about GPUs: its sentences, the player and the table, as HTML."""
    scheme, t, result = example(found)
    title = f"Attention across {numbered(found.machines.ranks, 'GPU')}"
    about = ", ".join(filter(None, found.header().splitlines()))
    body = (
        f"<h1>{escape(title)}</h1><p>{escape(about)}</p><p class=answer>{escape(' '.join(answer_lines(found)))}</p>"
        f"{section_of(words_of(found, t, result), data_of(scheme, t)) if result.received_words else ''}"
        f"{section('Words on the links', rows_table(list(found.counts().grid().rows)), OF_ROWS, whole=True)}"
    )
    return document(title, body)


def words_of(found: Links, t: Across, result: LinkResult) -> str:
    """The sentences on what is played, and on the words that it moves."""
    p, real = t.problem, found.problem
    dense = " The mask cannot be made smaller, so the example is dense." * (p.mask is DENSE is not real.mask)
    what = "This is the question itself" if p is real else "The example is smaller than the question"
    return (
        f"{what}: {result.schedule} ({result.split}).{dense} Each lane is a GPU. Cells with a frame lie in its memory "
        "from the start. A tile flies from the GPU that sends it to the one that receives it. All GPUs go on together, "
        f"and wait for one another where a part of the text ends. They receive {result.received_words:,} words in all, "
        f"as this command counts: {command_of(p, t.ranks, found.passes, result.schedule)}"
    )


def command_of(p: Attention, ranks: int, passes: str, scheme: str) -> str:
    """The command that counts a problem with one scheme."""
    sizes = (
        [("ranks", ranks), ("N", p.N)] + [("Nk", p.Nk)] * (p.Nk != p.N) + [("d", p.d)] + [("dv", p.dv)] * (p.dv != p.d)
    )
    heads = [("heads", p.heads), ("kv-heads", p.kv_heads)] * (p.heads > 1)
    more = [("mask", f"'{p.mask}'")] * (p.mask is not DENSE) + [("pass", passes)] * (passes != "forward")
    options = " ".join(f"--{name} {value}" for name, value in [*sizes, *heads, *more, ("schedule", scheme)])
    return f"iosim links {options}{' --latent' * p.latent}"
