"""The pages of docs/papers: the tables and ratios around the console blocks hold."""

import csv
import io
import re

import pytest
from paths import ROOT

from iosim.hardware import load

PAPERS = ROOT / "validation/sources"
NAMES = ["fig2-middle", "fig2-right", "001-tables", "ledgers"]
TEXT = {name: (PAPERS / f"{name}.md").read_text() for name in NAMES}


def test_every_page_and_every_sweep_is_used():
    """Every page of docs/papers has a test. A page runs every shipped sweep, with two exceptions."""
    assert {p.stem for p in PAPERS.glob("*.md")} == {*NAMES, "fig2-left", "README"}
    for file in (ROOT / "configs/sweeps").glob("*.toml"):
        pages = [p for p in PAPERS.glob("*.md") if f"sweeps/{file.name}" in p.read_text()]
        assert pages or file.name in ("sram.toml", "fig2-left.toml"), file.name


@pytest.fixture
def sweep(iosim, monkeypatch):
    """The rows of a shipped sweep, with numbers as numbers."""
    monkeypatch.chdir(ROOT)

    def run(name):
        rows = csv.DictReader(io.StringIO(iosim("sweep", f"configs/sweeps/{name}.toml").stdout))
        return [{k: int(v) if v.isdigit() else v for k, v in row.items()} for row in rows]

    return run


def rows_of(name, header):
    """The cells of the table whose first column has this header."""
    tables = re.findall(r"(?:^\|.*\n)+", TEXT[name], re.M)
    (table,) = [t for t in tables if t.startswith(f"| {header} |")]
    return [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


# ---------------------------------------------------------------- Fig. 2 middle


def test_the_times_of_fig2_middle(ask):
    """The page's bytes, intensity and time are those at the peaks of an A100 of 40 GB."""
    table, chip = rows_of("fig2-middle", "tiles"), load("a100-40gb")
    for tiles, *stated in table:
        sizes = ["--N", 1024, "--d", 64, "--heads", 16, "--batch", 64, "--hardware", "a100-40gb", "--paper-model"]
        found = ask("roofline", *sizes, "--schedule", "flash1", "--tiles", tiles)["results"][0]
        moved = found["read_bytes"] + found["write_bytes"]
        ms = {"memory": 1e3 * moved / chip.hbm_bytes_per_second}  # if all of it came from HBM
        ms["matrix"] = 1e3 * found["matrix_flops"] / chip.flops_per_second["fp16"]
        slowest = max(ms, key=ms.__getitem__)
        assert [*(f"{x:.2f}" for x in (moved / 1e9, found["intensity"], ms[slowest])), slowest] == stated
    assert len(table) == 4 and float(table[0][1]) / float(table[2][1]) == pytest.approx(3.58, abs=0.01)


def test_the_words_of_fig2_middle(sweep):
    """There are 2Nd + Tc N (2d + 2) reads and Tc N (d + 2) writes of two bytes, for 1024 heads. The last tiles exceed
    163 KiB."""
    N, d, heads = 1024, 64, 1024
    rows = sweep("fig2-middle")
    for row in rows:
        passes = N // row["Bc"]
        assert row["read_bytes"] == 2 * heads * (2 * N * d + passes * N * (2 * d + 2))
        assert row["write_bytes"] == 2 * heads * passes * N * (d + 2)
    assert [row["fits"] for row in rows] == ["True"] * 3 + ["False"]
    assert rows[-1]["sram_peak_bytes"] == 213248 > 166912 and "ridge of 200.6" in TEXT["fig2-middle"]


# ---------------------------------------------------------------- Fig. 2 right


def test_the_ratios_of_fig2_right(sweep):
    """The ratio of forward and backward together is s + (1 - s) c with c = 6Nd / (6Nd + Tc N (8d + 6))."""
    N, d, Tc = 4096, 64, 16
    words, flops = {}, {}
    for row in sweep("fig2-right"):
        words[row["mask"]] = words.get(row["mask"], 0) + row["total"]
        flops[row["mask"]] = flops.get(row["mask"], 0) + row["flops"]
    assert words["dense"] == 6 * N * d + Tc * N * (8 * d + 6)
    c = 6 * N * d / words["dense"]
    assert f"{c:.4f}" == "0.0443"
    table = rows_of("fig2-right", "share of blocks s")
    assert len(table) == 4
    for share, *stated in table:
        S = int(share.removeprefix("1/"))
        ratio = words[f"strided:{S}b"] / words["dense"]
        assert ratio == pytest.approx(1 / S + (1 - 1 / S) * c, rel=1e-12)
        arithmetic = flops[f"strided:{S}b"] / flops["dense"]
        assert arithmetic == 1 / S
        assert [f"{ratio:.4f}", f"{arithmetic:.4f}", f"{ratio - 1 / S:.4f}"] == stated


# ---------------------------------------------------------------- document 001


def test_how_far_program_2_is_off(sweep):
    correct = {row["N"]: row["total"] for row in sweep("001-program-2") if row["schedule"] == "flash1"}
    table = rows_of("001-tables", "N")
    assert len(table) == 4
    for N, printed, stated, off in table:
        tiles = (int(N) // 4) ** 2  # of 4 x 4: the mistake is one more Br d with each
        assert int(stated) == correct[int(N)] and int(printed) == int(stated) + tiles * 4 * 4
        assert off == f"{100 * (int(printed) / int(stated) - 1):+.1f} %"


def test_traffic_against_density(sweep):
    """The words are 2Nd + s (dense - 2Nd), so the ratio exceeds s by (1 - s) 2Nd / dense."""
    rows = {row["mask"].replace("|", " or "): row for row in sweep("001-patterns")}
    dense, once = rows["dense"], 2 * 512 * 64
    table = rows_of("001-tables", "pattern")
    assert [cells[0] for cells in table] == [name for name in rows if name != "dense"]
    for name, *stated in table:
        s, ratio = rows[name]["flops"] / dense["flops"], rows[name]["total"] / dense["total"]
        assert rows[name]["total"] == once + s * (dense["total"] - once)
        assert ratio - s == pytest.approx((1 - s) * once / dense["total"], rel=1e-9)
        assert [f"{s:.3f}", f"{ratio:.3f}", f"{ratio - s:.3f}"] == stated


def test_ratios_in_the_text(sweep):
    first = {row["M_words"]: row["total"] for row in sweep("001-experiment-1")}
    assert f"{first[32768] / first[65536]:.3f}" == "1.860" and "by 1.860" in TEXT["001-tables"]
    ends = [row for row in sweep("001-boundaries") if row["schedule"] == "flash1"]
    assert f"{ends[1]['total'] / (4 * 256 * 64):.2f}" == "3.56" and "3.56 times 4Nd" in TEXT["001-tables"]
    scaled = {(row["mask"], row["N"]): row["total"] for row in sweep("001-pattern-scaling")}
    saved = [f"{100 * (1 - scaled['causal:b', N] / scaled['dense', N]):.0f} %" for N in (128, 2048)]
    assert saved == ["32 %", "49 %"] and "saves 32 % at N = 128 and 49 % at N = 2048" in TEXT["001-tables"]


# ---------------------------------------------------------------- ledgers


@pytest.mark.parametrize("kv_heads, share", [(32, "1.6 %"), (1, "50.0 %")])
def test_what_removing_scores_saves_in_decoding(ask, kv_heads, share):
    """The scores are 4 Hq T words, and K and V are 2 Hkv T d words."""
    (row,) = ask("memory", "--N", 1, "--Nk", 8192, "--d", 128, "--heads", 32, "--kv-heads", kv_heads)["results"]
    assert row["score_traffic_bytes"] == 2 * 4 * 32 * 8192 and row["KV_bytes"] == 2 * 2 * kv_heads * 8192 * 128
    assert f"{100 * row['score_traffic_bytes'] / row['KV_bytes']:.1f} %" == share
