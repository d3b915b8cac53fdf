"""Masks that are functions of a file: they equal iosim's own predicates, and each bad one has one message."""

import json
import pickle
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest
from paths import ROOT, TESTS

from iosim.core.problem import Attention
from iosim.core.tiling import Tiling
from iosim.errors import InputError, MissingError
from iosim.masks import functions, parse_mask, reach
from iosim.masks import mask as mask_module
from iosim.masks.user_file import imports_torch
from iosim.masks.visible import visible

FILE = TESTS / "helpers" / "mask_mods.py"
TORCH = TESTS / "helpers" / "mask_mods_torch.py"
N = 48
DOCUMENTS = "documents:10,7,23,8"

SAME = {
    "noop": "dense",
    "causal": "causal",
    "sliding_window(9)": "causal&window:9",
    "prefix_lm(11)": "causal|sink:11",
    "sinks(6, first=4)": "causal&(window:6|sink:4)",
    "dilated_window(3, 4)": "dilated:3:4",
    "document": DOCUMENTS,
    "in_documents(causal)": f"causal&{DOCUMENTS}",
    "in_documents(sliding_window(2))": f"causal&window:2&{DOCUMENTS}",
    "chunks(7)": "chunk:7",
    "global_tokens(5)": "global:5",
}
SAME_IN_TORCH = {
    "causal": "causal", "document": DOCUMENTS, "window(5)": "window:5", "both": f"causal&{DOCUMENTS}",
    "either": f"{DOCUMENTS}|window:3", "noop": "dense",
}  # fmt: skip


def mask(name, file=FILE):
    return parse_mask(f"py:{file}:{name}")


def seen(found, N=N, Br=5, Bc=8):
    """What the queries see of the keys."""
    p = Attention(N, 4, mask=found)
    return found.bind(p, Tiling(Br, Bc)).visible(0, N, 0, N)


def own(text):
    """What iosim's own predicate sees; `dense` is one of several here."""
    return seen(parse_mask(f"dense|{text}" if text == "dense" else text))


@pytest.mark.parametrize("name, text", SAME.items())
def test_a_function_equals_the_predicate(name, text, ask):
    assert np.array_equal(seen(mask(name)), own(text))
    rows = [
        ask("count", "--N", N, "--d", 4, "--tiles", "5x8", "--schedule", "flash2", "--mask", m)["results"][0]
        for m in (f"py:{FILE}:{name}", text)
    ]
    for row in rows:
        row.pop("mask", None)
    assert rows[0] == rows[1]


@pytest.mark.parametrize(
    "text", ["py:{}:causal&py:{}:document", "py:{}:in_documents(causal)", "causal&(py:{}:document)"]
)
def test_functions_are_joined_as_other_predicates(text):
    wanted = own(f"causal&{DOCUMENTS}")
    assert np.array_equal(seen(parse_mask(text.format(FILE, FILE))), wanted)
    assert np.array_equal(seen(parse_mask(f"~({text.format(FILE, FILE)})")), ~wanted)


@pytest.mark.parametrize("size, step", [(3, 1), (5, 1), (3, 2)])
def test_a_neighborhood_equals_loops_over_pixels(size, step):
    side, half = 8, size // 2 * step
    found = seen(mask(f"neighborhood({size}, {step})"), side**2)

    def near(q, k):
        return abs(min(max(q, half), side - 1 - half) - k) <= half and q % step == k % step

    for q in range(side**2):
        for k in range(side**2):
            assert found[q, k] == (near(q // side, k // side) and near(q % side, k % side))


def test_every_reader_of_a_mask_takes_it():
    """Bits of a generated kernel, a predicate of FlexAttention, and the counts of all tilings."""
    found = mask("sinks(6, first=4)")
    p = Attention(N, 4, mask=found)
    bound = found.bind(p, Tiling(5, 8))
    flex = pytest.importorskip("iosim.gpu.flex")
    tables = pytest.importorskip("iosim.gpu.cuda.mask_tables").Tables(bound)
    assert tables.visible() == "bit(file0, x * 48LL + y)"
    bits = np.unpackbits(tables.words["file0"].view(np.uint8), bitorder="little")[: N * N]
    assert np.array_equal(bits.reshape(N, N), seen(found))
    x, y = np.arange(N)[:, None], np.arange(N)[None, :]
    assert np.array_equal(flex.predicate(found.expr, 0)(x, y), seen(found))
    assert bound._counts == bound.table_counts(bound.table) and bound.visible_pairs() == seen(found).sum()


def test_it_stays_the_same_while_the_file_does(tmp_path):
    """Equal texts are one mask, another text is another; and it travels to other processes with its text."""
    path = tmp_path / "own.py"
    path.write_text("def f(b, h, q, k):\n    return q >= k\n")
    first = mask("f", path)
    assert first == mask("f", path)
    sent = pickle.dumps(first)
    path.write_text("def f(b, h, q, k):\n    return q <= k\n")
    assert first != mask("f", path) and np.array_equal(seen(mask("f", path)), seen(first).T)
    assert pickle.loads(sent) == first
    functions.of_text.cache_clear()
    assert np.array_equal(seen(pickle.loads(sent)), seen(first))


def test_a_module_beside_the_file_is_read_again(tmp_path):
    """The file imports its window from a module, whose text changes; so does the line that a fault quotes."""
    file, beside = tmp_path / "mods.py", tmp_path / "beside.py"
    file.write_text("from beside import W\n\ndef near(b, h, q, k):\n    return abs(q - k) <= W\n")
    for W in (1, 22):
        beside.write_text(f"W = {W}\n")
        found = visible(parse_mask(f"py:{file}:near"), 64, 64)
        assert found.pairs == visible(parse_mask(f"window:{W}"), 64, 64).pairs, W
    for wrong in ("old", "newer"):
        file.write_text(f"def near(b, h, q, k):\n    return {wrong}\n")
        with pytest.raises(InputError, match=f"line 2 `return {wrong}`"):
            visible(parse_mask(f"py:{file}:near"), 8, 8)


def test_a_sweep_knows_the_content_of_the_file(tmp_path, iosim):
    """That of the module beside it, too."""
    (tmp_path / "beside.py").write_text("W = 4\n")
    (tmp_path / "own.py").write_text("from beside import W\ndef f(b, h, q, k):\n    return (q >= k) & (q - k <= W)\n")
    line = ["sweep", "--N", 64, "--d", 8, "--M", "8KB", "--mask", f"py:{tmp_path}/own.py:f", "-o", f"{tmp_path}/out/"]
    assert iosim(*line).exit_code == 0
    assert iosim(*line, "--resume").exit_code == 0
    (tmp_path / "beside.py").write_text("W = 5\n")
    refused = iosim(*line, "--resume")
    assert refused.exit_code == 2 and "mask" in refused.stderr


BAD = {
    "head_window": ("found 'a mask that reads h'", "return head_window(0, 0, q_idx, kv_idx)"),
    "table_of_heads": ("found 'a mask that reads h'", ""),
    "two_batches": ("found 'a mask that reads b'", ""),
    "sliding_window": ("found 'a function of (size)'", "call it, as sliding_window(size)"),
    "alibi": (
        "found 'a function of (score, b, h, q_idx, kv_idx)'",
        "score_mod(score, b, h, q_idx, kv_idx) does, which hides",
    ),
    "sinks(1)": ("TypeError", ""),
    "distance": ("found 'values of type int64'", ""),
    "broken": ("IndexError", "line 97 `return DOCUMENT[q_idx + 48] == 0`"),
    "casual": ("found 'casual'", "did you mean 'causal'?"),
    "HEADS": ("found 'a value of type int'", ""),
    "": ("py:FILE.py:NAME", ""),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_function_has_one_message(name, iosim):
    result = iosim("plot", "--picture", "mask", "--mask", f"py:{FILE}:{name}", "--N", N)
    assert result.exit_code == 2 and result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert all(part in line for part in BAD[name]), line


@pytest.mark.parametrize("text, code, part", [
    ("import sys\nsys.exit(0)\n", 2, "SystemExit: 0"), ("def f(:\n", 2, "line 1 `def f(:`"), ("1 / 0\n", 2, "line 1 `1 / 0`"),
    ("import no_such_package\n", 3, "no_such_package"), ("", 2, "it has no function"),
])  # fmt: skip
def test_a_bad_file_has_one_message(text, code, part, tmp_path, iosim):
    (tmp_path / "own.py").write_text(text)
    result = iosim("plot", "--picture", "mask", "--mask", f"py:{tmp_path}/own.py:f", "--N", N)
    assert result.exit_code == code and part in result.stderr and len(result.stderr.splitlines()) == 1


def test_what_a_file_prints_is_no_answer(tmp_path, iosim):
    (tmp_path / "own.py").write_text("print('read')\ndef f(b, h, q, k):\n    print('asked')\n    return q >= k\n")
    result = iosim("plot", "--picture", "mask", "--mask", f"py:{tmp_path}/own.py:f", "--N", N, "--json")
    assert json.loads(result.stdout)["visible_pairs"] == N * (N + 1) // 2
    assert "read" in result.stderr and "asked" in result.stderr


def test_too_many_pairs_have_one_message(iosim):
    result = iosim("count", "--N", 2**17, "--d", 64, "--tiles", "128x128", "--mask", f"py:{FILE}:causal")
    assert result.exit_code == 2 and "at most 4294967296 pairs of tokens" in result.stderr


# ---------------------------------------------------------------- PyTorch


@pytest.mark.skipif(find_spec("torch") is not None, reason="PyTorch is installed")
def test_a_file_that_imports_torch_needs_it(tmp_path):
    (tmp_path / "own.py").write_text("import torch\ndef f(b, h, q, k):\n    return q >= k\n")
    with pytest.raises(MissingError, match=r"No module named 'torch' .*line 1.* pip install torch"):
        mask("f", tmp_path / "own.py")


def test_only_imports_of_torch_count():
    assert imports_torch("def f():\n    import torch.nn as nn\n") and imports_torch("from torch import x")
    assert not imports_torch("from .torch import x\nimport torchvision\n'import torch'")


@pytest.mark.needs("torch")
@pytest.mark.parametrize("name, text", SAME_IN_TORCH.items())
def test_a_function_of_tensors_equals_the_predicate(name, text):
    assert np.array_equal(seen(mask(name, TORCH)), own(text))


@pytest.mark.needs("torch")
def test_methods_of_tensors_that_numpy_lacks(tmp_path):
    assert np.array_equal(seen(mask("neighborhood", TORCH), 64), seen(mask("neighborhood(3)"), 64))
    path = tmp_path / "own.py"
    path.write_text("def f(b, h, q, k):\n    return (q - k).clamp(0) == 0\n")  # without an import of torch
    assert np.array_equal(seen(mask("f", path)), own("~(causal)") | np.eye(N, dtype=bool))


@pytest.mark.needs("torch")
def test_a_function_of_tensors_may_not_read_the_head():
    with pytest.raises(InputError, match="reads h"):
        seen(mask("of_head", TORCH))


@pytest.mark.needs("torch")
def test_numpy_masks_import_no_torch():
    program = f"import sys\nfrom iosim import mask\nmask('py:{FILE}:causal', 48)\nassert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


@pytest.mark.parametrize("body, shape", [("(q >= k)[:, :1, None]", r"\(4, 1, 1\)"), ("(q >= k)[:, :2]", r"\(4, 2\)")])
def test_another_shape_is_refused(body, shape, tmp_path):
    (tmp_path / "m.py").write_text(f"def f(b, h, q, k):\n    return {body}\n")
    with pytest.raises(InputError, match=f"an array of shape {shape}.; allowed: .4, 9."):
        parse_mask(f"py:{tmp_path / 'm.py'}:f").bind(Attention(4, 1, 9), Tiling(2, 3)).visible(0, 4, 0, 9)


def test_sums_over_a_mask_are_what_each_row_tile_sees():
    """Whether any query of a tile sees a key, and how many cells of keys, from sums as from every pair."""
    for name, rows in (("sliding_window(9)", 5), ("document", 7), ("sinks(6, first=4)", 48)):
        p, mask = Attention(N, 4), parse_mask(f"py:{FILE}:{name}")
        bound, known = mask.bind(p, Tiling(rows, 3)), parse_mask(SAME[name]).bind(p, Tiling(rows, 3))
        assert np.array_equal(np.array([*bound.keys_seen()]), np.array([*bound._each_row_tile()]))
        assert bound.cells(12, 5) == known.cells(12, 5)


def test_sums_of_several_shapes_are_kept_together(monkeypatch):
    """Requests of a batch are asked about in turn; the oldest sums go first."""
    monkeypatch.setattr(mask_module, "MOST_SUMMED_PAIRS", 600)
    mask_module.SUMMED.clear()
    mask = parse_mask(f"py:{FILE}:causal")
    first, second = (mask_module.Summed.of(mask, n, n) for n in (20, 21))
    assert mask_module.Summed.of(mask, 20, 20) is first and mask_module.Summed.of(mask, 21, 21) is second
    assert mask_module.Summed.of(mask, 22, 22) is not None and mask_module.Summed.of(mask, 21, 21) is second
    assert mask_module.Summed.of(mask, 20, 20) is not first and mask_module.Summed.of(mask, 30, 30) is None


@pytest.mark.parametrize("most, refused", [(N * N, False), (N * N - 1, True)])
def test_no_more_pairs_are_looked_at_than_allowed(most, refused, monkeypatch):
    """By the table of active tiles, and by the ends of rows."""
    for module in (mask_module, reach):
        monkeypatch.setattr(module, "MOST_TABLE_PAIRS", most)
    bound = parse_mask(f"py:{FILE}:causal").bind(Attention(N, 4), Tiling(5, 3 + refused))
    for look in (lambda: bound.table, lambda: reach.ends_by_pair(bound)):
        if refused:
            with pytest.raises(InputError, match=f"at most {most} pairs"):
                look()
        else:
            look()
