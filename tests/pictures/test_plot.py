"""Pictures: what is drawn is what was counted; labels keep apart; files are pictures; bad input is one message."""

import re
import struct
import sys

import numpy as np
import pandas as pd
import pytest

import iosim as package
from iosim.core.tiling import Tiling
from iosim.counting.count import count
from iosim.drawing import chart as curves
from iosim.drawing import draw
from iosim.drawing.chart_svg import chart_svg
from iosim.errors import InputError, MissingError
from iosim.pictures import mask as tilemap
from iosim.pictures.traffic import from_rows, octaves, traffic_chart

SIZES = ("--N", 256, "--d", 16)


def test_lines_are_counts():
    chart = traffic_chart({"N": "512", "d": "32", "M": "8KB:64KB:x2"})
    lines = {line.label: line for line in chart.lines}
    for k, M in enumerate((8192, 16384, 32768, 65536)):
        report = count(N=512, d=32, M=M)
        assert lines["flash2, best tiles"].x[k] == M
        assert lines["flash2, best tiles"].y[k] == report["flash2"].total
        assert lines["flash1, paper tiles"].fits[k] == report["flash1", "paper"].fits
        known = {bound.name: bound for bound in report.bounds}
        assert lines["floor"].y[k] == known["floor"].words
        order = dict(zip(lines["N²d²/M (order only)"].x, lines["N²d²/M (order only)"].y, strict=True))
        assert (M in order) == known["N^2 d^2 / M"].valid
        assert M not in order or order[M] == known["N^2 d^2 / M"].words


def test_against_queries():
    chart = traffic_chart({"N": "256:1024:x2", "d": "32", "M": "16KB"}, ("flash2",))
    assert chart.x_name == "N" and chart.lines[0].x == [256, 512, 1024]
    assert chart.lines[0].y == [count(N=n, d=32, M="16KB")["flash2"].total for n in (256, 512, 1024)]


def test_the_sizes_chosen_reach_from_one_row_to_everything():
    sizes = octaves({"N": "1024", "d": "64"})
    assert sizes[0] == 1024 and sizes[-1] >= 4 * 1024 * 64 * 2 and len(sizes) > 60


def test_what_fits_nowhere_is_said_so():
    chart = traffic_chart({"N": "4096", "d": "64", "M": "8KB:16KB:x2"}, ("standard",))
    assert chart.lines[0].label == "standard (does not fit)"


def rows():
    table = package.sweep(N=[256, 512], d=16, M=[1024, 2048], schedules=["flash1", "flash2"])
    return table


def test_lines_split_until_each_place_has_one_value():
    chart = from_rows(rows(), "M_bytes", "total", ("schedule",))
    assert len(chart.lines) == 6, "flash1 with two tilings and flash2, at two N"
    assert {line.label for line in chart.lines} >= {
        "flash2, best tiles, N = 256",
        "flash1, paper tiles, N = 512 (does not fit)",
    }
    one = next(line for line in chart.lines if line.label.startswith("flash2, best tiles, N = 512"))
    assert one.y == [count(N=512, d=16, M=m)["flash2"].total for m in (1024, 2048)]


def test_rows_that_nothing_tells_apart_are_refused():
    table = pd.DataFrame({"a": [1, 1], "b": [2, 3]})
    with pytest.raises(InputError, match="one b for each a"):
        from_rows(table, "a", "b", ())


@pytest.mark.parametrize("seed", range(20))
def test_labels_keep_apart_and_inside(seed):
    rng = np.random.default_rng(seed)
    places = rng.uniform(-20, 320, 12).tolist()
    found = curves.spread_labels(places, 14, 0, 300)
    order = sorted(range(12), key=lambda k: places[k])
    steps = np.diff([found[k] for k in order])
    assert (steps >= 14 - 1e-9).all() and max(found) <= 300 and min(found) >= 0


def test_labels_that_are_apart_stay():
    assert curves.spread_labels([200.0, 10.0, 100.0], 14, 0, 300) == [200, 10, 100]


@pytest.mark.parametrize(
    "value, text",
    [(1024, "1 KiB"), (102400, "100 KiB"), (1536, "1.5 KiB"), (100, "100 B"), (2**30, "1 GiB"), (3 * 2**20, "3 MiB")],
)
def test_sizes_in_1024s(value, text):
    assert curves.size(value) == text


@pytest.mark.parametrize("y", [[5.0, 5.0], [0.0, 0.0], [1.0, 9.5], [0.5, 70.0], [3.0, 4e9], [-2.0, 2.0]])
@pytest.mark.parametrize("x", [[1.0, 1.0], [1.0, 4.0], [64.0, 2.0**30]])
def test_ticks_lie_inside_and_are_enough(x, y):
    chart = curves.Chart("", "M_bytes", "total", [curves.ChartLine("a", x, y, [True, True])])
    for axis in ("x", "y"):
        low, high = chart.limits(axis)
        ticks = chart.ticks(axis)
        assert low < high and len(ticks) >= 2 and all(low <= v <= high for v, _ in ticks)
        assert len({text for _, text in ticks}) == len(ticks) <= 16


@pytest.mark.parametrize(
    "given, meant", [("M", "M_bytes"), ("bytes", "total_bytes"), ("words", "total"), ("totl", "total")]
)
def test_a_column_by_another_name(given, meant, tmp_path):
    rows = pd.DataFrame({"M_bytes": [1], "M_words": [1], "read_bytes": [1], "total_bytes": [1], "total": [1]})
    with pytest.raises(InputError, match=f"did you mean '{meant}'"):
        from_rows(rows, given, "total", ())


def test_the_picture_of_a_roofline_has_its_notes(iosim, tmp_path):
    line = ("--N", 2048, "--d", 64, "--hardware", "a100-80gb", "--schedule", "flash2")
    said = iosim("plot", "--picture", "roofline", *line, "-o", tmp_path / "r.svg").stderr
    assert said == iosim("roofline", *line).stderr and "--hardware implies fp32" in said


def test_options_with_no_part_in_a_mask_are_named(iosim, tmp_path):
    line = ("plot", "--picture", "mask", "--mask", "window:64", "--N", 256, "-o", tmp_path / "m.svg")
    assert iosim(*line, "--tiles", "16x16").stderr == ""
    one = iosim(*line, "--hardware", "h100")
    assert one.exit_code == 0 and one.stderr == "note: --hardware changes nothing in --picture mask\n"
    two = iosim(*line, "--M", "100KB", "--schedule", "flash2").stderr
    assert two == "note: --M and --schedule change nothing in --picture mask\n"


def test_few_points_are_the_ticks():
    """Each counted N has its tick and its mark. Nine points are too many, and a staircase has corners, not points."""

    def over(x, **more):
        return curves.Chart("", "N", "total", [curves.ChartLine("flash2", x, x, [True] * len(x))], **more)

    few, many = [1024.0, 3000.0, 4096.0], [1024.0 + 700 * n for n in range(9)]
    assert over(few).ticks("x") == [(1024.0, "1024"), (3000.0, "3000"), (4096.0, "4096")]
    assert chart_svg(over(few)).count("<circle") == 3
    for chart in (over(many), over(few, steps=True)):
        assert 1024.0 not in [x for x, _ in chart.ticks("x")] and "<circle" not in chart_svg(chart)


def test_grey_is_for_what_is_proven():
    chart = traffic_chart({"N": "512", "d": "32", "M": "8KB,16KB"})
    looks = zip(chart.lines, curves.colours(chart.lines), curves.tints(chart.lines), strict=True)
    data = {line.label: (line.key, colour, tint) for line, colour, tint in looks if line.kind == "data"}
    assert len(set(data.values())) == len(data) and all(colour != "#767676" for _, colour, _ in data.values())
    by_schedule = {key: {colour for name, colour, _ in data.values() if name == key} for key, *_ in data.values()}
    assert all(len(found) == 1 for found in by_schedule.values()), "one colour a schedule"
    assert len(set().union(*by_schedule.values())) == len(by_schedule) >= 4


# ---------------------------------------------------------------- masks


def test_shares_by_hand():
    """causal, 5 x 5 tokens in tiles of 2 x 2: the diagonal tiles see 3 of 4 pairs, the corner of one token all."""
    tiles = tilemap.tile_map("causal", 5, None, Tiling(2, 2))
    assert tiles.shares.tolist() == [[0.75, 0, 0], [1, 0.75, 0], [1, 1, 1]]
    assert "6 of 9 tiles active" in tiles.title


def test_a_dense_map_is_whole():
    assert tilemap.tile_map("dense", 10, 4, Tiling(4, 3)).shares.tolist() == [[1, 1]] * 3


def test_tiles_that_are_active_are_those_that_are_counted():
    from iosim.pictures.mask_text import describe

    for mask in ("causal&window:9", "global:3|strided:7", "~causal", "window:1b"):
        tiles = tilemap.tile_map(mask, 50, 40, Tiling(8, 6))
        assert int((tiles.shares > 0).sum()) == describe(mask, Tiling(8, 6), 50, 40)["active_tiles"]


# ---------------------------------------------------------------- files


def png_size(made):
    assert made[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", made[16:24])


PICTURES = {
    "traffic": {"d": 16},
    "gap": {"d": 16},
    "roofline": {"d": 64, "hardware": "h100", "tiles": "64x64"},
    "footprint": {"d": 16, "M": "4KB"},
    "timeline": {"d": 16, "M": "4KB"},
    "mask": {"mask": "causal", "tiles": "32x32"},
}


@pytest.mark.needs("vl_convert")
@pytest.mark.parametrize("picture", PICTURES)
def test_png_and_pdf_are_the_svg(picture):
    """They have the SVG's size, and all of its parts: without one kind of them, both files are other ones."""
    svg = package.plot(picture=picture, N=256, **PICTURES[picture]).svg()
    width, height = (float(re.search(f'{side}="([0-9.]+)"', svg)[1]) for side in ("width", "height"))
    png, pdf = draw.png_of(svg), draw.pdf_of(svg)
    assert png_size(png) == (round(2 * width), round(2 * height)) and png == draw.png_of(svg)
    box = re.search(rb"/MediaBox \[0 0 ([0-9.]+) ([0-9.]+)\]", pdf)
    assert (float(box[1]), float(box[2])) == pytest.approx((0.75 * width, 0.75 * height), abs=0.01)
    assert b"LiberationSans" in pdf, "letters are letters, and the file has their font"
    for tag in {*re.findall("<(text|path|circle|rect|polyline|polygon)\\b", svg)}:
        less = re.sub(f"<{tag}\\b[^>]*?(/>|>.*?</{tag}>)", "", svg)
        assert draw.png_of(less) != png and len(draw.pdf_of(less)) != len(pdf), tag


def test_exponents_are_raised_digits():
    """Few fonts have all raised digits, so a file that is not SVG has usual ones, placed higher."""
    assert draw.raised("<text>N²d²/M</text>") == "<text>N²d²/M</text>"
    raised = '<text>2·10<tspan dy="-4" font-size="9">−12</tspan></text>'
    assert draw.raised("<text>2·10⁻¹²</text>") == raised


@pytest.mark.needs("vl_convert")
def test_a_picture_of_traffic(iosim, tmp_path):
    answer = iosim("plot", *SIZES, "-o", tmp_path / "a.png")
    assert answer.exit_code == 0 and answer.stdout == ""
    assert png_size((tmp_path / "a.png").read_bytes())[0] == 1440
    assert [f.name for f in tmp_path.iterdir()] == ["a.png"]


def test_svg_names_every_line_and_repeats(iosim, tmp_path):
    for name in ("a.svg", "b.svg"):
        assert iosim("plot", "--N", "256:1024:x2", "--d", 16, "--M", "16KB", "-o", tmp_path / name).exit_code == 0
    text = (tmp_path / "a.svg").read_text()
    for words in (
        "flash2, best tiles",
        "standard",
        "floor",
        "N, queries",
        "traffic, words",
        "M = 16 KiB",
    ):
        assert words in text
    assert text == (tmp_path / "b.svg").read_text()


def test_a_picture_of_a_sweep(iosim, tmp_path):
    assert iosim("sweep", *SIZES, "--M", "4KB:64KB:x2", "-o", tmp_path / "s.csv").exit_code == 0
    args = ("-x", "M_bytes", "-y", "total", "--by", "schedule", "-o", tmp_path / "s.svg")
    assert iosim("plot", tmp_path / "s.csv", *args).exit_code == 0
    text = (tmp_path / "s.svg").read_text()
    assert "flash1, paper tiles" in text and "16 KiB" in text


def vertices(file):
    """How many points the longest line of an SVG has."""
    return max(len(line.split()) for line in re.findall(r'<polyline points="([^"]*)"', file.read_text()))


def test_steps_hold_a_value(iosim, tmp_path):
    pd.DataFrame({"M_bytes": range(1, 31), "total": range(1000, 10, -33)[:30]}).to_csv(tmp_path / "c.csv", index=False)
    args = ("plot", tmp_path / "c.csv", "-x", "M_bytes", "-y", "total")
    for name, more in (("a.svg", ()), ("b.svg", ("--steps",))):
        assert iosim(*args, *more, "-o", tmp_path / name).exit_code == 0
    assert (vertices(tmp_path / "a.svg"), vertices(tmp_path / "b.svg")) == (30, 59)


def test_a_picture_of_a_mask(iosim, tmp_path):
    args = ("--mask", "causal&window:64", "--N", 512, "--tiles", "32x32", "-o", tmp_path / "m.svg")
    assert iosim("plot", "--picture", "mask", *args).exit_code == 0
    assert "45 of 256 tiles active" in (tmp_path / "m.svg").read_text()


def test_without_vl_convert_the_exit_code_is_3(iosim, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    for name in ("a.png", "a.pdf"):
        answer = iosim("plot", *SIZES, "-o", tmp_path / name)
        assert answer.exit_code == 3 and "pip install 'iosim[plot]'" in answer.stderr and not [*tmp_path.iterdir()]
    with pytest.raises(MissingError):
        draw.converter()


BAD = {
    "no file": SIZES,
    "stdout": (*SIZES, "-o", "-"),
    "an ending that is none": (*SIZES, "-o", "a.jpg"),
    "no d": ("--N", 8, "-o", "a.png"),
    "one M": (*SIZES, "--M", "4KB", "-o", "a.png"),
    "two axes": ("--N", "8,16", "--d", 4, "--M", "1KB,2KB", "-o", "a.png"),
    "columns without a file": (*SIZES, "-x", "M_bytes", "-o", "a.png"),
    "a file that is not there": ("none.csv", "-x", "a", "-y", "b", "-o", "a.png"),
    "a mask without one": ("--picture", "mask", "--N", 8, "-o", "a.png"),
    "a mask too large": ("--picture", "mask", "--mask", "causal", "--N", 10**6, "-o", "a.png"),
    "a picture that is none": (*SIZES, "--picture", "pie", "-o", "a.png"),
    "a misspelt schedule": (*SIZES, "--schedule", "flash3", "-o", "a.png"),
}


@pytest.mark.parametrize("args", BAD.values(), ids=BAD)
def test_bad_input_is_one_message(iosim, tmp_path, monkeypatch, args):
    monkeypatch.chdir(tmp_path)
    answer = iosim("plot", *args)
    assert answer.exit_code == 2 and answer.stdout == "" and "allowed" in answer.stderr
    assert list(tmp_path.iterdir()) == []


def drawn(picture, **options):
    """A line of `plot` with options by name; N and d by default."""
    given = {"N": 64, "d": 8} | options
    words = [word for name, value in given.items() if value is not None for word in (f"--{name}", str(value))]
    return ("--picture", picture, *words)


ADVICE = {  # a line that is refused, a part of the message, and the line that the message says to write
    "traffic at one M": (
        drawn("traffic", M="4KB"), "several values, as 16KB:1MB:x2, or none; or several --N, as --N 1024,2048",
        [drawn("traffic", M="16KB:1MB:x2"), drawn("traffic"), drawn("traffic", N="1024,2048", M="4KB")]),
    "traffic against both": (
        drawn("traffic", N="64,128", M="1KB:4KB:x2"), "as --N 64,128 --M 1KB, or --N 64 --M 1KB:4KB:x2",
        [drawn("traffic", N="64,128", M="1KB"), drawn("traffic", M="1KB:4KB:x2")]),
    "traffic against N without M": (
        drawn("traffic", N="64,128"), "one value beside several --N, as --M 100KB; or give --tiles as 128x64",
        [drawn("traffic", N="64,128", M="100KB"), drawn("traffic", N="64,128", tiles="128x64")]),
    "traffic at one GPU": (
        drawn("traffic", hardware="h100"), "as v100,h100, or none for every M; or several --N, as --N 1024,2048",
        [drawn("traffic", hardware="v100,h100"), drawn("traffic", N="1024,2048", hardware="h100")]),
    "too many lines": (
        drawn("traffic", d="8,16", M="1KB,2KB"), "--schedule, --d: found '10 lines'; allowed: at most 8 lines; name fewer",
        [drawn("traffic", d="8,16", M="1KB,2KB", schedule="flash1,flash2")]),
    "nothing": (drawn("traffic", N=None, d=None), "--N, --d: found 'nothing'", [drawn("traffic", N=8192, d=128)]),
    "a gap at one M": (
        drawn("gap", M="4KB"), "leave it out; --picture traffic takes a range, as --M 16KB:1MB:x2",
        [drawn("gap"), drawn("traffic", M="16KB:1MB:x2")]),
    "a gap over a range of M": (drawn("gap", M="1KB:4KB:x2"), "--M: found '1KB:4KB:x2'; allowed: no --M", [drawn("gap")]),
    "a gap of tiles": (drawn("gap", tiles="8x8"), "--tiles: found '8x8'; allowed: no --tiles", [drawn("gap")]),
    "a gap of several N": (
        drawn("gap", N="64,128"), "--picture gap, as --N 64; --picture traffic, --picture time and --picture predicted take several",
        [drawn("gap"), drawn("traffic", N="64,128", M="4KB"),
         drawn("predicted", N="256,512", d=64, hardware="h100", tiles="64x64")]),
    "a roofline over M": (
        drawn("roofline", hardware="h100", M="4KB:8KB:x2"), "as --M 4KB; --picture traffic takes several",
        [drawn("roofline", hardware="h100", M="4KB"), drawn("traffic", M="4KB:8KB:x2")]),
    "a roofline of nothing": (
        drawn("roofline", N=None, d=None), "as --N 8192 --d 128 --hardware h100",
        [drawn("roofline", N=8192, d=128, hardware="h100", schedule="flash2", tiles="128x64")]),
    "SRAM over M": (drawn("race", M="1KB:4KB:x2"), "as --M 1KB;", [drawn("race", M="4KB", N=64, d=16)]),
    "SRAM without M": (
        drawn("race"), "Br x Bc as in 64x64; or give --M",
        [drawn("race", tiles="64x64"), drawn("race", M="4KB", N=64, d=16)]),
    "one predicted N": (
        drawn("predicted", N=256, d=64, hardware="h100", tiles="64x64"), "found '256'; allowed: 2 to 16 values, as 1024:8192:x2",
        [drawn("predicted", N="256:512:x2", d=64, hardware="h100", tiles="64x64", schedule="flash2")]),
    "a mask of nothing": (
        drawn("mask", N=None, d=None), "as --mask causal --N 8192", [drawn("mask", N=8192, d=None, mask="causal")]),
}  # fmt: skip


@pytest.mark.parametrize("wrong, said, right", ADVICE.values(), ids=ADVICE)
def test_a_message_says_what_to_write(iosim, tmp_path, wrong, said, right):
    """Whoever follows it gets a picture, and not another message."""
    refused = iosim("plot", *wrong, "-o", tmp_path / "a.svg")
    assert refused.exit_code == 2 and said in refused.stderr and refused.stderr.count("\n") == 1, refused.stderr
    for line in right:
        answer = iosim("plot", *line, "-o", tmp_path / "a.svg")
        assert answer.exit_code == 0, (line, answer.stderr)


FILES = {
    "a picture of a problem": ("-x", "M_bytes", "-y", "total", "--picture", "gap"),
    "a column that is none": ("-x", "M_byte", "-y", "total"),
    "a column of texts": ("-x", "M_bytes", "-y", "schedule"),
    "no columns": (),
    "options of a problem": ("-x", "M_bytes", "-y", "total", "--N", 8),
}


@pytest.mark.parametrize("args", FILES.values(), ids=FILES)
def test_bad_columns_are_one_message(iosim, tmp_path, args):
    rows().to_csv(tmp_path / "s.csv", index=False)
    answer = iosim("plot", tmp_path / "s.csv", *args, "-o", tmp_path / "a.png")
    assert answer.exit_code == 2 and "allowed" in answer.stderr and not (tmp_path / "a.png").exists()
