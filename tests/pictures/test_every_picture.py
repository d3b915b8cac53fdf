"""Every kind of picture that is there: its texts keep apart and can be read, and its files are what it shows."""

import re
import struct
import sys
from functools import cache
from xml.etree import ElementTree

import pytest
from svg_texts import boxes, faults_of, overlapping, size_of
from wings_here import skip_if_gone

import iosim
from iosim.drawing import draw
from iosim.drawing.asked import places
from iosim.drawing.chart import Chart, ChartLine
from iosim.drawing.sheet import Sheet
from iosim.errors import MissingError
from iosim.pictures.traffic import sheet_of_rows

EXAMPLES = {
    "traffic": [{"N": 512, "d": 32, "mask": "causal"}, {"N": "64:4096:x2", "d": 32, "M": "16KB"}],
    "gap": [{"N": 256, "d": 16}, {"N": 64, "d": 8, "mask": "causal", "schedules": "flash1,flash2,block-sparse-q"},
            {"N": 64, "d": 8, "schedules": "flash2"}, {"N": 64, "d": 8, "schedules": "state-fused"}],
    "mask": [{"mask": "causal&window:64", "N": 512, "tiles": "32x32"}, {"mask": "dense", "N": 512, "Nk": 2048},
             {"mask": "global:20|strided:64", "N": 512, "Nk": 128, "tiles": "32x32"}],
    "race": [{"N": 64, "d": 16, "tiles": "16x16"}],
    "ring": [{"d": 128, "rule": "gdn"}],
    "roofline": [{"N": 1024, "d": 64, "heads": 4, "tiles": "64x64", "hardware": "h100"}],
    "time": [{"N": "2048:8192:x2", "d": 128, "heads": 32, "schedules": "flash2", "tiles": "128x128", "hardware": "h100"}],
    "links": [{"N": 4096, "d": 64, "heads": 8, "ranks": "2:8:x2"}],
}  # fmt: skip
CASES = [(word, options) for word in places() for options in EXAMPLES[word]]
FIRST = [(word, EXAMPLES[word][0]) for word in places()]


def rows(N, d, schedules=(), M="1KB:16KB:x4", **more):
    skip_if_gone(["sweep"])
    return iosim.sweep(N=list(N), d=list(d), M=M, schedules=list(schedules), **more)


SHEETS = {
    "two sizes": lambda: sheet_of_rows(rows((64, 128), (8, 16)), "M_bytes", "total", ("schedule",)),
    "four columns": lambda: sheet_of_rows(rows((64, 128), (8, 12, 16, 20)), "M_bytes", "total", ("schedule",)),
    "eight problems": lambda: sheet_of_rows(
        rows((1024, 2048, 4096, 8192), (64, 128), ["flash1", "standard"], "20KB:1200KB:x2"), "M_bytes", "total", ("schedule",)),
    "long names": lambda: sheet_of_rows(
        rows((64, 128), (8,), ["flash2", "block-sparse", "block-sparse-q"], dtype=["bf16", "fp32"],
             mask=["causal", "causal&window:1024|global:64"]), "M_bytes", "ratio_to_standard", ("schedule",)),
    "against N": lambda: sheet_of_rows(rows((64, 96, 1024), (8, 16, 32), batch=3), "N", "total", ("schedule",)),
    "crowded": lambda: Sheet.of(Chart("many lines end at one place", "M_bytes", "total", [
        ChartLine(f"schedule number {k}, best tiles", [1.0, 2.0**k], [8.0, 3.0], [True, True]) for k in range(1, 9)])),
}  # fmt: skip


@cache
def svg_of(case):
    word, options = case
    return iosim.plot(picture=word, **dict(options)).svg()


def svgs():
    return [(word, tuple(options.items())) for word, options in CASES]


def judge(text):
    """The texts keep apart and inside, and have 7.6 pixels or more where the picture is 500 pixels wide."""
    ElementTree.fromstring(text.encode())
    assert len(boxes(text)) >= 6 and faults_of(text) == [] and len(text) < 250_000
    sizes = [float(size) for size in re.findall(r'font-size="([\d.]+)"', text)]
    assert min(sizes) * 500 / size_of(text)[0] >= 7.6


@pytest.mark.parametrize("case", svgs(), ids=str)
def test_texts_keep_apart_and_can_be_read(case):
    judge(svg_of(case))


@pytest.mark.parametrize("name", SHEETS)
def test_texts_of_sheets_keep_apart_and_can_be_read(name):
    judge(SHEETS[name]().svg())


def test_boxes_that_overlap_are_found():
    touching = '<text x="10" y="20" text-anchor="end">256 KiB</text><text x="12" y="20" text-anchor="start">1</text>'
    assert overlapping(boxes(touching)) == [("256 KiB", "1")]
    near = '<text x="10" y="20" text-anchor="start">abc</text><text x="20" y="22" text-anchor="start">def</text>'
    assert overlapping(boxes(near)) == [("abc", "def")]


@pytest.mark.parametrize("word, options", FIRST)
def test_the_command_draws_it_and_says_what_is_drawn(word, options, ask, iosim, tmp_path, monkeypatch):
    """Without a library; twice the same. JSON has what Python has."""
    import iosim as package

    monkeypatch.setitem(sys.modules, "vl_convert", None)
    named = [(f"--{'schedule' if name == 'schedules' else name}", str(value)) for name, value in options.items()]
    line = ("plot", "--picture", word, *(part for pair in named for part in pair))
    done = iosim(*line, "-o", tmp_path / "a.svg")
    assert done.exit_code == 0 and done.stdout == "", done.stderr
    drawn = package.plot(picture=word, **options)
    assert (tmp_path / "a.svg").read_text() == drawn.svg() and drawn._repr_html_().startswith("<svg")
    said, kept = ask(*line), drawn.to_dict()
    assert kept.items() <= {**said, **{key: kept[key] for key in ("notes",) if key in kept}}.items()
    assert iosim(*line, "-o", tmp_path / "a.csv").exit_code == 0
    assert len((tmp_path / "a.csv").read_text().splitlines()) == len(drawn.to_rows()) + 1


# ---------------------------------------------------------------- PNG and PDF


@pytest.mark.needs("vl_convert")
@pytest.mark.parametrize("word, options", [case for case in FIRST if case[0] != "race"])
def test_png_and_pdf_are_the_svg(word, options):
    """They have the SVG's size, and all of its parts: without one kind of them, both files are other ones."""
    svg = iosim.plot(picture=word, **options).svg()
    width, height = size_of(svg)
    png, pdf = draw.png_of(svg), draw.pdf_of(svg)
    assert png[:8] == b"\x89PNG\r\n\x1a\n" and struct.unpack(">II", png[16:24]) == (round(2 * width), round(2 * height))
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


def test_without_vl_convert_the_exit_code_is_3(iosim, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    for name in ("a.png", "a.pdf"):
        answer = iosim("plot", "--N", 64, "--d", 8, "-o", tmp_path / name)
        assert answer.exit_code == 3 and "pip install 'iosim[plot]'" in answer.stderr and not [*tmp_path.iterdir()]
    with pytest.raises(MissingError):
        draw.converter()
