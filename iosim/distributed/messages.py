"""Messages between GPUs: what each receives in a numeric run of a text, and which GPU sends it. Imports NumPy."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from ..core.numeric import Numeric, slices
from ..core.watchers import Watcher

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..core.machine import Block, Machine
    from ..core.typing import Places, Size


class Message(NamedTuple):
    """What a GPU loads or keeps of a tensor. `sender` is None if all words come from their homes."""

    receiver: int
    tensor: str
    place: tuple[Places, ...]
    sender: int | None = None
    again: bool = False
    """Whether words come although they lie here."""


class Messages(Watcher):
    """The loads of a numeric run that are not of a GPU's own words alone, in the order of the text.

    Who sends what is known when the run is over, because a home may be claimed after a word was received from it.
    """

    def __init__(self, ranks: int):
        self.ranks = ranks
        self.found: list[Message] = []
        self._homes: dict[str, NDArray[np.int64]] = {}

    def start(self, machine: Machine) -> None:
        self.machine = cast("Numeric", machine)

    def load(self, block: Block, tensor: str, words: Size) -> None:
        if block.own is not True:
            sender = None if block.sender is None else block.sender.start
            self.found.append(Message(self.gpu, tensor, slices(block.shape), sender, block.own == ()))

    @property
    def turn(self) -> tuple[int, int]:
        """The number of the loop over GPUs that the run is in, and the GPU."""
        assert self.machine.turn is not None, "a text across GPUs has all its events in loops over GPUs"
        return self.machine.turn

    @property
    def gpu(self) -> int:
        """The GPU that the run is at."""
        return self.turn[1]

    def home(self, tensor: str) -> NDArray[np.int64]:
        """The GPU that has each word of a tensor. An input of which no GPU uses a word lies with its tokens."""
        if tensor in self._homes:
            return self._homes[tensor]
        homes = self.machine.homes[tensor]
        by_token = np.arange(len(homes)) // max(1, len(homes) // self.ranks)
        by_token = by_token.reshape(-1, *[1] * (homes.ndim - 1))
        return self._homes.setdefault(tensor, np.where(homes == -1, by_token, homes))

    def senders(self, message: Message) -> NDArray[np.int64]:
        """The GPU that sends each word of a message; -1 where a word lies here already."""
        homes = self.home(message.tensor)[message.place]
        comes = np.full(homes.shape, message.again) | (homes != message.receiver)
        return np.where(comes, homes if message.sender is None else message.sender, -1)

    def pairs(self) -> Counter[tuple[int, int, str]]:
        """{(sender, receiver, tensor): words}."""
        found: Counter[tuple[int, int, str]] = Counter()
        for message in self.found:
            words = np.bincount(self.senders(message).ravel() + 1)  # the first is of the words that lie here
            for rank, many in enumerate(words[1:].tolist()):
                if many:
                    found[rank, message.receiver, message.tensor] += many
        return found
