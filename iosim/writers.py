"""A sweep to a file, chunk by chunk: CSV, JSON lines or Parquet, written whole or not at all."""

from __future__ import annotations

from typing import Any

from .errors import MissingError
from .files import whole as whole
from .variants import chunks


def write(sweep: Any, path: str, kind: str, progress: Any = lambda rows: None) -> None:
    """Write a sweep as csv, jsonl or parquet."""
    with whole(path) as temporary:
        WRITERS[kind](sweep, temporary, progress)


def write_csv(sweep: Any, out: Any, progress: Any) -> None:
    with open(out, "w", newline="") if isinstance(out, str) else out as file:
        for k, rows in enumerate(chunks(sweep)):
            rows.to_csv(file, index=False, header=k == 0, lineterminator="\n")
            progress(len(rows))


def write_jsonl(sweep: Any, out: Any, progress: Any) -> None:
    """Not by pandas, which writes 15 decimals of a number at most: of small ratios these are few digits."""
    import json

    with open(out, "w") if isinstance(out, str) else out as file:
        for rows in chunks(sweep):
            known = rows.astype(object).where(rows.notna(), None)
            file.writelines(json.dumps(row, separators=(",", ":")) + "\n" for row in known.to_dict("records"))
            progress(len(rows))


def write_parquet(sweep: Any, out: str, progress: Any) -> None:
    import pandas as pd

    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise MissingError("Parquet needs pyarrow: pip install 'iosim[parquet]'; CSV works without it") from None
    parts = list(chunks(sweep))
    for rows in parts:
        progress(len(rows))
    pd.concat(parts, ignore_index=True).to_parquet(out, index=False)


WRITERS = {"csv": write_csv, "jsonl": write_jsonl, "parquet": write_parquet}
