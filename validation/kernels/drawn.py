"""Counts 100 kernels of others, drawn at random, and says which are counted, which are not, and why.

    PYTHONPATH=. python validation/kernels/drawn.py FOLDER > drawn.csv

FOLDER is as for corpus.py, with packages fla, vllm and unsloth as well. The launches of tutorials and of Dao-AILab's
file stand in launches.toml. Those of the packages are caught from the scripts in scripts/, which call what the packages
offer. PyTorch is needed for these (its CPU build). A kernel is a function of @triton.jit that is launched somewhere in
its package; kernels for other devices than GPUs (Ascend) are left out. For one of @triton.autotune the first
configuration is counted.
"""

from __future__ import annotations

import ast
import csv
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from listed import listed, ready

from iosim.errors import IosimError
from iosim.kernels.explain import Explained, Question, explained
from iosim.kernels.read.script import Caught, caught_launches

HERE = Path(__file__).parent
SEED = 2026
DRAWN = {"flash_attn": 3, "tutorials": 16, "vllm": 15, "unsloth": 16, "liger_kernel": 20, "fla": 34}
SCRIPTS = {"vllm": ["launch_vllm"], "unsloth": ["launch_unsloth"], "liger_kernel": ["launch_liger"],
           "fla": ["launch_fla", "launch_fla_modules"]}  # fmt: skip
ELSEWHERE = re.compile(r"ascend|npu|rocm|_cutedsl", re.IGNORECASE)


def kernels_of(folder: Path, package: str) -> list[tuple[str, str]]:
    """The launched kernels of a package: (file, name), in order."""
    files = {file: file.read_text() for file in sorted((folder / package).rglob("*.py"))}
    words = set(re.findall(r"(\w+)\s*\[", "\n".join(files.values())))
    found = []
    for file, text in files.items():
        if "jit" not in text or ELSEWHERE.search(str(file.relative_to(folder))):
            continue
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.FunctionDef) or not any("jit" in ast.unparse(d) for d in node.decorator_list):
                continue
            if node.name in words or f"{node.name} if" in text:
                found.append((str(file.relative_to(folder)), node.name))
    return sorted(set(found))


def answer(launches: list[tuple], row: dict[str, object]) -> dict[str, object]:
    """A row with the words of the first launch that can be counted, or why none can."""
    start = time.perf_counter()
    row |= {"answer": "no launch"}
    for ask in launches[:3]:
        try:
            found = ask()
            row |= {"answer": "counted", "reads": found.reads, "writes": found.writes, "why": ""}
            break
        except IosimError as error:
            row |= {"answer": "refused", "why": str(error)}
    return {**row, "seconds": f"{time.perf_counter() - start:.2f}"}


def launches_of(folder: Path, package: str) -> dict[tuple[str, str], list[tuple[str, Caught]]]:
    """The different launches of each kernel of a package: {(file, name): [(script, launch), ...]}."""
    found: dict[tuple[str, str], dict[object, tuple[str, Caught]]] = {}
    for script in SCRIPTS[package]:
        for launch in caught_launches(str(HERE / "scripts" / f"{script}.py")).launches:
            file = Path(launch.kernel.function.fn.__code__.co_filename)
            if file.is_relative_to(folder):
                key = str(file.relative_to(folder)), launch.kernel.name
                found.setdefault(key, {}).setdefault(launch.key, (script, launch))
    return {key: list(each.values()) for key, each in found.items()}


def caught(folder: Path, package: str, wanted: list[tuple[str, str]]) -> list[dict[str, object]]:
    """The rows of kernels whose launches are caught from a package's scripts."""
    by_kernel = launches_of(folder, package)
    rows = []
    for file, name in wanted:
        launches = [lambda one=one: first(one) for _, one in by_kernel.get((file, name), [])]
        rows.append(answer(launches, {"package": package, "file": file, "kernel": name}))
    return rows


def first(launch: Caught, grid: object = None) -> Explained:
    """What iosim says of the first configuration of a caught launch, on another grid if one is given."""
    chosen = launch.kernel.choices(launch.arguments)[0]
    if grid:  # what heuristics gave at the launch, they may not give here
        launch = replace(launch, grid=grid, arguments=launch.completed(chosen))
    return explained(launch, chosen, Question(resources=False))


def by_list(folder: Path, package: str, wanted: list[tuple[str, str]]) -> list[dict[str, object]]:
    """The rows of kernels whose launches stand in launches.toml."""
    launches = {(f"{package}/{one.file}", one.kernel): one for one in listed(folder)}
    rows = []
    for file, name in wanted:
        one = launches.get((file, name))
        asked = [] if one is None else [lambda one=one: ready(one)[0].explained(resources=False)]
        rows.append(answer(asked, {"package": package, "file": file, "kernel": name}))
    return rows


def of_package(folder: Path, package: str) -> list[dict[str, object]]:
    """The rows of the kernels that are drawn from a package."""
    everything = kernels_of(folder, package)
    wanted = sorted(random.Random(SEED).sample(everything, min(DRAWN[package], len(everything))))
    print(f"{package}: {len(wanted)} of {len(everything)}", file=sys.stderr)
    return (caught if package in SCRIPTS else by_list)(folder, package, wanted)


def main() -> int:
    """Print a row for each kernel. Each package has a process of its own, since files of packages change PyTorch."""
    folder = Path(sys.argv[1]).resolve()
    if len(sys.argv) > 2:
        sys.path.insert(0, str(folder))
        Path(sys.argv[3]).write_text(json.dumps(of_package(folder, sys.argv[2])))
        return 0
    rows = []
    for package in DRAWN:
        with tempfile.NamedTemporaryFile() as file:
            subprocess.run(
                [sys.executable, "-W", "ignore", __file__, str(folder), package, file.name],
                check=True,
                stdout=sys.stderr,
            )
            rows += json.loads(Path(file.name).read_text())
    writer = csv.DictWriter(
        sys.stdout, ["package", "file", "kernel", "answer", "reads", "writes", "seconds", "why"], lineterminator="\n"
    )
    writer.writeheader()
    for row in rows:
        row["why"] = str(row.get("why", "")).replace(str(folder) + "/", "")
        writer.writerow(row)
    answers = [row["answer"] for row in rows]
    print(f"{answers.count('counted')} of {len(rows)} counted", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
