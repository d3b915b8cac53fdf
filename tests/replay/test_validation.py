"""Replays what was measured on GPUs against today's model: a change that breaks an old measurement shows here."""

import csv
import json
import re
import sys
from dataclasses import replace
from functools import cache
from math import prod
from statistics import median

import pytest
from paths import ROOT, VALIDATION

from iosim.core.problem import Attention
from iosim.core.tiling import parse_tiles
from iosim.counting.floors import floor
from iosim.errors import MissingError
from iosim.gpu.cuda.sectors import partial_sectors
from iosim.gpu.jobs import ScheduleJob, key_of, runner
from iosim.gpu.moved import in_whole_tiles, moved
from iosim.gpu.profile.explain import explain
from iosim.gpu.profile.passes import explain_passes
from iosim.gpu.verdict import partial_sectors_of, verify
from iosim.hardware import load
from iosim.schedules import CORE, SCHEDULES, find
from iosim.schedules.state import RULES, rule_of
from validation import shapes
from validation.planted import FAULTS, planted_jobs

RANDOM = VALIDATION / "random-h100"
FOLDERS = sorted(path.parent for path in VALIDATION.glob("*/generated.csv"))
WHOLE = [
    folder for folder in FOLDERS if (folder / "sweep.csv").exists()
]  # all parts were measured; on a second GPU only a few were
SECOND = [folder for folder in FOLDERS if folder not in WHOLE]
SHORT_TRACE = 5_000  # pairs of tiles over all heads: traces of the short run

ROWS = sorted(
    path.parent for path in VALIDATION.glob("*/sweep_rows.csv")
)  # a package without the counters still has these results

needs_measurements = pytest.mark.skipif(not FOLDERS, reason="no measurement of a GPU is in validation/")
needs_rows = pytest.mark.skipif(not ROWS, reason="no results of a measurement are in validation/")


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch):
    monkeypatch.chdir(ROOT)  # paths of mask files are relative to it


@pytest.fixture(scope="module", autouse=True)
def read_once():
    """Each file of a measurement is read once."""
    from validation import measure

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "kept", cache(measure.kept))
        yield


def evidence(folder, part):
    from validation import measure

    return measure.evidence(folder, part)


def read_csv(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def own(folder):
    return [e for part in shapes.OWN for e in evidence(folder, part) if isinstance(e.job, ScheduleJob)]


LEVELS = VALIDATION / "h200-2026-11-28"


@pytest.mark.skipif(not LEVELS.exists(), reason="not measured")
def test_words_from_shared_memory_agree():
    """What the loop of a tuned flash2 reads is exact: beside it are O, twice, and 80 B a block. No time is below the
    least one."""
    rows = [verify(e, load("h200")) for e in evidence(LEVELS, "levels")]
    assert len(rows) == 19 and [row["faults"] for row in rows if row["faults"]] == []
    assert all(row["time_ratio"] > 1 for row in rows)
    exact = [row for row in rows if row["schedule"] in ("flash2 (tuned)", "block-sparse-q (tuned)")]
    for row in exact:
        blocks = -(-row["N"] // 128) * row["heads"]
        assert row["smem_rest_bytes"] == 2 * row["N"] * row["d"] * row["heads"] * 2 + 80 * blocks
    assert len(exact) == 6
    others = [row for row in rows if row not in exact and row["dtype"] == "fp16"]
    assert all(1 < row["hw_smem_read_bytes"] / row["smem_read_bytes"] < 2.2 for row in others) and len(others) == 11


def as_it_ran(job):
    visits = job.name in ("small-cache-bwd", "small-cache-bwd-q")
    return replace(job, problem=replace(job.problem, visit_all=True)) if visits else job


@pytest.mark.skipif(not LEVELS.exists(), reason="not measured")
def test_kernels_under_a_mask_over_cached_keys_agree():
    """Their last query stands at the last key. What skips hidden tiles since then visits all again."""
    found = [replace(e, job=as_it_ran(e.job)) for e in evidence(LEVELS, "shifted")]
    rows = [verify(e, load("h200")) for e in found]
    assert len(rows) == 24 and [row["faults"] for row in rows if row["faults"]] == []


STATES = VALIDATION / "h200-2026-11-29" / "state.csv"


@pytest.mark.skipif(not STATES.exists(), reason="not measured")
def test_kernels_of_every_schedule_of_a_state_agree():
    """Words, outputs and bytes. Of 43 kernels 36 write just the bytes of the words, and 22 read just those; the others
    have rows that begin within a sector."""
    found = evidence(STATES.parent, "state")
    rows = [verify(e, load("h200")) for e in found]
    assert len(rows) == 43 and [row["faults"] for row in rows if row["faults"]] == []
    assert all(row["device_words"] == row["words"] for row in rows)
    assert {rule_of(e.job.problem) for e in found} == {*RULES.values()}
    assert sum(row["hw_write_bytes"] == row["sm_write_bytes"] for row in rows) == 36
    exact = [row for row in rows if row["hw_read_bytes"] == row["sm_read_bytes"]]
    assert len(exact) == 22 and max(row["read_ratio"] for row in rows) < 1.094
    more = {row["schedule"] for row in rows if row["dram_ratio"] > 1.051}
    assert more == {"state-decode", "state-ring", "state-verify"}, "they load less than 1 MB that is compulsory"
    assert max(row["dram_ratio"] for row in rows) < 1.38


TOKENS = VALIDATION / "h200-2026-11-29" / "token_masks.csv"


@pytest.mark.skipif(not TOKENS.exists(), reason="not measured")
def test_kernels_load_just_the_bits_of_a_mask_that_are_counted():
    """Beside the words of the schedule, to the byte: of a function alone, also behind `~`, in tiles that divide the
    lengths. Where another atom decides first, or for documents, no kernel loads more."""
    rows = [verify(e, load("h200")) for e in evidence(TOKENS.parent, "token_masks")]
    assert len(rows) == 12 and [row["faults"] for row in rows if row["faults"]] == []
    assert rows[0]["sm_read_bytes"] + rows[0]["mask_read_bytes"] == rows[0]["hw_read_bytes"] == 15_794_176
    exact = [row for row in rows if row["sm_read_bytes"] + row["mask_read_bytes"] == row["hw_read_bytes"]]
    assert len(exact) == 9 and all(row["mask_read_bytes"] > 10**6 for row in rows)
    assert {row["schedule"] for row in exact} == {"flash1", "flash2", "standard-tiled", "flash2-bwd"}


BACKWARD = VALIDATION / "h200-2026-11-29" / "backward.csv"


@pytest.mark.skipif(not BACKWARD.exists(), reason="not measured")
def test_backward_passes_that_store_and_the_short_tile_first_agree():
    """Words, outputs and bytes. Stores are exact to the byte, with the sectors that are written in part: a word of P or
    dS is stored by itself, and costs one of 32 bytes. With the short tile first a causal pass reads fewer bytes."""
    found = evidence(BACKWARD.parent, "backward")
    rows = [verify(e, load("h200")) for e in found]
    assert len(rows) == 28 and [row["faults"] for row in rows if row["faults"]] == []
    assert all(row["device_words"] == row["words"] for row in rows)
    for e, row in zip(found, rows, strict=True):
        assert row["hw_write_bytes"] == row["sm_write_bytes"] + partial_sectors_of(e.job).write_bytes, e.job
    most = {name: max(row["write_ratio"] for row in rows if row["schedule"] == name) for name in SCHEDULES
            if any(row["schedule"] == name for row in rows)}  # fmt: skip
    page = (ROOT / "docs" / "schedules" / "backward.md").read_text()
    alone = [name for name, ratio in most.items() if ratio > 1.1]
    assert alone == ["flash2-bwd-stored-ds", "flash2-bwd-stored-p-ds"]
    said = " and ".join(f"{most[name]:.1f}" for name in alone)
    assert f"<!-- sectors -->{said}<!-- sectors -->" in page
    first, last = rows[18:24:2], rows[19:24:2]
    assert [e.job.problem.short_tile for e in found[18:24]] == ["first", "last"] * 3
    assert all(a["hw_read_bytes"] < b["hw_read_bytes"] for a, b in zip(first, last, strict=True))
    assert {str(e.job.problem.mask) for e in found[:18]} == {"dense", "causal", "window:50"}


@needs_measurements
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: p.name)
def test_words_and_bytes_agree(folder):
    """All rows agree except those listed as not explained: bytes of the crossbar, in at most one row of fifty."""
    rows = [verify(e, None) for e in own(folder)]
    assert len(rows) >= 60
    known = json.loads((folder / "claims.json").read_text())["faults"]
    assert [r["faults"] for r in rows if not r["ok"]] == known
    assert len(known) <= len(rows) / 50 and all(fault.startswith("read: simulated") for fault in known)
    assert all(row["device_words"] == row["words"] for row in rows)
    generated = [verify(e, None) for e in evidence(folder, "generated")]
    assert all(row["ok"] for row in generated)


@needs_measurements
@pytest.mark.parametrize("folder", WHOLE, ids=lambda p: p.name)
def test_every_schedule_was_measured(folder):
    """Schedules outside the core, and caches of other types: the rows that were kept are those of today, all right.
    Those whose mask has moved since were measured again (LEVELS)."""
    rows = [verify(e, None) for e in evidence(folder, "family") if not shapes.moved_since(e.job)]
    assert [row["faults"] for row in rows if not row["ok"]] == []
    assert all(row["device_words"] == row["words"] for row in rows)
    kept = read_csv(folder / "family_rows.csv")
    kept = [row for row in kept if row["mask"] in ("dense", "causal") or row["N"] == row["Nk"]]
    kept = [row for row in kept if row["schedule"] in SCHEDULES]
    for name in ("schedule", "sm_read_bytes", "hw_read_bytes", "sm_write_bytes", "hw_write_bytes", "error"):
        assert [str(row[name]) for row in rows] == [row[name] for row in kept], name
    random = {row["job"].split()[0] for row in read_csv(RANDOM / "random_rows.csv") if row["ok"] == "True"}
    others = {name for name, schedule in SCHEDULES.items() if schedule.family != "state"}  # a state has its own test
    missing = others - {row["schedule"] for row in [*kept, *read_csv(folder / "rows.csv")]} - random
    missing -= {e.job.name for name in ("backward", "state") for e in evidence(BACKWARD.parent, name)}
    assert not missing
    problems = [e.job.problem for e in evidence(folder, "family")]
    for has in (lambda p: p.latent, lambda p: p.kv_scales == "tensor", lambda p: p.kv_scales == "128"):
        assert sum(has(p) and p.gqa == "pack" for p in problems) >= 2


@needs_measurements
@pytest.mark.parametrize("folder", WHOLE, ids=lambda p: p.name)
def test_what_the_page_says_of_cudnn_in_decoding(folder):
    """Its grid and its stores are those of split-kv with packed heads, and its loads are a little more in each block."""
    (found,) = (e for e in evidence(folder, "serving") if e.job.name == "torch-cudnn" and e.job.problem.N == 1)
    p, first = replace(found.job.problem, gqa="pack", splits=32), found.kernels[0]
    said = moved(find("split-kv"), p.packed, parse_tiles("16x128"))
    partial = partial_sectors(find("split-kv"), p, parse_tiles("16x128"))
    stores = sum(2 * said.tensors[name][1] * 2 for name in ("Opart", "LSEpart"))
    assert first.grid == (p.splits, p.kv_heads, 1)
    assert stores <= first.store_bytes <= stores + partial.write_bytes
    more = first.load_bytes - sum(2 * said.tensors[name][0] for name in ("Q", "K", "V"))
    page = (ROOT / "validation" / "pages" / "serving.md").read_text()
    assert more % (p.splits * p.kv_heads) == 0 and f"reads {more // (p.splits * p.kv_heads):,} bytes more" in page
    assert f"{more / first.load_bytes:.1%}".replace("%", " %") in page


def trace_size(e):
    """The number of pairs of tiles, over all heads."""
    p, t = e.job.problem, e.job.tiling
    return -(-p.N // t.rows_q) * -(-p.Nk // t.rows_k) * p.instances


def written_down(folder, most):
    """(evidence, row of rows.csv) of every small trace."""
    pairs = zip(own(folder), read_csv(folder / "rows.csv"), strict=True)
    return [(e, row) for e, row in pairs if trace_size(e) <= most]


def at_the_ends(pairs):
    """The pairs with the least and the largest N, Nk, d, heads and tiles; of several, the pair with the fewest tiles."""
    sizes = ("N", "Nk", "d", "heads", "tiles")
    ends = {min(range(len(pairs)), key=lambda k, name=name: (sign * number(pairs[k][1][name]), trace_size(pairs[k][0])))
            for name in sizes for sign in (1, -1)}  # fmt: skip
    return [pairs[k] for k in sorted(ends)]


def number(text):
    """A cell as a number; of tiles the product of their sizes."""
    return prod(int(n) for n in re.findall(r"\d+", text))


def assert_rows_are_those_of_today(pairs):
    """DRAM bytes among them: no launch loads less than the compulsory ones."""
    for e, old in pairs:
        new = verify(e, None)
        for name in ("dram_compulsory_bytes", "dram_read_bytes", "hw_read_bytes", "sm_read_bytes", "seconds"):
            assert str(new[name]) == old[name], (name, e.job)
        assert new["dram_read_bytes"] >= new["dram_compulsory_bytes"] > 0, e.job


class TestAtTheEnds:
    """Every tenth of the smallest traces, and those with the least and the largest sizes. A shape that two GPUs share is
    replayed on the first."""

    @needs_measurements
    def test_rows_are_those_that_were_written_down(self):
        seen = set()
        for folder in [*WHOLE, *SECOND]:
            small = written_down(folder, SHORT_TRACE)
            pairs = [*at_the_ends(small), *small[::10]]
            new = [pair for pair in pairs if key_of(pair[0].job) not in seen]
            assert_rows_are_those_of_today(new)
            seen.update(key_of(e.job) for e, _ in new)


@needs_measurements
@pytest.mark.long
@pytest.mark.early
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: p.name)
def test_all_rows_are_those_that_were_written_down(folder):
    pairs = list(zip(own(folder), read_csv(folder / "rows.csv"), strict=True))
    assert len(pairs) > 100
    assert_rows_are_those_of_today(pairs)


@needs_rows
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: p.name)
def test_no_kernel_loads_less_than_its_compulsory_bytes(folder):
    """Own kernels, PyTorch's, and passes: the least is 1. Where data fit
    into the L2 it is close to 1."""
    names = ("rows", "family_rows", "torch_rows", "math_rows", "serving_rows")
    rows = [row for name in names if (folder / f"{name}.csv").exists() for row in read_csv(folder / f"{name}.csv")]
    ratios = sorted(float(row["dram_ratio"]) for row in rows if row["dram_ratio"])
    assert len(ratios) >= 190 and ratios[0] >= 1 and median(ratios) < 1.1 < 20 < ratios[-1]


@needs_measurements
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: p.name)
def test_what_was_measured_again_is_the_same(folder):
    """A second run has the same words, and the same bytes between SM and L2, in every launch. Shapes that were run at
    several addresses then have the addresses of both runs."""
    from validation import measure, shapes

    twice = [part for part in shapes.OWN if measure.kept(folder, part + measure.AGAIN)]
    pooled = 0
    for part in twice:
        sets = [measure.kept(folder, part), measure.kept(folder, part + measure.AGAIN), evidence(folder, part)]
        for first, again, both in zip(*sets, strict=True):
            assert measure.key_of(first.job) == measure.key_of(again.job) and first.note["words"] == again.note["words"]
            for a, b, c in zip(first.kernels, again.kernels, both.kernels, strict=True):
                assert (a.load_bytes, a.store_bytes) == (b.load_bytes, b.store_bytes)
                places = len(b.dram_places) if again.job.places > 1 else 0
                assert c.dram_places == (*a.dram_places, *b.dram_places[:places])
                pooled += places > 0
    assert pooled >= 5 or not twice


@needs_measurements
def test_another_gpu_moves_the_same_bytes():
    """Every kernel that two GPUs ran has the same words and the same bytes between SM and L2 on both."""
    from validation import measure, shapes

    compared = 0
    for folder in SECOND:
        for part in (*shapes.OWN, *measure.THEIRS):
            mine = measure.kept(folder, part)
            for here, there in zip(mine, measure.kept(WHOLE[-1], part) if mine else [], strict=True):
                assert measure.key_of(here.job) == measure.key_of(there.job)
                assert here.note.get("words") == there.note.get("words")
                for a, b in zip(here.kernels, there.kernels, strict=True):
                    assert (a.name, a.load_bytes, a.store_bytes) == (b.name, b.load_bytes, b.store_bytes)
                    compared += 1
    assert compared > 300


@needs_measurements
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: p.name)
def test_passes_of_pytorch_without_a_fused_kernel(folder):
    """Every product and softmax is explained, to the byte. The search does not read the names of kernels; the tiles in
    the name of a product are those that it found, or among those that move as much."""
    found, kept = {}, []
    for e in evidence(folder, "math"):
        passes = explain_passes(e.kernels, e.job.problem)
        kept += [(one.part.name, str(one.read_bytes), one.tiles) for one in passes]
        if passes:
            inside = sum(one.read_bytes + one.write_bytes for one in passes)
            assert 0.345 < 1 - inside / sum(k.load_bytes + k.store_bytes for k in e.kernels) < 0.555
        p = e.job.problem
        found[p.N, p.d, p.dtype, str(p.mask)] = [one.part.name for one in passes]
        for one in passes:
            assert (one.kernel.load_bytes, one.kernel.store_bytes) == (one.read_bytes, one.write_bytes)
            named = re.search(r"tilesize(\d+x\d+)", one.kernel.name)
            assert bool(named) == one.part.in_tiles == ("softmax" not in one.kernel.name.lower())
            assert not named or named[1] in (one.tiles, *one.alike)
    written = [r for r in read_csv(folder / "math_rows.csv") if r["explains"] == "True"]
    assert [(r["pass"], r["read_predicted"], r["tiles"]) for r in written] == kept
    assert found.pop((1, 128, "fp16", "dense")) == [], "decoding: products of a vector are not explained"
    assert len(found) == 8 and all(len(passes) == 3 for passes in found.values()), found


@needs_measurements
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: p.name)
@pytest.mark.parametrize(
    "run, N, d, mask",
    [("torch-flash", 4096, 128, "dense"), ("torch-flash", 2048, 128, "causal"), ("torch-cudnn", 1024, 128, "dense")],
)
def test_pytorchs_kernels_are_explained_as_written_down(folder, run, N, d, mask):
    from validation import measure

    asked = {"run": run, "N": N, "d": d, "mask": mask}
    one = next(e for e in evidence(folder, "torch") if asked.items() <= e.job.to_json().items())
    new = measure.torch_rows([one.job], [one.kernels])[0]
    with open(folder / "torch_rows.csv", newline="") as file:
        best = [r for r in csv.DictReader(file) if r["best"] == "True"]
    written = [r for r in best if r["dram_measured"] == str(new["dram_measured"])]
    assert [r["dram_compulsory_bytes"] for r in written if r["kernel"] == run] == [str(new["dram_compulsory_bytes"])]
    for name in ("dram_ratio", "read_ratio", "write_ratio"):
        assert float(written[0][name]) == pytest.approx(new[name]), name


@needs_rows
def test_the_pages_say_what_the_files_hold():
    """Every table of docs/hardware is the one that the CSVs give, and every part of a page is checked."""
    from validation.pages import hardware

    for page, parts in hardware.PAGES.items():
        text = page.read_text(encoding="utf-8")
        assert re.findall(r"<!-- (?!end )([\w-]+) -->", text) == re.findall(r"<!-- end ([\w-]+) -->", text)
        assert sorted(re.findall(r"<!-- end ([\w-]+) -->", text)) == sorted(parts), page.name
        assert hardware.filled(page, ROWS[-1]) == text, f"{page.name}: run validation/pages/hardware.py"


@needs_rows
def test_the_links_of_the_pages_lead_somewhere():
    from validation.pages import hardware

    for page in hardware.PAGES:
        text = page.read_text(encoding="utf-8")
        links = re.findall(r"\]\(([^)#]+)(?:#([\w-]+))?\)", text)
        assert f"{page.stem}.png" in {file for file, _ in links}, "a plot"
        for file, section in links:
            target = page.parent / file
            assert target.exists(), (page.name, file)
            titles = re.findall(r"^#+ (.+)$", target.read_text(), re.M) if section else []
            assert section in ("", *(re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles))


@needs_rows
@pytest.mark.parametrize("folder", ROWS, ids=lambda p: p.name)
def test_the_sweep_over_m_is_the_bound(folder):
    """Measured bytes are the simulated ones at every M. From 48 KB on those of flash1 and flash2 fall as 1 / M: bytes
    times M differ by less than 15 %. Those of standard-tiled do not: S goes through HBM at every M."""
    from validation.pages import text
    from validation.pages.words_and_bytes import constant

    rows = [r for r in text.read(folder, "sweep_rows.csv") if int(r["M_bytes"]) >= 49152]
    assert len(rows) >= 10 and all(r["read_ratio"] == r["write_ratio"] == "1.0" for r in rows)
    assert {r["schedule"] for r in rows} == {"flash1", "flash2", "standard-tiled"}
    standard = [int(r["hw_read_bytes"]) + int(r["hw_write_bytes"]) for r in rows if r["schedule"] == "standard-tiled"]
    assert min(standard) > 4 * 2 * 16 * 8192**2 and max(standard) < 1.3 * min(standard), "S and P, written and read"
    for name in ("flash1", "flash2"):
        constants = [constant(r) for r in rows if r["schedule"] == name]
        assert max(constants) / min(constants) < 1.15


@needs_measurements
@pytest.mark.parametrize("folder", WHOLE, ids=lambda p: p.name)
def test_the_kept_sweep_is_replayed_beside_the_floor(folder, ask):
    """As the page says: the hardware's bytes are the simulated ones at every M, and above the floor of that M."""
    rows = read_csv(folder / "sweep_rows.csv")
    names = dict.fromkeys(row["schedule"] for row in rows)
    sizes = ",".join(f"{M // 1024}KB" for M in sorted({int(row["M_bytes"]) for row in rows}))
    chosen = [part for name in names for part in ("--schedule", name)]
    answer = ask("verify", "--acc-dtype", "fp32", "--M", sizes, *chosen, "--from-ncu", folder / "sweep.csv")
    assert answer["ok"] and len(answer["rows"]) == len(rows)
    problem = Attention(8192, 64, heads=16, acc_dtype="fp32")
    for new, old in zip(answer["rows"], rows, strict=True):
        least, moved = 2 * floor(problem, new["M_bytes"]).words, new["hw_read_bytes"] + new["hw_write_bytes"]
        assert new["sm_read_bytes"] + new["sm_write_bytes"] == moved > least == new["floor_bytes"]
        assert new["measured_ratio_to_floor"] == moved / least <= float(old["measured_ratio_to_floor"])


@needs_measurements
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: p.name)
@pytest.mark.parametrize("run", ["torch-flash", "torch-cudnn"])
def test_kernels_of_pytorch_are_explained(folder, run):
    """The schedule and tiles that were found predict the bytes that each kernel loaded. One search is repeated."""
    from validation.pages import text

    rows = [r for r in text.read(folder, "torch_rows.csv") if r["best"] == "True" and r["kernel"] == run]
    found = [e for part in ("tuned", "torch") for e in evidence(folder, part) if e.job.name == run and e.kernels]
    assert len(rows) == len(found) >= 20
    for e, row in zip(found, rows, strict=True):
        tiles, _, splits = row["tiles"].partition("/splits=")
        kernel, t = max(e.kernels, key=lambda k: k.load_bytes), parse_tiles(tiles)
        p = in_whole_tiles(e.job.problem, t) if kernel.through_tma else e.job.problem
        if splits:  # decoding: Q for each share, K and V once; computed here, as the second launch is another kernel
            predicted = 2 * p.instances * (int(splits) * p.N * p.d + 2 * p.Nk * p.d)
            assert kernel.load_bytes == predicted and row["schedule"] == "split-kv"
            continue
        predicted = moved(find(row["schedule"]), p, t).read_bytes
        assert kernel.load_bytes == pytest.approx(predicted, rel=0.0005), row
        assert row["schedule"] in ("flash2", "block-sparse-q")
    _, explanations = explain(found[0].kernels, found[0].job.problem)
    assert [explanations[0].schedule, explanations[0].tiling.rows_q] == [rows[0]["schedule"], 128]


NAMED_TODAY = {"block-sparse-q": "flash2"}  # of two names of one text, `explain` says the first


def serving(folder):
    """(evidence, row of serving_rows.csv) of each call of a fused kernel."""
    best = [r for r in read_csv(folder / "serving_rows.csv") if r["best"] == "True" and not r["pass"]]
    fused = [e for e in evidence(folder, "serving") if e.job.name != "torch-math"]
    return list(zip(fused, best, strict=True))


@needs_measurements
@pytest.mark.parametrize("folder", WHOLE, ids=lambda p: p.name)
def test_grouped_queries_in_decoding_by_hand(folder):
    """Bytes of FlashAttention's decoding: Q of all heads for each share, K and V of the KV heads once. With four queries
    it does not pack: K and V of each query head."""
    found = [(e, r) for e, r in serving(folder) if e.job.name == "torch-flash" and e.job.problem.N < 16]
    assert len(found) == 7
    for e, row in found:
        p, splits = e.job.problem, int(re.search(r"splits=(\d+)", row["tiles"])[1])
        packed = row["tiles"].endswith("/pack")
        keys = 2 * p.batch * (p.kv_heads if packed else p.heads) * p.Nk * p.d * 2
        kernel = max(e.kernels, key=lambda k: k.load_bytes)
        assert kernel.load_bytes == splits * p.instances * p.N * p.d * 2 + keys == int(row["read_predicted"])
        assert packed == (p.N == 1) and prod(kernel.grid) == splits * p.batch * (p.kv_heads if packed else p.heads)
    e, row = found[0]
    _, again = explain(e.kernels, e.job.problem)
    assert (again[0].schedule, again[0].label) == (row["schedule"], row["tiles"])


@needs_measurements
@pytest.mark.long
@pytest.mark.parametrize("folder", WHOLE, ids=lambda p: p.name)
def test_what_servers_run_is_explained_as_written_down(folder):
    """All but cuDNN's decoding. FlexAttention reads at most 1.5 % more than predicted: its lists of blocks."""
    for e, row in serving(folder):
        _, found = explain(e.kernels, e.job.problem)
        assert str(found[0].explains) == row["explains"]
        schedule = NAMED_TODAY.get(row["schedule"], row["schedule"])
        assert not found[0].explains or (found[0].schedule, found[0].label) == (schedule, row["tiles"]), row
        assert found[0].explains == ((e.job.name, e.job.problem.N) != ("torch-cudnn", 1))
        most = 1.015 if e.job.name == "torch-flex" else 1.0005
        assert not found[0].explains or 0.9995 <= found[0].read_ratio <= most


@needs_rows
@pytest.mark.parametrize("folder", ROWS, ids=lambda p: p.name)
def test_all_candidate_tiles_were_measured(folder):
    from validation import tiles_by_time

    times = tiles_by_time.measured(folder)
    assert times.keys() == {*tiles_by_time.SHAPES}
    shape, mine = list(times.items())[-1]
    tilings = tiles_by_time.candidates(tiles_by_time.problem(*shape))
    assert {f"{t.rows_q}x{t.rows_k}" for t in tilings} == mine.keys()


# ---------------------------------------------------------------- the list itself needs no GPU


def jobs():
    return shapes.generated()


def test_the_shapes_cover_what_is_claimed():
    found = jobs()
    problems = [job.problem for job in found]
    assert len(found) >= 60 and len({key_of(job) for job in found}) == len(found)
    assert {job.name for job in found} >= {*CORE, "split-kv", "memory-efficient"}
    assert {p.N for p in problems} >= {1, 16384} and {p.d for p in problems} >= {16, 256}
    assert {p.dtype for p in problems} == {"fp16", "bf16", "fp32"} and {p.heads for p in problems} >= {1, 264}
    masks = {str(p.mask).split(":")[0] for p in problems}
    assert masks >= {"dense", "causal", "window", "file"}
    assert any(p.N % job.tiling.rows_q for p, job in zip(problems, found, strict=True)), "ragged"


def test_every_shape_fits_a_block_of_an_h200():
    for job in jobs():
        assert max(launch["smem_bytes"] for launch in runner(job).launches) <= 232_448, job


def test_twenty_shapes_of_each_kernel_of_pytorch():
    from validation import shapes

    names = [job.name for job in shapes.torch()]
    assert names.count("torch-flash") >= 20 and names.count("torch-cudnn") >= 20


def test_a_part_that_cannot_be_measured_is_an_exit_code(monkeypatch, tmp_path, capsys):
    """The exit code is that of the last part that failed, after all other parts were measured."""
    from validation import measure

    def no_gpu(folder):
        raise MissingError("no GPU")

    asked = []
    monkeypatch.setattr(measure, "write_about", no_gpu)
    monkeypatch.setattr(measure, "measure", lambda part, folder, first: asked.append(part))
    for parts, code in ((["about", "sweep"], 3), (["sweep"], 0)):
        monkeypatch.setattr(sys, "argv", ["measure.py", str(tmp_path), *(x for p in parts for x in ("--part", p))])
        assert measure.main() == code
    assert asked == ["sweep", "sweep"] and "about: no GPU" in capsys.readouterr().err


def test_what_the_page_says_of_random_rows_and_planted_faults():
    page = " ".join((ROOT / "validation/pages/not-explained.md").read_text().split())
    rows, planted = read_csv(RANDOM / "random_rows.csv"), read_csv(RANDOM / "planted_rows.csv")
    assert len(rows) == 61 and all(row["ok"] == row["words_equal"] == "True" for row in rows)
    assert "all 61 rows agreed" in page
    generated = [row for row in rows if "(tuned)" not in row["job"]]
    assert len(generated) == 60
    assert all(int(row["read_beyond"]) <= int(row["read_bound"]) for row in generated)
    assert all(int(row["written_beyond"] or 0) <= int(row["written_bound"]) for row in generated)
    assert [row["fault"] for row in planted] == [fault for fault in FAULTS for _ in range(8)]
    assert all(row["seen"] == "True" for row in planted) and "seen in all 8 kernels" in page
    for job, *kept in zip(planted_jobs(), *(planted[n : n + 8] for n in (0, 8, 16)), strict=True):
        bound = partial_sectors_of(job)
        load, store, count = ([int(row[f"{way}_beyond"]) for way in ("read", "written")] for row in kept)
        assert load[0] > bound.read_bytes and store[1] > bound.write_bytes, "today's bounds see them all"
        assert count[0] <= bound.read_bytes and count[1] <= bound.write_bytes
    assert len(read_csv(RANDOM / "selftest.csv")) == 180
    assert {row["ok"] for row in read_csv(RANDOM / "selftest.csv")} == {"True"}


def splits_of_flash(query_tiles, key_tiles, places, most=128):
    """The rule of PyTorch (flash_api.cpp, num_splits_heuristic): the fewest splits that fill the last wave of blocks to
    85 % of the best, where `query_tiles` of all heads would not fill 80 % of the places."""
    if query_tiles >= 0.8 * places:
        return 1
    numbers = range(1, min(most, places, key_tiles) + 1)
    eligible = [n for n in numbers if n == 1 or -(-key_tiles // n) != -(-key_tiles // (n - 1))]
    filled = {n: query_tiles * n / places / -(-query_tiles * n // places) for n in eligible}
    return next(n for n in eligible if filled[n] >= 0.85 * max(filled.values()))


def test_what_the_page_says_of_splits():
    """The grid is query tiles, splits, heads. An H100 has 132 multiprocessors; a query tile has 64 rows here, and a key
    tile 128 keys for d from 65 to 128."""
    rows = [row for row in read_csv(RANDOM / "torch_stores.csv") if "torch-flash" in row["call"]]
    found = [row for row in rows if "combine" not in row["kernel"]]
    assert len(found) == 5 and all(int(row["local_stores"]) == 0 for row in found)
    splits = []
    for row in found:
        N, d, heads = (int(re.search(rf" {name}=(\d+)", row["call"])[1]) for name in ("N", "d", "heads"))
        assert 64 < d <= 128
        splits.append(splits_of_flash(-(-N // 64) * heads, -(-N // 128), 2 * 132))
        if splits[-1] > 1:
            assert row["grid"] == f"{-(-N // 64)}x{splits[-1]}x{heads}" and "splitkv" in row["kernel"]
        else:
            assert "splitkv" not in row["kernel"]
    assert splits == [4, 4, 3, 4, 1] and "5 heads: 4 splits" in (ROOT / "validation/pages/not-explained.md").read_text()


def test_batches_on_a_gpu_were_equal_to_the_byte():
    """PyTorch's kernel for unequal lengths: the schedule's bytes, and 512 B of lengths in each block."""
    rows = [row for row in read_csv(VALIDATION / "batch_gpu.csv") if row["packed"] == "False"]
    assert len(rows) == 32
    for row in rows:
        beside = int(row["measured_bytes"]) - int(row["schedule_bytes"])
        assert row["equal"] == "True" and beside == 512 * int(row["grid_blocks"])


def test_slope_and_constant_by_hand():
    """bytes = 3 N^2 d^2 / M: slope -1, constant 3 (words of 4 bytes: M / 4 words, and 4 bytes a word)."""
    from validation.measure import fit

    p = Attention(1024, 64, dtype="fp32")
    points = [(m, 3 * 1024**2 * 64**2 * 16 // m) for m in (16384, 32768, 65536)]
    assert fit(points, p) == (-1.0, 3.0)
    assert fit(points[:1], p) == (None, None)
    steep = [(m, m**-2 * 1e15) for m in (2.0, 4.0, 8.0)]
    assert fit(steep, p)[0] == pytest.approx(-2)
