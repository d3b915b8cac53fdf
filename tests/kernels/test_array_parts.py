"""Numbers and masks in parts are the arrays that they stand for; requests count what sets of words count."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iosim.hardware import SECTOR_BYTES
from iosim.kernels.walk.code import Operation, Type
from iosim.kernels.walk.numbers import Mask, Number, chosen, wrapped
from iosim.kernels.walk.operations import RULES, decided, divided, remainder
from iosim.kernels.walk.requests import Requests

PROGRAMS, ROWS, COLUMNS = 3, 4, 2


def arrays(least=-20, most=20):
    """Integers over programs, rows and columns; any axis may be of length 1."""
    lengths = st.tuples(*(st.sampled_from([1, n]) for n in (PROGRAMS, ROWS, COLUMNS)))

    def sized(shape):
        size = int(np.prod(shape))
        return st.lists(st.integers(least, most), min_size=size, max_size=size).map(
            lambda xs: np.array(xs, np.int64).reshape(shape)
        )

    return lengths.flatmap(sized)


def same(a, b):
    """Whether two arrays are equal, where an axis of length 1 stands for equal elements."""
    return np.array_equal(*np.broadcast_arrays(a, b))


@given(arrays(), arrays())
def test_numbers_add_and_multiply_as_arrays_do(a, b):
    one, two = Number.of(a), Number.of(b)
    for found, array in ((one + two, a + b), (one - two, a - b), (one * two, a * b), (-one, -a)):
        assert same(found.array, array)
        least, most = found.range
        assert least <= array.min() and array.max() <= most


@given(arrays(), arrays(), arrays())
def test_masks_and_choices_are_those_of_arrays(a, b, c):
    one, two = Mask.of(a > 0), Mask.of(b > 0)
    assert same((one & two).array, (a > 0) & (b > 0))
    assert same(chosen(one.array, Number.of(b), Number.of(c)).array, np.where(a > 0, b, c))


@given(arrays(-(2**9), 2**9), st.sampled_from([8, 16, 32]))
def test_numbers_wrap_as_their_width_says(a, bits):
    assert np.array_equal(wrapped(Number.of(a), bits).array, a.astype(f"int{bits}"))


@given(st.integers(-50, 50), st.integers(-9, 9).filter(bool))
def test_quotients_are_rounded_towards_zero(a, b):
    assert divided(np.array([a]), np.array([b])) == int(a / b) and remainder(
        np.array([a]), np.array([b])
    ) == a - b * int(a / b)


@given(arrays(), arrays(), st.integers(0, 9))
def test_comparisons_are_those_of_mlir(a, b, predicate):
    operation = Operation(
        "arith.cmpi", numbers={"predicate": predicate}, operand_types=(Type.of("i32"),) * 2, types=(Type.of("i1"),)
    )
    name = ["eq", "ne", "lt", "le", "gt", "ge", "lt", "le", "gt", "ge"][predicate]
    x, y = (v.astype(np.int32).view(np.uint32) if predicate > 5 else v for v in (a, b))
    right = getattr(x, f"__{name}__")(y)
    assert np.array_equal(
        RULES["arith.cmpi"](operation, [Number.of(a), Number.of(b)]).array | np.zeros_like(right), right
    )


def test_the_ends_of_a_range_decide_a_comparison():
    rows = Number(np.array([[0], [128]]), np.arange(128)[None])
    assert decided(rows - Number.constant(256, 1), 2).array.all(), "both programs are below 256"
    assert decided(rows - Number.constant(200, 1), 2) is None, "some lanes of the second program are not"
    assert decided(rows - Number.constant(128, 1), 2).array.ravel().tolist() == [True, False]


# ---------------------------------------------------------------- requests


def naive(offsets, on, word):
    """(words, distinct words, sectors) of requests, a row of lanes for each program."""
    words = sum(int(row.sum()) for row in on)
    distinct = {int(x) for row, lanes in zip(offsets, on, strict=True) for x in row[lanes]}
    sectors = [
        len({b // SECTOR_BYTES for x in row[lanes] for b in (int(x), int(x) + word - 1)})
        for row, lanes in zip(offsets, on, strict=True)
    ]
    return words, len(distinct), sum(sectors)


PLACES = arrays(0, 30) | arrays(0, 3000)  # rows that share sectors, and rows that lie apart


@given(
    st.lists(st.tuples(PLACES, arrays(), arrays()), min_size=1, max_size=3), st.sampled_from([1, 2, 4]), st.booleans()
)
def test_requests_count_words_and_sectors(asked, word, whole):
    requests, rows, masks = Requests(whole=whole), [], []
    for offset, mask, on in asked:
        programs = np.broadcast_to(on[:, 0, 0] > -10, (PROGRAMS,))
        requests.add(Number.of(offset * word), Mask.of(mask > -5), (ROWS, COLUMNS), word, programs)
        shape = (PROGRAMS, ROWS, COLUMNS)
        rows += list(np.broadcast_to(offset * word, shape).reshape(PROGRAMS, -1))
        masks += list((np.broadcast_to(mask > -5, shape) & programs[:, None, None]).reshape(PROGRAMS, -1))
    words, distinct, sectors = naive(rows, masks, word)
    first, end = requests.covered()
    assert (requests.words, int((end - first).sum()) // word, requests.sectors) == (words, distinct, sectors)


def test_equal_requests_of_many_programs_are_one_pattern():
    requests = Requests()
    offset = Number(np.arange(1000)[:, None] * 256, np.arange(64)[None] * 4)
    requests.add(offset, None, (64,), 4, np.ones(1000, bool))
    assert len(requests.patterns) == 1 and requests.words == 64_000
    first, end = requests.covered()
    assert (first.tolist(), end.tolist()) == ([0], [256_000]), "rows that touch are one interval"


ROWS_3, COLUMNS_16 = np.arange(3)[None, :, None], np.arange(16)[None, None]
EVERY = np.ones((1, 1, 1), bool)
LANES = {"apart": ROWS_3 * 64 + COLUMNS_16 * 4, "a product": ROWS_3 * COLUMNS_16 * 4, "columns": COLUMNS_16 * 4}
MASKS = {
    "none": None,
    "a triangle": Mask(EVERY, ROWS_3 <= COLUMNS_16),
    "rows and columns": Mask(EVERY, (ROWS_3 < 2) & (COLUMNS_16 > 3)),
    "rows of programs": Mask(EVERY, EVERY, (np.array([[1, 0, 1], [1, 1, 1], [0, 0, 0], [0, 1, 0]], bool)[:, :, None],)),
    "columns of programs": Mask(EVERY, EVERY, (np.array([16, 3, 16, 0])[:, None, None] > COLUMNS_16,)),
    "both": Mask(EVERY, COLUMNS_16 < 9, (np.array([1, 3, 2, 3])[:, None, None] > ROWS_3,)),
}


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("mask", MASKS)
def test_rows_that_data_place_count_as_sets_of_words_do(lanes, mask):
    places = np.array([[5, 0, 9], [2, 7, 1], [3, 3, 8], [6, 4, 6]])[:, :, None] * 256
    offset = Number(np.arange(4)[:, None, None] * 4096, LANES[lanes], places)
    requests, programs = Requests(), np.array([True, True, True, False])
    requests.add(offset, MASKS[mask], (3, 16), 4, programs)
    on = np.broadcast_to(True if MASKS[mask] is None else MASKS[mask].array, (4, 3, 16)) & programs[:, None, None]
    right = naive(np.broadcast_to(offset.array, on.shape).reshape(4, -1), on.reshape(4, -1), 4)
    first, end = requests.covered()
    assert (requests.words, int((end - first).sum()) // 4, requests.sectors) == right


@pytest.mark.parametrize("pages", [[[5, 0, 9], [2, 7, 1]], [[5, 0, 5], [2, 2, 2]]])
def test_rows_that_data_place_are_one_pattern_if_no_two_share_a_sector(pages):
    """A page that a program asks for twice counts its words twice and its sectors once."""
    requests, mixed = Requests(), np.array(pages)[:, :, None] * 128
    zero = np.zeros((1, 1, 1), np.int64)
    requests.add(Number(zero, np.arange(32)[None, None] * 4, mixed), None, (3, 32), 4, np.ones(2, bool))
    apart = all(len(set(row)) == 3 for row in pages)
    assert requests.words == 2 * 3 * 32 and requests.sectors == 4 * sum(len(set(row)) for row in pages)
    assert {len(pattern.offsets) for pattern in requests.patterns.values()} == ({32} if apart else {96})


@pytest.mark.parametrize("text, shape, element, size", [
    ("i32", (), "i32", 4), ("tensor<128x1x!tt.ptr<f16>>", (128, 1), "!tt.ptr<f16>", 8), ("!tt.ptr<i8, 1>", (), "!tt.ptr<i8, 1>", 8),
    ("tensor<64xi1>", (64,), "i1", 1), ("tensor<4xbf16>", (4,), "bf16", 2), ("f8E4M3FN", (), "f8E4M3FN", 1), ("index", (), "index", 8),
])  # fmt: skip
def test_types_are_read(text, shape, element, size):
    type = Type.of(text)
    assert (type.shape, type.element, type.element_bytes) == (shape, element, size)
    assert type.is_pointer == ("ptr" in text) and (not type.is_pointer or type.pointee.bits in (8, 16))
