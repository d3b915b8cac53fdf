"""How often the L1 is asked for a sector: layouts and loads in the code that Triton compiles."""

import numpy as np
import pytest
from paths import VALIDATION

from iosim import explain, tensor
from iosim.kernels.notes import asked_again
from iosim.kernels.read.asked import asked_of, loads_of, widths_of
from iosim.kernels.read.layouts import layout_of
from iosim.kernels.walk.code import Block, Code, Operation, Type
from iosim.kernels.walk.numbers import Number
from iosim.kernels.walk.requests import Asked, Requests
from iosim.kernels.ways import Way

# ---------------------------------------------------------------- layouts, beside tables of the PTX manual


def held(text, shape, once=False):
    return layout_of(text, shape).elements(shape, once)


def by_formula(warps, registers, lanes, element):
    """The elements by warp, register and lane."""
    return [[[element(w, r, k) for k in range(lanes)] for r in range(registers)] for w in range(warps)]


ROWS = "#ttg.blocked<{sizePerThread = [1, 2], threadsPerWarp = [4, 8], warpsPerCTA = [2, 1], order = [1, 0]}>"


def test_a_blocked_layout():
    """A thread has 2 columns, 8 lanes have a row of 16, a warp 4 rows."""
    assert held(ROWS, (8, 16)).tolist() == by_formula(2, 2, 32, lambda w, r, k: (4 * w + k // 8) * 16 + k % 8 * 2 + r)
    wide = held(ROWS, (8, 32))
    assert wide.tolist() == by_formula(
        2, 4, 32, lambda w, r, k: (4 * w + k // 8) * 32 + r // 2 * 16 + k % 8 * 2 + r % 2
    )
    small = held(ROWS, (4, 16))
    assert small.tolist() == by_formula(2, 2, 32, lambda w, r, k: k // 8 * 16 + k % 8 * 2 + r), "two warps hold all"
    assert held(ROWS, (4, 16), once=True).shape == (1, 2, 32), "a copy is made by one of them"
    down = ROWS.replace("[1, 2]", "[2, 1]").replace("order = [1, 0]", "order = [0, 1]")
    assert held(down, (16, 8))[0, :, :4].tolist() == [[0, 16, 32, 48], [8, 24, 40, 56]]


MMA = "#ttg.nvidia_mma<{versionMajor = %d, versionMinor = 0, warpsPerCTA = [%d, %d], instrShape = [%s]}>"


@pytest.mark.parametrize("version, tile, row, column", [
    (2, "16, 8", lambda w: w // 2, lambda w, r: w % 2 * 8), (3, "16, 32, 16", lambda w: w % 2, lambda w, r: w // 2 * 32 + r // 4 * 8),
])  # fmt: skip
def test_the_result_of_a_product(version, tile, row, column):
    """PTX ISA: lane k has columns 2 (k % 4) and one more of row k / 4, then of the row 8 below. Warps of mma.sync lie row
    by row; the four of a wgmma lie below each other, and here two make up the rows."""
    columns = 16 if version == 2 else 64
    found = held(MMA % (version, 2, 2, tile), (32, columns))
    place = lambda w, r, k: (16 * row(w) + 8 * (r // 2 % 2) + k // 4) * columns + column(w, r) + k % 4 * 2 + r % 2  # noqa: E731
    assert found.tolist() == by_formula(4, found.shape[1], 32, place)


def test_rows_and_columns_of_a_product():
    """4 x 2 warps: two warps hold a row, four a column."""
    product = MMA % (3, 4, 2, "16, 64, 16")
    rows, columns = (held(f"#ttg.slice<{{dim = {dim}, parent = {product}}}>", (n,)) for dim, n in ((1, 64), (0, 128)))
    assert rows.shape == (8, 2, 32) and rows[1, :, 5].tolist() == [17, 25] and (rows[1] == rows[5]).all()
    assert (
        columns.shape == (8, 16, 32) and columns[4, :3, 5].tolist() == [66, 67, 74] and (columns[4] == columns[7]).all()
    )
    both = f"#ttg.slice<{{dim = 0, parent = #ttg.slice<{{dim = 1, parent = {ROWS[:-2].replace('[1, 2]', '[1, 1, 2]').replace('[4, 8]', '[4, 1, 8]').replace('[2, 1]', '[2, 1, 1]').replace('[1, 0]', '[2, 1, 0]')}}}>}}>}}>"
    assert np.unique(held(both, (16,))).tolist() == [*range(16)]


def test_a_layout_of_steps_and_layouts_that_are_not_known():
    linear = "#ttg.linear<{register = [[0, 1], [8, 0]], lane = [[0, 2], [0, 4], [1, 0], [2, 0], [4, 0]], warp = [[0, 0]], block = []}>"
    found = held(linear, (16, 8))
    assert found.tolist() == by_formula(2, 4, 32, lambda w, r, k: (k // 4 + r // 2 * 8) * 8 + k % 4 * 2 + r % 2)
    unknown = ["#ttg.amd_mfma<{version = 3}>", MMA % (1, 2, 2, "16, 8"), "#ttg.slice<{dim = 0, parent = #ttg.new<{}>}>",
               ROWS.replace("order", "CTAsPerCGA = [2, 1], order"), ROWS.replace("order", "turn"),
               ROWS.replace("warpsPerCTA = [2, 1]", "warpsPerCTA = [2]")]  # fmt: skip
    assert [layout_of(text, (8, 16)) for text in unknown] == [None] * 6


# ---------------------------------------------------------------- loads, in texts as Triton 3.6 and 3.9 print them

TTGIR = """
#blocked = #ttg.blocked<{sizePerThread = [1, 8], threadsPerWarp = [8, 4], warpsPerCTA = [4, 1], order = [1, 0]}>
#loc = loc("k.py":2:1)
#mma = #ttg.nvidia_mma<{versionMajor = 2, versionMinor = 0, warpsPerCTA = [4, 1], instrShape = [16, 8]}>
module attributes {"ttg.num-warps" = 4 : i32} {
  tt.func public @k(%a: !tt.ptr<f16> loc("a"(#loc))) {
    %r = tt.load %g0, %m : tensor<64x!tt.ptr<f32>, #ttg.slice<{dim = 1, parent = #mma}>> loc(#loc5)
    %c = tt.load %g1, %m : tensor<64x!tt.ptr<f32>, #ttg.slice<{dim = 0, parent = #mma}>> loc(#loc5)
    %p = ttg.async_copy_global_to_local %b0, %s mask %n {contiguity = 8 : i32} : tensor<32x32x!tt.ptr<f16>, #blocked> -> <32x32xf16, #s, #smem, mutable> loc(#loc4)
    %x = scf.for %i = %c0 to %c4 step %c1 iter_args(%y = %z) -> (i32)  : i32 {
      %q = ttg.async_copy_global_to_local %b1, %s mask %n {contiguity = 8 : i32} : tensor<32x32x!tt.ptr<f16>, #blocked> -> <32x32xf16, #s, #smem, mutable> loc(#loc4)
    } loc(#loc3)
    %s = tt.load %h : !tt.ptr<f32> loc(#loc6)
    tt.store %o, %r : tensor<64x!tt.ptr<f32>, #blocked> loc(#loc3)
  } loc(#loc)
} loc(#loc)
#loc2 = loc("k.py":4:5)
#loc3 = loc("k.py":5:5)
#loc4 = loc("b"(#loc2))
#loc5 = loc(callsite("k.py":9:9 at #loc3))
#loc6 = loc("k.py":7:7)
"""
LINE = "// begin inline asm\n @%p ld.global{} {{ %r }}, [ %rd + 0 ];\n// end inline asm\n"
COPIED = " @%p cp.async.cg.shared.global [ %r + 0 ], [ %rd + 0 ], 0x10, %r;\n"
TABLE = " ld.global.b32 %r1, [%rd1];\n"  # of a sine
PTX = LINE.format(".b32") * 18 + COPIED + TABLE + COPIED + LINE.format(".L1::evict_last.b32")


def load(places, shape, element):
    return Operation("tt.load", (0,), (1,), (Type(shape, f"!tt.ptr<{element}>"),), places=places)


INSIDE = (("k.py", "9", "9"), ("k.py", "5", "5"))
GATES, TILE, SCALAR = (
    load(INSIDE, (64,), "f32"), load((("k.py", "4", "5"),), (32, 32), "f16"), load((("k.py", "7", "7"),), (), "f32"),
)  # fmt: skip


def asked(ptx=PTX, ttgir=TTGIR, sources=(GATES, TILE, SCALAR)):
    return asked_of(Code("k", (), (), (Block((), sources),)), ttgir, ptx, 4)


def test_loads_and_widths_are_read():
    assert widths_of(PTX) == [4] * 18 + [16, 16, 4]
    found = [(x.lines[0][0], len(x.path), x.copies, x.shape, x.element_bytes) for x in loads_of(TTGIR)]
    tile = (True, (32, 32), 2)
    assert found == [("9", 2, False, (64,), 4)] * 2 + [("4", 2, *tile), ("4", 3, *tile), ("7", 2, False, (), 4)]


def sectors(operation, step, size):
    """(sectors that a request for words so many bytes apart touches, those that the L1 is asked for)."""
    shape = operation.operand_types[0].shape
    places = step * np.arange(np.prod(shape, dtype=int)).reshape(1, *shape)
    requests = Requests()
    requests.add(
        Number(np.zeros((1,) * places.ndim, int), places), None, shape, size, np.ones(1, bool), asked()[id(operation)]
    )
    return requests.sectors, requests.asked_sectors


def test_sectors_are_asked_for_by_each_layout_and_warp():
    """64 gates in a sector each: rows once, columns by each of 4 warps. Side by side, a load of a warp takes the rows r
    of a quarter, 8 words, or 8 columns of which it has 2 at a time in one register."""
    assert sectors(GATES, 32, 4) == (64, 64 + 4 * 64)
    assert sectors(GATES, 4, 4) == (8, 8 + 4 * 8 * 2)
    assert sectors(TILE, 2, 2) == (64, 64), "the copy in the loop counts, not the one ahead"
    assert sectors(SCALAR, 4, 4) == (1, 4)


def test_what_does_not_agree_is_not_known():
    """Too few or too many loads in PTX, another width, an unknown layout, another number or shape of loads."""
    texts = [PTX + TABLE, PTX.replace(COPIED, "", 1), PTX + COPIED, PTX.replace(".b32", ".v4.b32"), ""]
    assert [asked(ptx) is not None for ptx in texts] == [True, False, False, False, False]
    assert asked(ttgir=TTGIR.replace("nvidia_mma", "new")) is None
    assert id(GATES) not in asked(sources=(GATES, load(INSIDE, (64,), "f32"))), "each has half of the loads"
    assert id(TILE) in asked() and asked(sources=(load(TILE.places, (32, 64), "f16"),)) == {}
    requests = Requests()
    requests.add(Number.constant(0, 0), None, (), 4, np.ones(1, bool))
    assert requests.asked_sectors is None and requests.sectors == 1


def test_loads_of_one_place_are_shared_by_their_sources():
    """As where a loop is unrolled: two sources, and each layout twice."""
    lines = [line for line in TTGIR.splitlines() if "#loc5)" in line and "tt.load" in line]
    twice = TTGIR.replace(lines[1], "\n".join([lines[1], *lines]))
    other = load(INSIDE, (64,), "f32")
    found = asked(
        PTX.replace(LINE.format(".b32"), "", 18).replace(COPIED, LINE.format(".b32") * 36 + COPIED, 1),
        twice,
        (GATES, other),
    )
    each = [np.unique(found[id(one)].instructions).size for one in (GATES, other)]
    assert each == [4 * 2 + 4 * 16] * 2 == [np.unique(asked()[id(GATES)].instructions).size] * 2


def test_a_copy_is_made_once_where_warps_hold_the_same():
    """8 rows of 32 words of 2 bytes fill one of 4 warps."""
    small, tile = (
        text.replace("32x32x!", "8x32x!")
        for text in (TTGIR, TTGIR.replace("ttg.async_copy_global_to_local", "tt.load"))
    )
    source = load(TILE.places, (8, 32), "f16")
    loaded = PTX.replace(COPIED, LINE.format(".v4.b32"))
    for text, ptx, often in ((small, PTX, 1), (tile, loaded, 4)):
        assert np.unique(asked(ptx, text, (source,))[id(source)].instructions).size == often


def rows_at(starts, asked, whole=False):
    """The requests for rows of 32 words of 2 bytes that begin there, of 3 programs."""
    offset = Number(np.zeros((3, 1, 1), int), 2 * np.arange(32).reshape(1, 1, 32), starts.reshape(3, -1, 1))
    requests = Requests(whole=whole)
    requests.add(offset, None, (starts.shape[1], 32), 2, np.ones(3, bool), asked)
    return requests


def test_rows_that_begin_anywhere_are_asked_for_by_row():
    """Rows of 64 bytes from a table: what is found row by row is that of whole requests. Where two rows are asked for in
    other parts they stay whole."""
    starts = 64 * np.array([np.random.default_rng(k).permutation(99)[:32] for k in range(3)])
    alike = asked()[id(TILE)]
    each = [rows_at(starts, alike, whole) for whole in (False, True)]
    assert [(one.asked_sectors, one.sectors, len(one.patterns)) for one in each] == [(192, 192, 1), (192, 192, 3)]
    odd = Asked(np.r_[np.zeros(32, int), 1 + np.arange(32) % 2], np.arange(64))
    one = rows_at(starts[:, :2], odd)
    assert (one.sectors, one.asked_sectors, len(one.patterns)) == (3 * 4, 3 * (2 + 4), 3)
    lacking = Asked(np.zeros(33, int), np.arange(33))
    assert rows_at(starts[:, :2], lacking).asked_sectors == 3 * 3
    one.add_anywhere(None, (4,), 2, np.ones(3, bool))
    assert one.asked_sectors is None and one.sectors == 12


def test_words_of_configurations_are_equal_whatever_the_l1_is_asked_for():
    assert Way(words=1, l1_bytes=32) == Way(words=1, l1_bytes=64) != Way(words=2, l1_bytes=64)


@pytest.mark.parametrize("touched, l1, split, scalars, told", [
    (1000, 1049, True, {"n": 9}, None), (1000, None, True, {"n": 9}, None), (0, 0, True, {}, None),
    (1000, 4000, True, {"n": 9000, "one": 1, "m": 64}, "multiples of 16; found n = 9000"),
    (1000, 4000, True, {"n": 64}, "hides from Triton"), (1000, 4000, False, {"n": 9}, "each warp"),
])  # fmt: skip
def test_a_note_says_how_often_and_why(touched, l1, split, scalars, told):
    ways = {"X": {"reads": Way(words=9, sector_bytes=touched, l1_bytes=l1)}, "Y": {"reads": Way(l1_bytes=0)}}
    notes = asked_again(ways, split, [4] * 9, scalars)
    assert len(notes) == (told is not None)
    if told:
        assert notes[0].startswith("the L1 is asked for 3.91 KiB of sectors, those of X 4 times: ") and told in notes[0]


@pytest.mark.parametrize("widths, scalars, told", [
    ([2] * 96, {"M": 1000, "N": 3000, "stride": 1, "K": 64}, True), ([2] * 96, {"M": 4096, "stride": 1}, False),
    ([2] * 7, {"M": 1000}, False), ([2] * 9 + [16] * 10, {"M": 1000}, False), ([4] * 96, {"M": 1000}, False),
    ([], {"M": 1000}, False),
])  # fmt: skip
def test_single_words_are_told_with_the_sizes_that_are_the_reason(widths, scalars, told):
    notes = asked_again({}, False, widths, scalars)
    assert len(notes) == told
    if told:
        assert notes[0].startswith("96 of 96 load instructions are of single words")
        assert notes[0].endswith("multiples of 16; found M = 1000, N = 3000")


# ---------------------------------------------------------------- kernels, as the installed Triton compiles them


def kernel(text, name, tmp_path):
    pytest.importorskip("triton")
    from iosim.kernels.read.kernel_file import kernel_of

    (tmp_path / f"{name}.py").write_text(text)
    return kernel_of(str(tmp_path / f"{name}.py"), name)


def times(found, name):
    """How often the L1 is asked for a sector of a tensor."""
    row = found.tensors[name]
    return row["l1_read_bytes"] / row["read_sector_bytes"]


SUM = """
import triton, triton.language as tl
@triton.jit
def total(X, Y, n, BLOCK: tl.constexpr):
    sums = tl.zeros((BLOCK,), tl.float32)
    for k in range(0, n, BLOCK):
        at = k + tl.arange(0, BLOCK)
        sums += tl.load(X + at, mask=at < n, other=0.0)
    tl.store(Y, tl.sum(sums))
"""


@pytest.mark.parametrize("n, often", [(9000, 4), (9008, 1)])
def test_a_sum_of_words_of_four_bytes(n, often, tmp_path):
    """The mask of a size that is no multiple of 16 splits loads of 16 bytes into four."""
    total = kernel(SUM, "total", tmp_path)
    X, Y = tensor("fp32", (n,)), tensor("fp32", (1,))
    found = explain(total, (1,), X=X, Y=Y, n=n, BLOCK=1024)
    assert times(found, "X") == pytest.approx(often, rel=0.01) and found.tensors["Y"]["l1_read_bytes"] == 0
    assert [note.endswith("found n = 9000") for note in found.warnings] == [True] * (often > 1)
    (found,) = [explain(total, (1,), X=X, Y=Y, n=n, BLOCK=1024, resources=False)]
    assert found.tensors["X"]["l1_read_bytes"] is None and found.warnings == []


def test_the_compiler_splits_loads_of_a_ragged_matrix_product():
    """Rows of 48 words begin at multiples of 16 words, rows of 50 words do not: each lane loads one word, of 32 that lie
    side by side. Where lanes go down the columns of B each asks for a sector of its own."""
    pytest.importorskip("triton")
    import triton_kernels

    def found(size):
        a, b, c = tensor("fp16", (64, size)), tensor("fp16", (size, size)), tensor("fp16", (64, size))
        sizes = {"M": 64, "N": size, "K": size, "BM": 64, "BN": 64, "BK": 32, "GROUP": 1}
        return explain(triton_kernels.matmul, (1,), A=a, B=b, C=c, **sizes)

    whole, ragged = found(48), found(50)
    assert min(whole.resources.load_widths) >= 4 and whole.warnings == []
    assert {*ragged.resources.load_widths} == {2} and ragged.warnings[-1].endswith("found N = 50, K = 50")
    assert times(whole, "A") == times(whole, "B") == times(ragged, "A") == 1 < times(ragged, "B")


GATED = """
import triton, triton.language as tl
@triton.jit
def gated(X, G, Y, D: tl.constexpr, B: tl.constexpr):
    at = (tl.program_id(0) * B + tl.arange(0, B))[:, None] * D + tl.arange(0, D)[None]
    x = tl.load(X + at)
    tl.store(Y + at, (x * tl.exp(tl.load(G + at))).to(x.dtype))
"""


@pytest.mark.parametrize("dtype, often", [("bf16", 2), ("fp32", 1)])
def test_wide_words_beside_narrow_ones_are_loaded_in_halves(dtype, often, tmp_path):
    """A layout has 8 words of a thread side by side for the sake of the 16-bit tensor: 32 bytes of the gates. With a
    layout of their own they are 16 bytes."""
    gated = kernel(GATED, "gated", tmp_path)
    X, G = tensor(dtype, (512, 64)), tensor("fp32", (512, 64))
    found = explain(gated, (8,), X=X, G=G, Y=X, D=64, B=64)
    assert (times(found, "X"), times(found, "G")) == (1, often)
    assert ["at most 16 bytes at a time" in note for note in found.warnings] == [True] * (often > 1)


SLICED = VALIDATION / "kernels" / "scripts" / "layout_kernels.py"


def test_a_vector_for_the_columns_of_a_product_is_loaded_by_every_warp(tmp_path):
    """Gates of 16 heads lie 64 bytes apart, so that each word is a sector. Triton loads them in the layout of the product,
    by rows and by columns. Its 8 warps lie below each other, where 4 hold all 64 rows, or as 4 x 2: two of them hold a
    row, and 8 or 4 a column."""
    decayed = kernel(SLICED.read_text(), "decayed", tmp_path)
    tensors = {"Q": ("fp16", (512, 64)), "K": ("fp16", (512, 64)), "G": ("fp32", (512, 16)), "A": ("fp32", (512, 64))}
    given = {name: tensor(*of) for name, of in tensors.items()} | {"H": 16, "D": 64, "B": 64}
    found = explain(decayed, (8,), num_warps=8, target="sm_90", **given)
    assert times(found, "G") in (2 + 8, 2 + 4) and times(found, "Q") == times(found, "K") == 1
    few = explain(decayed, (8,), num_warps=4, target="sm_90", **given)
    assert times(few, "G") == 1 + 4 and few.tensors["G"]["reads"] == found.tensors["G"]["reads"]
