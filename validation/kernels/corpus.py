"""Counts launches of kernels that nobody here wrote, and says which are counted, which are refused, and why.

    python validation/kernels/corpus.py FOLDER > counted.csv

FOLDER holds packages, as `pip install --no-deps --target FOLDER liger-kernel` leaves them, and FOLDER/flash_attn has
Dao-AILab's flash_attn_triton.py. The launches stand in launches.toml beside this file. Where a launch has `words`, they
must be those that are counted.
"""

import csv
import re
import sys
import time
import tomllib
from fnmatch import fnmatchcase
from pathlib import Path

from iosim.errors import IosimError
from iosim.kernels.compile import kernel_of
from iosim.kernels.launch import launch_answers

HERE = Path(__file__).parent


def values_of(parameters, launch, package):
    """The values of parameters, and all sizes that are no parameters."""
    own = launch.get("values", {})
    patterns = own | {pattern: text for pattern, text in package["values"].items() if pattern not in own}
    found = {n: next((v for p, v in patterns.items() if fnmatchcase(n, p)), None) for n in parameters}
    sizes = {n: v for n, v in patterns.items() if n.isidentifier() and n.isupper() and n not in parameters}
    return {name: value for name, value in {**sizes, **found}.items() if value is not None}


def row_of(package, launch, folder):
    """What becomes of one launch: its words, or why it is refused."""
    file = folder / package["package"] / launch["file"]
    row = {
        "package": package["version"],
        "file": launch["file"],
        "kernel": launch["kernel"],
        "answer": "counted",
        "reads": "",
        "writes": "",
        "why": "",
    }
    start = time.perf_counter()
    try:
        kernel = kernel_of(str(file), launch["kernel"])
        given = values_of(kernel.parameters, launch, package)
        needed = set(
            re.findall(r"\w+", " ".join([launch["grid"], *(given[n] for n in kernel.parameters if n in given)]))
        )
        used = {name: text for name, text in given.items() if name in kernel.parameters or name in needed}
        found = launch_answers(
            str(file), launch["kernel"], launch["grid"], used, {}, None, None, "sm_90", None, None, {}, False, True
        )[0]
        row |= {"reads": found.reads, "writes": found.writes, "why": "; ".join(found.warnings)}
        tensors = {name: [row["reads"], row["writes"]] for name, row in found.tensors.items()}
        for name, words in launch.get("words", {}).items():
            if tensors[name] != words:
                row |= {"answer": "wrong", "why": f"{name}: {tensors[name]} words, not {words}"}
    except IosimError as error:
        row |= {"answer": "refused", "why": str(error).replace(str(folder) + "/", "")}
    return {**row, "seconds": f"{time.perf_counter() - start:.2f}"}


def main(folder):
    """Print a row for each launch, and their sum. A wrong count is exit code 1."""
    launches = tomllib.loads((HERE / "launches.toml").read_text())
    rows = [row_of(p, launch, Path(folder).resolve()) for p in launches.values() for launch in p["launch"]]
    writer = csv.DictWriter(sys.stdout, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    answers = [row["answer"] for row in rows]
    print(f"{answers.count('counted')} of {len(rows)} counted, {answers.count('refused')} refused", file=sys.stderr)
    return int("wrong" in answers)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
