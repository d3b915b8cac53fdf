"""Random rows of all schedules on a GPU, and kernels with planted faults: from the root of the repository

    PYTHONPATH=. python3 validation/planted.py FOLDER

It needs CuPy, PyTorch and Nsight Compute, and takes less than 8 minutes on an H100. FOLDER gets:

- random.csv and random_rows.csv: 60 rows drawn from all schedules and options, and the verdict on each;
- planted_rows.csv: the verdicts on kernels with a fault, which must all be NO;
- torch.csv and torch_stores.csv: calls of PyTorch's kernels whose stores are not explained, with counters of local
  memory.

A short table comes last.
"""

from __future__ import annotations

import argparse
import csv
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from iosim import grid
from iosim.core.problem import Attention
from iosim.core.tiling import Tiling
from iosim.gpu.cuda.program import Program
from iosim.gpu.jobs import GeneratedJob, Job, ScheduleJob, TorchJob
from iosim.gpu.ncu import counters
from iosim.gpu.ncu import run as ncu
from iosim.gpu.verdict import partial_sectors_of, verify
from iosim.gpu.verdict_rows import Verdict
from iosim.gpu.verify_run import combine
from iosim.masks import parse_mask
from validation.random_rows import ON_GPU, draw

ROWS, SEED = 60, 34
FACTOR = "1.0005f"
ALLOWED_SECONDS = 480

# ---------------------------------------------------------------- faults: each changes the text of a program


def hidden_load(program: Program) -> Program:
    """The first tile that is loaded is loaded again after the first store, and counted once. Copies of the same words
    that are under way together would move them once."""
    copy = r"(if \([^;]*\) )?load<(true|false)>\((.*), \w+_reads\);"
    lines = [line.strip() for line in program.kernels[0].source.split("\n")]
    again = uncounted(next(line for line in lines if re.fullmatch(copy, line)))
    late = f"{{ __syncthreads(); Counter hidden; {again} copies_commit(); copies_done<0>(); }}"
    return with_line(program, r"store<(true|false)>\((.*), \w+_writes\);", lambda line: f"{line} {late}")


def hidden_store(program: Program) -> Program:
    """A tile is stored twice, and counted once."""
    copy = r"store<(true|false)>\((.*), \w+_writes\);"
    return with_line(program, copy, lambda line: f"{{ Counter hidden; {uncounted(line)} }} {line}")


def wrong_count(program: Program) -> Program:
    """A count is 16 words off."""
    first = "blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0"
    counter = r"(\w+)\.flush\(counts \+ \d+\);"
    return with_line(program, counter, lambda line: f"if ({first}) {line.partition('.')[0]}.add(16); {line}")


def scaled_output(program: Program) -> Program:
    """Every O is FACTOR times too large where it is divided by its sums, before it is rounded."""
    step = f"""
template <class O, class L> STEP normalise_off(const O& o, const L& l) {{
    each_piece(o, [&](float (&x)[O::V], int r, int) {{
        const float sum = l.get(r), factor = sum == 0.0f ? 1.0f : {FACTOR} / sum;
        for (int k = 0; k < O::V; ++k) x[k] *= factor;
    }});
}}
"""
    return with_line(program, r"normalise\((.*)\);", lambda line: line.replace("normalise", "normalise_off", 1), step)


def uncounted(line: str) -> str:
    """A copy whose words are added to another counter."""
    return re.sub(r"\w+_(reads|writes)\);$", "hidden);", line)


def with_line(program: Program, pattern: str, change: Callable[[str], str], before: str = "") -> Program:
    """A program whose first line like `pattern` is changed. `before` comes before its first kernel. ValueError if no
    line is like it."""
    for number, kernel in enumerate(program.kernels):
        lines = kernel.source.split("\n")
        for at, line in enumerate(lines):
            if re.fullmatch(pattern, line.strip()):
                lines[at] = change(line.strip())
                changed = replace(kernel, source="\n".join(lines))
                kernels = (*program.kernels[:number], changed, *program.kernels[number + 1 :])
                source = program.source.replace(kernel.source, changed.source)
                first = kernels[0].source
                kernels = (replace(kernels[0], source=before + first), *kernels[1:])
                return replace(program, kernels=kernels, source=source.replace(first, before + first))
    raise ValueError(f"{program.name} has no line like {pattern}")


FAULTS = {"load": hidden_load, "store": hidden_store, "count": wrong_count, "output": scaled_output}


def plant(fault: str) -> None:
    """From now on, kernels that this process generates have a fault. A worker calls it from a file of --load."""
    from iosim.gpu.cuda import machine

    right = machine.generate
    machine.generate = lambda *given, **named: FAULTS[fault](right(*given, **named))  # type: ignore[assignment]


def planted_jobs() -> list[ScheduleJob]:
    """Jobs whose kernels get the faults: all types of inputs and sums, packed heads, pages, ragged sizes, a mask."""
    rows = [
        ("flash2", "fp16", "fp16", Attention(512, 64, heads=2), Tiling(64, 64)),
        ("flash2", "fp16", "fp32", Attention(777, 80, heads=3, mask=parse_mask("causal")), Tiling(48, 32)),
        ("flash2", "bf16", "fp32", Attention(1000, 128, heads=4, kv_heads=2), Tiling(64, 64)),
        ("flash2", "bf16", "bf16", Attention(1024, 64, heads=4), Tiling(64, 64)),
        ("flash2", "fp32", "fp32", Attention(257, 36, heads=2), Tiling(20, 16)),
        ("attention-2pass", "fp16", "fp32", Attention(600, 64, heads=2), Tiling(64, 48)),
        ("split-kv", "fp16", "fp16", Attention(16, 128, Nk=2680, heads=8, kv_heads=1, gqa="pack"), Tiling(16, 64)),
        ("paged", "fp16", "fp32", Attention(64, 64, Nk=1000, heads=4, page_size=16), Tiling(16, 16)),
    ]
    return [ScheduleJob(name, replace(p, dtype=dtype, acc_dtype=acc), tiling) for name, dtype, acc, p, tiling in rows]


# ---------------------------------------------------------------- on the GPU


def main() -> int:
    """The exit code: 1 if a row does not agree, or a fault is not seen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--seed", type=int, default=SEED)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    begin = time.perf_counter()
    jobs = [*draw(given.seed, given.rows, ON_GPU), tuned_lse()]
    compile_all(jobs, planted_jobs(), list(FAULTS))
    said(begin, "compiled")
    rows = verdicts(jobs, given.folder, "random")
    write(given.folder / "random_rows.csv", [in_short(job, row) for job, row in zip(jobs, rows, strict=True)])
    said(begin, "random rows")
    found = [planted(fault, given.folder, planted_jobs()) for fault in FAULTS]
    write(given.folder / "planted_rows.csv", [row for each in found for row in each])
    said(begin, "planted faults")
    torch = torch_rows(given.folder)
    write(given.folder / "torch_stores.csv", torch)
    said(begin, "PyTorch")
    print(grid.table(torch))
    wrong = [in_short(job, row) for job, row in zip(jobs, rows, strict=True) if not row["ok"]]
    print("\n".join(f"{row['job']}: {row['faults']}" for row in wrong))
    print(grid.table([seen_of(fault, each) for fault, each in zip(FAULTS, found, strict=True)]))
    print(f"{len(rows) - len(wrong)} of {len(rows)} random rows agree; {time.perf_counter() - begin:.0f} s")
    return int(bool(wrong) or not all(row["seen"] for each in found for row in each))


def tuned_lse() -> ScheduleJob:
    """The tuned kernel that stores an LSE."""
    p = Attention(1000, 64, heads=4, dtype="fp16", acc_dtype="fp32", lse=True)
    return ScheduleJob("flash2", p, Tiling(128, 128), tuned=True)


def said(begin: float, what: str) -> None:
    print(f"# {time.perf_counter() - begin:.0f} s: {what}", flush=True)


def compile_all(jobs: Sequence[Job], spoiled_jobs: Sequence[ScheduleJob], faults: Sequence[str]) -> None:
    """Compile all kernels, with and without faults, on all processors. The workers find them in CuPy's cache."""
    from iosim.gpu import device
    from iosim.gpu.cuda.machine import generate

    own = [GeneratedJob(job) for job in jobs if isinstance(job, ScheduleJob) and not job.tuned]
    spoiled = [GeneratedJob(job) for job in spoiled_jobs]
    right = [generate(*one.parts, count=count) for one in own for count in (False, True)]
    with_fault = [generate(*one.parts, count=count) for one in spoiled for count in (False, True)]
    device.compile_all(right + [fault(program) for program in with_fault for fault in map(FAULTS.__getitem__, faults)])


def verdicts(jobs: Sequence[ScheduleJob], folder: Path, name: str, load: Sequence[str] = ()) -> list[Verdict]:
    """The verdicts on jobs, whose counters are kept as a CSV of this name."""
    notes = ncu.notes_of_jobs(jobs, folder / f"{name}.notes", load)
    for leftover in folder.glob(f"{name}.notes*"):
        leftover.unlink()
    kernels = ncu.profile_what_ran(jobs, notes, str(folder / f"{name}.csv"), load)
    return [verify(evidence, None) for evidence in combine(jobs, notes, kernels)]


def planted(fault: str, folder: Path, jobs: Sequence[ScheduleJob]) -> list[dict[str, object]]:
    """A row for each job whose kernels have the fault: whether it is seen, and in what."""
    file = folder / f"plant_{fault}.py"
    file.write_text(f"from validation.planted import plant\n\nplant({fault!r})\n", encoding="utf-8")
    rows = verdicts(jobs, folder, f"planted_{fault}", [str(file)])
    return [
        {"fault": fault, **in_short(job, row), "seen": seen(fault, row)} for job, row in zip(jobs, rows, strict=True)
    ]


EXPECTED = {"load": "read:", "store": "written:", "count": "the device counted", "output": "output"}


def seen(fault: str, row: Verdict) -> bool:
    """Whether the verdict names the fault, and nothing failed."""
    return not row["ok"] and EXPECTED[fault] in row["faults"] and "Error" not in row["faults"]


def seen_of(fault: str, rows: Sequence[Mapping[str, object]]) -> dict[str, object]:
    unseen = [str(row["job"]) for row in rows if not row["seen"]]
    return {"fault": fault, "kernels": len(rows), "seen": len(rows) - len(unseen), "unseen": "; ".join(unseen)}


def in_short(job: ScheduleJob, row: Verdict) -> dict[str, object]:
    """What a table shows of a verdict."""
    p, bound = job.problem, partial_sectors_of(job)
    text = f"{row['schedule']} N={p.N} Nk={p.Nk} d={p.d} dv={p.dv} heads={p.heads}:{p.kv_heads} {row['tiles']}"
    kind = f" {p.dtype}/{p.acc_dtype}{p.cache_text} {p.mask}{' pack' if p.gqa == 'pack' else ''}"
    read, written = row["hw_read_bytes"], row["hw_write_bytes"]
    return {
        "job": text + kind,
        "ok": row["ok"],
        "words_equal": row["device_words"] == row["words"],
        "read_beyond": None if read is None else read - row["sm_read_bytes"],
        "read_bound": bound.read_bytes,
        "written_beyond": None if written is None else written - row["sm_write_bytes"],
        "written_bound": bound.write_bytes,
        "error": row["error"],
        "allowed_error": row["allowed_error"],
        "bias": row["bias"],
        "allowed_bias": row["allowed_bias"],
        "faults": row["faults"],
    }


# ---------------------------------------------------------------- PyTorch's stores

MORE = (
    "l1tex__t_bytes_pipe_lsu_mem_local_op_st.sum",
    "l1tex__t_bytes_pipe_lsu_mem_local_op_ld.sum",
)


def torch_jobs() -> list[TorchJob]:
    """FlashAttention-2 with d = 96 and sizes around it, and cuDNN's decoding with several numbers of keys."""
    types = {"dtype": "fp16", "acc_dtype": "fp32"}
    sizes = [(777, 96, 5, "causal"), (777, 96, 5, "dense"), (768, 96, 5, "causal"), (777, 128, 5, "causal")]
    sizes += [(777, 96, 64, "causal")]
    flash = [Attention(N, d, heads=heads, mask=parse_mask(mask), lse=True, **types) for N, d, heads, mask in sizes]
    decode = [Attention(1, 128, Nk=Nk, heads=32, kv_heads=8, **types) for Nk in (8192, 16384, 8192 + 128, 4096)]
    return [*(TorchJob("torch-flash", p) for p in flash), *(TorchJob("torch-cudnn", p) for p in decode)]


def torch_rows(folder: Path) -> list[dict[str, object]]:
    """A row for each kernel of the calls: its grid, and what it stores, globally and to its stacks."""
    jobs, path = torch_jobs(), str(folder / "torch.csv")
    worker = ncu.worker_command(jobs, Path(path + ".notes"), True)
    line = ncu.command(ncu.find_ncu(), path, worker)
    at = line.index("--metrics") + 1
    line[at] += "," + ",".join(MORE)
    done = subprocess.run(line, capture_output=True, text=True, timeout=ALLOWED_SECONDS)
    if done.returncode:
        return [{"call": "failed", "kernel": (done.stderr or done.stdout)[-300:]}]
    ncu.append_notes(path, ncu.taken(Path(path + ".notes")))
    rows: list[dict[str, object]] = []
    for job, kernels in zip(jobs, counters.read_profile(path).jobs, strict=False):
        p = job.problem
        call = f"{job.name} N={p.N} Nk={p.Nk} d={p.d} heads={p.heads}:{p.kv_heads} {p.mask}"
        rows += [{"call": call, **of_kernel(kernel)} for kernel in kernels]
    return rows


def of_kernel(kernel: counters.ProfiledKernel) -> dict[str, object]:
    """A kernel's name, grid, registers and bytes."""
    return {
        "kernel": re.sub(r"^void |<.*|\(.*", "", kernel.name)[-40:],
        "grid": "x".join(map(str, kernel.grid)),
        "loads": kernel.get(counters.LOADS),
        "from_L2": kernel.get(counters.FROM_L2),
        "stores": kernel.get(counters.STORES),
        "to_L2": kernel.get(counters.TO_L2),
        "L2_written": 32 * kernel.get(counters.L2_WRITES),
        "local_stores": kernel.get(MORE[0]),
        "local_loads": kernel.get(MORE[1]),
        "registers": kernel.get(counters.LAUNCH_METRICS[0]),
    }


def write(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Write rows to a CSV file."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(name for row in rows for name in row)))
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    sys.exit(main())
