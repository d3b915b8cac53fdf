"""GPUs as presets: numbers from configs/hardware/*.toml, each with its unit in its name, and with its source."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

from .answer import Column, Columns, Row, Table, numbered
from .asked_modules import answers
from .errors import InputError, MissingError, as_one, closest, did_you_mean, suggestion
from .reading import Garbled, Unreadable, parse_toml, read_toml

Toml = dict[str, Any]  # type: ignore[explicit-any]  # a table of a TOML file; `read_hardware` checks its values

COUNT_KEYS = (
    "shared_memory_per_block_bytes",
    "shared_memory_per_sm_bytes",
    "sms",
    "l2_bytes",
    "hbm_bytes",
    "hbm_bytes_per_second",
)
L2 = "l2_bytes"  # 0 or absent: a chip without one
REGISTERS = "registers_per_sm_bytes"
LINK, NETWORK = "link_bytes_per_second", "network_bytes_per_second"  # a GPU receives at most so much, if stated
SHARED, CACHE = "shared_memory_bytes_per_second", "l2_bytes_per_second"  # of all SMs together, if stated
TILE_REGISTERS = "tile_registers_per_block_bytes"  # those in which a block may keep tiles, if stated
ROWS = "matrix_rows"  # rows of a product that share one read of its second factor, if not those of its unit
OPTIONAL = (REGISTERS, LINK, NETWORK, SHARED, CACHE, TILE_REGISTERS, ROWS)
UNIT = "matrix_unit"  # the kind of its matrix units, if it has any (timing/products.py)
UNITS = ("wgmma", "mma.sync", "tcgen05", "systolic")
TARGET = "target"  # what compilers call the GPU, if stated
KEYS = ("name", *(key for key in COUNT_KEYS if key != L2), "flops_per_second")  # that a file needs
ALLOWED = (*KEYS, L2, *OPTIONAL, TARGET, UNIT, "sources")
NONE = (L2, REGISTERS)  # may be 0: a chip without
FLOP_DTYPES = ("fp16", "bf16", "fp8", "int8", "fp32", "fp64")
MAKERS = r"nvidia|geforce|tesla|quadro|rtx|amd|instinct"  # words of a GPU's name that do not say which it is
OTHER_GPU = "for another GPU give a file: iosim hardware h100 --toml prints one to begin with"
UNSAID = "not stated"  # the source of a number whose file names none
TEXTS: ContextVar[Mapping[str, str]] = ContextVar("texts", default=MappingProxyType({}))
"""Texts that are read in place of the hardware files at these paths: those that came with a sweep."""
SECTOR_BYTES = 32  # of every GPU here: the unit in which caches and DRAM move data


@dataclass(frozen=True)
class Hardware:
    """A GPU. Sizes are in bytes, rates per second.

    `flops_per_second` holds the peak rate of dense matrix products for each element type that has one, and the rate of
    exponentials as `exp`. `hbm_bytes` is the size of the device memory, which may be GDDR. `l2_bytes` is 0 for a chip
    without an L2. `link_bytes_per_second` is what one GPU can receive from the others of its node, and
    `network_bytes_per_second` from other nodes: one direction, None if it is not known. `sources` says where numbers
    were found. `target` is the name for compilers, as `sm_90`, None if it is not known.
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
    registers_per_sm_bytes: int | None = None
    link_bytes_per_second: int | None = None
    network_bytes_per_second: int | None = None
    target: str | None = None
    shared_memory_bytes_per_second: int | None = None
    l2_bytes_per_second: int | None = None
    tile_registers_per_block_bytes: int | None = None
    matrix_unit: str | None = None
    matrix_rows: int | None = None

    def __hash__(self) -> int:
        return hash((self.name, self.sms, self.hbm_bytes_per_second))

    @property
    def tile_register_bytes(self) -> int:
        """The registers in which a thread block may keep tiles. Where a file does not say, they are three quarters of a
        multiprocessor's: the others hold addresses, scales, and tiles on their way."""
        return self.tile_registers_per_block_bytes or self.register_bytes * 3 // 4

    @property
    def sram_bytes(self) -> int:
        """M: the shared memory that one thread block may use."""
        return self.shared_memory_per_block_bytes

    @property
    def register_bytes(self) -> int:
        """The registers of a multiprocessor. Where a file does not say, they are those of NVIDIA's GPUs since 2014."""
        return 4 * 65_536 if self.registers_per_sm_bytes is None else self.registers_per_sm_bytes

    @property
    def sram_total_bytes(self) -> int:
        """The shared memory of all SMs together. M is never this."""
        return self.sms * self.shared_memory_per_sm_bytes

    def ridge(self, dtype: str) -> float | None:
        """The intensity, in FLOPs a byte, at which the limit changes from HBM to the peak rate of a type. None if the
        peak is not known."""
        peak = self.flops_per_second.get(dtype)
        return None if peak is None else peak / self.hbm_bytes_per_second


def configs_folder() -> Path:
    """The folder `configs`: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parent
    for folder in (package / "configs", package.parent / "configs"):
        if (folder / "hardware").is_dir():
            return folder
    raise MissingError(f"the folder configs/hardware is neither in {package} nor beside it; install iosim again")


def names() -> list[str]:
    """The names of the presets, as their files spell them."""
    return [read_hardware(path).name for path in _files()]


def load(name: str) -> Hardware:
    """The preset of a name, in upper or lower case, or the GPU of a hardware file (a path that ends in .toml)."""
    return read_hardware(path_of(name))


def toml_of(name: str) -> str:
    """The text of a preset's file, or of a hardware file that can be read: with --hardware it is the same GPU."""
    load(name)
    return path_of(name).read_text(encoding="utf-8")


def path_of(name: str) -> Path:
    """The file of a preset, or the hardware file itself."""
    if isinstance(name, str) and name.endswith(".toml"):
        return Path(name)
    files = {path.stem: path for path in _files()}
    key = name.lower() if isinstance(name, str) else ""
    if key not in files:
        raise InputError("--hardware", name, f"{', '.join(files)}, or a FILE.toml", meant(key, files))
    return files[key]


def meant(name: str, presets: Iterable[str]) -> str:
    """The hint for a name that is no preset's: the presets it may stand for, else how to get a file of another GPU."""
    return did_you_mean(alike(name, presets)) or OTHER_GPU


def target_meant(name: str) -> str:
    """The hint for a name in the place of a target: the targets of the presets it may stand for, or nothing."""
    found = {path.stem: read_hardware(path).target for path in _files()}
    return did_you_mean(dict.fromkeys(filter(None, map(found.get, alike(name, found)))))


def alike(name: str, presets: Iterable[str]) -> list[str]:
    """The presets that a name may stand for.

    `geforce rtx 3090` is rtx-3090, `a100` either A100. A name whose numbers are another's is never a misspelling.
    """
    import difflib

    words = {preset: words_of(preset) for preset in presets}
    given = words_of(name)
    parts = [preset for preset, own in words.items() if given and (set(given) <= set(own) or set(own) <= set(given))]
    if parts:
        return parts
    joined = {"".join(own): preset for preset, own in words.items() if digits_of(own) == digits_of(given)}
    close = difflib.get_close_matches("".join(given), joined, n=1, cutoff=0.7)
    return [joined[one] for one in close]


def words_of(name: str) -> list[str]:
    """The words of a GPU's name in lower case, without those of its maker and its family."""
    return re.findall(r"[a-z0-9]+", re.sub(MAKERS, " ", name.lower()))


def digits_of(words: Iterable[str]) -> str:
    """The digits of some words, in their order."""
    return re.sub(r"\D", "", "".join(words))


def read_hardware(path: Path) -> Hardware:
    """The GPU of a TOML file. InputError for what is not allowed or is missing, InputErrors for several faults.

    A file may leave out `l2_bytes`, `target`, the keys in OPTIONAL, and `sources`.
    """
    data = _read(path)
    if faults := list(_faults(path, data)):
        raise as_one(faults)
    data = {L2: 0, **data}
    rates, sources = MappingProxyType(data["flops_per_second"]), MappingProxyType(dict(data.get("sources", {})))
    return Hardware(**{**data, "flops_per_second": rates, "sources": sources})


def _faults(path: Path, data: Toml) -> Iterator[InputError]:
    """All faults of a file's keys and values."""
    yield from _keys(str(path), data, ALLOWED)
    yield from _missing(f"{path}: ", data)
    if not str(data.get("name", "X")).strip() or not isinstance(data.get("name", "X"), str):
        yield InputError(f"{path}: name", data["name"], "a text")
    wrong = list(_whole(f"{path}: ", data, (*COUNT_KEYS, *OPTIONAL)))
    yield from wrong
    if not re.fullmatch(r"sm_\d{2,3}a?|gfx\w+", str(data.get(TARGET, "sm_90"))):
        yield InputError(f"{path}: {TARGET}", data[TARGET], "a target of compilers, as sm_90 or gfx942")
    if data.get(UNIT, UNITS[0]) not in UNITS:
        yield InputError(f"{path}: {UNIT}", data[UNIT], ", ".join(UNITS), suggestion(str(data[UNIT]), UNITS))
    block, sm = (data.get(f"shared_memory_per_{part}_bytes", 0) for part in ("block", "sm"))
    if not wrong and block > sm > 0:
        yield InputError(f"{path}: shared_memory_per_block_bytes", block, f"at most {sm}, what the SM has")
    yield from _of_rates(path, data.get("flops_per_second", {}))
    yield from _of_sources(path, data.get("sources", {}))


def _read(path: Path) -> Toml:
    """The keys of a TOML file. InputError for a file that cannot be read."""
    try:
        text = TEXTS.get().get(str(path))
        return in_whole(read_toml(path) if text is None else parse_toml(text))
    except Garbled as error:
        raise InputError(str(path), str(error), "TOML in UTF-8") from None
    except Unreadable as error:
        raise InputError(str(path), str(error), "a hardware file in TOML") from None


def in_whole(table: Toml) -> Toml:
    """A table whose floats are integers where they are whole, as 3.35e12."""
    whole = {key: int(value) for key, value in table.items() if isinstance(value, float) and value.is_integer()}
    return {**table, **whole, **{key: in_whole(value) for key, value in table.items() if isinstance(value, dict)}}


def _of_rates(path: Path, rates: object) -> Iterator[InputError]:
    """The faults of the peaks of a file."""
    allowed = (*FLOP_DTYPES, "exp")
    yield from _of_table(f"{path}: flops_per_second", rates, allowed)
    if isinstance(rates, dict):
        yield from _whole(f"{path}: flops_per_second.", rates, allowed)


def _of_sources(path: Path, sources: object) -> Iterator[InputError]:
    """The faults of the sources that a file states."""
    allowed = (*COUNT_KEYS, "flops_per_second", *OPTIONAL, TARGET, UNIT)
    yield from _of_table(f"{path}: sources", sources, allowed)
    for key, value in sources.items() if isinstance(sources, dict) else ():
        if key in allowed and (not isinstance(value, str) or not value.strip()):
            yield InputError(f"{path}: sources.{key}", value, "the title of a document")


def _files() -> list[Path]:
    """The files of the presets, by name."""
    return sorted((configs_folder() / "hardware").glob("*.toml"))


def _of_table(where: str, found: object, allowed: tuple[str, ...]) -> Iterator[InputError]:
    """The fault of what is no table, or those of its keys."""
    if isinstance(found, dict):
        yield from _keys(where, found, allowed)
    else:
        yield InputError(where, found, f"a table [{where.rpartition(' ')[2]}]")


def _keys(where: str, table: Toml, allowed: tuple[str, ...]) -> Iterator[InputError]:
    """A fault for each key that is not allowed."""
    for key in table:
        if key not in allowed:
            yield InputError(f"{where}: key", key, ", ".join(allowed), suggestion(key, allowed))


def _missing(where: str, table: Toml) -> Iterator[InputError]:
    """One fault for all keys that are missing. A key that is misspelt is not: the fault of its name says so."""
    meant = {text for key in table if key not in ALLOWED for text in closest(key, ALLOWED)}
    if missing := [key for key in KEYS if key not in table and key not in meant]:
        one = "this key is required" if len(missing) == 1 else "each of these keys is required"
        yield InputError(where + ", ".join(missing), "nothing", one)


def _whole(where: str, table: Toml, keys: Iterable[str]) -> Iterator[InputError]:
    """A fault for each of these keys whose value is no whole number above 0, or 0 where a chip may have none."""
    for key in keys:
        value, none = table.get(key, 1), key in NONE
        if not isinstance(value, int) or isinstance(value, bool) or value < (not none):
            yield InputError(where + key, value, "a whole number, or 0 for none" if none else "a whole number above 0")


PRESET: Columns[Row] = (
    Column("name", "string"),
    Column("M_bytes"),
    Column("sms"),
    Column("sram_total_bytes"),
    Column("l2_bytes"),
    Column("hbm_bytes"),
    Column("hbm_bytes_per_second"),
    Column("fp16_flops_per_second"),
    Column(REGISTERS),
)
NUMBER: Columns[Row] = (Column("key", "string"), Column("value"), Column("source", "string"))


def presets() -> Table:
    """The presets, each with its most important numbers."""
    files = _files()
    names = [column.name for column in PRESET]
    rows: list[Row] = []
    for path in files:
        h = read_hardware(path)
        own = {"name": path.stem, "M_bytes": h.sram_bytes, "fp16_flops_per_second": h.flops_per_second.get("fp16")}
        rows.append({name: own[name] if name in own else getattr(h, name) for name in names})
    return Table(PRESET, rows, numbered(len(files), "preset"), {"hardware": rows})


def numbers(name: str) -> Table:
    """The numbers of a preset, each with its source."""
    h = load(name)
    rows: list[Row] = [
        {"key": key, "value": getattr(h, key), "source": h.sources.get(key, UNSAID)}
        for key in (*COUNT_KEYS, *OPTIONAL)
        if getattr(h, key)
    ]
    source = h.sources.get("flops_per_second", UNSAID)
    rows += [
        {"key": f"{dtype}_flops_per_second", "value": rate, "source": source}
        for dtype, rate in h.flops_per_second.items()
    ]
    again = ({**row, "source": "as above"} if row["source"] == last["source"] else row for last, row in pairwise(rows))
    return Table(NUMBER, rows, name, {"hardware": rows}, text=[Table(NUMBER, [rows[0], *again])])


def hardware(name: str | None = None) -> Table:
    """The presets; with a name or a file, every number of one GPU with its source: a Table."""
    return presets() if name is None else numbers(name)


answers(__name__)
