"""The lines of a schedule's text, as the Python stack says them, against lines read in the source."""

import pytest

from iosim import SCHEDULES, Attention, Machine, Tiling, Traffic
from iosim.core.folded import Folded
from iosim.core.text_lines import LineTrace, LineTraffic, box, lines_now
from iosim.core.watchers import Watcher
from iosim.steps.softmax import zeros

TILES = Tiling(4, 3)


def two_lines(chip, p, t):
    for i in chip.tiles(p.N, t.rows_q):
        helper(chip, i)
        chip.store(chip.compute("O", (i, p.dv), zeros), "O", i)


def helper(chip, i):
    chip.free(chip.load("Q", i))


@pytest.mark.parametrize("machine", [Machine, Folded])
def test_a_line_that_calls_a_function_has_its_words(machine):
    """N = 6, d = 2: Q is read once by line 2, which calls `helper`, and O is written once by line 3."""
    watcher = LineTraffic()
    machine(Attention(6, 2), watcher).run(two_lines, TILES)
    found = {(line.function, line.number): words for line, words in watcher.words.items()}
    assert found == {
        ("two_lines", 2): {"Q": (12, 0)}, ("helper", 1): {"Q": (12, 0)}, ("two_lines", 3): {"O": (0, 12)},
    }  # fmt: skip
    assert [text.strip() for _, text in box(watcher.words)][:3] == [
        "def two_lines(chip, p, t):", "for i in chip.tiles(p.N, t.rows_q):", "helper(chip, i)",
    ]  # fmt: skip
    assert lines_now() == ()


class Innermost(Watcher):
    """The source lines that call `load` and those that call `store`."""

    def __init__(self):
        self.load_lines, self.store_lines = set(), set()

    def load(self, block, tensor, words):
        self.load_lines.add(lines_now()[-1])

    def store(self, block, tensor, words):
        self.store_lines.add(lines_now()[-1])


@pytest.mark.parametrize("name", SCHEDULES)
def test_words_of_lines_add_up_where_loads_and_stores_stand(name):
    """The lines of the schedule's own function have all words, and the innermost lines call `load` and `store`."""
    schedule, lines, traffic, inner = SCHEDULES[name], LineTraffic(), Traffic(), Innermost()
    problem = schedule.about(Attention(12, 6, page_size=4, key_block=4, top_k=2))
    Machine(problem, lines, traffic, inner).run(schedule, TILES)
    own = [moved for line, moved in lines.words.items() if line.code is schedule.text.__code__]
    for side, whole in enumerate((traffic.reads, traffic.writes)):
        for tensor, expected in whole.items():
            assert sum(moved.get(tensor, (0, 0))[side] for moved in own) == expected
    source = dict(box(lines.words))
    assert {source[line] for line in inner.load_lines if "load(" not in source[line]} == set()
    assert {source[line] for line in inner.store_lines if "store(" not in source[line]} == set()


def test_events_say_their_line():
    """The loads of K and V of flash1 are on the line that loads a tile of the cache, the last store is that of m."""
    watcher = LineTrace()
    Machine(Attention(6, 2), watcher).run(SCHEDULES["flash1"], TILES)
    own = [text for line, text in box(watcher.lines) if line.function == "keys_outside"]
    said = [(event["event"], event["name"], own[event["line"]].strip()) for event in watcher.events]
    assert said[:3] == [
        ("load", "K", "keys = Cache(chip, p).load(j)"),
        ("load", "V", "keys = Cache(chip, p).load(j)"),
        ("load", "Q", 'q, o = chip.load("Q", i), chip.load("O", i)'),
    ]
    assert said[-1] == ("store", "m", 'chip.store(m, "m", i)')
