"""Notes on a launch: words outside of a tensor's shape, sectors that the L1 is asked for several times, and words that
show that the kernel solves another problem than the one given with --as attention.

If a mask is missing, a tile at the edge reaches over the end. A request without a word inside means more: the given
shape does not suit the kernel, which is a fault. Tensors of a script may be parts of others, so for them there is only
a note.

Triton joins words of a thread to one load of up to 16 bytes where sizes and strides are constants or multiples of 16.
Elsewhere each word is a load of its own, and no load can run ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..answer import numbered
from ..core.problem import DENSE, TENSORS, Attention
from ..masks import parse_mask
from ..schedules.ways import ways
from ..verdict import about, joined
from .nearest import Nearest, counted, tiles_name
from .walk.code import READS
from .walk.places import Fault

if TYPE_CHECKING:
    from ..errors import InputError
    from .walk.launch import Tensor
    from .walk.requests import Requests
    from .walk.walk import Moved
    from .ways import Way


HINT = "the shape is wrong, or the grid, a stride or a mask is"
MORE = 0.05  # of the sectors that requests touch: from which on a note says how often the L1 is asked for them
MOST_NAMED = 3  # tensors
AHEAD_BYTES = 4  # an asynchronous copy, which runs ahead, has at least so many
FEW = 8  # load instructions: with fewer, a thread may just have one word each
SPECIALISED = 16  # Triton's specialisation asks for multiples of this


def outside(
    tensors: Mapping[str, Tensor], ways: Mapping[str, Mapping[str, Way]], again: Callable[[], Moved]
) -> list[str]:
    """A note for each tensor with words outside of its shape. `again` walks over the launch line by line."""
    words = {name: {way: w.outside_words for way, w in each.items() if w.outside_words} for name, each in ways.items()}
    found = {name: each for name, each in words.items() if each}
    if not found:
        return []
    requests = again().requests
    for name, way, line in requests:
        if way in found.get(name, {}) and tensors[name].strides is None:
            check(name, tensors[name], way, line, requests[name, way, line])
    return [note(name, tensors[name], ways, requests) for name, ways in found.items()]


def check(name: str, tensor: Tensor, way: str, line: str, requests: Requests) -> None:
    """Raise a Fault if a request has no word inside of its tensor."""
    away, all = requests.behind(tensor.reach * tensor.word_bytes)
    if away:
        what = f"{away} of {all} requests of its {way} have no word inside of {name}, which is {tensor}"
        raise Fault(f"argument {name} ({line})", what, f"a shape that has the words of its {way}", HINT + wraps(tensor))


def note(name: str, tensor: Tensor, ways: Mapping[str, int], requests: Mapping[tuple[str, ...], Requests]) -> str:
    """The note on words outside of one tensor."""
    counts = ", ".join(f"{numbered(words, 'word')} of its {way}" for way, words in ways.items())
    size = tensor.reach * tensor.word_bytes
    lines = [line for (who, way, line), r in requests.items() if who == name and way in ways and reaches_over(r, size)]
    return (
        f"{name}: {counts} {'lies' if [*ways.values()] == [1] else 'lie'} outside of its shape {tensor.shape} with "
        f"strides {tensor.stride()}: a mask or a stride is wrong, or the shape is "
        f"({'; '.join(dict.fromkeys(lines))}){wraps(tensor)}"
    )


def viewed(tensors: Mapping[str, Tensor], again: Mapping[tuple[str, str], int]) -> list[str]:
    """A note for each argument that has words of another one, because both are views of one memory (ways.py)."""
    return [
        f"{name}: {size // tensors[name].word_bytes:,} words of its {way} are those of another argument, as both are "
        "views of one memory: the least time has them once"
        for (name, way), size in again.items()
    ]


def wraps(tensor: Tensor) -> str:
    """The end of a message about a tensor whose offsets need more than 32 bits."""
    return "; offsets beyond 2^31 wrap around in 32 bits: compute them in tl.int64" if tensor.reach > 1 << 31 else ""


def reaches_over(requests: Requests, size: int) -> bool:
    """Whether some byte lies before the start or after the end of a tensor of this size."""
    first, end = requests.covered()
    return bool(len(first)) and bool(first[0] < 0 or end[-1] > size)


def unplaced(reasons: Mapping[tuple[str, ...], InputError], ways: Mapping[str, Mapping[str, Way]]) -> list[str]:
    """A note for each tensor with words whose addresses are data that nobody gave."""
    found = []
    for (name, way), error in reasons.items():
        hint = f"; {error.hint}" if error.hint else ""
        found.append(
            f"{name}: the addresses of {ways[name][way].unplaced_words:,} words of its {way} follow from data "
            f"({error.where}): the words are counted, and not which ones they are{hint}"
        )
    return found


def narrow_products(reads: Mapping[str, int], counted: int, unit: str | None) -> list[str]:
    """A note if products are compiled to mma.sync on a GPU with wgmma; else nothing. `reads` are the bytes from shared
    memory of one run of each instruction, `counted` those of each product."""
    if unit != "wgmma" or "wgmma" in reads or reads.get("ldmatrix", 0) <= counted or not counted:
        return []
    more = f"one run of each reads up to {reads['ldmatrix']:,} B from shared memory, where {counted:,} B are counted"
    return [f"products are compiled to mma.sync, not to wgmma, which takes 64 rows and 4 warps: {more}"]


def asked_again(
    each: Mapping[str, Mapping[str, Way]], split: bool, widths: Sequence[int], scalars: Mapping[str, int]
) -> list[str]:
    """A note if the L1 is asked for more sectors than requests touch, with the tensors that most of them are of, or if
    most loads are of single words, and an argument may be the reason; else nothing.

    `split` says that threads load words one by one that may lie side by side; `widths` are the bytes that a thread
    loads by each load instruction.
    """
    reads = {name: own[READS] for name, own in each.items() if own[READS].l1_bytes}
    more = {name: (way.l1_bytes or 0) - way.sector_bytes for name, way in reads.items()}
    touched, narrow = sum(way.sector_bytes for way in reads.values()), sum(width < AHEAD_BYTES for width in widths)
    odd = ", ".join(f"{name} = {value}" for name, value in scalars.items() if value > 1 and value % SPECIALISED)
    why = f"Triton joins words if sizes and strides are multiples of {SPECIALISED}; found {odd}"
    if touched and sum(more.values()) >= MORE * touched:
        most = [name for name in sorted(reads, key=lambda name: -more[name])[:MOST_NAMED] if more[name]]
        named = joined(f"those of {name} {1 + more[name] / reads[name].sector_bytes:.3g} times" for name in most)
        if not split and 2 * narrow < len(widths):
            why = "each layout and each warp that needs a word loads it, and a thread loads at most 16 bytes at a time"
        elif not odd:
            why = "an index or a mask hides from Triton that words lie side by side, if they do"
        return [f"the L1 is asked for {about(touched + sum(more.values()))} of sectors, {named}: {why}"]
    if odd and narrow >= max(FEW, len(widths) / 2):
        return [f"{narrow} of {len(widths)} load instructions are of single words, none of which can run ahead: {why}"]
    return []


def other_sizes(tensors: Mapping[str, Mapping[str, Way]], problem: Attention) -> list[str]:
    """A note if distinct words of Q, K, V or O are not those of the problem. A mask may hide words of Q, K and V."""
    found = []
    for name in ("Q", "K", "V", "O"):
        each = tensors.get(name, {})
        if not each or any(way.unplaced_words for way in each.values()) or (name == "V" and problem.latent):
            continue
        kinds = ("writes", "atomics") if name == "O" else ("reads",)
        own = max(each[kind].distinct_words - each[kind].outside_words for kind in kinds)
        words = problem.whole_bytes(TENSORS[name]) // problem.hbm_bytes(TENSORS[name])
        if own > words or (own < words and (name == "O" or problem.mask is DENSE)):
            found.append(f"{name} {own:,} / {words:,}")
    if not found:
        return []
    which = "; ".join(found)
    return [f"--as attention: distinct words differ from the problem's (in the launch / of the problem): {which}"]


def hidden_by_causal(found: Nearest, problem: Attention, products: Collection[tuple[int, int]]) -> list[str]:
    """A note if no schedule with the kernel's tiles has its words without a mask, and one has them with a causal
    mask."""
    own = found.equal and found.tiles in map(tiles_name, products)
    if own or problem.mask is not DENSE or problem.gqa == "pack":
        return []
    causal = replace(problem, mask=parse_mask("causal"))
    for schedule, p in ways(causal):
        for pair in products:
            if counted(schedule, p, pair) == found.kernel:
                name = f"{schedule.name} {tiles_name(pair)}"
                return [f"with --causal the words are those of {name}: is the kernel causal?"]
    return []
