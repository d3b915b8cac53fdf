"""Verdicts as rows of tables, and their summary as a line of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..tables import Row
from .verdict_rows import Summary, Verdict


def short_rows(rows: Sequence[Verdict]) -> list[Row]:
    """The rows, with only the columns that fit a page. Those of a problem are shown if rows have several."""
    sizes = [{"N": row["N"], "Nk": row["Nk"], "d": row["d"], "mask": row["mask"]} for row in rows]
    more = [{"batch": row["batch"], "heads": row["heads"], "dtype": row["dtype"], "acc_dtype": row["acc_dtype"]}
            for row in rows]  # fmt: skip
    vary = {name for one in more for name, value in one.items() if value != more[0][name]}
    problems = [
        {**size, **{name: one[name] for name in one if name in vary}} for size, one in zip(sizes, more, strict=True)
    ]
    several = any(problem != problems[0] for problem in problems)
    return [
        {
            "schedule": row["schedule"],
            **(problem if several else {}),
            "tiles": row["tiles"],
            "words": row["words"],
            "on device": row["device_words"],
            "SM read": row["hw_read_bytes"],
            "x simulated": decimals(row["read_ratio"], 5),
            "SM written": row["hw_write_bytes"],
            "x simulated ": decimals(row["write_ratio"], 5),
            "x floor": decimals(row["measured_ratio_to_floor"] or row["ratio_to_floor"], 3),
            "DRAM pred/meas": decimals(row["dram_ratio"], 3),
            "time pred/meas": decimals(row["time_ratio"], 3),
            "us": row["seconds"] and decimals(row["seconds"] * 1e6, 1),
            "TFLOP/s": row["flops_per_second"] and decimals(row["flops_per_second"] * 1e-12, 1),
            "TB/s": row["sm_bytes_per_second"] and decimals(row["sm_bytes_per_second"] * 1e-12, 2),
            "error": row["error"] and f"{row['error']:.1e}",
            "allowed": row["allowed_error"] and f"{row['allowed_error']:.1e}",
            "ok": "yes" if row["ok"] else "NO",
        }
        for row, problem in zip(rows, problems, strict=True)
    ]


def flat_rows(rows: Sequence[Mapping[str, object]]) -> list[Row]:
    """Rows for a CSV, without the words of each tensor."""
    return [{name: value for name, value in row.items() if name != "tensors"} for row in rows]


def decimals(value: float | None, digits: int) -> str | None:
    """A number with so many digits after the point."""
    return None if value is None else f"{value:.{digits}f}"


def in_words(found: Summary) -> str:
    """A summary as a line of text."""
    parts = [f"{found['ok']} of {found['rows']} agree"]
    if "dram_median_error" in found:
        parts.append(_off("DRAM", found["dram_median_error"], found["dram_worst_error"]))
    if "time_median_error" in found:
        parts.append(_off("time", found["time_median_error"], found["time_worst_error"]))
    return "; ".join(parts)


def _off(label: str, median_error: float, worst: float) -> str:
    return f"{label} predicted {100 * median_error:.1f} % off in the median, {100 * worst:.1f} % at worst"
