"""Sizes, words, counts and axes: a case for each prefix and for each error."""

from fractions import Fraction
from math import floor

import pytest

from iosim.errors import InputError
from iosim.units import (
    DTYPE_BYTES,
    LARGEST_BYTES,
    LARGEST_COUNT,
    MOST_POINTS,
    PREFIX_BYTES,
    dtype_bytes,
    format_bytes,
    format_rate,
    parse_axis,
    parse_bytes,
    parse_count,
    parse_registers,
    rounded_down,
)

# Written out, so that a change of PREFIX_BYTES cannot change what is expected.
KIB, MIB, GIB, TIB = 1_024, 1_048_576, 1_073_741_824, 1_099_511_627_776
SPELLINGS = {
    "": 1, "B": 1, "b": 1,
    "K": KIB, "k": KIB, "KB": KIB, "kb": KIB, "Kb": KIB, "kB": KIB, "KiB": KIB, "kib": KIB, "KIB": KIB,
    "M": MIB, "m": MIB, "MB": MIB, "mb": MIB, "Mb": MIB, "mB": MIB, "MiB": MIB, "mib": MIB, "MIB": MIB,
    "G": GIB, "g": GIB, "GB": GIB, "gb": GIB, "Gb": GIB, "gB": GIB, "GiB": GIB, "gib": GIB, "GIB": GIB,
    "T": TIB, "t": TIB, "TB": TIB, "tb": TIB, "Tb": TIB, "tB": TIB, "TiB": TIB, "tib": TIB, "TIB": TIB,
}  # fmt: skip


def count(text):
    return parse_count(text, "--N")


def size(text):
    return parse_bytes(text, 2)


@pytest.mark.parametrize("suffix", SPELLINGS)
def test_every_prefix_in_every_case(suffix):
    for space in ("", " ", "  "):
        assert parse_bytes(f"3{space}{suffix}", 2) == 3 * SPELLINGS[suffix]
    assert parse_bytes(f"  7{suffix} ", 8) == 7 * SPELLINGS[suffix], "the word width is no matter for bytes"


def test_the_prefixes_tested_are_all_there_are():
    assert set(PREFIX_BYTES) == {"", "k", "m", "g", "t"}
    assert {SPELLINGS[p] for p in PREFIX_BYTES} == {1, KIB, MIB, GIB, TIB}


def test_the_examples_of_the_help():
    assert size("102400") == size("100K") == size("100KB") == size("100KiB") == size(102400) == 102400
    assert size("1.5MB") == 1_572_864 and size("1G") == GIB and size("51200el") == 102400
    assert size("1.5TiB") == 3 * TIB // 2


@pytest.mark.parametrize(
    ("dtype", "width"), [("fp64", 8), ("fp32", 4), ("fp16", 2), ("bf16", 2), ("fp8", 1), ("int8", 1)]
)
def test_words_are_as_wide_as_their_type(dtype, width):
    assert dtype_bytes(dtype) == width
    for text in ("51200el", "51200 el", "51200EL", " 51200El "):
        assert parse_bytes(text, dtype_bytes(dtype)) == 51200 * width
    assert set(DTYPE_BYTES) == {"fp64", "fp32", "fp16", "bf16", "fp8", "int8"}


@pytest.mark.parametrize("dtype", ["fp61", "FP 16", "", "float61", "int4"])
def test_unknown_types(dtype):
    with pytest.raises(InputError, match="--dtype.*allowed: fp64, fp32, fp16, bf16, fp8, int8"):
        dtype_bytes(dtype)


def test_a_misspelt_type_gets_a_suggestion():
    with pytest.raises(InputError, match=r"did you mean 'fp16'\?"):
        dtype_bytes("fp166")


@pytest.mark.parametrize(
    ("text", "expected"), [("0.5K", 512), ("0.5kb", 512), ("1.0", 1), ("2.250K", 2304), ("0.0009765625K", 1),
                           ("0.125G", 134_217_728), ("1.000000000000M", MIB)])  # fmt: skip
def test_decimals_are_exact(text, expected):
    assert size(text) == expected


@pytest.mark.parametrize("text", ["1.5", "1.5B"])
def test_fractions_of_a_byte_without_a_unit_are_refused(text):
    with pytest.raises(InputError, match=r"decimals of a unit, as 1\.5MB.* is \d+ bytes and a fraction$"):
        size(text)


@pytest.mark.parametrize(("text", "expected"), [("0.3K", 307), ("227.33KB", 232_785), ("10.55GiB", 11_327_976_243)])
def test_decimals_of_a_unit_are_rounded_down(text, expected):
    unit = KIB if "K" in text else GIB
    assert size(text) == expected == floor(Fraction(text.rstrip("KBGi")) * unit)
    assert rounded_down(text) == [f"{text} is {expected:,} B, rounded down to whole bytes"]


def test_every_size_of_an_axis_that_is_rounded_is_told():
    assert [text.split()[0] for text in rounded_down("1.5KB,0.3K:0.7K:x2,3el,x,1.5")] == ["0.3K", "0.7K", "1.5"]
    with pytest.raises(InputError, match="from 1 to"):
        size("0.000000000001G")


@pytest.mark.parametrize(
    "text", ["", " ", "K", "KB", "el", "abc", "-1", "+1", "-1K", "1e9", "1e3K", "NaN", "inf", "1..5K", ".5K", "1.K", "1,5K",
             "1_000", "1P", "1PB", "1KK", "1KBB", "1Ki", "1iB", "1 K B", "1.5el", "1Kel", "1els", "0x10", "1\nK2",
             "1" * 26, "1.0000000000000", None, 1.5, True, False, [1], b"1"])  # fmt: skip
def test_what_is_no_size(text):
    with pytest.raises(InputError, match="^--M: found ") as caught:
        size(text)
    assert "51200el" in str(caught.value), "the message says what is allowed"
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("text", ["0", "0K", "0.0M", "0el", 0, -1])
def test_sizes_from_one_byte(text):
    with pytest.raises(InputError, match="from 1 to"):
        size(text)


def test_the_largest_sizes():
    assert LARGEST_BYTES == 2**60 and parse_bytes("1073741824G", 2) == LARGEST_BYTES
    assert parse_bytes(f"{2**59}el", 2) == LARGEST_BYTES
    for text in ("1073741825G", f"{2**60 + 1}", f"{2**59 + 1}el", "9" * 25, "9" * 25 + "el"):
        with pytest.raises(InputError, match="from 1 to"):
            parse_bytes(text, 2)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", 1),
        (" 42 ", 42),
        ("+7", 7),
        ("007", 7),
        ("4K", 4096),
        ("64k", 65536),
        ("1M", 2**20),
        ("2g", 2**31),
        (9, 9),
        (2**48, 2**48),
    ],
)
def test_counts(text, expected):
    assert count(text) == expected


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "1e9", "1KB", "1.5K", "1 K", "K", "1P", "-1K", "0K", "", " ", "NaN", "inf", "abc", "1_0", "1 0", "--1", "0x8",
                                  "9" * 31, "9" * 5000, str(2**48 + 1), 0, -3, 2**48 + 1, 1.0, True, None])  # fmt: skip
def test_what_is_no_count(text):
    with pytest.raises(InputError, match=f"^--N: found .*; allowed: a whole number from 1 to {LARGEST_COUNT}$"):
        count(text)


def test_the_ends_of_a_count_are_allowed_and_no_more():
    assert [parse_count(x, "k", least=0, most=4) for x in ("0", "4", 0, 4, "-0")] == [0, 4, 0, 4, 0]
    for text in ("-1", "5", -1, 5):
        with pytest.raises(InputError, match="from 0 to 4"):
            parse_count(text, "k", least=0, most=4)


def test_long_values_are_cut_in_messages():
    with pytest.raises(InputError) as caught:
        count("9" * 5000)
    assert len(str(caught.value)) < 200


# ------------------------------------------------------------------ axes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5", [5]),
        (5, [5]),
        ("1024,4096", [1024, 4096]),
        (" 3 , 1 ,2", [3, 1, 2]),  # the values stay in the order given
        ("4,4,2,4", [4, 2]),  # a value that is repeated is kept once
        ("1K,2K:8k:x2,512:1K:+256", [1024, 2048, 4096, 8192, 512, 768]),  # K is 1024 in each part
        ("16:256:x2", [16, 32, 64, 128, 256]),  # both ends are included
        ("16:255:x2", [16, 32, 64, 128]),  # no value exceeds the end
        ("16:257:x2", [16, 32, 64, 128, 256]),
        ("1:1000:x10", [1, 10, 100, 1000]),
        ("1:728:x3", [1, 3, 9, 27, 81, 243]),
        ("7:7:x2", [7]),
        ("64:256:+64", [64, 128, 192, 256]),
        ("64:255:+64", [64, 128, 192]),
        ("1:5:+1", [1, 2, 3, 4, 5]),
        ("7:7:+1", [7]),
        ("3:9:+100", [3]),
        (" 2 : 8 : x2 ", [2, 4, 8]),
        ("1,4:16:x2,5:7:+1,16", [1, 4, 8, 16, 5, 6, 7]),
    ],
)
def test_axes_of_counts(text, expected):
    assert parse_axis(text, "--N", count) == expected


def test_axes_of_sizes():
    k = 1024
    assert parse_axis("16KB:256KB:x2", "--M", size) == [16 * k, 32 * k, 64 * k, 128 * k, 256 * k]
    assert parse_axis("16K:64KiB:+16KB", "--M", size) == [16 * k, 32 * k, 48 * k, 64 * k]
    assert parse_axis("512el,1KB,2:8:x2", "--M", size) == [1024, 2, 4, 8]
    assert parse_axis("8el:32el:+8el", "--M", size) == [16, 32, 48, 64]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1:10", "give the step, as in 16KB:256KB:x2"),
        ("1:10:", "give the step"),
        ("1:10:2", "give the step"),
        ("1:10:X2", "give the step"),
        ("1:10:*2", "give the step"),
        ("1:10:x2:x2", "give the step"),
        (":", "give the step"),
        ("10:1:x2", "a stop that is not below the start"),
        ("10:9:+1", "a stop that is not below the start"),
        ("1:10:x1", "the step of 1:10:x1.*from 2"),
        ("1:10:x0", "from 2"),
        ("1:10:x-2", "from 2"),
        ("1:10:x", "from 2"),
        ("1:10:x1.5", "from 2"),
        ("1:10:+0", "found '0'; allowed: a whole number from 1"),
        ("1:10:+", "found ''.*from 1"),
        ("1:10:+-1", "from 1"),
        ("0:10:x2", "found '0'"),
        ("1::x2", "found ''"),
        (":4:x2", "found ''"),
        ("a:b:x2", "found 'a'"),
        ("", "found ''"),
        (",", "found ''"),
        ("1,,2", "found ''"),
        ("1,2,", "found ''"),
        ("1,x", "found 'x'"),
        (f"1:{MOST_POINTS + 1}:+1", f"at most {MOST_POINTS} points"),
        ("1:281474976710656:+1", "at most"),
        (0, "found 0"),
        (True, "found True"),
        ("1024-8192", "found '1024-8192'; did you mean '1024:8192:x2'[?] allowed: a whole number"),
        ("1, 16K .. 1M", "did you mean '16K:1M:x2'"),
        ("1e-3", "found '1e-3'; allowed"),
        ("8192-1024", "found '8192-1024'; allowed"),
        ("-5", "found '-5'; allowed"),
        ("1-2-3", "found '1-2-3'; allowed"),
    ],
)
def test_what_is_no_axis(text, message):
    with pytest.raises(InputError, match=message) as caught:
        parse_axis(text, "--N", count)
    assert str(caught.value).startswith("--N")


@pytest.mark.parametrize("text", ["0:64K:x2", "1:10:+0", "0:10:+0"])
def test_an_axis_of_registers_ends(text):
    """0 is a number of registers, and no step."""
    with pytest.raises(InputError, match="--registers"):
        parse_axis(text, "--registers", parse_registers)
    assert parse_axis("0:8B:+4B", "--registers", parse_registers) == [0, 4, 8]


def test_the_longest_geometric_axis_ends():
    assert parse_axis(f"1:{2**48}:x2", "--N", count) == [2**e for e in range(49)]


# ------------------------------------------------------------------ printing


def test_bytes_are_printed_with_their_1024s():
    assert [format_bytes(x) for x in (0, 1023, 1024, 102400, 1536, 3 * MIB, 5 * GIB)] == [
        "0 B", "1023 B", "1,024 B (1 KiB)", "102,400 B (100 KiB)", "1,536 B (1.50 KiB)", "3,145,728 B (3 MiB)",
        "5,368,709,120 B (5 GiB)"]  # fmt: skip


def test_only_bandwidths_are_printed_in_1000s():
    assert [format_rate(x) for x in (999, 1000, 180_355_072, 2 * 10**9, 3.35 * 10**12, 4 * 10**15)] == [
        "999 B/s", "1.00 kB/s", "180.36 MB/s", "2.00 GB/s", "3.35 TB/s", "4.00 PB/s"]  # fmt: skip


@pytest.mark.parametrize("bytes_", [1, 1024, 102400, MIB, 7 * GIB])
def test_a_printed_size_can_be_read_back(bytes_):
    text = format_bytes(bytes_)
    assert size(text.partition(" (")[0].replace(",", "")) == bytes_
    if "(" in text:
        assert size(text.partition("(")[2].rstrip(")")) == bytes_


@pytest.mark.parametrize("text, size", [("64K", 262_144), ("256KB", 262_144), ("256kib", 262_144), ("100", 400),
                                        ("100B", 100), ("0", 0), ("0B", 0), ("1.5K", 6144), (7, 7)])  # fmt: skip
def test_registers_are_counted_in_four_bytes_unless_bytes_are_given(text, size):
    assert parse_registers(text) == size


@pytest.mark.parametrize("text", ["x", "", "-1", "1.3", "64el", "K", "64KBB", -3])
def test_what_is_no_number_of_registers(text):
    with pytest.raises(InputError, match="--registers"):
        parse_registers(text)
