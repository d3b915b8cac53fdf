"""Kernels of published projects: which of them `iosim explain --script` answers for, from files as they are.

    PYTHONPATH=. python validation/kernels/published.py FOLDER > validation/kernels/published.csv

FOLDER has a folder for each project, with its files as published. The scripts are the project's own, or stand in
scripts/ and call what a package offers. PyTorch is needed (its CPU build). Rows are made with PyTorch 2.13 and Triton
3.6. Packages that the projects need are not installed, but for einops (in FOLDER/site), which mamba's functions call.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
COLUMNS = ("project", "version", "script", "kernel", "answer", "launches", "reads", "writes", "why")
TUTORIALS = ("01-vector-add", "02-fused-softmax", "03-matrix-multiplication", "04-low-memory-dropout", "05-layer-norm",
             "06-fused-attention", "07-extern-functions", "09-persistent-matmul",
             "10-block-scaled-matmul", "11-programmatic-dependent-launch")  # fmt: skip
LECTURES = ("lecture_001/triton_square", "lecture_029/vector_add", "lecture_018/kernels/triton_fused_add_mul_relu",
            "lecture_018/kernels/triton_fused_add_mul_activation",
            "lecture_018/kernels/triton_pointwise_add_relu_fused")  # fmt: skip
PROJECTS = {  # {project: (version, folder of imports, scripts of its own, scripts of this folder)}
    "triton": ("9d9a2d7ac", "", [f"python/tutorials/{name}.py" for name in TUTORIALS], []),
    "lectures": ("7cb40f6", "", [f"{name}.py" for name in LECTURES], []),
    "Liger-Kernel": ("ead96b61", "src", [], ["launch_liger"]),
    "flash-linear-attention": ("bc3b101d", "", [], ["launch_fla"]),
    "mamba": ("e9594ce", "", [], ["launch_mamba"]),
    "flash-attention": ("0251105a", "", [], ["launch_flash_attn"]),
    "attorch": ("67c2772", "", [], ["launch_attorch"]),
    "FlagAttention": ("ee91638", "src", [], ["launch_flag_attention"]),
    "kernels": ("eeeebdd", "", [], ["launch_triton_lang_kernels"]),
    "lightllm": ("fc72ffab", "", [], ["launch_lightllm"]),
    "vllm": ("0.33.0", "", [], ["launch_vllm_unified"]),
    "sglang": ("0.5.23", "", [], ["launch_sglang"]),
    "unsloth": ("015bdef", "", [], ["launch_unsloth"]),
    "FlagGems": ("532ff438", "src", [], ["launch_flaggems"]),
}
FLAGS = {"10-block-scaled-matmul": ["--target", "sm_100"]}
LIMIT_SECONDS = 600


def explained(script: Path, folder: Path, flags: list[str]) -> dict[str, object]:
    """The answers for a script, as JSON."""
    command = [sys.executable, "-W", "ignore", "-m", "iosim", "explain", "--script", str(script), "--json",
               "--no-resources", "--timeout", "300", *flags]  # fmt: skip
    paths = ":".join([*sys.path[1:2], str(HERE.parents[1]), str(folder), str(folder.parents[0] / "site")])
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(Path.home()), "PYTHONPATH": paths}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=environment, timeout=LIMIT_SECONDS
        )
    except subprocess.TimeoutExpired:
        return {"refused": [{"kernel": None, "why": f"no answer in {LIMIT_SECONDS} s"}], "answers": []}
    if not done.stdout:
        return {"refused": [{"kernel": None, "why": done.stderr.strip().splitlines()[-1]}], "answers": []}
    found = json.loads(done.stdout)
    return found if "answers" in found else {"answers": [found], "refused": found.get("refused", [])}


def rows_of(project: str, root: Path) -> list[dict[str, object]]:
    """A row for each kernel of a project: its first answer, else why it has none."""
    version, folder, own, ours = PROJECTS[project]
    rows: dict[str, dict[str, object]] = {}
    scripts = [root / project / name for name in own] + [HERE / "scripts" / f"{name}.py" for name in ours]
    for script in scripts:
        flags = FLAGS.get(script.stem, [])
        found = explained(script, root / project / folder, flags)
        label = {"project": project, "version": version, "script": " ".join([script.name, *flags])}
        for one in found["answers"]:
            if "reads" not in one:  # the step of a compiled model
                continue
            row = {**label, "kernel": one["kernel"], "answer": "with flags" if flags else "as is"}
            numbers = {key: one[key] for key in ("launches", "reads", "writes")}
            if rows.get(one["kernel"], {}).get("answer", "refused") == "refused":
                rows[one["kernel"]] = {**row, **numbers}
        for one in found.get("refused", []):
            name = one["kernel"] or f"({script.stem})"
            why = one["why"].replace(f"{root}/", "").replace(f"{HERE.parents[1]}/", "")
            rows.setdefault(name, {**label, "kernel": name, "answer": "refused", "why": why})
        print(f"{project}: {script.name}: {len(found['answers'])} answers", file=sys.stderr)
    return list(rows.values())


def main() -> None:
    """Print a row for each kernel of each project."""
    root = Path(sys.argv[1]).resolve()
    writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for project in sys.argv[2:] or PROJECTS:
        for row in rows_of(project, root):
            writer.writerow({"why": "", **row})
            sys.stdout.flush()


if __name__ == "__main__":
    main()
