"""The HTML page: well-formed, self-contained, and every number in it is one that was counted."""

import re
import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import pytest
from paths import ROOT

import iosim as package
from iosim.counting.count import count
from iosim.distributed.page import links_page
from iosim.drawing.colours import COLOURS, GREY, INK, OTHERS, TENSORS, contrast, ink_on
from iosim.drawing.page import STYLE
from iosim.drawing.svg import text_width
from iosim.pictures.batch import batch_page
from iosim.pictures.page import bars_svg

SIZES = ("--N", 1024, "--d", 64, "--M", "64KB")
VOID = {"meta", "br"}


class Page(HTMLParser):
    """Tables as rows of texts, tags that are open, and everything that refers to something outside."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.tables, self.outside, self.tags, self.words = [], [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.outside += [v for k, v in attributes if k in ("src", "href", "data") or "http" in (v or "")]
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data):
        self.words.append(data)
        if self.open and self.open[-1] in ("td", "th"):
            self.tables[-1][-1][-1] += data


@pytest.fixture
def page(iosim):
    def read(*args):
        answer = iosim("report", *args)
        assert answer.exit_code == 0, answer.output
        return Page(answer.stdout), answer.stdout

    return read


def number(text):
    return int(text.replace(",", ""))


def test_it_is_whole_and_needs_nothing(page):
    parsed, text = page(*SIZES)
    assert parsed.open == [] and parsed.outside == []
    assert text.startswith("<!doctype html>") and not {"link", "img", "iframe"} & set(parsed.tags)
    assert "url(" not in re.sub(r"url\(#[\w-]+\)", "", text) and "@import" not in text
    assert "prefers-color-scheme: dark" in text and "@media print" in text


def test_the_table_is_what_was_counted(page):
    parsed, _ = page(*SIZES)
    head, *rows = parsed.tables[0]
    found = [
        (row[head.index("schedule")], number(row[head.index("reads")]), number(row[head.index("writes")]))
        for row in rows
    ]
    assert found == [(r.schedule, r.reads, r.writes) for r in count(N=1024, d=64, M="64KB").results]
    sizes = [row[head.index("bytes")] for row in rows]
    assert all(re.fullmatch(r"[\d.]+ [KMG]iB", size) for size in sizes), "one unit system, as on a terminal"
    verdicts = {(row[0], row[1].split()[0] == "paper"): row[head.index("fits")] for row in rows}
    assert verdicts["flash1", True] == "NO" and verdicts["flash1", False] == "yes"


def test_the_headline_has_the_answer(page):
    parsed, _ = page(*SIZES)
    answer = count(N=1024, d=64, M="64KB").answer
    assert parsed.words.index(answer) < parsed.words.index("Words moved")


@pytest.mark.parametrize("mask", ["dense", "causal"])
def test_the_picture_has_the_floor_of_each_M(page, mask):
    """Under a mask too: the thin grey line is the floor at every M of the chart."""
    from iosim.masks import parse_mask
    from iosim.pictures.traffic import traffic_chart

    args = ("--N", 256, "--d", 16, "--M", "8KB", "--mask", mask)
    parsed, _ = page(*args)
    assert "floor" in parsed.words
    chart = traffic_chart({"N": 256, "d": 16, "mask": mask})
    p = package.Attention(256, 16, mask=parse_mask(mask))
    assert chart.line("floor").y == [package.floor(p, int(M)).words for M in chart.line("floor").x]


@pytest.mark.parametrize("M, name", [("16", "16 B"), ("2KB", "2 KiB"), ("1GB", "1 GiB")])
def test_the_picture_has_the_M_of_the_question(page, M, name):
    """Its line is inside, however small or large M is: no tiles fit in 16 bytes, and 1 GiB holds all many times."""
    _, text = page("--N", 64, "--d", 8, "--M", M, "--schedule", "flash2")
    picture = text[text.index("Traffic against M") :].partition("</svg>")[0]
    left, width = map(float, re.search(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', picture).groups())
    (place,) = re.findall(r'class="mark"[^>]* d="M([\d.]+) ', picture)
    assert left + 20 < float(place) < left + width - 20 and f">M = {name}</text>" in picture
    ticks = dict(re.findall(r'<text x="([\d.]+)" y="[\d.]+" text-anchor="middle">(\d+ [KMG]?i?B)<', picture))
    assert ticks.get(place, name) == name, "a tick below the line says the same"


def test_bounds_have_their_kind(page):
    parsed, _ = page(*SIZES)
    rows = {row[0]: row for row in parsed.tables[1]}
    assert "floor" in rows["compulsory"] and number(rows["compulsory"][1]) == 4 * 1024 * 64
    assert "order; the constant is unknown" in rows["N^2 d^2 / M"]


def test_sram_by_block_adds_up_to_the_footprint(page):
    parsed, text = page(*SIZES, "--schedule", "flash1", "--tiles", "32x48")
    rows = parsed.tables[2][1:]
    assert {row[1]: number(row[2]) for row in rows} == {
        "K": 2 * 48 * 64, "V": 2 * 48 * 64, "Q": 2 * 32 * 64, "O": 2 * 32 * 64, "l": 2 * 32, "m": 2 * 32, "S": 2 * 32 * 48,
    }  # fmt: skip
    assert (
        sum(number(row[2]) for row in rows)
        == count(N=1024, d=64, tiles="32x48", schedules=["flash1"])["flash1"].sram_peak_bytes
    )


def test_the_fullest_moment_is_not_the_last():
    from iosim import Attention, Folded, Tiling
    from iosim.pictures.fullest import Residents

    def text(chip, p, t):
        q, l = chip.load("Q"), chip.load("l")
        chip.free(q)
        m = chip.load("m")
        chip.free(l, m)

    room = Residents()
    Folded(Attention(10, 4), room).run(text, Tiling(1, 1))
    assert room.parts == [("Q", 80), ("l", 20)]


@pytest.mark.parametrize("schedule", ["standard-tiled", "flash2"])
def test_sram_of_best_tiles(page, schedule):
    parsed, _ = page(*SIZES, "--schedule", schedule)
    peak = count(N=1024, d=64, M="64KB", schedules=[schedule])[schedule].sram_peak_bytes
    assert sum(number(row[2]) for row in parsed.tables[2][1:]) == peak


def test_the_curve_has_every_schedule_and_the_place_of_m(page):
    parsed, _ = page(*SIZES)
    words = set(parsed.words)
    assert {"flash1, paper tiles", "flash2, best tiles", "standard", "floor", "M = 64 KiB"} <= words


def points(text):
    return [
        [tuple(map(float, p.split(","))) for p in line.split()]
        for line in re.findall(r'<polyline points="([^"]*)"', text)
    ]


def test_lines_stay_on_the_sheet_and_fall_with_m(page):
    _, text = page(*SIZES, "--schedule", "flash2")
    lines = points(text)
    assert lines and all(0 <= x <= 860 for line in lines for x, _ in line)
    flash2 = max(lines, key=len)
    assert all(b[1] >= a[1] - 0.05 for a, b in zip(flash2, flash2[1:], strict=False)), (
        "less traffic is lower on the sheet"
    )


def test_a_mask_has_its_picture(page):
    dense, _ = page(*SIZES)
    parsed, text = page("--N", 256, "--d", 16, "--mask", "causal&window:32", "--tiles", "16x16")
    assert "Mask" not in dense.words and "Mask" in parsed.words
    active = int(re.search(r"([\d,]+) of [\d,]+ tiles active", text)[1].replace(",", ""))
    assert text.count('class="tile"') == active > 0, "tiles wide enough to be apart are one rectangle each"


@pytest.mark.parametrize("args", [("--hardware", "h100"), ("--M", "100KB")], ids=str)
def test_a_mask_is_seen_in_the_tiles_of_the_winner(page, args):
    """Not in the paper's tiles of another schedule, which come before it in the table."""
    sizes = {"M": "100KB"} if args[0] == "--M" else {"hardware": "h100"}
    results = [r for r in count(1024, 64, **sizes, mask="causal").results if r.total and r.fits]
    best = min(results, key=lambda r: r.total_bytes)
    _, text = page("--N", 1024, "--d", 64, "--causal", *args)
    several = -(-1024 // best.Bc // 512)  # at most 512 tiles a side are drawn
    assert f"Nk = 1024, tiles {best.Br}x{several * best.Bc}: " in text
    said = f", as {best.schedule} {best.Br}x{best.Bc} sees it" + f", {several} of its tiles in one" * (several > 1)
    assert f"{said}. Queries down" in text and (several > 1) == (args[0] == "--M")


def test_texts_are_escaped(page):
    parsed, text = page("--N", 64, "--d", 8, "--M", "4KB", "--mask", "causal&window:8")
    assert "causal&amp;window:8" in text and "causal&window" not in text
    assert any("causal&window:8" in words for words in parsed.words)


@pytest.mark.parametrize(
    "args", [("--N", 1, "--d", 1, "--M", 64), ("--N", 5, "--d", 3, "--M", 16), (*SIZES, "--heads", 8)], ids=str
)
def test_small_and_large(page, args):
    parsed, text = page(*args)
    assert parsed.open == [] and "nan" not in text


def test_a_file_is_the_same_page(iosim, tmp_path):
    assert iosim("report", *SIZES, "-o", tmp_path / "r.html").exit_code == 0
    assert Page((tmp_path / "r.html").read_text()).open == []
    assert [f.name for f in tmp_path.iterdir()] == ["r.html"]


BAD = {
    "no M": ("--N", 8, "--d", 4),
    "no N": ("--d", 4, "--M", "1KB"),
    "an axis": ("--N", "8,16", "--d", 4, "--M", "1KB"),
    "a misspelt mask": (*SIZES, "--mask", "casual"),
    "a folder that is not there": (*SIZES, "-o", "/no/such/folder/r.html"),
}


@pytest.mark.parametrize("args", BAD.values(), ids=BAD)
def test_bad_input_is_one_message(iosim, args):
    answer = iosim("report", *args)
    assert answer.exit_code == 2 and answer.stdout == "" and "allowed" in answer.stderr


@pytest.mark.parametrize(
    "name", ["Br x Bc means", "The floor is proven", "Words, which are single numbers", "Q has N rows"]
)
def test_terms_of_the_answer_are_explained_before_the_first_chart(page, name):
    """A first reader needs the terms next to the answer that uses them."""
    text = page(*SIZES)[1]
    assert text.index("class=answer") < text.index(name) < text.index("<svg")


def test_the_foot_has_the_question_and_no_path_of_this_machine(tmp_path):
    mask = tmp_path / "mask.npy"
    np.save(mask, np.tri(16, dtype=bool))
    line = ["report", "--N", "16", "--d", "4", "--tiles", "4x4", "--mask", f"file:{mask}"]
    text = page_of(line, tmp_path)
    assert str(tmp_path) not in text.partition("<footer>")[2]
    assert "<code>iosim report --N 16 --d 4 --tiles 4x4 --mask file:mask.npy</code>" in text


def page_of(line, folder):
    """The page of a command line that writes it into a folder."""
    file = folder / "page.html"
    subprocess.run([sys.executable, "-m", "iosim", *line, "-o", str(file)], cwd=ROOT, check=True)
    return file.read_text()


LEGEND = r'<li><span(?: class="(\w+)")? style="color:(#[0-9a-fA-F]{6});opacity:[\d.]+"></span>([^<]+)</li>'


def test_narrow_screens_have_the_names_of_lines_below_a_chart(page):
    """With the dashes of the lines: what does not fit at most M is dashed there too."""
    parsed, text = page(*SIZES)
    found = {name: dashes for dashes, _, name in re.findall(LEGEND, text)}
    assert {"flash2", "floor"} <= {name.partition(",")[0] for name in found}
    assert found["flash1, paper tiles"] == "dashed" and found["flash2, best tiles"] == found["floor"] == ""


# ---------------------------------------------------------------- contrast


LEAST = 4.5  # of letters and their ground, as the Web Content Accessibility Guidelines ask


def css_colours(mode):
    """The colours of the page in a mode, light or dark, by the names of the style sheet."""
    light, dark = (dict(re.findall(r"--(\w+): (#[0-9a-f]{3,6});", part)) for part in STYLE.split("@media")[:2])
    found = light if mode == "light" else {**light, **dark}
    return {name: c if len(c) == 7 else "#" + "".join(2 * digit for digit in c[1:]) for name, c in found.items()}


def drawn_in(mode, kind, colour):
    """What a colour of a picture (a `fill` or a `stroke`) is in a mode, by the rules of the style sheet."""
    dark = STYLE.split("@media")[1]
    rule = re.search(rf'\[{kind}="{colour}"\] {{ {kind}: ([^;]+); }}', dark) if mode == "dark" else None
    found = rule[1] if rule else colour
    return css_colours(mode)[found[6:-1]] if found.startswith("var(--") else found


def test_contrast_is_that_of_the_guidelines():
    assert contrast("#000000", "#ffffff") == pytest.approx(21) and contrast("#777777", "#ffffff") == pytest.approx(
        4.48, abs=0.01
    )


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_letters_can_be_read(mode, page):
    """Letters of the style sheet, and those of pictures: on the page, or on the bars that they stand on."""
    colours = css_colours(mode)
    assert colours["paper"] == {"light": "#ffffff", "dark": "#16181b"}[mode]
    for ink, ground in (("ink", "paper"), ("muted", "paper"), ("ink", "empty"), ("muted", "empty")):
        assert contrast(colours[ink], colours[ground]) >= LEAST, (ink, ground)
    _, text = page("--N", 512, "--d", 64, "--hardware", "h100", "--causal")
    text += batch_page(package.batch("3 * 1:400, 1:900", d=64, heads=4, kv_heads=2, hardware="h100"))
    text += links_page(package.links(512, 64, 4, heads=8, hardware="h100"))
    on_page = {*re.findall(r'<text[^>]* fill="(#\w{6})"', text)} - {"#FFFFFF", "#000000"}
    assert on_page == {GREY, INK}, "letters of other colours stand on bars of their own"
    assert all(contrast(drawn_in(mode, "fill", colour), colours["paper"]) >= LEAST for colour in on_page)
    bars = {*COLOURS, *TENSORS.values(), *OTHERS}
    assert all(contrast(ink_on(colour), colour) >= LEAST for colour in bars)


def test_lines_can_be_seen_in_the_dark():
    ground = css_colours("dark")["paper"]
    assert all(contrast(drawn_in("dark", "stroke", colour), ground) >= LEAST for colour in (*COLOURS, GREY, INK))


@pytest.mark.parametrize("sizes", [(100, 60, 97), (100, 99, 50), (30, 20, 10)], ids=str)
def test_the_mark_of_a_bar_chart_crosses_no_note(sizes):
    """The mark is at 100. A note stands beside its bar, or beyond the mark if that would cross it."""
    rows = [(f"bar {k}", [("Q", size)], "a note of some length") for k, size in enumerate(sizes)]
    drawn = bars_svg(rows, (100, "M"), "bars", "B")
    mark = float(re.search(r'class="mark"[^>]* d="M([\d.]+) ', drawn)[1])
    notes = [float(x) for x in re.findall(r'<text x="([\d.]+)"[^>]*>a note', drawn)]
    assert len(notes) == len(sizes)
    assert all(x > mark or x + text_width("a note of some length") < mark for x in notes)


def test_a_picture_without_text_is_no_wider_than_a_phone(iosim):
    """The mask; charts keep a width at which their text can be read, and can be moved."""
    page = iosim("report", "--N", 64, "--d", 16, "--M", "4KB", "--causal").stdout
    assert ".wide > svg:has(text) { min-width: 38rem; }" in page
    mask = page[page.index("<h2>Mask</h2>") :]
    assert "<text" not in mask[: mask.index("</svg>")] and "<text" in page[: page.index("<h2>Mask</h2>")]
