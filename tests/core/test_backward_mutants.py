"""Planted mistakes in the backward schedules: each is caught by the check that is named, and not by the others."""

import inspect
from dataclasses import replace

import numpy as np
import pytest

from iosim import SCHEDULES, Attention, Capacity, Folded, Numeric, Tiling, Traffic
from iosim.core.shapes import Tile
from iosim.masks import parse_mask
from iosim.masks.dropout import Dropout
from iosim.schedules import backward, backward_lse

LATER = "from __future__ import annotations\n"  # the types in a schedule are not looked up when it runs

P, T = Attention(13, 4, Nk=11, mask=parse_mask("causal"), dropout=Dropout(0.2)), Tiling(4, 3)
PLACES = {"flash1-bwd": (backward, ("keys_outside",)), "flash2-bwd": (backward_lse, ("keys_outside_lse", "key_side"))}
LOADS = 'q, do = chip.load("Q", i), chip.load("dO", i)'


def mutant(name, old, new):
    """The function of a schedule with one place changed."""
    module, functions = PLACES[name]
    names = dict(vars(module))
    source = "\n".join(inspect.getsource(getattr(module, function)) for function in functions)
    assert source.count(old) == 1 or old == ""
    exec(LATER + (source.replace(old, new) if old else source), names)
    return replace(SCHEDULES[name], text=names[functions[0]])


def numerics(schedule):
    visible = P.mask.bind(P, T, True).part(Tile(P.N, P.N, 0, 0), Tile(P.Nk, P.Nk, 0, 0)).array()
    hbm = schedule.example(np.random.default_rng(0), P, visible)
    machine = Numeric(P, hbm).run(schedule, T)
    return all(np.allclose(machine.array(k), v) for k, v in schedule.answer(hbm, P, visible).items())


def formula(schedule):
    traffic = Traffic()
    dense = Attention(P.N, P.d, Nk=P.Nk)
    Folded(dense, traffic).run(schedule, T)
    return traffic.tensors == dict(schedule.exact_traffic(dense, T))


def footprint(schedule):
    room = Capacity()
    Folded(Attention(P.N, P.d, Nk=P.Nk), room).run(schedule, T)
    return room.peak_words == schedule.footprint(P, T)


CHECKS = {"numerics": numerics, "formula": formula, "footprint": footprint}
MISTAKES = [
    ("flash1-bwd", "chip.update(s, hide, p.mask.part(i, j))", "pass", {"numerics"}),
    ("flash1-bwd", "chip.update(dp, score_gradients, s, delta)", "pass", {"numerics"}),
    ("flash1-bwd", "chip.update(dp, drop, p.dropout_part(i, j))", "pass", {"numerics"}),
    ("flash1-bwd", "chip.update(dp, score_gradients, s, delta)",
     "chip.update(s, drop, p.dropout_part(i, j)); chip.update(dp, score_gradients, s, delta)", {"numerics"}),
    ("flash1-bwd", 'chip.store(dq, "dQ", i)', "pass", {"numerics", "formula"}),
    ("flash1-bwd", 'chip.store(dq, "dQ", i)', 'chip.store(dq, "dQ", i); chip.store(dk, "dK", j)', {"formula"}),
    ("flash1-bwd", 'dq, l, m = chip.load("dQ", i)', 'dq, l, m = chip.compute("dQ", (i, p.d), zeros)',
     {"numerics", "formula"}),
    ("flash1-bwd", "chip.update(dk, add_key_gradients, dp, q)",
     'chip.update(dk, add_key_gradients, dp, chip.load("Q", i))', {"formula", "footprint"}),
    ("flash2-bwd", LOADS, LOADS + '; chip.load("O", i)', {"formula", "footprint"}),
    ("flash2-bwd", 'dq = chip.load("dQ", i)', 'chip.free(lse); dq = chip.load("dQ", i)', {"footprint"}),
    ("flash2-bwd", "chip.update(dv, add_value_gradients, s, do)", "chip.update(dv, add_value_gradients, dp, do)",
     {"numerics"}),
]  # fmt: skip


@pytest.mark.parametrize("name, old, new, caught_by", MISTAKES)
def test_a_mutant_is_caught(name, old, new, caught_by):
    schedule = mutant(name, old, new)
    assert {check for check, right in CHECKS.items() if not right(schedule)} == caught_by


@pytest.mark.parametrize("name", PLACES)
def test_the_text_without_a_mistake_passes_every_check(name):
    assert all(right(mutant(name, "", "")) for right in CHECKS.values())
