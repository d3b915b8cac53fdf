"""The picture of words between GPUs has the words of `iosim.links` at each number of GPUs, and the floor below them."""

import pytest

import iosim
from iosim.distributed.floors import floor_across
from iosim.errors import InputError

pytestmark = pytest.mark.skipif(not hasattr(iosim, "plot"), reason="no pictures")


def test_the_lines_are_those_of_the_answers():
    sizes = {"N": 1024, "d": 16, "heads": 32, "kv_heads": 8}
    found = iosim.plot(picture="links", ranks="2:16:x2", schedules="ring,ulysses", **sizes)
    (chart,) = found.drawn.charts
    lines = {line.label: dict(zip(line.x, line.y, strict=True)) for line in chart.lines}
    assert set(lines) == {"ring", "ulysses", "floor"}
    for P in (2, 4, 8):
        answer = iosim.links(ranks=P, **sizes)
        for name in ("ring", "ulysses"):
            assert lines[name][P] == answer[name].mean_received_words
        floor = floor_across(iosim.Attention(**sizes), P).mean_received_words
        assert lines["floor"][P] == floor == min(lines["ring"][P], lines["ulysses"][P])


def test_schemes_that_receive_the_same_share_a_line():
    found = iosim.plot(picture="links", ranks=[2, 4], N=64, d=8)
    (chart,) = found.drawn.charts
    assert "ring, all-gather" in [line.label for line in chart.lines] and "<svg" in found.svg()


def test_what_is_refused():
    with pytest.raises(InputError, match="--ranks"):
        iosim.plot(picture="links", N=64, d=8)
    with pytest.raises(InputError, match="--ranks"):
        iosim.plot(picture="links", ranks="1:100:+1", N=64, d=8)
