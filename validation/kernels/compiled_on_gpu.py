"""The fused kernels of compiled models on a GPU: do they move the bytes that `iosim explain --script` says?

    PYTHONPATH=. python3 validation/kernels/compiled_on_gpu.py --prepare   # no GPU; PyTorch 2.13: writes compiled.json
    PYTHONPATH=. python3 validation/kernels/compiled_on_gpu.py FOLDER      # on the GPU; any PyTorch 2 with Triton, ncu

The scripts are compiled_*.py of tests/helpers. compiled.json has each Triton kernel that Inductor wrote for them, as a
plain function of `@triton.jit` with the arguments of its launch, and what iosim says of it. On the GPU each is launched
on random numbers under Nsight Compute. FOLDER gets compiled.csv, a row a kernel. The exit code is 1 if a kernel was not
measured, or if it was asked for less than iosim says.
"""

from __future__ import annotations

import argparse
import ast
import csv
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from unittest import mock

from iosim.gpu.ncu import counters
from iosim.gpu.ncu.run import command, find_ncu

ROOT, PREPARED = Path(__file__).parents[2], Path(__file__).with_name("compiled.json")
SCRIPTS = sorted((ROOT / "tests" / "helpers").glob("compiled_*.py"))
LIMIT_SECONDS = 200
KEPT = {"triton", "triton.language", "torch._inductor.runtime.triton_helpers"}  # modules that a kernel needs
SAID = ("read_bytes", "write_bytes", "once_read_bytes", "once_write_bytes", "said_loads", "said_stores", "registers")
METRICS = {"loads": counters.LOADS, "stores": counters.STORES, "reductions": counters.REDUCTIONS,
           "from_l2": counters.FROM_L2, "to_l2": counters.TO_L2, "dram_read": counters.DRAM_READ,
           "dram_write": counters.DRAM_WRITE, "nanoseconds": counters.TIME,
           "own_registers": "launch__registers_per_thread"}  # fmt: skip
COLUMNS = ("script", "kernel", *SAID, *METRICS)
Entry = dict  # of compiled.json


# ---------------------------------------------------------------- without a GPU


def prepared() -> list[Entry]:
    """The entries of compiled.json, made anew."""
    from iosim.kernels.compiled.steps import Counter
    from iosim.kernels.explain import Question, explained
    from iosim.kernels.launches import script_answers
    from iosim.kernels.walk.launch import Tensor

    question, entries = Question("sm_90", "h100", timeout=400), list[Entry]()

    def kernel(counter, code, call):  # type: ignore[no-untyped-def]
        step = own(counter, code, call)
        source = code.kernels[call.name]
        (launch, choice), *_ = counter.kernels[source].launches(call, code.data)
        values = {n: [v.dtype, v.reach] if isinstance(v, Tensor) else v for n, v in launch.arguments.items()}
        shape = {"grid": list(launch.grid), "num_warps": launch.num_warps, "num_stages": launch.num_stages}
        said = said_of(explained(launch, choice, question)) | {"registers": step.registers}
        entry = {"script": script.name, "kernel": call.name, **shape, "arguments": values, "said": said}
        entry |= {"source": plain(source).splitlines()}
        if entry not in entries:
            entries.append(entry)
        return step

    own = Counter.kernel
    with mock.patch.object(Counter, "kernel", kernel):
        for script in SCRIPTS:
            script_answers(str(script), None, question)
    return entries


def plain(source: str) -> str:
    """The kernel of a source of Inductor with `@triton.jit` alone."""
    found = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef):
            node.decorator_list = [each for each in node.decorator_list if ast.unparse(each) == "triton.jit"]
            found.append(node)
        elif (isinstance(node, ast.Import) and node.names[0].name in KEPT) or (
            isinstance(node, ast.ImportFrom) and node.module in KEPT
        ):
            found.append(node)
        elif isinstance(node, ast.ImportFrom) and "triton_helpers" in {name.name for name in node.names}:
            found.append(ast.ImportFrom(node.module, [ast.alias("triton_helpers")], 0))
    return ast.unparse(ast.Module(found, []))


def said_of(answer) -> dict[str, int]:  # type: ignore[no-untyped-def]
    """What iosim says of a launch: bytes asked for and once, and those of all sectors of its requests."""
    ways = list(answer.ways.values())
    asked = answer.total("reads", "bytes"), answer.total("writes", "bytes")
    once = (sum(each[way].distinct_bytes for each in ways) for way in ("reads", "writes"))
    sectors = (sum(each[way].sector_bytes for each in ways) for way in ("reads", "writes"))
    return dict(zip(SAID, (*asked, *once, *sectors), strict=False))


def function_of(entry: Entry, folder: Path):  # type: ignore[no-untyped-def]
    """The kernel of an entry. Its source is written to a folder, where Triton reads it."""
    path = folder / f"{entry['script']}_{entry['kernel']}.py"
    path.write_text("\n".join(entry["source"]) + "\n", encoding="utf-8")
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, entry["kernel"])


# ---------------------------------------------------------------- the process that launches


def work(entries: list[Entry], device: str) -> None:
    """Launch each kernel twice, the second time for the profiler."""
    import torch

    types = {"bf16": torch.bfloat16, "fp32": torch.float32}
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        for entry in entries:
            function = function_of(entry, Path(folder))
            values = {
                name: torch.randn(value[1], device=device).to(types[value[0]]) if isinstance(value, list) else value
                for name, value in entry["arguments"].items()
            }
            options = {name: entry[name] for name in ("num_warps", "num_stages")}
            function[tuple(entry["grid"])](**values, **options)
            if device == "cuda":
                torch.cuda.synchronize()
                torch.cuda.profiler.start()
                function[tuple(entry["grid"])](**values, **options)
                torch.cuda.synchronize()
                torch.cuda.profiler.stop()
            print(entry["kernel"], flush=True)


# ---------------------------------------------------------------- on the GPU


def measured(folder: Path) -> list[counters.ProfiledKernel]:
    """The launches that the profiler saw, in order."""
    log = folder / "compiled.ncu.csv"
    line = command(find_ncu(), str(log), [sys.executable, __file__, str(folder), "--worker"])
    done = subprocess.run(line, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    print((done.stdout + done.stderr)[-3000:], file=sys.stderr)
    return [kernel for job in counters.read_profile(log).jobs for kernel in job]


def rows_of(entries: list[Entry], kernels: list[counters.ProfiledKernel]) -> Iterator[dict[str, object]]:
    """A row for each entry that was measured."""
    for entry, kernel in zip(entries, kernels, strict=False):
        if kernel.name.partition("(")[0] != entry["kernel"]:
            raise SystemExit(f"{kernel.name} was profiled where {entry['kernel']} was launched")
        numbers = {name: kernel.get(metric) for name, metric in METRICS.items()}
        yield {"script": entry["script"], "kernel": entry["kernel"], **entry["said"], **numbers}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--prepare", action="store_true")
    parser.add_argument("--worker", action="store_true", help="only launch")
    parser.add_argument("--device", default="cuda", help="cpu, with TRITON_INTERPRET=1 and --worker, needs no GPU")
    how = parser.parse_args()
    if how.prepare:
        PREPARED.write_text(json.dumps(prepared(), indent=1) + "\n", encoding="utf-8")
        return 0
    entries = json.loads(PREPARED.read_text(encoding="utf-8"))
    if how.worker:
        work(entries, how.device)
        return 0
    how.folder.mkdir(parents=True, exist_ok=True)
    rows = list(rows_of(entries, measured(how.folder)))
    with open(how.folder / "compiled.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    for row in rows:
        print(*row.values())
    less = [row for row in rows if row["loads"] < row["said_loads"] or row["stores"] < row["said_stores"]]
    return int(len(rows) < len(entries) or bool(less))


if __name__ == "__main__":
    sys.exit(main())
