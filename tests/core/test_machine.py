"""The rules that the machine enforces."""

from dataclasses import replace

import numpy as np
import pytest

from iosim import SCHEDULES, Attention, Capacity, Folded, Machine, Numeric, Tiling, Traffic
from iosim.errors import CapacityError, FoldingError, ScheduleError
from iosim.masks import parse_mask
from iosim.steps.softmax import zeros

P, T = Attention(10, 4), Tiling(4, 3)


def test_a_loop_left_by_break_is_refused():
    def text(chip, p, t):
        for _ in chip.tiles(p.N, t.rows_q):
            break

    for machine in (Machine, Folded):
        with pytest.raises(ScheduleError, match="break"):
            machine(P).run(text, T)


def test_a_block_used_after_its_loop_body_is_refused():
    def text(chip, p, t):
        for i in chip.tiles(p.N, t.rows_q):
            q = chip.load("Q", i)
        chip.store(q, "O", i)

    with pytest.raises(ScheduleError, match="freed"):
        Machine(P).run(text, T)


def test_blocks_left_in_sram_are_refused():
    with pytest.raises(ScheduleError, match="left in SRAM"):
        Machine(P).run(lambda chip, p, t: chip.load("K"), T)


def test_a_wrong_shape_is_refused():
    def text(chip, p, t):
        for i in chip.tiles(p.N, t.rows_q):
            chip.store(chip.compute("l", (i,), zeros), "O", i)

    with pytest.raises(ScheduleError, match="shape"):
        Machine(P).run(text, T)


def test_folding_refuses_to_guess_a_position():
    def text(chip, p, t):
        for i in chip.tiles(p.N, t.rows_q):
            if i.index == 0:
                chip.load("Q", i)

    with pytest.raises(FoldingError, match="index"):
        Folded(P).run(text, T)
    assert not isinstance(Machine(P).run(text, T), Folded)


def test_a_tile_of_a_tile_folds():
    def text(chip, p, t):
        for i in chip.tiles(p.N, t.rows_q):
            for a in chip.tiles(i, t.rows_k):
                chip.load("Q", a)
                chip.load("K")

    for N in range(1, 30):
        a, b, x, y = Traffic(), Traffic(), Capacity(), Capacity()
        Machine(Attention(N, 4), a, x).run(text, Tiling(7, 3))
        Folded(Attention(N, 4), b, y).run(text, Tiling(7, 3))
        assert a.tensors == b.tensors and x.peak_words == y.peak_words


def test_a_false_claim_of_independence_is_found():
    def text(chip, p, t):
        for _ in chip.tiles(p.Nk, t.rows_k, parallel=True):
            for i in chip.tiles(p.N, t.rows_q):
                chip.store(chip.load("O", i), "O", i)

    rng = np.random.default_rng(0)
    hbm = {name: rng.normal(size=(10, 4)) for name in "QKV"}
    with pytest.raises(ScheduleError, match="parallel"):
        Numeric(P, hbm).run(text, T)


def test_iterations_may_share_what_they_add_to():
    """A schedule that adds says so: then its iterations commute."""

    def text(chip, p, t):
        for _ in chip.tiles(p.Nk, t.rows_k, parallel=True):
            for i in chip.tiles(p.N, t.rows_q):
                chip.store(chip.load("dQ", i), "dQ", i)

    hbm = {"dQ": np.ones((10, 4))}
    shares = replace(SCHEDULES["flash2-bwd"], text=text)
    assert (Numeric(P, hbm).run(shares, T).array("dQ") == 1).all()
    with pytest.raises(ScheduleError, match="parallel"):
        Numeric(P, hbm).run(replace(shares, adds=()), T)


def test_an_iteration_may_not_read_what_another_one_wrote():
    """Each writes rows of its own, and then reads all that are written. What nothing writes may be read by all."""

    def text(chip, p, t):
        for i in chip.tiles(p.N, t.rows_q, parallel=True):
            chip.store(chip.load("Q", i), "O", i)
            chip.load("K")
            chip.load(shared)

    hbm = {name: np.ones((10, 4)) for name in "QKVO"}
    shared = "V"
    Numeric(P, hbm).run(text, T)
    shared = "O"
    with pytest.raises(ScheduleError, match="same part of O"):
        Numeric(P, hbm).run(text, T)


def test_a_step_may_not_write_to_its_inputs():
    """Two steps change q and o in turn. The third changes its input as well."""

    def text(chip, p, t):
        q, o = chip.load("Q"), chip.load("O")
        for out, given, step in ((o, q, add), (q, o, add), (o, q, spoil)):
            chip.update(out, step, given)
        chip.free(q, o)

    def add(out, given):
        out += given

    def spoil(out, given):
        given[...] = 0

    with pytest.raises(ScheduleError, match=r"given\[.*read-only"):
        Numeric(P, {name: np.ones((10, 4)) for name in "QO"}).run(text, T)


def test_capacity_raises_with_what_was_found_and_allowed():
    with pytest.raises(CapacityError, match="SRAM holds 8 B"):
        Machine(P, Capacity(limit_bytes=8)).run(lambda chip, p, t: chip.free(chip.load("K")), T)


@pytest.mark.parametrize("mask, seen", [("causal", True), ("~dense", False), ("strided:9&~window:0", False)])
def test_a_load_where_any_column_is_active(mask, seen):
    """`where=p.mask.columns` is the whole mask: every machine reads all words, or none if everything is hidden."""

    def text(chip, p, t):
        for _ in chip.tiles(p.N, t.rows_q):
            chip.load("V", where=p.mask.columns)

    problem, tiling = Attention(7, 3, mask=parse_mask(mask)), Tiling(2, 2)
    totals = []
    for machine in (Machine, Folded):
        watcher = Traffic()
        machine(problem, watcher).run(text, tiling)
        totals.append(watcher.total)
    assert totals == [4 * 7 * 3 * seen] * 2
    many = Traffic()
    Folded(Attention(np.array([7, 7]), 3, mask=parse_mask(mask)), many).run(text, tiling)
    assert np.broadcast_to(many.total, 2).tolist() == totals


def test_a_watcher_is_called_at_every_event_at_which_it_does_something():
    """Also one that inherits what it does, and one that does not derive from `Watcher`."""

    class Loads(Traffic):
        pass

    class Bare:
        words = 0

        def start(self, *given):
            pass

        allocate = free = store = step = launch_ended = start

        def load(self, block, tensor, words):
            self.words += words

    watchers = [Traffic(), Loads(), Bare()]
    Machine(Attention(8, 2), *watchers).run(SCHEDULES["flash2"], Tiling(4, 4))
    words = sum(watchers[0].reads.values())
    assert words == sum(watchers[1].reads.values()) == watchers[2].words > 0
    assert Loads.hears == Traffic.hears == {"load", "store", "launch_ended"}
