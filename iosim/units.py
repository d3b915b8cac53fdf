"""Readers of sizes, counts and axes that are given as text, and the printed form of sizes.

K, KB and KiB are all 1024, in upper or lower case; M, G and T are its powers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from .errors import InputError, did_you_mean, suggestion

if TYPE_CHECKING:
    from fractions import Fraction

DTYPE_BYTES = {"fp64": 8, "fp32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1}
SAME_TYPES = {
    **dict.fromkeys(("float64", "double", "f64"), "fp64"),
    **dict.fromkeys(("float32", "float", "single", "f32"), "fp32"),
    **dict.fromkeys(("float16", "half", "f16"), "fp16"),
    **dict.fromkeys(("bfloat16", "bfloat"), "bf16"),
    **dict.fromkeys(("float8", "f8", "e4m3", "e5m2", "float8_e4m3fn", "float8_e5m2"), "fp8"),
    **dict.fromkeys(("uint8", "i8", "u8"), "int8"),
}
"""The names of types in other programs, and those here. Both are accepted."""
HALF_BYTES = ("int4", "fp4", "uint4", "nvfp4", "mxfp4", "i4", "u4")
PACKED = "int4"
"""The type of words of 4 bits, two to a byte, which only K and V in HBM may have."""
PREFIX_BYTES = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
UNITS = (("PiB", 1024**5), ("TiB", 1024**4), ("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024))
REGISTER_BYTES = 4
LARGEST_COUNT = 2**48
LARGEST_BYTES = 2**60
LARGEST_FACTOR = 10**15
MOST_POINTS = 10_000_000

_SIZE = re.compile(r"(\d{1,25})(?:\.(\d{1,12}))?\s*(?:([kmgt])(?:i?b)?|b)?", re.IGNORECASE)
_LONG_EXPONENT = re.compile(r"e[+-]?\d{3}", re.IGNORECASE)
_COUNT = re.compile(r"([+-]?[0-9]{1,30})([kmgt]?)", re.IGNORECASE)
_WORDS = re.compile(r"(\d{1,25})\s*el", re.IGNORECASE)
SIZES_ALLOWED = (
    "bytes as 102400, 100K, 100KB or 100KiB (K = 1024; M, G and T are its powers); "
    "decimals of a unit, as 1.5MB (rounded down to whole bytes); words, as 51200el"
)


def dtype_bytes(dtype: str) -> int:
    """Bytes of one word of an element type."""
    return DTYPE_BYTES[type_name(dtype)]


def type_name(text: str, where: str = "--dtype", packed: bool = False) -> str:
    """The name of an element type: `fp16` for `FP16`, `float16` and `torch.float16`, with `packed` also `int4`.
    InputError for any other."""
    if text in DTYPE_BYTES:
        return text
    word = str(text).lower().removeprefix("torch.")
    if packed and word in (PACKED, "uint4", "i4", "u4"):
        return PACKED
    name, known = SAME_TYPES.get(word, word), [*DTYPE_BYTES, *([PACKED] if packed else [])]
    if name not in DTYPE_BYTES:
        bits = "int4 has as many bits" if packed else "only K and V have 4 bits: --kv-dtype int4"
        raise InputError(where, text, ", ".join(known), bits if word in HALF_BYTES else suggestion(word, known))
    return name


def parse_count(text: str | int, where: str, least: int = 1, most: int = LARGEST_COUNT) -> int:
    """The whole number that a text or an int gives; `64K` is 65,536. InputError unless it is from `least` to `most`."""
    value: int | None = None
    if isinstance(text, int) and not isinstance(text, bool):
        value = text
    elif isinstance(text, str) and (match := _COUNT.fullmatch(text.strip())):
        value = int(match[1]) * PREFIX_BYTES[match[2].lower()]
    if value is None or not least <= value <= most:
        raise InputError(where, text, f"a whole number from {least} to {most}")
    return value


def parse_bytes(text: str | int, word_bytes: int, where: str = "--M") -> int:
    """The bytes of a memory size such as `102400`, `100KB` or `10.55GiB`, which is rounded down to whole bytes, or
    `51200el`: words of `word_bytes` bytes."""
    if isinstance(text, int) and not isinstance(text, bool):
        size = text
    elif isinstance(text, str) and (match := _WORDS.fullmatch(text.strip())):
        size = int(match[1]) * word_bytes
    elif isinstance(text, str) and (match := _SIZE.fullmatch(text.strip())):
        size, fraction = _whole_bytes(match)
        if fraction and not match[3]:
            raise InputError(where, text, SIZES_ALLOWED, f"{text.strip()} is {size} bytes and a fraction")
    else:
        several = "iosim.sweep takes several" if isinstance(text, list | tuple) else ""
        raise InputError(where, text, SIZES_ALLOWED, several)
    if not 1 <= size <= LARGEST_BYTES:
        raise InputError(where, text, f"from 1 to {LARGEST_BYTES} bytes")
    return size


def _whole_bytes(match: re.Match[str]) -> tuple[int, int]:
    """The whole bytes of a size, and what is left: 0 if its decimals make whole bytes."""
    decimals = match[2] or ""
    return divmod(int(match[1] + decimals) * PREFIX_BYTES[(match[3] or "").lower()], 10 ** len(decimals))


def rounded_down(text: str) -> list[str]:
    """A sentence for each size of a text or an axis whose decimals make no whole bytes."""
    matches = filter(None, (_SIZE.fullmatch(part.strip()) for part in re.split("[,:]", text)))
    sizes = ((match[0], *_whole_bytes(match)) for match in matches)
    return [f"{size} is {whole:,} B, rounded down to whole bytes" for size, whole, fraction in sizes if fraction]


def parse_factor(text: str | float, where: str) -> Fraction:
    """The factor from 1 on that a text or a number gives, exactly as its decimals say."""
    from fractions import Fraction

    given = str(text)
    try:
        factor = Fraction(given) if len(given) < 40 and not _LONG_EXPONENT.search(given) else None
    except (ValueError, ZeroDivisionError):
        factor = None
    if factor is None or not 1 <= factor <= LARGEST_FACTOR:
        raise InputError(where, text, f"a number from 1 to {LARGEST_FACTOR}, as 1.2")
    return factor


def parse_range(text: str | int, word_bytes: int, where: str = "--M") -> tuple[int, int]:
    """The first and the last bytes of a range as `16KB:1MB`, without a step."""
    parts = str(text).split(":")
    if len(parts) != 2:
        hint = "leave out the step" if len(parts) == 3 else "without --curve for one M; in Python, iosim.tune"
        raise InputError(where, text, "a range as 16KB:1MB", hint)
    first, last = (parse_bytes(part, word_bytes, where) for part in parts)
    if last < first:
        raise InputError(where, text, "a stop that is not below the start")
    return first, last


def parse_registers(text: str | int, where: str = "--registers") -> int:
    """The bytes of registers that a text gives: `64K` is 65,536 registers of 4 bytes, and `256KB` is the same in bytes.
    An int is a number of bytes."""
    allowed = "a number of registers as 64K (4 bytes each), or bytes as 256KB; 0 for none"
    if isinstance(text, int) or str(text).strip() in ("0", "0B"):
        return parse_count(text if isinstance(text, int) else 0, where, least=0)
    match = _SIZE.fullmatch(str(text).strip())
    in_bytes = str(text).strip().lower().endswith("b")
    if match is None or (_whole_bytes(match)[1] and not in_bytes):
        raise InputError(where, text, allowed)
    return parse_bytes(text, 1, where) * (1 if in_bytes else REGISTER_BYTES)


def parse_axis(text: str | int, where: str, parse: Callable[[str | int], int]) -> list[int]:
    """The values of an axis of a sweep, without repetitions; `parse` reads one value.

    An axis is a list as `a,b,c`. Its parts may be ranges: `start:stop:xK` multiplies by K, and `start:stop:+K` adds K.
    Both include `start`, and `stop` if a step reaches it.
    """
    if isinstance(text, int):
        return [parse(text)]
    values: list[int] = []
    for part in str(text).split(","):
        values += _parse_range(part, where, parse) if ":" in part else [_parse_one(part, where, parse)]
        if len(values) > MOST_POINTS:
            raise InputError(where, text, f"at most {MOST_POINTS} points")
    return list(dict.fromkeys(values))


def _parse_one(text: str, where: str, parse: Callable[[str], int]) -> int:
    """One value. The fault of a range as `16KB-64KB` says how it is written."""
    try:
        return parse(text)
    except InputError as fault:
        meant = re.sub(r"\s*(\w+)\s*(?:-|\.\.)\s*(\w+)\s*", r"\1:\2:x2", text)
        try:
            _parse_range(meant, where, parse)
        except InputError:
            raise fault from None
        raise InputError(where, text, fault.allowed, did_you_mean([meant])) from None


def _parse_range(text: str, where: str, parse: Callable[[str], int]) -> list[int]:
    """The values of one range."""
    allowed = "start:stop:xK (K a whole number from 2) or start:stop:+K (K from 1)"
    parts = [part.strip() for part in text.split(":")]
    if len(parts) != 3 or parts[2][:1] not in ("x", "+"):
        raise InputError(where, text, allowed, "give the step, as in 16KB:256KB:x2")
    start, stop, kind = parse(parts[0]), parse(parts[1]), parts[2][0]
    if stop < start:
        raise InputError(where, text, "a stop that is not below the start")
    if kind == "x":
        if start < 1:
            raise InputError(where, text, "a start from 1, which is multiplied")
        factor = parse_count(parts[2][1:], f"{where} (the step of {text})", least=2)
        values = [start]
        while values[-1] * factor <= stop:
            values.append(values[-1] * factor)
        return values
    try:
        step = parse(parts[2][1:])
    except InputError as fault:
        raise InputError(f"{where} (the step of {text})", fault.found, fault.allowed, fault.hint) from None
    if step < 1:
        raise InputError(where, text, allowed)
    if (stop - start) // step >= MOST_POINTS:
        raise InputError(where, text, f"at most {MOST_POINTS} points")
    return list(range(start, stop + 1, step))


def format_bytes(size: int) -> str:
    """A size as `512 B`; from 1 KiB on also in a larger unit, as `102,400 B (100 KiB)`."""
    return f"{size:,} B ({binary(size)})" if size >= UNITS[-1][1] else f"{size} B"


_RATE = re.compile(r"(\d{1,18})(?:\.(\d{1,9}))?\s*([kmgt]?)b?(?:/s)?", re.IGNORECASE)
RATE_FACTOR = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


def parse_rate(text: str | int, where: str) -> int:
    """The bytes a second of a bandwidth such as `450GB/s`, which is decimal; InputError for any other text."""
    if isinstance(text, int) and not isinstance(text, bool) and 0 < text <= LARGEST_BYTES:
        return text
    match = _RATE.fullmatch(text.strip()) if isinstance(text, str) else None
    if match:
        decimals = match[2] or ""
        value, rest = divmod(int(match[1] + decimals) * RATE_FACTOR[match[3].lower()], 10 ** len(decimals))
        if 0 < value <= LARGEST_BYTES and not rest:
            return value
    raise InputError(where, text, "bytes a second above 0, as 450GB or 50GB/s (decimal)")


def format_rate(bytes_per_second: int | float) -> str:
    """A bandwidth, which is decimal as everybody writes it: `3.35 TB/s`. Sizes are binary."""
    for unit, factor in (("PB", 10**15), ("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if bytes_per_second >= factor:
            return f"{bytes_per_second / factor:.2f} {unit}/s"
    return f"{bytes_per_second:g} B/s"


def microseconds(seconds: float) -> str:
    """A time for people: `10.3 us`, `1,146 us`."""
    return f"{seconds * 1e6:,.4g} us" if seconds < 1e-3 else f"{seconds * 1e6:,.0f} us"


def microseconds_apart(seconds: float, other: float) -> tuple[str, str]:
    """Two times for people, with as many digits as show that they differ."""
    usual = microseconds(seconds), microseconds(other)
    digits = ((f"{seconds * 1e6:#,.{n}g} us", f"{other * 1e6:#,.{n}g} us") for n in range(5, 17))
    found = (pair for pair in (usual, *digits) if seconds == other or pair[0] != pair[1])
    return next(found, usual)


def binary(size: int) -> str:
    """Bytes in the largest binary unit that is at most the size: `128 MiB`, `1.25 GiB`, `1,009 KiB`."""
    unit, factor = binary_unit(size)
    whole = size % factor == 0 or size >= 1000 * factor
    return f"{size / factor:,.{0 if whole else 2}f} {unit}" if factor > 1 else f"{size:,} B"


def binary_unit(size: float) -> tuple[str, int]:
    """(the unit in which a size is shown, its bytes). 1,023.6 KiB are shown as 1.00 MiB."""
    return next(((unit, factor) for unit, factor in UNITS if size >= factor - factor // 1024 / 2), ("B", 1))
