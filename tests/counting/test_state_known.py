"""The tables of docs/floors-state.md, section 25: the least words of all schedules of a state over the floor.

`python tests/counting/test_state_known.py` writes them.
"""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "helpers"))
from paths import DOCS

from iosim import SCHEDULES, Attention, Tiling, tune
from iosim.counting.run import measure
from iosim.counting.state_bounds import of_token
from iosim.counting.state_floors import ring_words, step_reads
from iosim.counting.state_heads import problem_of

PAGE = DOCS / "floors-state.md"
FORWARD, DECODE = "<!-- best known -->", "<!-- best known decode -->"
N, d = 65536, 128
SIZES = (256, 1024, 2048, 4400, 8700, 12288, 17200, 33400)
RULES = {
    "linear": {"rule": "linear"},
    "RetNet, Mamba-2": {"rule": "mamba2"},
    "GLA": {"rule": "gla"},
    "DeltaNet": {"rule": "deltanet"},
    "GDN": {"rule": "gdn"},
    "KDA": {"rule": "kda"},
    "GDN, two value heads on a key head": {"rule": "gdn", "heads": 2, "key_heads": 1},
}
STEPS = 1000


def cell(label, M):
    """The ratio of the least words of all tiles that fit, to the larger of K and S with the chunk of that schedule."""
    found = [r for r in tune(N, d, f"{int(M)}el", **RULES[label]).results if r.fits]
    return f"{min(found, key=lambda r: r.total).ratio_to_floor:.2f}" if found else "-"


def decoded(label, column):
    """Reads of a step over D1, and words of 1,000 steps behind a state over D2, without a ring and with the best one."""
    p = Attention(STEPS, d, **RULES[label])  # the state before the first step lies in its slot
    one, (D1, D2) = problem_of(p), of_token(p)
    name = "state-ring" if "ring" in column else "state-decode"
    found = measure(SCHEDULES[name], p.packed, Tiling(1, 1))
    assert D1.words == one.own[0] + step_reads(one)
    least = STEPS * sum(one.own) + ring_words(STEPS, one.state, one.d + one.dv)
    assert least - STEPS * D2.words in range(STEPS)
    return f"{found['reads'] / (STEPS * D1.words) if 'reads' in column else found['total'] / least:.3f}"


TABLES = {FORWARD: (SIZES, cell), DECODE: (("reads over D1", "words over D2", "words of the ring over D2"), decoded)}


def table(mark):
    """{rule: {column: cell}} of the page."""
    _, _, *rows = (line.strip("| ").split(" | ") for line in PAGE.read_text().split(mark)[1].strip().splitlines())
    return {label: dict(zip(TABLES[mark][0], cells, strict=True)) for label, *cells in rows}


@pytest.mark.parametrize("mark", TABLES)
@pytest.mark.parametrize("label", RULES)
def test_best_known_over_floor(label, mark):
    for column, said in table(mark)[label].items():
        assert TABLES[mark][1](label, column) == said, column


def write():
    text = PAGE.read_text()
    for mark, (columns, value) in TABLES.items():
        heads = [f"M = {column:,}" if isinstance(column, int) else column for column in columns]
        rows = [["d = dv = 128", *heads], ["---"] * (len(columns) + 1)]
        rows += [[label, *(value(label, column) for column in columns)] for label in RULES]
        before, _, after = text.split(mark)
        text = mark.join([before, "\n" + "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n", after])
    PAGE.write_text(text)


if __name__ == "__main__":
    write()
