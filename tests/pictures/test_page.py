"""The HTML page: well-formed, self-contained, and every number in it is one that was counted."""

import re
import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import pytest
from paths import ROOT

import iosim as package
from iosim import Attention, Folded, Tiling
from iosim.counting.count import count
from iosim.drawing.colours import COLOURS, GREY, INK, OTHERS, TENSORS, contrast, ink_on
from iosim.drawing.page import STYLE
from iosim.drawing.svg import text_width
from iosim.pictures.fullest import Residents
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
    for args in (SIZES, ("--N", 1, "--d", 1, "--M", 64), ("--N", 5, "--d", 3, "--M", 16)):
        parsed, text = page(*args)
        assert parsed.open == [] and parsed.outside == [] and "nan" not in text
        assert text.startswith("<!doctype html>") and not {"link", "img", "iframe"} & set(parsed.tags)
        assert "url(" not in re.sub(r"url\(#[\w-]+\)", "", text) and "@import" not in text
    assert "prefers-color-scheme: dark" in text and "@media print" in text


def test_the_table_is_what_was_counted(page):
    parsed, _ = page(*SIZES)
    head, *rows = parsed.tables[0]
    found = [(row[head.index("schedule")], *(number(row[head.index(k)]) for k in ("reads", "writes"))) for row in rows]
    report = count(N=1024, d=64, M="64KB")
    assert found == [(r.schedule, r.reads, r.writes) for r in report.results]
    sizes = [row[head.index("bytes")] for row in rows]
    assert all(re.fullmatch(r"[\d.]+ [KMG]iB", size) for size in sizes), "one unit system, as on a terminal"
    verdicts = {(row[0], row[1].split()[0] == "paper"): row[head.index("fits")] for row in rows}
    assert verdicts["flash1", True] == "NO" and verdicts["flash1", False] == "yes"
    assert parsed.words.index(report.answer) < parsed.words.index("Words moved")
    bounds = {row[0]: row for row in parsed.tables[1]}
    assert "floor" in bounds["compulsory"] and number(bounds["compulsory"][1]) == 4 * 1024 * 64
    assert "order; the constant is unknown" in bounds["N^2 d^2 / M"]


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


def test_sram_by_block_adds_up_to_the_footprint(page):
    parsed, _ = page(*SIZES, "--schedule", "flash1", "--tiles", "32x48")
    rows = {row[1]: number(row[2]) for row in parsed.tables[2][1:]}
    assert rows == {"K": 2 * 48 * 64, "V": 2 * 48 * 64, "Q": 2 * 32 * 64, "O": 2 * 32 * 64, "l": 2 * 32, "m": 2 * 32,
                    "S": 2 * 32 * 48}  # fmt: skip
    assert sum(rows.values()) == count(1024, 64, tiles="32x48", schedules="flash1")["flash1"].sram_peak_bytes


def test_the_fullest_moment_is_not_the_last():
    def text(chip, p, t):
        q, l = chip.load("Q"), chip.load("l")
        chip.free(q)
        m = chip.load("m")
        chip.free(l, m)

    room = Residents()
    Folded(Attention(10, 4), room).run(text, Tiling(1, 1))
    assert room.parts == [("Q", 80), ("l", 20)]


def test_the_page_has_bars_of_words_and_a_roofline_if_there_is_one(page):
    _, text = page(*SIZES)
    for name, words in count(N=1024, d=64, M="64KB")["flash1"].tensors.items():
        assert f"<title>{name}: {words['reads'] + words['writes']:,} words</title>" in text
    if not hasattr(package, "roofline"):
        return
    assert "On a GPU: H100" in text and "so this is an example" in text
    named = page(*SIZES[:4], "--hardware", "t4")[1]
    assert "On a GPU: T4" in named and "so this is an example" not in named
    unstated = page(*SIZES[:4], "--hardware", "t4", "--dtype", "fp8")[1]
    assert "On a GPU: T4" in unstated and "fp8 products" not in unstated and "fp16 products" in named


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


def test_a_mask_has_its_picture(page):
    parsed, text = page("--N", 256, "--d", 16, "--mask", "causal&window:32", "--tiles", "16x16")
    assert "Mask" not in page(*SIZES)[0].words and "Mask" in parsed.words
    active = int(re.search(r"([\d,]+) of [\d,]+ tiles active", text)[1].replace(",", ""))
    assert text.count('class="tile"') == active > 0, "tiles wide enough to be apart are one rectangle each"
    assert "causal&amp;window:32" in text and "causal&window" not in text
    mask = text[text.index("Mask</h2>") :]
    assert "<text" not in mask[: mask.index("</svg>")], "it is no wider than a phone"


def test_terms_of_the_answer_are_explained_before_the_first_chart(page):
    """A first reader needs the terms next to the answer that uses them."""
    text = page(*SIZES)[1]
    for name in ("Br x Bc means", "The floor is proven", "Words, which are single numbers", "Q has N rows"):
        assert text.index("class=answer") < text.index(name) < text.index("<svg")
    assert "Attention computes" not in page(*SIZES, "--schedule", "matmul-tiled")[1]


def test_the_foot_has_the_question_and_no_path_of_this_machine(tmp_path):
    mask, file = tmp_path / "mask.npy", tmp_path / "page.html"
    np.save(mask, np.tri(16, dtype=bool))
    line = ["report", "--N", "16", "--d", "4", "--tiles", "4x4", "--mask", f"file:{mask}", "-o", str(file)]
    subprocess.run([sys.executable, "-m", "iosim", *line], cwd=ROOT, check=True)
    assert str(tmp_path) not in file.read_text().partition("<footer>")[2]
    assert "<code>iosim report --N 16 --d 4 --tiles 4x4 --mask file:mask.npy</code>" in file.read_text()


LEGEND = r'<li><span(?: class="(\w+)")? style="color:(#[0-9a-fA-F]{6});opacity:[\d.]+"></span>([^<]+)</li>'


def test_narrow_screens_have_the_names_of_lines_below_a_chart(page):
    """With the dashes of the lines: what does not fit at most M is dashed there too."""
    found = {name: dashes for dashes, _, name in re.findall(LEGEND, page(*SIZES)[1])}
    assert {"flash2", "floor"} <= {name.partition(",")[0] for name in found}
    assert found["flash1, paper tiles"] == "dashed" and found["flash2, best tiles"] == found["floor"] == ""


@pytest.mark.parametrize("sizes", [(100, 60, 97), (100, 99, 50), (30, 20, 10)], ids=str)
def test_the_mark_of_a_bar_chart_crosses_no_note(sizes):
    """The mark is at 100. A note stands beside its bar, or beyond the mark if that would cross it."""
    rows = [(f"bar {k}", [("Q", size)], "a note of some length") for k, size in enumerate(sizes)]
    drawn = bars_svg(rows, (100, "M"), "bars", "B")
    mark = float(re.search(r'class="mark"[^>]* d="M([\d.]+) ', drawn)[1])
    notes = [float(x) for x in re.findall(r'<text x="([\d.]+)"[^>]*>a note', drawn)]
    assert len(notes) == len(sizes)
    assert all(x > mark or x + text_width("a note of some length") < mark for x in notes)


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
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_letters_and_lines_can_be_seen(mode, page):
    """Letters of the style sheet, and those of pictures: on the page, or on the bars that they stand on."""
    colours = css_colours(mode)
    assert colours["paper"] == {"light": "#ffffff", "dark": "#16181b"}[mode]
    for ink, ground in (("ink", "paper"), ("muted", "paper"), ("ink", "empty"), ("muted", "empty")):
        assert contrast(colours[ink], colours[ground]) >= LEAST, (ink, ground)
    _, text = page("--N", 512, "--d", 64, "--hardware", "h100", "--causal")
    on_page = {*re.findall(r'<text[^>]* fill="(#\w{6})"', text)} - {"#FFFFFF", "#000000"}
    assert on_page <= {GREY, INK}, "letters of other colours stand on bars of their own"
    assert all(contrast(drawn_in(mode, "fill", colour), colours["paper"]) >= LEAST for colour in (GREY, INK))
    assert all(contrast(ink_on(colour), colour) >= LEAST for colour in {*COLOURS, *TENSORS.values(), *OTHERS})
    if mode == "dark":
        lines = (*COLOURS, GREY, INK)
        assert all(contrast(drawn_in(mode, "stroke", colour), colours["paper"]) >= LEAST for colour in lines)


def test_the_page_in_python_is_that_of_the_command(iosim, tmp_path):
    """But for the line at its foot, which says what was asked."""
    import iosim as package

    line = ("--N", 64, "--d", 8, "--M", "4KB", "--causal", "--schedule", "flash1,flash2", "--tiles", "8x8", "--lse")
    said = iosim("report", *line).stdout.rstrip("\n")
    file = tmp_path / "page.html"
    found = package.report(64, 8, "4KB", causal=True, schedule="flash1,flash2", tiles=(8, 8), lse=True, path=str(file))
    foot = re.compile(r"<footer>.*?</footer>", re.S)
    assert foot.sub("", found).rstrip("\n") == foot.sub("", said)
    assert file.read_text(encoding="utf-8") == found
    (shown,) = foot.findall(found)
    assert all(
        part in shown for part in ("--N 64", "--M 4KB", "--mask causal", "--tiles 8x8", "--lse", "flash1,flash2")
    )
    with pytest.raises(package.InputError, match="-o: found"):
        package.report(64, 8, "4KB", path="page.png")


def test_a_page_of_two_families_has_no_winner(iosim, tmp_path):
    line = ("report", "--N", 1024, "--d", 64, "--M", "64KB", "--schedule")
    pages = {}
    for names in ("flash2", "flash2,state-fused"):
        assert iosim(*line, names, "-o", tmp_path / "page.html").exit_code == 0
        pages[names] = (tmp_path / "page.html").read_text()
    assert ["moves the fewest bytes in the question" in page for page in pages.values()] == [True, False]
    drawn = [re.findall(r"<h2>Words by tensor</h2>.*?</svg>", page, re.S)[0] for page in pages.values()]
    assert [">floor</text>" in one for one in drawn] == [True, False]


def test_counts_above_int64_have_a_page(iosim):
    line = ("--d", 1024, "--heads", 1024, "--M", "1KB", "--schedule", "standard")
    page = iosim("report", "--N", 2**30, *line)
    assert page.exit_code == 0 and page.stdout.count("<svg") >= 1 and "standard" in page.stdout


def test_a_page_has_the_conditions_of_a_gpu(tmp_path, iosim):
    page = tmp_path / "page.html"
    found = iosim("report", "--N", 1100, "--d", 64, "--hardware", "h100", "-o", page)
    assert found.exit_code == 0 and "fp32 accumulators" in found.stderr and "fp32 accumulators" in page.read_text()
    tiles = count(1100, 64, hardware="h100")["flash2"]
    assert f"{tiles.Br}x{tiles.Bc}" in page.read_text()
    assert "FA2, FA3: published tiles of FlashAttention-2 and FlashAttention-3" in page.read_text()


@pytest.mark.parametrize(
    "options",
    [("--rule", "kda", "--heads", 4, "--key-heads", 2), ("--rule", "linear", "--normalise"), ("--rule", "linear", "--features", 16),
     ("--rule", "gdn", "--heads", 4, "--key-heads", 2, "--gqa", "pack"), ("--rule", "gdn", "--schedule", "state-verify")],
)  # fmt: skip
def test_a_page_about_a_state(iosim, options):
    """A page is made for every rule, and its heading says which."""
    done = iosim("report", "--N", 96, "--d", 8, "--M", "8KB", *options)
    assert done.exit_code == 0 and f"<h1>Attention with a state, {options[1]}, N = 96, d = 8" in done.stdout
