"""The first sentences of `iosim explain`: bytes, what is read often, the floor, the nearest schedule, and what fits."""

from dataclasses import replace

import pytest

from iosim.core.problem import Attention
from iosim.counting.floors import floor
from iosim.hardware import load
from iosim.kernels.explain import Explained
from iosim.kernels.launches import Refused, ranked
from iosim.kernels.nearest import Nearest
from iosim.kernels.read.compile import Resources
from iosim.kernels.sentence import first_line, on_gpu
from iosim.kernels.ways import WAYS, Way
from iosim.timing.bound import LaunchTime
from iosim.timing.work import Work

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


def test_without_a_problem_it_names_what_costs_most_bytes():
    """A tensor of one word that every program reads costs nothing, however often that is."""
    k, v, one = way(32 * MIB, MIB), way(32 * MIB, MIB), way(1536, 1)
    assert launch(Q=(MIB,), K=(k,), V=(v,), N=(one,), O=(0, MIB)).sentence == (
        "attention reads 130 MiB (K and V: 128 MiB, each word 32 times), and writes 2 MiB."
    )
    assert launch(Q=(way(3 * MIB),), K=(k,), O=(0, MIB, 0), T=(0, k)).sentence == (
        "attention reads 70 MiB (K: 64 MiB, each word 32 times), and writes 66 MiB (T: 64 MiB, each word 32 times)."
    )
    assert launch(Q=(way(3 * MIB),), K=(MIB,)).sentence == "attention reads 8 MiB (Q: 6 MiB)."
    assert launch("copy", X=(MIB,), Y=(0, MIB)).sentence == "copy reads 2 MiB and writes 2 MiB."
    assert launch("rows", X=(MIB + 3,), N=(16,)).sentence == "rows reads 2.00 MiB."
    assert launch("sum", X=(MIB,), Y=(0, 0, 512)).sentence == "sum reads 2 MiB and changes 1 KiB by atomic operations."
    assert launch("fill", Y=(0, MIB)).sentence == "fill writes 2 MiB."
    assert launch("nothing", Y=(0,)).sentence == "nothing moves nothing."


def test_addresses_that_are_data_are_not_read_often():
    """Distinct words of such a tensor are not known."""
    gathered = replace(way(MIB, 16), unplaced_words=MIB)
    assert launch("gather", T=(gathered,), I=(MIB // 2,)).sentence == "gather reads 3 MiB (T: 2 MiB)."


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
    needs = Resources(300 * 1024, 128, 0, 8)
    one = replace(launch("copy", X=(MIB,)), resources=needs, hardware=load("h100"))
    assert one.sentence == (
        "copy reads 2 MiB. It does not fit: H100 gives a program at most 232,448 B (227 KiB) of shared memory, not "
        "307,200 B (300 KiB)."
    )


def test_a_gpu_has_a_least_time_and_idle_multiprocessors():
    chip, r = load("h100"), Resources(1024, 128, 0, 8)
    one = replace(launch(Q=(MIB,)), hardware=chip, resources=r, grid=(8, 4, 1), flops=1)
    timed = replace(one, bound=LaunchTime(Work(), {"memory": 2e-5, "matrix": 1.0349e-4}))
    few = "32 programs for 132 multiprocessors: 100 idle."
    least = "At least 103.5 us on H100: matrix products bind"
    (said,) = on_gpu(timed)
    assert said.startswith(least + "; plain Triton kernels took ") and said.endswith(f" or more. {few}")
    assert [*on_gpu(one)] == [few] and [*on_gpu(replace(timed, flops=0))] == [f"{least}. {few}"]
    spilled = replace(timed, grid=(200, 1, 1), resources=replace(r, stack_bytes=64))
    spills = "Registers spill, 64 bytes a thread: no number here has those words."
    assert [*on_gpu(spilled)] == [f"{least}. {spills}"]
    large = replace(timed, resources=replace(r, smem_bytes=300 * 1024))
    assert [*on_gpu(large)] == [few] and [*on_gpu(launch(Q=(MIB,)))] == []


def test_several_launches_begin_with_their_sum():
    one, two = launch(X=(MIB,)), replace(launch("copy", X=(MIB,)), launches=3)
    assert first_line([one, two], [], False) == "4 launches of 2 kernels ask for 8 MiB in all, 6 MiB of it copy."
    large = replace(two, resources=Resources(300 * 1024, 128, 0, 8), hardware=load("h100"))
    assert first_line([one, large], [], False).endswith("6 MiB of it copy. copy does not fit.")
    assert first_line([one], [], False) == ""


def test_launches_without_an_answer_are_said_first():
    one, end = Refused("moe", "a.py, line 3", "why"), Refused(None, "a.py", "ended early")
    assert first_line([launch(X=(4,))], [one, one, end], False) == "The script ended early. No answer for moe."
    flex = Refused("triton_tem_fused_flex_attention_0", "a.py, line 4", "why")
    said = first_line([launch(X=(4,))] * 2, [flex, one], False)
    assert said.startswith("No answer for triton_tem_fused_flex_attention_0 and moe: FlexAttention's kernel follows")
    assert "iosim count --mask py:FILE.py:NAME" in said and said.endswith(
        ". 2 launches of 1 kernel ask for 16 B in all."
    )


def ranking_of(B=1, smem_kib=100, stack=0, words=512, warps=4):
    sized = Resources(smem_kib * 1024, 128, stack, warps)
    one = replace(launch("f", X=(words,)), constants={"B": B}, resources=sized, hardware=load("h100"))
    return replace(one, num_warps=warps, bound=LaunchTime(Work(), {"memory": 1e-5 * words}))


def test_ranked_configurations_begin_with_the_best_of_those_that_fit_and_do_not_spill():
    small, large, spills = ranking_of(2), ranking_of(smem_kib=300), ranking_of(3, stack=8)
    said = "f may take least time with B=2, 4 warps, of the 1 that fit and do not spill of 4 configurations: "
    assert first_line([small, spills, large, large], [], True) == f"{said}at least 5,120 us on H100, and the HBM binds."
    assert first_line([large, large], [], True) == "None of the 2 configurations of f fits."
    assert first_line([spills, large], [], True) == (
        "All of the 2 configurations of f that fit spill registers: none is ranked."
    )
    bare = launch("f", X=(512,)), launch("f", X=(600,))
    assert first_line(bare, [], True) == "f moves least with any of its options, 4 warps, of 2 configurations: 1 KiB."


def test_configurations_with_the_same_words_are_not_ranked():
    one, two, other = ranking_of(2), ranking_of(2, warps=8), ranking_of(4, words=600)
    alike = "move the same words, with other warps or stages: only a run tells them apart."
    assert first_line([one, two, other], [], True).endswith(f" 2 configurations {alike}")
    assert first_line([one, two], [], True).endswith(f" Both {alike}")
    assert first_line([one, two, one], [], True).endswith(f" All of them {alike}")
    assert alike not in first_line([one, ranking_of(2, stack=8), other], [], True)


def test_the_order_is_that_of_time_then_bytes_then_the_kernels_own():
    time = lambda B, us, words, stack=0: replace(  # noqa: E731
        ranking_of(B, stack=stack, words=words), bound=LaunchTime(Work(), {"memory": us * 1e-6})
    )
    fast, tie, slow, large, spills = (
        time(1, 100, 9),
        time(2, 101, 5),
        time(3, 110, 1),
        ranking_of(4, 300),
        time(5, 1, 1, 8),
    )
    assert [a.constants["B"] for a in ranked([large, spills, slow, fast, tie])] == [2, 1, 3, 5, 4]
    again = replace(tie, num_warps=8), tie, replace(tie, num_warps=2)
    assert [a.num_warps for a in ranked([*again])] == [8, 4, 2]


def test_a_full_card_stands_before_the_floor_of_one_multiprocessor():
    one = replace(launch(Q=(12 * MIB,)), floor=least(3 * MIB), hardware=load("h100"))
    full = "attention moves 24 MiB, 2 times what a full H100 needs and 4 times the floor of one multiprocessor, 6 MiB."
    assert replace(one, full_card=6 * MIB).sentence == full
    alone = "attention moves 24 MiB; no exact algorithm of its class can move less than 6 MiB: this is 4 times that."
    assert replace(one, full_card=3 * MIB).sentence == one.sentence == alone
