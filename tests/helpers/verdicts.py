"""The checks of a schedule, also of one with a planted mistake: its output, its formula and footprint by hand, and
machines that agree."""

import inspect
from dataclasses import replace

import numpy as np

from iosim import Capacity, Flops, Folded, Machine, Numeric, Traffic
from iosim.core.problem import DENSE, skips_tiles
from iosim.core.shapes import Tile
from iosim.core.watchers import same_counts
from iosim.errors import IosimError
from iosim.search.best import footprint

LATER = "from __future__ import annotations\n"  # the types in a schedule are not looked up when it runs


def seen_by(p, t):
    """The visible pairs of a problem as an array; None where nothing is hidden."""
    if p.mask is DENSE:
        return None
    return p.mask.bind(p, t, True).part(Tile(p.N, p.N, 0, 0), Tile(p.Nk, p.Nk, 0, 0)).array()


def wrong(schedule, p, t, hbm=None, seed=0):
    """The checks that a schedule fails: output, machines, formula, footprint; or only `error` if it does not run.

    It runs on arrays, unrolled and folded. Its formulas are those of the registered schedule, and its output is that of
    softmax in float64; whole numbers must be equal.
    """
    visible = seen_by(p, t)
    hbm = hbm or schedule.example(np.random.default_rng(seed), p, visible)
    moved, flops, room, failed = [Traffic() for _ in range(3)], [Flops() for _ in range(3)], Capacity(), set()
    try:
        machine = Numeric(p, hbm, moved[0], flops[0], room).run(schedule, t)
        Machine(p, moved[1], flops[1]).run(schedule, t)
        Folded(p, moved[2], flops[2]).run(schedule, t)
    except IosimError:
        return {"error"}
    for name, array in schedule.answer(hbm, p, visible).items():
        off = 0 if np.issubdtype(array.dtype, np.integer) else 1e-11
        if not np.allclose(machine.array(name), array, rtol=1e4 * off, atol=off):
            failed.add("output")
    alike = moved[0].tensors == moved[1].tensors and same_counts(moved[1].tensors, moved[2].tensors)
    if not alike or moved[1].steps != moved[2].steps or len({one.total for one in flops}) > 1:
        failed.add("machines")
    if not same_counts(dict(schedule.exact_traffic(p.tiled(t, skips_tiles(schedule, p)), t)), moved[2].tensors):
        failed.add("formula")
    if not footprint(schedule, p, t).peak_words == schedule.footprint(p, t) >= room.peak_words:
        failed.add("footprint")
    return failed


def mutant(schedule, old="", new="", within=None, tensors=None, **steps):
    """A schedule with one place of its function changed: `old`, which the functions of its file (or the one that is
    named) have once, is `new`. `steps` take the place of functions that it uses."""
    module = inspect.getmodule(schedule.text)
    own = [f for f in vars(module).values() if inspect.isfunction(f) and f.__module__ == module.__name__]
    sources = {f.__name__: inspect.getsource(f) for f in own}
    places = [name for name, source in sources.items() if old and old in source and within in (None, name)]
    if old:
        (place,) = places
        assert sources[place].count(old) == 1
        sources[place] = sources[place].replace(old, new)
    names = {**vars(module), **steps}
    exec(LATER + "\n".join(sources.values()), names)
    return replace(schedule, text=names[schedule.text.__name__], tensors={**schedule.tensors, **(tensors or {})})
