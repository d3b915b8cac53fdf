"""Counts launches of kernels that nobody here wrote, and says which are counted, which are refused, and why.

    PYTHONPATH=. python validation/kernels/corpus.py FOLDER > counted.csv

FOLDER holds packages, as `pip install --no-deps --target FOLDER liger-kernel` leaves them, FOLDER/flash_attn has
Dao-AILab's flash_attn_triton.py, and FOLDER/tutorials has those of Triton. The launches stand in launches.toml beside
this file. Where a launch has `words`, they must be those that are counted.
"""

import csv
import sys
import time
from pathlib import Path

from listed import listed, ready

from iosim.errors import IosimError


def row_of(one, folder):
    """What becomes of one launch: its words, or why it is refused."""
    row = {"package": one.package, "file": one.file, "kernel": one.kernel, "answer": "counted",
           "reads": "", "writes": "", "why": ""}  # fmt: skip
    start = time.perf_counter()
    try:
        found = ready(one)[0].explained(resources=False)
        row |= {"reads": found.reads, "writes": found.writes, "why": "; ".join(found.warnings)}
        tensors = {name: [row["reads"], row["writes"]] for name, row in found.tensors.items()}
        for name, words in one.words.items():
            if tensors[name] != words:
                row |= {"answer": "wrong", "why": f"{name}: {tensors[name]} words, not {words}"}
    except IosimError as error:
        row |= {"answer": "refused", "why": str(error).replace(str(folder) + "/", "")}
    return {**row, "seconds": f"{time.perf_counter() - start:.2f}"}


def main(folder):
    """Print a row for each launch, and their sum. A wrong count is exit code 1."""
    folder = Path(folder).resolve()
    rows = [row_of(one, folder) for one in listed(folder)]
    writer = csv.DictWriter(sys.stdout, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    answers = [row["answer"] for row in rows]
    print(f"{answers.count('counted')} of {len(rows)} counted, {answers.count('refused')} refused", file=sys.stderr)
    return int("wrong" in answers)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
