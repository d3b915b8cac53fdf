"""The work of programs, the target that a GPU implies, and predicted times beside what a launch moves."""

from types import SimpleNamespace

import numpy as np
import pytest
from paths import ROOT, TESTS

from iosim.hardware import load
from iosim.kernels.explain import Explained
from iosim.kernels.read.compile import Resources
from iosim.kernels.walk.work import MOST_FOLLOWED, Work, Works
from iosim.wings import offered

timed = pytest.mark.skipif(offered("launch_time") is None, reason="times are predicted by the wing gpu")


def test_very_many_programs_are_not_followed_one_by_one():
    rows = np.tile(np.array([[0, 0, 0, n, 0] for n in (1_000, 2_000, 3_000)], np.int64), (MOST_FOLLOWED // 3, 1))
    few, many = Works(), Works()
    few.add(rows)
    many.add(rows)
    many.add(rows[:3])
    assert few.order is not None and many.order is None and many.programs == few.programs + 3


def test_works_can_be_noted_in_parts():
    rows = np.array([[4, 4, 0, 1, 0], [4, 4, 0, 1, 0], [8, 4, 0, 1, 2], [4, 4, 0, 1, 0], [2, 2, 2, 2, 2]])
    whole, parts = Works(), Works()
    whole.add(rows)
    for some in (rows[:2], rows[2:4], rows[4:]):
        parts.add(some)
    assert parts.counts == whole.counts and parts.flops == 22 and parts.programs == 5
    for found in (whole, parts):
        kinds = list(found.counts)
        assert [kinds[k] for some in found.order for k in some] == [Work(*row) for row in rows.tolist()]


@pytest.mark.needs("triton")
def test_the_work_of_attention():
    """A turn has two products, an exponential a score and one a row, and at least six operations a score."""
    import triton_launches

    from iosim.kernels.read.arguments import tensor
    from iosim.kernels.read.compile import Compilation
    from iosim.kernels.read.kernel_file import kernel_of
    from iosim.kernels.walk.walk import walk

    name, grid, arguments = triton_launches.attention(512, 64, 2, 128, 64, True)
    values = {key: tensor(*given) if isinstance(given, tuple) else given for key, given in arguments.items()}
    made = Compilation(kernel_of(str(TESTS / "helpers" / "triton_kernels.py"), name), values, "sm_90", 4, 3)
    found = walk(made.code, made.launch((*grid, 1))).works
    assert len(found.counts) == 4 and set(found.counts.values()) == {2}
    for turns, kind in zip((2, 4, 6, 8), found.counts, strict=True):
        assert kind.flops == kind.tensor_flops == turns * 2 * 2 * 128 * 64 * 64
        assert kind.exponentials == turns * (128 * 64 + 128) and kind.waits == turns + 1
        assert 6 * 128 * 64 <= kind.operations / turns <= 10 * 128 * 64


@timed
@pytest.mark.needs("triton")
def test_configurations_are_ranked_by_their_time(iosim, ask):
    from iosim import explain, tensor
    from iosim.kernels.read.kernel_file import kernel_of

    line = ["explain", TESTS / "helpers" / "triton_kernels.py", "--kernel", "tuned", "--grid", "cdiv(n, BLOCK)",
            "--arg", "X=fp16[n]", "--arg", "Y=fp16[n]", "--arg", "n=4000000", "--tune"]  # fmt: skip
    answers = ask(*line)["answers"]
    assert [a["predicted_seconds"] for a in answers] == [None, None]  # only products were shown to take that long
    header, dashes, *rows = iosim(*line).stdout.splitlines()[:4]
    assert header.split() == ["BLOCK", "EVEN", "warps", "stages", "fits", "programs_per_SM", "bytes", "predicted_us"]
    assert [int(row.split()[0].replace(",", "")) for row in rows] == [a["BLOCK"] for a in answers]
    kernel, n = kernel_of(str(TESTS / "helpers" / "triton_kernels.py"), "tuned"), 4_000_000
    X = tensor("fp16", (n,))
    found = [explain(kernel, (-(-n // a["BLOCK"]),), X=X, Y=X, n=n, BLOCK=a["BLOCK"]) for a in answers]
    times = [one.time.seconds for one in found]
    assert times == sorted(times) and 4e-6 < times[0] < 2e-5 and found[0].time.bound_by in ("DRAM", "blocks")


KERNELS = TESTS / "helpers" / "triton_kernels.py"
PRODUCTS = ["explain", KERNELS, "--kernel", "matmul", "--grid", "64", *(f"--arg={x}=fp16[1024,1024]" for x in "ABC"),
            *(f"--arg={n}=1024" for n in "MNK"), *(f"--const={n}" for n in ("BM=128", "BN=128", "BK=32", "GROUP=1"))]  # fmt: skip


@timed
@pytest.mark.needs("triton")
@pytest.mark.parametrize("hardware, known", [("h200", True), ("a100-80gb", False)])
def test_a_kernel_of_products_has_a_predicted_time(ask, hardware, known):
    line = [*PRODUCTS, "--hardware", hardware]
    found = ask(*line)
    assert (found["predicted_seconds"] is not None) == known == (found["predicted_binds"] is not None)
    assert ask(*line, "--no-resources")["predicted_seconds"] is None


@timed
@pytest.mark.needs("triton")
@pytest.mark.parametrize(
    ("more", "target", "note"),
    [
        ((), "sm_90", None),
        (("--hardware", "rtx-3090"), "sm_86", "no time is predicted on RTX-3090: its rates are not measured"),
        (("--hardware", "mi300x"), "gfx942", "gfx942: words only"),
        (("--target", "sm_80"), "sm_80", None),
        (
            ("--target", "sm_80", "--hardware", "h100"),
            "sm_80",
            "compiled for sm_80, as --target says; --hardware h100 is sm_90",
        ),
    ],
)
def test_a_gpu_implies_its_target(iosim, more, target, note):
    found = iosim(*PRODUCTS, *more)
    assert f"of 4 warps, {target}\n" in found.stdout
    assert note in found.stderr if note else "note:" not in found.stderr


@timed
@pytest.mark.needs("triton")
def test_a_file_without_a_target_and_a_kernel_without_products_are_told(iosim, tmp_path):
    own = tmp_path / "own.toml"
    text = (ROOT / "configs" / "hardware" / "h100.toml").read_text()
    own.write_text("\n".join(line for line in text.splitlines() if not line.startswith("target")))
    assert f"compiled for sm_90: {own} has no key target" in iosim(*PRODUCTS, "--hardware", own).stderr
    line = ["explain", KERNELS, "--kernel", "add", "--grid", "4", "--const", "BLOCK=256", "--arg", "n=1024"]
    line += [f"--arg={name}=fp32[n]" for name in "XYZ"]
    note = "add: no time is predicted; predictions hold for products on tensor cores"
    assert note in iosim(*line, "--hardware", "h100").stderr and note not in iosim(*line).stderr


@pytest.mark.needs("triton")
def test_a_configuration_that_does_not_compile_is_told(iosim, ask, tmp_path):
    file = tmp_path / "kernels.py"
    file.write_text((TESTS / "helpers" / "triton_kernels.py").read_text().replace('{"BLOCK": 1024}', '{"BLOCK": 1000}'))
    line = ["explain", file, "--kernel", "tuned", "--grid", "cdiv(n, BLOCK)", "--arg", "X=fp16[n]", "--arg", "Y=fp16[n]",
            "--arg", "n=4000", "--tune", "--no-resources"]  # fmt: skip
    found = iosim(*line)
    assert found.exit_code == 0 and "a power of 2" in found.stderr and "here BLOCK is 1000" in found.stderr
    assert ask(*line)["constants"]["BLOCK"] == 256


def time(*seconds):
    return SimpleNamespace(
        **dict(zip(("seconds", "dram_seconds", "l2_seconds", "block_seconds", "launch_seconds"), seconds, strict=True))
    )


def test_the_line_on_the_time_says_what_it_is_the_longest_of():
    """The longest part and the start add up to the time that leads."""
    chip, first = load("h100"), time(80.4e-6, 5.5e-6, 34.8e-6, 78.5e-6, 1.9e-6)
    resources = Resources(65536, 113, 0, 8, "wgmma")
    about = SimpleNamespace(hardware=chip, fits=True, blocks_per_sm=2, shown_time=first)
    *_, said = Explained._resource_lines(about, resources, str)
    assert said == ("predicted on H100: 80.4 us: the longest of DRAM 5.5, L2 34.8 and programs 78.5, and 1.9 to start")
    about.shown_time = time(1499.5e-6, 88.6e-6, 565.5e-6, 1497.6e-6, 1.9e-6)
    *_, said = Explained._resource_lines(about, resources, str)
    assert said.endswith("the longest of DRAM 88.6, L2 565.5 and programs 1,497.6, and 1.9 to start")


def test_what_does_not_fit_is_ranked_last_however_fast():
    from iosim.kernels.launches import ranked

    def configuration(fits, seconds, size):
        return SimpleNamespace(fits=fits, time=time(seconds, 0, 0, seconds, 0), total_bytes=size, blocks_per_sm=1)

    large, slow, fast = configuration(False, 1, 1), configuration(True, 3, 1), configuration(True, 2, 9)
    assert ranked([large, slow, fast]) == [fast, slow, large]
