"""Kernels of published projects: which of them `iosim explain --script` answers for, from files as they are.

    PYTHONPATH=. python validation/kernels/published.py FOLDER [PROJECT...] > published.csv
    PYTHONPATH=. python validation/kernels/published.py FOLDER --interpret published.csv [PROJECT...] > with_words.csv

FOLDER has a folder for each project, with its files as published. The scripts are the project's own, or stand in
scripts/ and call what a package offers. PyTorch is needed (its CPU build). Rows are made with PyTorch 2.13 and Triton
3.6. Packages that the projects need are not installed, but for einops (in FOLDER/site), which mamba's functions call.

`--interpret` puts the words of Triton's own interpreter beside, for the first programs of the first launch of a kernel
that is counted (`programs` of its grid): `interpreter_words` and `iosim_words` are all words read, written and changed,
and `verdict` is the worst of all arguments, as interpreted_drawn.py has it. Where the interpreter did not run, `why`
says why. Kernels that were not tried have no verdict.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
BESIDE = ("programs", "interpreter_words", "iosim_words", "verdict")
COLUMNS = ("project", "version", "script", "kernel", "answer", "launches", "reads", "writes", "why", *BESIDE)
VERDICTS = ("same", "fewer", "not run", "different")  # the last is the worst
INTERPRETED_SECONDS = 240  # of one launch
FIRST_PROGRAMS = ((2, 1, 1), (1, 16, 1))  # on each axis: the second if the first move no word
TUTORIALS = ("01-vector-add", "02-fused-softmax", "03-matrix-multiplication", "04-low-memory-dropout", "05-layer-norm",
             "06-fused-attention", "07-extern-functions", "08-grouped-gemm", "09-persistent-matmul",
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
    "tritonbench": ("0efdc53", "", [], ["launch_tritonbench"]),
}
FLAGS = {"10-block-scaled-matmul": ["--target", "sm_100"]}
LIMIT_SECONDS = 600


def explained(script: Path, folder: Path, flags: list[str]) -> dict[str, object]:
    """The answers for a script, as JSON."""
    command = [sys.executable, "-W", "ignore", "-m", "iosim", "explain", "--script", str(script), "--json",
               "--no-resources", "--timeout", "300", *flags]  # fmt: skip
    environment = environment_of(folder)
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


def environment_of(folder: Path) -> dict[str, str]:
    """The environment in which scripts of a project find its files."""
    paths = ":".join([*sys.path[1:2], str(HERE.parents[1]), str(folder), str(folder.parents[0] / "site")])
    return {"PATH": "/usr/bin:/bin", "HOME": str(Path.home()), "PYTHONPATH": paths}


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


# ---------------------------------------------------------------- the interpreter's words beside


def script_of(row: dict[str, str], root: Path) -> Path:
    """The script of a row."""
    _, _, own, _ = PROJECTS[row["project"]]
    name = row["script"].split()[0]
    path = next((each for each in own if Path(each).name == name), None)
    return HERE / "scripts" / name if path is None else root / row["project"] / path


def interpret(rows: list[dict[str, str]], root: Path, projects: list[str]) -> None:
    """Give rows of kernels that are counted the words of the interpreter. Each script has a process of its own."""
    waiting = [row for row in rows if row["project"] in projects and row["answer"] != "refused"]
    for script in dict.fromkeys(script_of(row, root) for row in waiting):
        own = [row for row in waiting if script_of(row, root) == script]
        folder = root / own[0]["project"] / PROJECTS[own[0]["project"]][1]
        command = [sys.executable, "-W", "ignore", __file__, "--worker", str(script), *(row["kernel"] for row in own)]
        with tempfile.TemporaryFile("w+") as out:
            subprocess.run(command, stdout=out, env=environment_of(folder), check=False)
            out.seek(0)
            found = dict(json.loads(line) for line in out.read().splitlines())
        for row in own:
            row.update(found.get(row["kernel"], {}))


def work(script: Path, kernels: list[str]) -> None:
    """Print what both say of kernels of a script, a line of JSON for each: [kernel, columns]."""
    import interpreted_drawn

    from iosim.kernels.read.compile import capability
    from iosim.kernels.read.script import Caught, caught_launches

    interpreted_drawn.LIMIT_SECONDS, interpreted_drawn.MOST_PROGRAMS = INTERPRETED_SECONDS, FIRST_PROGRAMS
    target = FLAGS.get(script.stem, ["--target", "sm_90"])[1]
    launches: dict[str, dict[object, Caught]] = {}
    out = sys.stdout
    for each in caught_launches(str(script), capability(target), 300).launches:
        launches.setdefault(each.kernel.name, {}).setdefault(each.key, each)
    for kernel in kernels:
        pairs = [(str(script.with_suffix("")), each) for each in launches.get(kernel, {}).values()]
        try:
            rows = interpreted_drawn.rows_of(interpreted_drawn.small_launches(pairs), {}, script.parent)
        except Exception as error:  # of the project's files, or none of these launches is counted
            rows = [{"verdict": "not run", "why": str(error)}]
        sums = {key: sum(int(str(row.get(key, 0))) for row in rows) for key in ("words", "iosim_words")}
        verdict = max((str(row["verdict"]) for row in rows), key=VERDICTS.index)
        row = {"programs": rows[0].get("programs"), "interpreter_words": sums["words"], **sums, "verdict": verdict}
        why = str(rows[0].get("why", "")).replace("triton.runtime.errors.InterpreterError: ", "")
        print(kernel, verdict, why if verdict == "not run" else "", file=sys.stderr)
        shown = {key: row[key] for key in BESIDE} if verdict != "not run" else {"verdict": verdict, "why": why}
        print(json.dumps([kernel, shown]), file=out, flush=True)


def main() -> None:
    """Print a row for each kernel of each project."""
    if sys.argv[1] == "--worker":
        work(Path(sys.argv[2]), sys.argv[3:])
        return
    root = Path(sys.argv[1]).resolve()
    writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n", restval="")
    writer.writeheader()
    if sys.argv[2:3] == ["--interpret"]:
        with open(sys.argv[3], newline="") as file:
            rows = list(csv.DictReader(file))
        interpret(rows, root, sys.argv[4:] or list(PROJECTS))
        writer.writerows(rows)
        return
    for project in sys.argv[2:] or PROJECTS:
        for row in rows_of(project, root):
            writer.writerow({"why": "", **row})
            sys.stdout.flush()


if __name__ == "__main__":
    main()
