"""Writes a sweep to a file, chunk by chunk: CSV, JSON lines or Parquet. A file is written whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, TextIO

from ..errors import MissingError
from ..files import written_whole
from .sweep import chunks

if TYPE_CHECKING:
    from .sweep_axes import Sweep

Out = str | AbstractContextManager[TextIO]
"""The name of a file, or an open one."""
Progress = Callable[[int], object]
"""Called with the number of rows of each chunk that is written."""


def write(sweep: Sweep, path: str, kind: str, progress: Progress = lambda rows: None) -> None:
    """Write a sweep to a file as csv, jsonl or parquet."""
    with written_whole(path) as temporary:
        WRITERS[kind](sweep, temporary, progress)


def write_csv(sweep: Sweep, out: Out, progress: Progress) -> None:
    """Write a sweep as CSV with one header."""
    with open(out, "w", newline="") if isinstance(out, str) else out as file:
        for k, rows in enumerate(chunks(sweep)):
            rows.to_csv(file, index=False, header=k == 0, lineterminator="\n")
            progress(len(rows))


def write_jsonl(sweep: Sweep, out: Out, progress: Progress) -> None:
    """Write a sweep as one JSON object a line. pandas' own writer is not used: it cuts ratios off after 15 decimals."""
    import json

    with open(out, "w") if isinstance(out, str) else out as file:
        for rows in chunks(sweep):
            known = rows.astype(object).where(rows.notna(), None)
            file.writelines(json.dumps(row, separators=(",", ":")) + "\n" for row in known.to_dict("records"))
            progress(len(rows))


def write_parquet(sweep: Sweep, out: Out, progress: Progress) -> None:
    """Write a sweep as Parquet, which needs pyarrow."""
    import pandas as pd

    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise MissingError("Parquet needs pyarrow: pip install 'iosim[parquet]'; CSV works without it") from None
    parts = list(chunks(sweep))
    for rows in parts:
        progress(len(rows))
    pd.concat(parts, ignore_index=True).to_parquet(out, index=False)


WRITERS: dict[str, Callable[[Sweep, Out, Progress], None]] = {
    "csv": write_csv, "jsonl": write_jsonl, "parquet": write_parquet,
}  # fmt: skip
