"""Hardware presets, read from configs/hardware/*.toml: each number with its unit in its name, and its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from .errors import InputError, MissingError, suggestion

COUNTS = (
    "shared_memory_per_block_bytes",
    "shared_memory_per_sm_bytes",
    "sms",
    "l2_bytes",
    "hbm_bytes",
    "hbm_bytes_per_second",
)
KEYS = ("name", *COUNTS, "flops_per_second", "sources")
MEASURED = "measured"  # a table that only `iosim calibrate` writes, with at least these
MEASURED_KEYS = (
    "dram_bytes_per_second",
    "l2_bytes_per_second",
    "simt_operations_per_second",
    "exponentials_per_second",
    "launch_seconds",
    "latency_seconds",
    "tensor_flops_per_second",
)
DTYPES = ("fp16", "bf16", "fp8", "fp32", "fp64")


@dataclass(frozen=True)
class Hardware:
    """One GPU. M is what one thread block may use, `sram_bytes`; `sram_total_bytes` is the sum over all SMs.

    Sizes are bytes; rates are decimal, per second. `flops_per_second` holds the dense peak of the element types that
    have one, and under `exp` exponentials; `sources` says where each number was found. `hbm_bytes` is the device
    memory, GDDR included.
    """

    name: str
    shared_memory_per_block_bytes: int
    shared_memory_per_sm_bytes: int
    sms: int
    l2_bytes: int
    hbm_bytes: int
    hbm_bytes_per_second: int
    flops_per_second: Mapping[str, int]
    sources: Mapping[str, str]
    measured: Mapping[str, Any] | None = None

    @property
    def sram_bytes(self) -> int:
        """M of this preset."""
        return self.shared_memory_per_block_bytes

    @property
    def sram_total_bytes(self) -> int:
        """Shared memory of all SMs together: never M."""
        return self.sms * self.shared_memory_per_sm_bytes

    def ridge(self, dtype: str) -> float | None:
        """FLOPs a byte from which on the peak rate is the limit, not the HBM; None without a known peak."""
        peak = self.flops_per_second.get(dtype)
        return None if peak is None else peak / self.hbm_bytes_per_second


def configs_folder() -> Path:
    """`configs`: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parent
    for folder in (package / "configs", package.parent / "configs"):
        if (folder / "hardware").is_dir():
            return folder
    raise MissingError(f"the folder configs/hardware is neither in {package} nor beside it; install iosim again")


def names() -> list[str]:
    """The presets, in the spelling of their files' `name`."""
    return [read(path).name for path in _files()]


def load(name: str) -> Hardware:
    """A preset by name, in any case, or a file of the same form (a path that ends in .toml)."""
    if isinstance(name, str) and name.endswith(".toml"):
        return read(Path(name))
    files = {path.stem: path for path in _files()}
    key = name.lower() if isinstance(name, str) else ""
    if key not in files:
        raise InputError("--hardware", name, ", ".join(files), suggestion(key, files))
    return read(files[key])


def measured_of(device: str) -> Hardware | None:
    """What iosim calibrate found on another GPU that calls itself so (configs/measured), or None."""
    found = map(read, sorted((configs_folder() / "measured").glob("*.toml")))
    return next((hardware for hardware in found if (hardware.measured or {}).get("device") == device), None)


def measured_as(name: str) -> Hardware | None:
    """The hardware whose [measured] rates go with `load(name)`: a file that holds them, or for a preset the file of the
    same name in configs/measured. None where no rates were measured."""
    hardware = load(name)
    path = configs_folder() / "measured" / f"{name.lower()}.toml"
    if hardware.measured is None and not name.endswith(".toml") and path.exists():
        return read(path)
    return hardware if hardware.measured is not None else None


def read(path: Path) -> Hardware:
    """One TOML file, with every key and type checked."""
    import tomllib

    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(str(path), "no such file", "a hardware file in TOML") from None
    except OSError as error:
        raise InputError(str(path), error.strerror or "an unreadable file", "a hardware file in TOML") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(str(path), str(error), "TOML in UTF-8") from None

    _keys(str(path), data, (*KEYS, MEASURED), required=KEYS)
    measured = data.get(MEASURED)
    if measured is not None:
        _measured(f"{path}: {MEASURED}", measured)
    if not isinstance(data["name"], str) or not data["name"].strip():
        raise InputError(f"{path}: name", data["name"], "a text")
    for key in COUNTS:
        _positive(f"{path}: {key}", data[key])
    rates = _table(path, data, "flops_per_second", (*DTYPES, "exp"))
    for key, value in rates.items():
        _positive(f"{path}: flops_per_second.{key}", value)
    sourced = (*COUNTS, "flops_per_second")
    sources = _table(path, data, "sources", sourced, required=sourced)
    for key, value in sources.items():
        if not isinstance(value, str) or not value.strip():
            raise InputError(f"{path}: sources.{key}", value, "the title of a document")
    block, sm = data["shared_memory_per_block_bytes"], data["shared_memory_per_sm_bytes"]
    if block > sm:
        raise InputError(f"{path}: shared_memory_per_block_bytes", block, f"at most {sm}, what the SM has")
    data["flops_per_second"], data["sources"] = MappingProxyType(rates), MappingProxyType(sources)
    return Hardware(**{**data, MEASURED: measured})


def _files() -> list[Path]:
    return sorted((configs_folder() / "hardware").glob("*.toml"))


def _table(
    path: Path, data: dict[str, Any], key: str, allowed: tuple[str, ...], required: tuple[str, ...] = ()
) -> dict[str, Any]:
    if not isinstance(data[key], dict):
        raise InputError(f"{path}: {key}", data[key], f"a table [{key}]")
    _keys(f"{path}: {key}", data[key], allowed, required)
    return data[key]


def _keys(where: str, table: dict[str, Any], allowed: tuple[str, ...], required: tuple[str, ...]) -> None:
    for key in table:
        if key not in allowed:
            raise InputError(f"{where}: key", key, ", ".join(allowed), suggestion(key, allowed))
    for key in required:
        if key not in table:
            raise InputError(f"{where}: {key}", "nothing", "this key is required")


def _measured(where: str, table: Any) -> None:
    """Numbers are finite, shares of 1 are that, and steps come with what was measured beside them."""
    again = "measure this GPU again: iosim calibrate"
    if not isinstance(table, dict):
        raise InputError(where, table, f"a table [{MEASURED}]")
    for key in MEASURED_KEYS + (("asking_ratio", "loop_ratios", "first_seconds") if table.get("steps") else ()):
        if key not in table:
            raise InputError(f"{where}.{key}", "nothing", "this key is required", again)
    for key, value in table.items():
        if not isinstance(value, str | dict):
            _number(f"{where}.{key}", value, 1.0 if key == "asking_ratio" else float("inf"), again)
    for key in ("tensor_flops_per_second", "loop_ratios", "first_seconds"):
        for name, value in table.get(key, {}).items():
            _number(f"{where}.{key}.{name}", value, float("inf"), again)


def _number(where: str, value: object, most: float, hint: str) -> None:
    """NaN is not at least anything."""
    real = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf")
    if not real or value > most:  # type: ignore[operator]
        allowed = "a number of at least 0" if most > 1 else "a number from 0 to 1"
        raise InputError(where, value, allowed, hint)


def _positive(where: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(where, value, "a whole number above 0")


def summary() -> list[dict[str, Any]]:
    """One row a preset; M is what one block may use, the total over all SMs stands apart."""
    return [
        {
            "name": path.stem,
            "M_bytes": h.sram_bytes,
            "sms": h.sms,
            "sram_total_bytes": h.sram_total_bytes,
            "l2_bytes": h.l2_bytes,
            "hbm_bytes": h.hbm_bytes,
            "hbm_bytes_per_second": h.hbm_bytes_per_second,
            "fp16_flops_per_second": h.flops_per_second.get("fp16"),
        }
        for path in _files()
        for h in [read(path)]
    ]


def details(name: str) -> list[dict[str, Any]]:
    """Every number of one preset with its source."""
    h = load(name)
    rows = [{"key": key, "value": getattr(h, key), "source": h.sources[key]} for key in COUNTS]
    source = h.sources["flops_per_second"]
    rates = h.flops_per_second.items()
    return rows + [{"key": f"{dtype}_flops_per_second", "value": rate, "source": source} for dtype, rate in rates]


SECTOR_BYTES = 32
