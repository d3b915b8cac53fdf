"""validation/sources/fig2-left.md: published GFLOPs as multiples of 2^30, and the operations of iosim's steps for a score."""

import re
from math import ceil

from paths import ROOT

from iosim import Attention, Folded, Tiling
from iosim.core.watchers import Watcher
from iosim.schedules import find

PAGE = (ROOT / "validation/sources/fig2-left.md").read_text(encoding="utf-8")
LEFT = " ".join(PAGE.split())  # without its line breaks
N, D, HEADS, UNIT = 1024, 64, 1024, 2**30


def test_both_published_gflops_are_whole_multiples_of_2_30():
    """Only one multiple rounds to each published value. Without the products of 64 heads, 14 remain in both."""
    assert N * N * HEADS == UNIT and 64 * 2 * N * N * D == 8 * UNIT
    table = re.findall(r"^\| ([\d.]+) GFLOPs \| (\d+) \(([\d.]+)\) \| (\d) x 8 = (\d+) \| (\d+) \|$", PAGE, re.M)
    assert [(row[0], row[3]) for row in table] == [("66.6", "6"), ("75.2", "7")]
    for published, multiple, shown, products, of_it, left in table:
        assert [n for n in range(200) if f"{n * UNIT / 1e9:.1f}" == published] == [int(multiple)]
        assert f"{int(multiple) * UNIT / 1e9:.2f}" == shown
        assert int(of_it) == 8 * int(products) and int(left) == int(multiple) - int(of_it) == 14
    assert ceil(UNIT / 0.1e9) == 11 and "once in 11 times" in LEFT
    assert "**This is arithmetic on two rounded numbers; nothing in the paper says it.**" in LEFT


class Operations(Watcher):
    """Exponentials and other operations that are not products, and whether there was a product, of each launch."""

    def __init__(self):
        self.launches, self.now = [], [0, False]

    def start(self, machine):
        self.machine = machine

    def step(self, step, outputs, inputs, flops):
        shapes = [getattr(x, "shape", ()) for x in (*outputs, *inputs)]
        many = sum(int(self.machine.total(term)) for terms in step.work for term in terms(*shapes))
        self.now = [self.now[0] + many, self.now[1] or bool(flops)]

    def launch_ended(self):
        self.launches.append(self.now)
        self.now = [0, False]


def operations(name, tiles, d=D, matrix=True):
    """The exponentials and other operations for a score; without `matrix`, only of launches that have no product."""
    work = Operations()
    Folded(Attention(N, d), work).run(find(name), tiles)
    return sum(many for many, products in work.launches if matrix or not products) / N**2


def test_the_operations_a_score_of_iosim():
    """Algorithms 0 and 3 have 1 for the scale, 5 for softmax, 4 for its gradient. Algorithms 1 and 4 have 11, and more
    that are not on scores."""
    ideal, whole = Tiling(1, 1), Tiling(N, N)
    ahead, back = operations("standard", ideal), operations("standard-bwd", ideal, matrix=False)
    assert (ahead, back) == (1 + 4 + 1, 4) and f"come to {ahead + back:.0f} operations a score" in LEFT
    assert f"which makes {ahead + back + 3:.0f}." in LEFT, "mask, dropout forward, dropout backward"
    flash = [operations(name, whole, d=1) for name in ("flash1", "flash1-bwd")]
    assert [round(x) for x in flash] == [5, 6] and "11: 5 forward, 6 backward" in LEFT
    assert all(abs(x - round(x)) < 0.02 for x in flash)
    visits = sum(operations(name, Tiling(64, 256)) for name in ("flash1", "flash1-bwd"))
    assert f"to {visits:.1f} at 64x256" in LEFT
