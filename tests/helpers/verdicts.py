"""Three checks of a function that takes the place of a schedule's own, for tests with planted mistakes."""

from dataclasses import replace

import numpy as np

from iosim import Capacity, Folded, Numeric, Traffic
from iosim.core.problem import DENSE
from iosim.core.shapes import Tile
from iosim.core.watchers import same_counts


def verdicts(schedule, text, p, tiling):
    """Whether each check holds, {check: holds}, for numerics, formula and footprint."""
    mutant = replace(schedule, text=text)
    visible = (
        None
        if p.mask is DENSE
        else p.mask.bind(p, tiling, True).part(Tile(p.N, p.N, 0, 0), Tile(p.Nk, p.Nk, 0, 0)).array()
    )
    hbm = schedule.example(np.random.default_rng(0), p, visible)
    traffic, room = Traffic(), Capacity()
    machine = Numeric(p, hbm, traffic, room).run(mutant, tiling)
    Folded(p, room).run(mutant, tiling)
    answers = schedule.answer(hbm, p, visible)
    with np.errstate(all="ignore"):
        right = all(np.allclose(machine.array(name), array) for name, array in answers.items())
    return {
        "numerics": right,
        "formula": same_counts(dict(schedule.exact_traffic(p, tiling)), traffic.tensors),
        "footprint": room.peak_words == schedule.footprint(p, tiling),
    }


def wrong(schedule, text, p, tiling):
    """The names of the checks that found the mistake."""
    return {name for name, holds in verdicts(schedule, text, p, tiling).items() if not holds}
