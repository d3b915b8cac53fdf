"""The first sentences of `iosim explain`: bytes, what is read often, the floor, the nearest schedule, and what fits."""

from dataclasses import replace

import pytest

from iosim.core.problem import Attention
from iosim.counting.floors import floor
from iosim.hardware import load
from iosim.kernels.explain import Explained
from iosim.kernels.nearest import Nearest
from iosim.kernels.read.compile import Resources
from iosim.kernels.sentence import of_all
from iosim.kernels.ways import WAYS, Way

MIB = 2**20


def way(words, distinct=None, word_bytes=2):
    return Way(words, words * word_bytes, distinct or words)


def least(words, M_words=1000):
    """A floor of so many words."""
    return floor(Attention(64, 8), 1024)._replace(words=words, M_words=M_words)


def launch(kernel="attention", **tensors):
    """An answer with (reads, writes, atomics) of each tensor, words of two bytes where they are numbers."""
    ways = {
        name: {w: each if isinstance(each, Way) else way(each) for w, each in zip(WAYS, (*of, 0, 0, 0), strict=False)}
        for name, of in tensors.items()
    }
    return Explained(kernel, (1, 1, 1), "sm_90", "3.9", 4, 3, {}, ways, 0)


def test_without_a_problem_it_names_what_is_read_most_often():
    k, v, q = way(32 * MIB, MIB), way(32 * MIB, MIB), way(3 * MIB, MIB)
    assert launch(Q=(MIB,), K=(k,), V=(v,), O=(0, MIB)).sentence == (
        "attention reads 130 MiB, K and V 32 times, and writes 2 MiB."
    )
    assert launch(Q=(q,), K=(MIB,), O=(0, MIB)).sentence == "attention reads 8 MiB, Q 3 times, and writes 2 MiB."
    assert launch("copy", X=(MIB,), Y=(0, MIB)).sentence == "copy reads 2 MiB and writes 2 MiB."
    assert launch("sum", X=(MIB,), Y=(0, 0, 512)).sentence == (
        "sum reads 2 MiB, and changes 1 KiB, by atomic operations."
    )
    assert launch("fill", Y=(0, MIB)).sentence == "fill writes 2 MiB."
    assert launch("nothing", Y=(0,)).sentence == "nothing moves nothing."


def test_addresses_that_are_data_are_not_read_often():
    """Distinct words of such a tensor are not known."""
    gathered = replace(way(MIB, 16), unplaced_words=MIB)
    assert launch("gather", T=(gathered,), Y=(0, MIB)).sentence == "gather reads 2 MiB and writes 2 MiB."


@pytest.mark.parametrize("times, said", [
        (1, "moves 6 MiB, and no exact algorithm of its class can move less."),
        (1.1, "moves 6.60 MiB; no exact algorithm of its class can move less than 6 MiB: 10 % above."),
        (14, "moves 84 MiB; no exact algorithm of its class can move less than 6 MiB: this is 14 times that."),
        (0.5, "moves 3 MiB, 0.5 times the floor of this problem: it solves another one."),
])  # fmt: skip
def test_with_a_problem_it_gives_the_distance_to_the_floor(times, said):
    one = replace(launch(Q=(round(3 * MIB * times),)), floor=least(3 * MIB))
    assert one.sentence == f"attention {said}"


def test_words_of_several_widths_are_compared_in_words():
    wide = way(MIB, word_bytes=4)
    one = replace(launch(Q=(MIB,), LSE=(0, wide)), floor=least(MIB))
    assert one.sentence == (
        "attention moves 2,097,152 words (6 MiB); no exact algorithm of its class can move fewer than 1,048,576 "
        "words: this is 2 times that."
    )


def test_the_nearest_schedule_is_named():
    words = {"Q": (MIB, 0)}
    one = replace(launch(Q=(MIB,)), floor=least(MIB, None), nearest=Nearest("flash2", "128x64", words, words))
    assert one.sentence.endswith("no exact algorithm can move less. Its words are those of flash2 128x64.")
    far = replace(one, nearest=Nearest("flash2", "128x64", {"Q": (1, 0)}, words))
    assert far.sentence.endswith(" Nearest is flash2 128x64.")


def test_what_does_not_fit_is_said_at_once():
    needs = Resources(300 * 1024, 128, 0, 8, "simt")
    one = replace(launch("copy", X=(MIB,)), resources=needs, hardware=load("h100"))
    assert one.sentence == (
        "copy reads 2 MiB. It does not fit: H100 gives a program at most 232,448 B (227 KiB) of shared memory, not "
        "307,200 B (300 KiB)."
    )


def test_several_launches_begin_with_their_sum():
    one, two = launch(X=(MIB,)), replace(launch("copy", X=(MIB,)), launches=3)
    assert of_all([one, two]) == "4 launches of 2 kernels ask for 8 MiB in all."
