"""Masks: counts in closed form against brute force over tokens, errors of the grammar, files, known densities."""

import io
import random
import tracemalloc
import zipfile
from types import SimpleNamespace

import pytest
from random_masks import random_atom

from iosim.core.problem import DENSE
from iosim.core.shapes import Tile
from iosim.errors import InputError
from iosim.masks import files as masks_files
from iosim.masks.closed_form import floor_sum
from iosim.masks.intervals import tile_counts
from iosim.masks.mask import Summed, axis, formula_density, parse
from iosim.masks.strips import closed_counts
from iosim.masks.text import parse_expression

np = pytest.importorskip("numpy")


def bind(text, N, Nk, Br, Bc, skips=True):
    return parse(text).bind(SimpleNamespace(N=N, Nk=Nk), SimpleNamespace(rows_q=Br, rows_k=Bc), skips)


def expression(rng, suffix, depth=2):
    """A random expression. The suffix is '' for tokens, 'b' for tiles, None for a mix."""
    if depth == 0 or rng.random() < 0.3:
        b = rng.choice(("", "b")) if suffix is None else suffix
        return random_atom(rng, 5 if b else 20, b)
    left, right = expression(rng, suffix, depth - 1), expression(rng, suffix, depth - 1)
    return rng.choice((f"({left}|{right})", f"({left}&{right})", f"~({left}|{right})", f"~{left}"))


@pytest.mark.parametrize("masks", [200, pytest.param(3000, marks=pytest.mark.long)])
@pytest.mark.parametrize("suffix, most", [("", 45), ("b", 45), (None, 45), ("", 4), ("b", 2)])
def test_counts_equal_brute_force(suffix, most, masks):
    rng = random.Random(f"{suffix}{most}")
    for _ in range(masks):
        text = expression(rng, suffix)
        sizes = rng.randint(1, 40), rng.randint(1, 40), rng.randint(1, most), rng.randint(1, most)
        bound = bind(f"({text})" + rng.choice(("", "&dense")), *sizes)
        assert bound._counts == bound.table_counts(bound.table), (text, sizes)
        visible = int(bound.visible(0, bound.N, 0, bound.Nk).sum())
        assert bound.visible_pairs() == visible, (text, sizes)


def test_sums_that_all_tilings_share_equal_brute_force():
    rng = random.Random(9)
    for _ in range(60):
        N, Nk = rng.randint(1, 40), rng.randint(1, 40)
        mask = bind(f"({expression(rng, '')})", N, Nk, 1, 1).mask
        for _ in range(5):
            bound = bind(mask.text, N, Nk, rng.randint(1, 45), rng.randint(1, 45))
            table = Summed.of(mask, N, Nk).table(bound.rows_q, bound.rows_k)
            assert (table == bound.table).all(), (bound, N, Nk, bound.rows_q, bound.rows_k)
    assert Summed.of(parse("causal:b"), 9, 9) is None and Summed.of(parse("causal"), 2**14, 2**14) is None


def lengths(rng, N):
    """Random lengths of documents that have N tokens in all."""
    cuts = sorted(rng.sample(range(1, N), min(N - 1, rng.randint(0, 6))))
    return ",".join(str(b - a) for a, b in zip([0, *cuts], [*cuts, N], strict=True))


@pytest.mark.parametrize("masks", [200, pytest.param(1200, marks=pytest.mark.long)])
def test_documents_equal_brute_force(masks):
    rng = random.Random(4)
    for _ in range(masks):
        N = rng.randint(1, 60)
        text = rng.choice(("{}", "{}&causal", "{}&({})", "{}|({})", "~({}&{})")).format(
            f"documents:{lengths(rng, N)}", expression(rng, "", 1)
        )
        bound = bind(text, N, N, rng.randint(1, 20), rng.randint(1, 20))
        assert bound._counts == bound.table_counts(bound.table), (text, N, bound.rows_q, bound.rows_k)


def test_masks_of_positions_mean_what_they_say():
    shown = {
        "sink:2": ["110000"] * 6,
        "global:2": ["111111", "111111", *["110000"] * 4],
        "chunk:4": [*["111100"] * 4, *["000011"] * 2],
        "documents:1,3,2": ["100000", *["011100"] * 3, *["000011"] * 2],
        "dilated:1:3": ["100100", "010010", "001001", "100100", "010010", "001001"],
        "causal&(window:1|sink:1)": ["100000", "110000", "111000", "101100", "100110", "100011"],
    }
    for text, rows in shown.items():
        seen = bind(text, 6, 6, 2, 2).visible(0, 6, 0, 6)
        assert ["".join(map(str, row.astype(int))) for row in seen] == rows, text


@pytest.mark.parametrize("masks", [150, pytest.param(2000, marks=pytest.mark.long)])
def test_the_last_queries_of_a_sequence_see_what_they_see_alone(masks):
    """The queries behind cached tokens are the last rows of the mask over all tokens, under every atom."""
    rng = random.Random(53)
    for _ in range(masks):
        Nk = rng.randint(2, 40)
        N = rng.randint(1, Nk)
        text = f"({expression(rng, '')})" + rng.choice(("", f"&documents:{lengths(rng, Nk)}"))
        whole = bind(text, Nk, Nk, 1, 1).visible(0, Nk, 0, Nk)
        bound = bind(text, N, Nk, rng.randint(1, 9), rng.randint(1, 9))
        assert (bound.visible(0, N, 0, Nk) == whole[Nk - N :]).all(), (text, N, Nk)
        assert bound._counts == bound.table_counts(bound.table), (text, N, Nk, bound.rows_q, bound.rows_k)
        assert bound.visible_pairs() == whole[Nk - N :].sum(), (text, N, Nk)


def test_positions_of_more_queries_than_keys():
    """The last query stands at the last key, so the first ones stand before the first key."""
    see = {
        "causal": lambda x, y: y <= x,
        "window:2": lambda x, y: abs(x - y) <= 2,
        "global:1": lambda x, y: x < 1 or y < 1,
        "strided:3": lambda x, y: (x - y) % 3 == 0,
        "chunk:3": lambda x, y: x // 3 == y // 3,
    }
    for text, sees in see.items():
        for N, Nk in ((7, 4), (9, 1), (5, 5), (3, 8)):
            expected = [[sees(r + Nk - N, y) for y in range(Nk)] for r in range(N)]
            assert bind(text, N, Nk, 2, 3).visible(0, N, 0, Nk).tolist() == expected, (text, N, Nk)


def test_large_masks_of_positions():
    """The causal part of each chunk, and the sink for all queries behind the first chunk."""
    N, C = 2**24, 2**16
    found = bind(f"causal&(chunk:{C}|sink:4)", N, N, 64, 64).visible_pairs()
    assert found == N // C * (C * (C + 1) // 2) + 4 * (N - C)
    assert bind(f"chunk:{C}", N, N, 64, 128).active_tiles == N // C * (C // 64) * (C // 128)


def test_documents_have_all_tokens():
    with pytest.raises(InputError, match=r"found '?5 tokens in all'?; allowed: lengths that add up to Nk = 6"):
        bind("causal&documents:3,2", 6, 6, 2, 2)
    with pytest.raises(InputError, match="Nk = 7"):
        bind("documents:3,3", 6, 7, 2, 2)
    with pytest.raises(InputError, match="at least N = 7"):
        bind("documents:3,3", 7, 6, 2, 2)


@pytest.mark.parametrize("op", ["", "~"])
def test_strided_periods_equal_brute_force(op):
    rng = random.Random(7)
    for _ in range(300):
        text = f"{op}strided:{rng.randint(1, 9)}" + rng.choice(("", "|global:7", "&~global:11", "|strided:3"))
        sizes = rng.randint(60, 120), rng.randint(60, 120), rng.randint(1, 4), rng.randint(1, 4)
        bound = bind(text, *sizes)
        assert bound._counts == bound.table_counts(bound.table), (text, sizes)


def block_mask(path, shape, block, rng, full=True, heads=1):
    """A random block mask in a file, as FlexAttention holds it, and its matrix of blocks."""
    partial, whole = rng.random(shape) < 0.4, rng.random(shape) < 0.2 * full
    arrays = {"BLOCK_SIZE": np.array(block)}
    for name, table in (("kv", partial & ~whole), ("full_kv", whole)):
        order = np.argsort(~table, axis=1, kind="stable")  # those that count come first
        arrays[f"{name}_num_blocks"] = np.broadcast_to(table.sum(axis=1), (1, heads, shape[0]))
        arrays[f"{name}_indices"] = np.broadcast_to(order, (1, heads, *shape))
    np.savez(path, **{name: array for name, array in arrays.items() if full or not name.startswith("full")})
    return partial | whole


def test_block_masks(tmp_path):
    rng, path = np.random.default_rng(8), tmp_path / "blocks.npz"
    for turn in range(30):
        N, Nk, height, width = (int(n) for n in rng.integers(1, [50, 50, 9, 9]))
        blocks = block_mask(path, (-(-N // height), -(-Nk // width)), (height, width), rng, turn % 2 == 0, turn % 3 + 1)
        mask = parse(f"file:{path}")
        bound = mask.bind(SimpleNamespace(N=N, Nk=Nk), SimpleNamespace(rows_q=turn % 5 + 1, rows_k=turn % 7 + 1))
        seen = blocks.repeat(height, axis=0).repeat(width, axis=1)[:N, :Nk]
        assert (bound.visible(0, N, 0, Nk) == seen).all() and not mask.tile_units
        assert bound._counts == bound.table_counts(bound.table)
        again = bind(f"file:{path}&causal", N, Nk, 3, 4)
        assert again._counts == again.table_counts(again.table)
        path.unlink()


def test_block_masks_without_their_fields(tmp_path):
    path = tmp_path / "blocks.npz"
    good = {"kv_num_blocks": np.array([[[1, 2]]]), "kv_indices": np.array([[[[0, 1], [0, 1]]]])}
    np.savez(path, **good)
    assert bind(f"file:{path}", 256, 200, 64, 64).active_tiles == 2 * 2 + 2 * 4  # blocks of 128
    with pytest.raises(InputError, match=r"found \(2, 2\); allowed: \(3, 2\), for blocks of 128x128 over 300 x 200"):
        bind(f"file:{path}", 300, 200, 64, 64)
    np.savez(path, **good, seq_lengths=np.array([200, 300]))
    assert bind(f"file:{path}", 200, 300, 64, 64).Tc == 5
    two_heads = {"kv_num_blocks": np.array([[[1, 2], [2, 2]]]), "kv_indices": np.zeros((1, 2, 2, 2), int)}
    for bad in ({"kv_indices": good["kv_indices"]}, two_heads, {**good, "kv_indices": -good["kv_indices"]},
                {**good, "BLOCK_SIZE": np.array(0)}, {**good, "kv_indices": np.array([[[[0, 7], [0, 7]]]])}):  # fmt: skip
        np.savez(path, **bad)
        with pytest.raises(InputError):
            parse(f"file:{path}")


@pytest.mark.parametrize("masks", [120, pytest.param(800, marks=pytest.mark.long)])
@pytest.mark.parametrize("turn", [False, True])
def test_lines_that_come_in_turns_equal_brute_force(turn, masks):
    """There are few keys, so most rows see none. `global` adds rows and bands that are not periodic."""
    rng = random.Random(11)
    for _ in range(masks):
        text = f"strided:{rng.randint(5, 30)}"
        text += rng.choice(
            ("", "|global:7", "&~global:11", f"|strided:{rng.randint(5, 20)}", "&~strided:10", "|global:1")
        )
        sizes = [rng.randint(150, 400), rng.randint(1, 14), rng.randint(1, 3), rng.randint(1, 3)]
        sizes = [sizes[k] for k in (1, 0, 3, 2)] if turn else sizes
        bound = bind(text, *sizes)
        assert bound._counts == bound.table_counts(bound.table), (text, sizes)


def test_lines_in_turns_are_counted_at_large_sizes():
    import iosim as package

    N, problem = 2**20, {"d": 64, "tiles": "1x1", "schedules": ["block-sparse-q"]}
    found = package.count(N=N, Nk=10, mask="strided:64", **problem)["block-sparse-q"]
    assert found.tensors["Q"]["reads"] == N * 64 * 10 // 64 == found.tensors["K"]["reads"]
    both = package.count(N=N, Nk=10, mask="strided:64|sink:5", **problem)["block-sparse-q"]
    assert both.tensors["Q"]["reads"] == N * 64 and both.tensors["K"]["reads"] == 64 * (N * 5 + N // 64 * 5)


CLOSED = ["causal", "window:0", "window:7", "window:100&causal", "window:3&window:900", "global:0", "global:5",
          "global:200", "causal:b", "window:1b&causal:b", "global:3b", "dense&dense"]  # fmt: skip


@pytest.mark.parametrize("text", CLOSED)
@pytest.mark.parametrize("kind", [np.int64, object])
def test_arrays_count_like_numbers(text, kind):
    sizes = np.random.default_rng(len(text)).integers(1, [[300], [300], [70], [70]], (4, 400))
    bound = bind(text, *sizes.astype(kind))
    for k, numbers in enumerate(sizes.T.tolist()):
        one = bind(text, *numbers)
        if k < 50:
            assert one._counts == one.table_counts(one.table), numbers
        for part, alone in zip(bound._counts, one._counts, strict=True):
            assert {name: np.broadcast_to(found, 400)[k] for name, found in part.items()} == alone, numbers


@pytest.mark.parametrize("text", CLOSED)
def test_closed_forms_equal_the_intervals_of_rows(text):
    """Both derivations have only the sum of clamped floors in common. The sizes are too large for a table."""
    rng, expr = random.Random(text), parse_expression(text)
    for _ in range(200):
        N, Nk, Br, Bc = (rng.randint(1, 2 ** rng.randint(1, most)) for most in (40, 40, 20, 20))
        rows, cols = axis(N, Br, "tokens"), axis(Nk, Bc, "tokens")
        assert closed_counts(expr, rows, cols, Nk - N) == tile_counts(expr, rows, cols, Nk - N), (N, Nk, Br, Bc)


def test_floor_sums_equal_brute_force():
    rng = np.random.default_rng(5)
    n, m, a, b = rng.integers([[0], [1], [-40], [-400]], [[30], [40], [40], [400]], (4, 500))
    sums = [sum((a * i + b) // m for i in range(n)) for n, m, a, b in zip(n, m, a, b, strict=True)]
    assert floor_sum(n, m, a, b).tolist() == sums
    assert [floor_sum(*map(int, row)) for row in zip(n, m, a, b, strict=True)] == sums


def test_large_causal():
    N = 2**24
    bound = bind("causal", N, N, 128, 64)
    rows = N // 128
    # Row tile i ends at token 128 i + 127, which sees key tiles 0..2 i + 1.
    assert bound.active_tiles == sum(2 * i + 2 for i in range(rows)) == rows * (rows + 1)
    assert (bound.rows(False), bound.cols(False), bound.rows(True)) == (rows, 2 * rows, 0)
    assert bound.visible_pairs() == N * (N + 1) // 2


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "casual",
        "causal:",
        "causal:3",
        "dense:2",
        "window",
        "window:",
        "window:-1",
        "window:x",
        "window:1bb",
        "strided:0",
        "global:1.5",
        f"window:{2**49}",
        "(causal",
        "causal)",
        "causal causal",
        "causal&",
        "|causal",
        "~",
        "()",
        "file:",
        "file:/no/such",
        "file:\0",
        "(" * 51 + "causal" + ")" * 51,
        "~" * 2001,
        "window:" + "9" * 1900,
        "file:/",
        "file:/dev/zero",
        "sink",
        "chunk:0",
        "documents:",
        "documents:3,,4",
        "documents:0,3",
        "dilated:3",
        "dilated:3:0",
        "dilated:2b:3",
        "documents:3, 4",
        "\u0663",
    ],
)
def test_errors(text):
    with pytest.raises(InputError):
        parse(text)


@pytest.mark.parametrize("text, hint", [
    ("causal,window:512", "write causal&window:512 (both) or causal|window:512 (either)"),
    ("window=512", "write window:512"), ("causal,window=5", "write causal&window:5 (both)"), ("casual,window:5", "did you mean"),
])  # fmt: skip
def test_masks_with_other_signs_between_them(text, hint):
    with pytest.raises(InputError) as caught:
        parse(text)
    assert hint in str(caught.value)


def test_a_file_of_tiles_names_its_tiles(tmp_path):
    """If each entry stands for as many tokens; 5 entries do not divide 64 tokens."""
    for size, hint in ((4, "its tiles are those of --tiles 16x16"), (5, "")):
        np.save(tmp_path / "m.npy", np.tri(size, dtype=bool))
        with pytest.raises(InputError) as caught:
            bind(f"file:{tmp_path / 'm.npy'}", 64, 64, 8, 8)
        assert caught.value.hint == hint


def test_suggestion_and_text():
    with pytest.raises(InputError, match="did you mean 'causal'"):
        parse("casual")
    assert parse("dense") is DENSE
    assert str(parse("causal & window:2b")) == "causal & window:2b"
    assert parse("causal|window:2b").tile_units and not parse("causal").tile_units
    assert bind("&".join(["causal"] * 280), 8, 8, 2, 2).active_tiles == 10
    with pytest.raises(TypeError, match="not to arrays"):
        bind("causal|window:2b", np.array([4, 8]), 4, 2, 2)


def test_precedence():
    a, b = bind("causal|window:1&~strided:2", 9, 9, 2, 2), bind("causal|(window:1&(~strided:2))", 9, 9, 2, 2)
    assert (a.visible(0, 9, 0, 9) == b.visible(0, 9, 0, 9)).all()


def test_files(tmp_path):
    text, array = tmp_path / "m.txt", tmp_path / "m.npy"
    text.write_text("1,0\n0 1\n")
    np.save(array, np.eye(6, dtype=int)[None, None])  # as BlockMask.to_dense() returns it
    assert bind(f"file:{text}", 5, 6, 3, 3).table.tolist() == [[True, False], [False, True]]
    assert bind(f"file:{text}", 5, 6, 3, 3).visible_pairs() == 15
    bound = bind(f"file:{array}", 6, 6, 2, 3)
    assert bound.active_tiles == 4
    part = bound.part(SimpleNamespace(index=1, start=2, size=2), SimpleNamespace(index=0, start=0, size=3)).array()
    assert part.tolist() == [[False, False, True], [False, False, False]]
    with pytest.raises(InputError, match=r"found \(6, 6\); allowed: tile shape \(4, 3\) or token shape \(8, 9\)"):
        bind(f"file:{array}", 8, 9, 2, 3)
    for bad in ("1 2\n", "10\n1\n", "", "x"):
        text.write_text(bad)
        with pytest.raises(InputError):
            parse(f"file:{text}")
    for junk in (b"", b"\x93NUMPY", b"\x93NUMPY\x01\x00\x10\x00{'descr': '<i8'}\n"):
        array.write_bytes(junk)
        with pytest.raises(InputError):
            parse(f"file:{array}")


def test_lines_and_densities():
    bound = bind("causal:b", 8, 8, 2, 2)
    assert formula_density(bound) == ("(T+1)/(2T)", 5 / 8) and bound.active_tiles == 10
    assert formula_density(bind("window:1b", 8, 8, 2, 2))[1] == 3 / 4
    assert formula_density(bind("window:1", 8, 8, 2, 2)) is None
    first, last = Tile(8, 2, 0, 0), Tile(8, 2, 6, 3)
    assert bound.column(first).active(last) and not bound.row(first).active(last)
    assert bound.columns.active(last) and bound.columns.any and bound.row(first).any
    hidden = bind("causal:b", 8, 8, 2, 2, skips=False)
    assert hidden.columns is hidden.row(first) is hidden.column(first) is None


def written(path, shape, dtype, content=b"", members=1):
    """A .npy, or an archive of some, whose header has this shape."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": dtype, "fortran_order": False, "shape": shape})
    if path.suffix == ".npy":
        path.write_bytes(header.getvalue() + content)
        return
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(members):
            archive.writestr(f"array{number}.npy", header.getvalue() + content)


def test_a_file_takes_no_memory_for_what_it_lacks(tmp_path, monkeypatch):
    """Its header may say anything, and an archive may be a thousand times as large as its file."""
    monkeypatch.setattr(masks_files, "LARGEST_FILE", 10**6)
    matrix, blocks, bomb = tmp_path / "matrix.npy", tmp_path / "blocks.npz", tmp_path / "bomb.npz"
    written(matrix, (10**6, 10**6), "|b1")
    written(blocks, (10**13,), "<i8", b"\0" * 80)
    written(bomb, (10**5, 8), "|b1", b"\0" * (8 * 10**5), members=2)
    tracemalloc.start()
    for path, why in (
        (matrix, "greater than file size"),
        (blocks, "is shorter than"),
        (bomb, "more than 1000000 bytes"),
    ):
        with pytest.raises(InputError, match=why):
            parse(f"file:{path}")
    assert tracemalloc.get_traced_memory()[1] < 10**7
    tracemalloc.stop()
