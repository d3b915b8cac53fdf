"""The page of `iosim links`: the answer, a player that shows its scheme on few GPUs side by side, and the table."""

from __future__ import annotations

from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING

from ..answer import numbered
from ..core.problem import DENSE, Attention, narrowed
from ..distributed.answer import Links, answer_lines
from ..distributed.counted import LinkResult, Machines, best_split
from ..distributed.schedules import PASSES, Scheme, decodes
from ..errors import InputError, IosimError
from .gpu_lanes import data_of
from .page import document, rows_table, section
from .player import section_of, small_mask

if TYPE_CHECKING:
    from ..distributed.across import Across

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
    return best_split(scheme, scheme.splits(p, gpus.ranks), gpus)


def is_watchable(p: Attention, ranks: int) -> bool:
    """Whether a question is played as it is: few GPUs, tokens and heads."""
    few = max(p.N, p.Nk) <= MOST_TOKENS * ranks and max(p.d, p.dv) <= MOST_WIDE
    return ranks <= max(GPUS) and few and p.heads <= MOST_HEADS and p.batch == 1


def small_case(scheme: Scheme, p: Attention) -> tuple[Attention, Machines]:
    """A small problem for a scheme, and as few GPUs as it takes. Tokens, widths and heads keep their proportions where
    they can, and the mask its form."""
    for ranks in GPUS:
        small = smaller(p, ranks, decodes(scheme))
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
