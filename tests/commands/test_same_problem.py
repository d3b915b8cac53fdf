"""Answers compare only what computes the same: families of schedules, and options that change the work."""

import re

import pytest

import iosim as package
from iosim.schedules import find

H100 = ("--N", 8192, "--d", 128, "--heads", 32, "--hardware", "h100")


def test_a_backward_pass_is_not_split_by_a_forward_one(iosim):
    """Its few blocks are told; no schedule of gradients splits the keys."""
    text = iosim("tune", "--by", "time", *H100, "--schedule", "flash2-bwd").stdout
    assert "It has only 32 blocks for 132 multiprocessors." in text and "split-kv" not in text
    with pytest.raises(package.InputError, match="schedules of one family"):
        package.fastest(8192, 128, "h100", schedules="flash2,linear")


def test_each_family_of_a_roofline_has_its_bound(iosim):
    text = iosim("roofline", *H100, "--schedule", "flash2,flash1,linear").stdout
    lead = text.split("attention: N")[0]
    assert [line.split()[0] for line in lead.splitlines() if "takes at least" in line] == ["flash2", "linear"]
    sentences = [line for line in text.splitlines() if " takes " in line]
    assert not any("linear" in line and "flash" in line for line in sentences)


def test_a_bound_above_a_measured_time_names_its_schedule(iosim):
    """The measured kernel does less: it stores neither S nor P."""
    for name, of in (("standard-tiled", " of standard-tiled"), ("flash2", "")):
        text = iosim("roofline", *H100, "--schedule", name).stdout
        (ratio,) = re.findall(r"torch-cudnn [\d,.]+ us \(([\d.]+) times the bound" + of + r"\)", text)
        assert (float(ratio) < 1) == bool(of)


def test_a_page_of_two_families_has_no_winner(iosim, tmp_path):
    line = ("report", "--N", 1024, "--d", 64, "--M", "64KB", "--schedule")
    pages = {}
    for names in ("flash2", "flash2,linear"):
        assert iosim(*line, names, "-o", tmp_path / "page.html").exit_code == 0
        pages[names] = (tmp_path / "page.html").read_text()
    assert ["moves the fewest bytes in the question" in page for page in pages.values()] == [True, False]
    drawn = [re.findall(r"<h2>Words by tensor</h2>.*?</svg>", page, re.S)[0] for page in pages.values()]
    assert [">floor</text>" in one for one in drawn] == [True, False]


def test_a_sweep_of_packed_choices(iosim):
    """`--gqa pack` makes rows of choices an array, if N is an axis."""
    rows = package.sweep(N=[1024, 2048], d=64, M="64KB", heads=4, kv_heads=2, gqa="pack", top_k=4, schedules="selected")
    for N, total in zip(rows.N, rows.total, strict=True):
        alone = package.count(
            N, 64, "64KB", heads=4, kv_heads=2, gqa="pack", top_k=4, schedules="selected", tiles="best"
        )
        assert total == alone["selected"].total and find("selected").family == "selected"


@pytest.mark.parametrize(
    "options, floors",
    [({"splits": "1,4", "schedules": "split-kv"}, 1), ({"kv_dtype": "fp8,fp16"}, 2), ({"register_bytes": "0,64K"}, 2)],
    ids=str,
)
def test_any_option_may_split_the_lines_of_a_picture(options, floors):
    """There is one line of the floor, unless the option changes it."""
    text = package.plot(N="1024:4096:x2", d=64, M="100KB", **{"schedules": "flash2", **options}).svg()
    assert len(set(re.findall(rf"{next(iter(options))} = (\w+)", text))) == 2 and text.count(">floor") == floors


def test_a_title_names_the_options_of_its_problem():
    ask = {"N": "1024,2048", "d": 128, "M": "100KB", "schedules": "flash2"}
    titles = {package.plot(**ask, **more).drawn.title for more in ({}, {"heads": 4}, {"Nk": 512}, {"kv_dtype": "fp8"})}
    assert len(titles) == 4
    of_roofline = {"picture": "roofline", "N": 1024, "d": 128, "hardware": "h100", "schedules": "block-sparse-q"}
    titles = {package.plot(**of_roofline, **more).drawn.title for more in ({}, {"mask": "causal"}, {"dv": 64})}
    assert len(titles) == 3
