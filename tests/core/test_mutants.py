"""Six planted mistakes, each caught by a named check. All machines agree on them: they run the same schedule."""

import numpy as np
import pytest

from iosim import Attention, Capacity, Folded, Machine, Numeric, Tiling, Traffic
from iosim.core.problem import Tensor
from iosim.oracles.attention import attention
from iosim.schedules import find
from iosim.steps.softmax import accumulate, minus_infinity, normalise, online_softmax, scores, zeros

P, T = Attention(13, 4, Nk=11), Tiling(4, 3)


def no_rescale(s, m, l, o):
    """online_softmax that forgets to rescale the accumulator."""
    before = o.copy()
    online_softmax(s, m, l, o)
    o[...] = before


def accumulate_half(o, p, v):
    """accumulate for a V with too few columns: the other columns of O stay as they are."""
    o[:, : v.shape[1]] += p @ v


HALF_V = {"V": Tensor(("Nk", P.dv // 2), "input")}  # only the left half is ever read


def mutant(kind):
    def text(chip, p, t):
        for i in chip.tiles(p.N, t.rows_q):
            q = chip.load("Q", i)
            if kind == "Q loaded twice":
                chip.free(q)
                q = chip.load("Q", i)
            o = chip.compute("O", (i, p.dv), zeros)
            l = chip.compute("l", (i,), zeros)
            m = chip.compute("m", (i,), minus_infinity)
            kept = []
            for j in chip.tiles(p.Nk, t.rows_k):
                k = chip.load("K", j)
                if kind == "K kept too long":
                    kept.append(chip.compute("K", (j, p.d), lambda new, old: new.__setitem__(..., old), k))
                v = chip.load("V", j)
                s = chip.compute("S", (i, j), scores, q, k)
                chip.update((s, m, l, o), no_rescale if kind == "accumulator not rescaled" else online_softmax)
                chip.update(o, accumulate_half if kind == "half of V loaded" else accumulate, s, v)
                if kind == "O stored every inner step":
                    chip.store(o, "O", i)
            chip.update(o, normalise, l)
            chip.store(o, "O", i)
            if kind == "an extra output stored":
                chip.store(l, "l", i)

    text.tensors = HALF_V if kind == "half of V loaded" else {}
    return text


def numerics_right(text):
    rng = np.random.default_rng(0)
    hbm = {"Q": 3 * rng.normal(size=(13, 4)), "K": rng.normal(size=(11, 4)), "V": rng.normal(size=(11, 4))}
    return np.allclose(Numeric(P, hbm).run(text, T).hbm["O"], attention(**{k.lower(): v for k, v in hbm.items()}))


def formula_right(text):
    traffic = Traffic()
    Folded(P, traffic).run(text, T)
    return traffic.tensors == find("flash2").exact_traffic(P, T)


def footprint_right(text):
    room = Capacity()
    Folded(P, room).run(text, T)
    return room.peak_words == find("flash2").footprint(P, T)


def machines_agree(text):
    a, b = Traffic(), Traffic()
    Machine(P, a).run(text, T)
    Folded(P, b).run(text, T)
    return a.tensors == b.tensors


@pytest.mark.parametrize(
    "kind, caught_by",
    [
        ("Q loaded twice", formula_right),
        ("accumulator not rescaled", numerics_right),
        ("K kept too long", footprint_right),
        ("half of V loaded", formula_right),
        ("half of V loaded", numerics_right),
        ("O stored every inner step", formula_right),
        ("an extra output stored", formula_right),
    ],
)
def test_a_mutant_is_caught(kind, caught_by):
    assert not caught_by(mutant(kind))
    assert machines_agree(mutant(kind))


def test_the_text_without_a_mistake_passes_every_check():
    assert all(check(mutant("")) for check in (numerics_right, formula_right, footprint_right))
