"""Attention across two GPUs by generated kernels: on the CPU here, and as it was measured on two H100s."""

import csv
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from paths import ROOT

import iosim
from iosim.core.problem import Attention
from iosim.core.tiling import Tiling
from iosim.masks import parse_mask

on_cpu = pytest.importorskip("on_cpu", exc_type=ImportError)
on_gpus = pytest.importorskip("validation.links.on_gpus", exc_type=ImportError)

KEPT = ROOT / "validation/links"
SMALL = Attention(44, 8, heads=2, dtype="fp16", acc_dtype="fp32")
CASES = on_gpus.several(SMALL, replace(SMALL, mask=parse_mask("causal")), Tiling(8, 4))


def kept(name):
    with open(KEPT / f"{name}.csv") as file:
        return list(csv.DictReader(file))


def key_of(program):
    """What is compiled once: a source, with the grids of its kernels."""
    return program.source, *(kernel.grid for kernel in program.kernels)


class Listed:
    """Runs nothing: lists the programs that a case asks for, each once. Every word is 1."""

    def __init__(self):
        self.programs = {}

    def __call__(self, rank, program, inputs, home=None):
        self.programs[key_of(program)] = program
        ones = {name: np.ones(array.full_shape) for name, array in program.arrays.items()}
        return ones, dict.fromkeys(ones, (0, 0))


class OnCpu:
    """Runs programs of one library on the CPU; both GPUs are this process."""

    def __init__(self, programs, library):
        self.number, self.library, self.moves = {key: k for k, key in enumerate(programs)}, library, []

    def __call__(self, rank, program, inputs, home=None):
        self.moves += [(rank, home)] * (program.name == "take")
        given = {name: np.asarray(value, float) for name, value in inputs.items()}
        found, counts, _ = on_cpu.run(self.library, self.number[key_of(program)], program, given)
        written = {name: value for name, value in found.items() if counts.get(name, (0, 0))[1]}
        halves = {name for name in written if program.arrays[name].dtype == "fp16"}
        outputs = {name: value.astype(np.float16) if name in halves else value for name, value in written.items()}
        return outputs, counts


def rows_of(case, run, folder):
    return on_gpus.rows_of(case, run, lambda rank, array: array, folder)


@pytest.fixture(scope="module")
def cpu(tmp_path_factory):
    """All programs of all cases, compiled together."""
    folder, listed = tmp_path_factory.mktemp("kernels"), Listed()
    for case in CASES:
        rows_of(case, listed, folder)
    return OnCpu(listed.programs, on_cpu.build(listed.programs.values(), folder))


@pytest.mark.skipif(bool(on_cpu.WHY_NOT), reason=on_cpu.WHY_NOT)
@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.scheme}-{c.p.mask}-{'bwd' if c.backward else 'fwd'}")
def test_kernels_receive_the_words_of_iosim_links(case, cpu, tmp_path):
    for stored in (False, True):
        cpu.moves.clear()
        rows = rows_of(replace(case, stored=stored), cpu, tmp_path)
        assert rows and all(row["equal"] for row in rows), rows
        assert {row["gpu"] for row in rows} == {0, 1} and all(float(row["error"]) < 1e-3 for row in rows)
        assert {*cpu.moves} == ({(0, 1), (1, 0)} if stored else {(0, 0), (1, 1)})


class InMemory:
    """Stands for two GPUs: a copy is a copy."""

    def place(self, rank):
        return "cpu"

    def bring(self, rank, here, there):
        assert here.is_contiguous() and there.is_contiguous()
        here.copy_(there)
        return here.numel() * here.element_size()


@pytest.mark.needs("torch")
@pytest.mark.parametrize("scheme", ["ring", "ulysses"])
def test_steps_of_pytorch_are_right_and_move_the_bytes_of_iosim_links(scheme):
    from validation.links import steps

    two = InMemory()
    step = steps.SCHEMES[scheme](two, "cpu", steps.shards_of(two, 64, 4, 16))
    for part in step.parts.values():
        for rank in range(2):
            part(rank)
    said = iosim.links(64, 16, 2, schedules=scheme, heads=4, dtype="fp16", acc_dtype="fp32")[scheme]
    assert step.bytes_come == [said.largest_received_bytes] * 2
    assert max(steps.error_of(step, rank) for rank in range(2)) < 2e-3


WAYS = {"on_gpus": "nvlink", "stored": "nvlink_stored"}
"""The words of a run, and the bytes of its launches."""


@pytest.mark.parametrize("words", WAYS)
def test_the_kept_words_are_those_of_iosim_links_today(words):
    rows = kept(words)
    of_case = {
        (case.scheme, "backward" if case.backward else "forward", str(case.p.mask)): case for case in on_gpus.cases()
    }
    assert {(row["scheme"], row["pass"], row["mask"]) for row in rows} == {*of_case}
    for row in rows:
        said = on_gpus.predicted(of_case[row["scheme"], row["pass"], row["mask"]])
        assert int(row["counted_words"]) * on_gpus.RANKS == said[row["tensor"]]
        assert float(row["error"]) < 1e-3
    assert {row["gpu"] for row in rows} == {"0", "1"}


@pytest.mark.parametrize(("words", "bytes_of_links"), WAYS.items())
def test_the_links_carried_the_bytes_of_these_words(words, bytes_of_links):
    """A launch for each row, and for the keys of the forward pass before each backward pass. A kernel that reads
    receives them and sends none; one that stores sends them and receives none."""
    width = {"fp16": 2, "fp32": 4}
    expected = Counter()
    for row in kept(words):
        again = row["pass"] == "backward" and row["tensor"] in ("K", "V")
        expected[row["gpu"], int(row["counted_words"]) * width[row["dtype"]]] += 1 + again
    launches = kept(bytes_of_links)
    moved, idle = ("nvltx", "nvlrx") if words == "stored" else ("nvlrx", "nvltx")
    assert Counter((row["gpu"], int(row[f"{moved}_data_user_bytes"])) for row in launches) == expected
    assert len(launches) == 72 and {row[f"{idle}_data_user_bytes"] for row in launches} == {"0"}


def test_each_gpu_stored_the_bytes_that_iosim_links_says_it_sends():
    sent = Counter()
    for row in kept("stored"):
        sent[row["scheme"], row["pass"], row["mask"], int(row["gpu"])] += int(row["counted_words"])
    for (scheme, of, mask, gpu), words in sent.items():
        case = next(c for c in on_gpus.cases() if (c.scheme, c.backward, str(c.p.mask)) == (scheme, of[0] == "b", mask))
        p = case.p
        found = iosim.links(p.N, p.d, 2, schedules=scheme, heads=p.heads, mask=mask, passes=of, detail=True)
        assert words == next(pair.words for pair in found.pairs if pair.sender == gpu)


def page_of_measurements():
    return (KEPT / "README.md").read_text()


KERNELS = {"generated": "generated", "flash": "FlashAttention", "cudnn": "cuDNN"}


def test_the_table_of_steps():
    page, rows = page_of_measurements(), kept("steps")
    for row in rows:
        said = iosim.links(
            int(row["N"]), int(row["d"]), 2, schedules=row["scheme"], heads=int(row["heads"]), acc_dtype="fp32",
            hardware="h100",
        ).to_dict()["results"][0]  # fmt: skip
        for name, of in (("links_ms", "link_seconds"), ("arithmetic_ms", "arithmetic_seconds"), ("ms", "seconds")):
            assert row[f"bound_{name}"] == f"{1e3 * said[of]:.4f}"
        steps = [float(row[name]) for name in ("followed_ms", "overlapped_ms") if row[name]]
        assert min(steps) > float(row["bound_ms"]) and float(row["error"]) < 1e-4
        ratio = min(steps) / (1e3 * said["seconds"])
        assert abs(ratio - float(row["ratio"])) < 1e-3
        cells = [row["scheme"], KERNELS[row["kernel"]], f"{int(row['N']):,}"]
        for name in ("arithmetic_ms", "links_ms", "followed_ms", "overlapped_ms", "bound_ms", "ratio"):
            cells.append(f"{float(row[name]):.2f}" if row[name] else "-")
        assert f"| {' | '.join(cells)} |" in page
    best = [float(row["ratio"]) for row in rows if row["kernel"] == "cudnn" and int(row["N"]) >= 32768]
    assert f"{min(best):.1f} to {max(best):.1f} times the bound" in " ".join(page.split())
    sums = {
        row["followed_ms"]: float(row["arithmetic_ms"]) + float(row["links_ms"]) for row in rows if row["N"] != "8192"
    }
    ratios = [float(r["ratio"]) for r in rows if r["kernel"] != "generated" and int(r["N"]) >= 32768]
    assert f"took {min(ratios):.1f} to {max(ratios):.1f} times its `time`" in (ROOT / "docs/links.md").read_text()
    apart = max(abs(float(followed) / both - 1) for followed, both in sums.items())
    assert f"sum of their parts by up to {100 * apart:.0f} %" in " ".join(page.split())
    for scheme, words in (("ring", "takes 1.27 times its own"), ("ulysses", "takes 2.79 times its bound")):
        row = next(r for r in rows if (r["scheme"], r["kernel"], r["N"]) == (scheme, "cudnn", "32768"))
        assert f"{float(row['links_ms']) / float(row['bound_links_ms']):.2f}" in words
        assert words in " ".join(page.split())


def test_what_the_page_says_of_nccl_and_of_times():
    page = " ".join(page_of_measurements().split())
    ways = ("sent_bytes", "received_bytes")
    more = [int(row[way]) / int(row["needed_bytes"]) - 1 for row in kept("nccl") for way in ways]
    assert min(more) > 0 and f"adds {100 * max(more):.4f} % at most to what a GPU sends and to what it receives" in page
    hop = next(row for row in kept("times") if "generated" in row["what"])
    least = int(hop["link_bytes"]) / 450e9 * 1e3
    assert f"{float(hop['milliseconds']):.3f} ms, {float(hop['milliseconds']) / least:.2f} times the bound" in page
    own = next(row for row in kept("times") if row["what"] == "own keys")
    assert f"{float(own['milliseconds']):.1f} ms" in page
    for row in kept("nccl"):
        assert f"{float(row['milliseconds']):.2f} ms" in page, row["what"]
