"""Code of Inductor: its launches are read without running it, and counted by kernels, schedules and formulas."""

import csv
import json
import re
import shutil

import pytest
from paths import DOCS, TESTS, VALIDATION

import iosim
from iosim import Attention, Tiling
from iosim.errors import InputError
from iosim.hardware import load
from iosim.kernels.compiled.code import Buffer, Result, codes_of, read_code
from iosim.kernels.compiled.pytorch import may_split, own_tiles
from iosim.kernels.compiled.steps import Counter
from iosim.kernels.explain import Question
from iosim.masks import parse_mask

SAMPLE = TESTS / "data" / "inductor" / "forward.txt"
TEXT = SAMPLE.read_text()


@pytest.fixture
def code():
    return read_code(TEXT, "forward.txt")


def test_the_launches_are_read_in_order(code):
    assert code.name == "3_forward" and list(code.kernels) == ["triton_poi_fused_relu_0", "triton_per_fused_sum_1"]
    assert [(call.name, call.is_kernel) for call in code.calls] == [
        ("extern_kernels.addmm", False), ("triton_poi_fused_relu_0", True),
        ("aten._scaled_dot_product_flash_attention", False), ("extern_kernels.bmm", False),
        ("triton_per_fused_sum_1", True), ("aten.sort.stable", False),
    ]  # fmt: skip


def test_names_stand_for_buffers(code):
    """An input has the type that the benchmark's inputs have, a view its offset, and attention's outputs their types."""
    addmm, relu, attention, bmm, total, sort = code.calls
    assert addmm.arguments == (
        Buffer((384,), (1,), "fp16", source="primals_2"),
        Buffer((256, 128), (128, 1), "fp16", source="primals_1"),
        Buffer((128, 384), (1, 128), "fp16", source="primals_3"),
    )
    assert addmm.named == {"alpha": 1, "beta": 1, "out": Buffer((256, 384), (384, 1), "fp16")}
    assert relu.arguments == (Buffer((256, 384), (384, 1), "fp16"), 98304)
    assert attention.arguments[2] == Buffer((1, 2, 256, 64), (98304, 64, 384, 1), "fp16", 256)
    assert attention.arguments[3:] == (0.0, True) and attention.named == {"scale": 0.125}
    assert bmm.arguments[1] == Buffer((2, 64, 256), (64, 1, 128), "fp16")
    assert total.arguments[2:] == (Buffer((4096,), (1,), "fp32"), 4096, 1024)
    assert sort.arguments == (Buffer((4096,), (1,), "fp32"),) and Result("aten.sort.stable", 0).item == 0


@pytest.mark.parametrize("old, new, why", [
    ("def call(self", "def run(self", "no function call"),
    ("buf0 = empty_strided_cuda((256, 384)", "buf0 = empty_strided_cuda((s0, 384)", "s0, a size that is not known"),
    ("assert_size_stride(primals_1, (256, 128)", "assert_size_stride(primals_1, (s77, 128)", "s77, a size that is not known"),
    ("            del primals_3\n", "            if buf0:\n                pass\n", "line 84"),
    ("class Runner:", "def partition_0(args): pass\nclass Runner:", "graph in partitions"),
    ("args.clear()", "args.clear(", "was never closed"),
    ("extern_kernels.bmm(", "extern_kernels.bmm(lambda: 1, ", "lambda"),
])  # fmt: skip
def test_other_code_is_refused(old, new, why):
    assert old in TEXT
    with pytest.raises(InputError, match=re.escape(why)):
        read_code(TEXT.replace(old, new), "forward.txt")


def test_a_folder_is_searched(tmp_path):
    """Files called output_code.py win over others, in the order of the numbers in their names."""
    for number in (10, 2):
        folder = tmp_path / f"model__{number}_forward_{number}.0"
        folder.mkdir()
        shutil.copy(SAMPLE, folder / "output_code.py")
    (tmp_path / "other.py").write_text(TEXT)
    assert ["__2_" in place for _, place in codes_of(str(tmp_path))] == [True, False]
    shutil.rmtree(folder)
    shutil.rmtree(tmp_path / "model__10_forward_10.0")
    (tmp_path / "not_inductor.py").write_text("x = 1\n")
    assert [place for _, place in codes_of(str(tmp_path))] == [str(tmp_path / "other.py")]


@pytest.mark.parametrize("line, message", [
    (("--inductor", "/no/such"), "there is no such file or folder"),
    (("--inductor", TESTS / "masks"), "it has no code of Inductor"),
    (("--inductor", SAMPLE, "--kernel", "f"), "--inductor alone"),
    (("--inductor", SAMPLE, "--script", "x.py"), "--inductor alone"),
])  # fmt: skip
def test_bad_lines_have_one_message(iosim, line, message):
    answer = iosim("explain", *line)
    assert answer.exit_code == 2 and message in answer.stderr and len(answer.stderr.splitlines()) == 1


# ---------------------------------------------------------------- products and attention, by schedules


def steps(code, tmp_path, **options):
    """The launches that need neither Triton nor PyTorch, by their names."""
    counter = Counter(Question(**options), tmp_path)
    return {call.name: counter.step(code, call) for call in code.calls if not call.is_kernel}


def test_a_product_is_counted_by_tiles(code, tmp_path):
    """256x128x384 in fp16 with a bias: best 256x192, published 128x256, and each word once."""
    found = steps(code, tmp_path)["extern_kernels.addmm"]
    bias, A, B, C = 384 * 2, 256 * 128 * 2, 128 * 384 * 2, 256 * 384 * 2
    assert found.how == "matmul-tiled 256x192; published 128x256" and found.flops == 2 * 256 * 128 * 384
    assert found.moved.read_bytes == 2 * A + B + bias and found.moved.write_bytes == C
    assert found.published.total == 2 * A + 2 * B + C + bias
    assert found.once_bytes == A + B + C + bias
    batched = steps(code, tmp_path)["extern_kernels.bmm"]
    assert batched.once_bytes == 2 * 2 * (256 * 64 + 64 * 256 + 256 * 256) and batched.name.endswith(" 2x256x64x256")


def test_attention_is_counted_by_its_schedule(code, tmp_path):
    """Each of Q, K, V and O has 2 heads x 256 x 64 words; causal query tiles of 128 read 1.5 times K and V."""
    found = steps(code, tmp_path)["aten._scaled_dot_product_flash_attention"]
    words, lse = 2 * 256 * 64 * 2, 2 * 256 * 4
    assert found.once_bytes == 4 * words + lse and found.floor_bytes <= found.once_bytes
    assert found.how == "flash2 128x128, as PyTorch; published 128x128 of FlashAttention-2; best flash2 256x16"
    assert found.moved == found.published and found.moved.total == 5 * words + lse
    assert found.best.total == found.once_bytes
    assert found.name.endswith("1x2x256x64 causal")


FLASH = "aten._scaled_dot_product_flash_attention"
EFFICIENT = FLASH.replace("flash", "efficient")


@pytest.mark.parametrize(
    ("name", "d", "mask", "gpu", "capability", "tiles"),
    [
        (FLASH, 64, "dense", "h100", 90, (128, 128)),
        (FLASH, 128, "causal", "a100-80gb", 80, (128, 64)),
        (FLASH, 128, "dense", "rtx-3090", 86, (128, 32)),
        (FLASH, 128, "causal", "l4", 89, (64, 64)),
        (FLASH, 64, "causal", "l4", 89, (128, 128)),
        (FLASH, 256, "dense", "h100", 90, (64, 64)),
        (FLASH, 256, "dense", "a100-80gb", 80, (128, 64)),
        (FLASH + "_backward", 64, "dense", "h100", 90, (128, 128)),
        (FLASH + "_backward", 64, "dense", "rtx-3090", 86, (64, 128)),
        (FLASH + "_backward", 128, "dense", "rtx-3090", 86, (64, 64)),
        (FLASH + "_backward", 256, "dense", "a100-80gb", 80, (64, 64)),
        (FLASH + "_backward", 256, "dense", "l4", 89, (64, 32)),
        (EFFICIENT, 64, "dense", "h100", 90, (64, 64)),
        (EFFICIENT, 128, "dense", "h100", 90, (64, 128)),
        (EFFICIENT, 128, "dense", "t4", 75, (32, 128)),
        (EFFICIENT, 256, "dense", "h100", 90, None),
        (EFFICIENT + "_backward", 64, "dense", "h100", 90, None),
    ],
)
def test_pytorchs_tiles_are_those_of_its_rules(name, d, mask, gpu, capability, tiles):
    """Read by hand in the sources that own_tiles names. Its kernels differ by GPU where shared memory does."""
    problem = Attention(4096, d, mask=parse_mask(mask))
    found = own_tiles(name, problem, capability, load(gpu))[1]
    assert found == (tiles and Tiling(*tiles))


@pytest.mark.parametrize(
    ("kernel", "schedules"), [("flash", ("flash2", "block-sparse-q")), ("efficient", ("memory-efficient",))]
)
def test_pytorchs_tiles_load_what_was_measured(kernel, schedules):
    """Each kept launch of many queries on an H100, under its tiles. block-sparse-q is flash2 that skips hidden tiles."""
    path = VALIDATION / "h100-2026-11-22" / "torch_rows.csv"
    rows = list(csv.DictReader(path.read_text().splitlines()))
    rows = [r for r in rows if r["kernel"] == f"torch-{kernel}" and r["best"] == "True" and r["schedule"] in schedules]
    seen = 0
    for row in rows:
        sizes = {key: int(row[key]) for key in ("N", "d", "batch", "heads")}
        problem = Attention(**sizes, dtype=row["inputs"], mask=parse_mask(row["mask"]))
        schedule, tiles = own_tiles(f"aten._scaled_dot_product_{kernel}_attention", problem, 90, load("h100"))
        own = iosim.count(**sizes, dtype=row["inputs"], mask=row["mask"], schedules=[schedule], tiles=tiles, M="227KB")
        assert own.results[0].read_bytes == int(row["read_measured"]), row
        seen += 1
    assert seen >= 5


def test_few_query_tiles_may_be_split():
    """8 heads x 16 tiles of 64 rows are fewer than 0.8 x 2 x 132; 256 keys of d = 64 are one tile."""
    gpu = load("h100")
    assert may_split(Attention(1024, 64, heads=8), gpu) and not may_split(Attention(2048, 64, heads=8), gpu)
    assert not may_split(Attention(256, 64, heads=8), gpu)


def test_a_gpu_of_its_own_is_taken(code, tmp_path):
    small = steps(code, tmp_path, hardware="t4")["extern_kernels.addmm"]
    assert small.moved.total > steps(code, tmp_path)["extern_kernels.addmm"].moved.total


def test_another_operator_is_named_and_not_counted(code, tmp_path):
    found = steps(code, tmp_path)["aten.sort.stable"]
    assert found.moved is None and found.kind == "other"


# ---------------------------------------------------------------- with Triton and PyTorch


@pytest.mark.needs("torch")
@pytest.mark.needs("triton")
def test_kernels_are_counted_by_reading_them(ask):
    """The weight of the sum is read once for each of the 4096 rows."""
    found = ask("explain", "--inductor", SAMPLE)
    rows = {row["launch"]: row for row in found["launches"]}
    relu, total = rows["triton_poi_fused_relu_0"], rows["triton_per_fused_sum_1"]
    assert (relu["read_bytes"], relu["write_bytes"], relu["once_bytes"]) == (196608, 196608, 393216)
    assert (total["read_bytes"], total["write_bytes"]) == (2 * 4096 * 1024 * 2, 4096 * 4)
    assert total["once_bytes"] == 4096 * 1024 * 2 + 1024 * 2 + 4096 * 4 and total["how"] == "XBLOCK=1"
    assert found["uncounted"] == ["aten.sort.stable"] and relu["registers"] > 0
    assert found["total_bytes"] == sum(row["total_bytes"] or 0 for row in rows.values())
    key = "3_forward 5 triton_per_fused_sum_1: in_ptr1"
    assert found["tensors"][key]["reads"] == 4096 * 1024 and found["tensors"][key]["times_read"] == 4096


@pytest.mark.needs("torch")
@pytest.mark.needs("triton")
def test_the_words_of_a_step_are_kept_and_checked(tmp_path, iosim):
    kept = tmp_path / "words.json"
    assert iosim("explain", "--inductor", SAMPLE, "--no-resources", "-o", kept).exit_code == 0
    found = json.loads(kept.read_text())
    assert iosim("explain", "--inductor", SAMPLE, "--no-resources", "--check", kept).exit_code == 0
    next(iter(found["tensors"].values()))["reads"] += 1
    kept.write_text(json.dumps(found))
    assert iosim("explain", "--inductor", SAMPLE, "--no-resources", "--check", kept).exit_code == 1


@pytest.mark.needs("torch")
@pytest.mark.needs("triton")
def test_the_page_shows_what_is_printed(iosim):
    command, shown = re.search(r"```console\n\$ iosim (explain --inductor .*?)\n(.*?)```", (DOCS / "compiled.md").read_text(), re.S).groups()  # fmt: skip
    assert iosim(*command.split()).stdout == shown
