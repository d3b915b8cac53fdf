"""The time that iosim predicts for the launches of on_gpu.csv, on the GPU that measured them.

    PYTHONPATH=. python validation/kernels/predicted.py FOLDER > validation/kernels/predicted.csv

FOLDER is that of corpus.py. Registers decide how many programs share a multiprocessor, so the rows are made with the
release of Triton that was measured (3.6).
"""

import csv
import sys
from pathlib import Path

from listed import listed, ready

from iosim.errors import IosimError

WHERE = ("package", "file", "kernel", "sizes", "configuration", "num_warps", "num_stages")
PARTS = ("dram_seconds", "l2_seconds", "block_seconds")


def rows_of(one):
    """A row for each configuration of a launch that has an answer."""
    for each in ready(one):
        try:
            found = each.explained(hardware="h200")
        except IosimError as error:
            print(f"{one.file}: {one.kernel}: {error}", file=sys.stderr)
            continue
        if found.time is not None:
            named = " ".join(f"{name}={value}" for name, value in each.chosen.constants.items())
            where = (one.package, one.file, one.kernel, one.sizes, named, each.num_warps, each.num_stages)
            parts = {name: f"{getattr(found.time, name):.4g}" for name in PARTS}
            yield {**dict(zip(WHERE, where, strict=True)), "predicted_seconds": f"{found.time.seconds:.4g}",
                   "predicted_binds": found.time.bound_by, **parts}  # fmt: skip


def main(folder):
    """Print all rows."""
    writer = csv.DictWriter(sys.stdout, [*WHERE, "predicted_seconds", "predicted_binds", *PARTS], lineterminator="\n")
    writer.writeheader()
    for one in listed(Path(folder).resolve(), all_sizes=True):
        try:
            writer.writerows(rows_of(one))
        except IosimError as error:
            print(f"{one.file}: {one.kernel}: {error}", file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
