"""The moving picture: it ends at the counted words, tiles light when they move, and it is a small and valid file."""

import re

import pytest
from paths import DOCS, ROOT

import iosim
from iosim import Attention, Tiling
from iosim.counting.count import count
from iosim.pictures.race import race

SMALL = Attention(64, 16)


@pytest.mark.parametrize("name", ["standard-tiled", "flash1", "flash2", "block-sparse-q", "flash2-bwd"])
def test_words_are_those_that_are_counted(name):
    """Every tile of Q, K, V and O is lit for as long as its words take, and the run ends at the counted words."""
    (one,) = race(SMALL, None, (name,), Tiling(16, 16), 1).runners
    result = count(64, 16, tiles="16x16", schedules=name)[name]
    assert one.total == result.total
    for tensor in set(result.tensors) & {"Q", "K", "V", "O"}:
        for side, spans in (("reads", one.loads), ("writes", one.stores)):
            lit = sum(end - start for key, found in spans.items() if key[0] == tensor for start, end in found)
            assert lit == result.tensors[tensor][side], (tensor, side)


def test_tiles_by_hand():
    """flash2 with N = 4, d = 2, Br = 2, Bc = 4: Q 4 words, K and V 8, O 4; then the same for the second tile."""
    (one,) = race(Attention(4, 2), None, ("flash2",), Tiling(2, 4), 1).runners
    assert one.loads == {("Q", 0, 0): [(0, 4)], ("K", 0, 0): [(4, 12), (28, 36)], ("V", 0, 0): [(12, 20), (36, 44)],
                         ("Q", 1, 0): [(24, 28)]}  # fmt: skip
    assert one.stores == {("O", 0, 0): [(20, 24)], ("O", 1, 0): [(44, 48)]}
    assert one.resident["S"] == [(12, 20), (36, 44)] and one.resident["Q"] == [(0, 48)]


def test_rows_of_scores_light_all_tiles_that_they_touch():
    (one,) = race(SMALL, None, ("standard-tiled",), Tiling(16, 16), 1).runners
    assert len([key for key in one.loads if key[0] == "S"]) == 16
    softmax = [one.loads["S", 0, j] for j in range(4)]
    assert len({tuple(spans) for spans in softmax}) == 1 and len(softmax[0]) == 16, "a row lights four tiles"


def test_both_move_at_the_same_speed_and_honour_less_motion():
    text = race(SMALL, None, (), Tiling(16, 16), 1).svg()
    assert "@media (prefers-reduced-motion:reduce){.a,.w{animation:none}}" in text
    assert set(re.findall(r"animation-name:(\w+)", text)) == set(re.findall(r"@keyframes (\w+)", text))
    bars = [float(x) for x in re.findall(r'class="w"[^>]* width="([\d.]+)" height="10"', text)]
    totals = [count(64, 16, tiles="16x16", schedules=x)[x].total for x in ("standard-tiled", "flash2")]
    assert bars[1] / bars[0] == pytest.approx(totals[1] / totals[0], abs=0.01)
    assert all(f"{total:,} words moved in all" in text for total in totals)
    ends = [float(x) for x in re.findall(r"scaleX\(0\)}([\d.]+)%,100%", text)]
    assert ends == pytest.approx([88 * total / max(totals) for total in totals], abs=0.01), "at the same speed"


def test_the_picture_of_the_readme_is_what_the_tool_draws():
    command = re.search(
        r"`iosim (plot --picture race .*?) -o race.svg`", " ".join((ROOT / "README.md").read_text().split())
    )[1]
    assert command == "plot --picture race --N 64 --d 16 --tiles 16x16"
    standard, flash2 = race(SMALL, None, (), Tiling(16, 16), 1).runners
    assert (
        f"move the same tiles: {standard.total:,} words and {flash2.total:,}](docs/race.svg)"
        in (ROOT / "README.md").read_text()
    )
    if not (DOCS / "race.svg").exists():
        pytest.skip("a package without the pictures of the README")
    assert race(SMALL, None, (), Tiling(16, 16), 1).svg() == (DOCS / "race.svg").read_text()


def test_rows():
    found = iosim.plot(picture="race", N=64, d=16, tiles=(16, 16)).to_rows()
    assert {"schedule": "flash2 16x16", "tensor": "K", "i": 0, "j": 0, "loads": 4, "stores": 0} in found
