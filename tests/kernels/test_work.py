"""The work of programs, the target that a GPU implies, and the ranking of configurations."""

import pytest
from paths import ROOT, TESTS


@pytest.mark.needs("triton")
def test_the_work_of_attention():
    """A turn has two products, an exponential a score and one a row."""
    import triton_launches

    from iosim.hardware import load
    from iosim.kernels.least import work_of_programs
    from iosim.kernels.read.arguments import tensor
    from iosim.kernels.read.compile import Compilation
    from iosim.kernels.read.kernel_file import kernel_of
    from iosim.kernels.walk.walk import walk

    name, grid, arguments = triton_launches.attention(512, 64, 2, 128, 64, True)
    values = {key: tensor(*given) if isinstance(given, tuple) else given for key, given in arguments.items()}
    made = Compilation(kernel_of(str(TESTS / "helpers" / "triton_kernels.py"), name), values, "sm_90", 4, 3)
    times = walk(made.code, made.launch((*grid, 1))).times
    found = work_of_programs(made.code, times, 8, load("h100"))
    turns = 2 * [2, 4, 6, 8]  # of two heads, whose four programs see ever more keys
    assert found["flops"].tolist() == [each * 2 * 2 * 128 * 64 * 64 for each in turns]
    assert found["exponentials"].tolist() == [each * (128 * 64 + 128) for each in turns]
    own = 128 * 64 + 2 * 64 * 64 + 2 * 64 * 64  # Q, and K and V for each 64 rows
    assert found["smem_read_bytes"].tolist() == [each * 2 * own for each in turns]
    assert found["smem_write_bytes"].tolist() == [2 * (128 * 64 + each * 2 * 64 * 64) for each in turns]


@pytest.mark.needs("triton")
def test_configurations_are_ranked(iosim, ask):
    line = ["explain", TESTS / "helpers" / "triton_kernels.py", "--kernel", "tuned", "--grid", "cdiv(n, BLOCK)",
            "--arg", "X=fp16[n]", "--arg", "Y=fp16[n]", "--arg", "n=4000000", "--tune"]  # fmt: skip
    answers = ask(*line)["answers"]
    printed = iosim(*line).stdout
    first, header, dashes, *rows = printed.splitlines()[:5]
    best = f"tuned may take least time with BLOCK={answers[0]['BLOCK']}, "
    assert first.startswith(best) and "the 2 that fit and do not spill of 2" in first
    names = ["BLOCK", "EVEN", "warps", "stages", "fits", "spills", "programs_per_SM", "us_at_least", "bytes"]
    assert header.split() == names
    assert [int(row.split()[0].replace(",", "")) for row in rows] == [a["BLOCK"] for a in answers]
    assert printed.count("argument ") == 1 and iosim(*line, "--all").stdout.count("argument ") == 2


KERNELS = TESTS / "helpers" / "triton_kernels.py"
PRODUCTS = ["explain", KERNELS, "--kernel", "matmul", "--grid", "64", *(f"--arg={x}=fp16[1024,1024]" for x in "ABC"),
            *(f"--arg={n}=1024" for n in "MNK"), *(f"--const={n}" for n in ("BM=128", "BN=128", "BK=32", "GROUP=1"))]  # fmt: skip


@pytest.mark.needs("triton")
@pytest.mark.parametrize(
    ("more", "target", "note"),
    [
        ((), "sm_90", None),
        (("--hardware", "rtx-3090"), "sm_86", None),
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


@pytest.mark.needs("triton")
def test_a_file_without_a_target_is_told(iosim, tmp_path):
    own = tmp_path / "own.toml"
    text = (ROOT / "configs" / "hardware" / "h100.toml").read_text()
    own.write_text("\n".join(line for line in text.splitlines() if not line.startswith("target")))
    assert f"compiled for sm_90: {own} has no key target" in iosim(*PRODUCTS, "--hardware", own).stderr


@pytest.mark.needs("triton")
def test_a_configuration_that_does_not_compile_is_told(iosim, ask, tmp_path):
    file = tmp_path / "kernels.py"
    file.write_text((TESTS / "helpers" / "triton_kernels.py").read_text().replace('{"BLOCK": 1024}', '{"BLOCK": 1000}'))
    line = ["explain", file, "--kernel", "tuned", "--grid", "cdiv(n, BLOCK)", "--arg", "X=fp16[n]", "--arg", "Y=fp16[n]",
            "--arg", "n=4000", "--tune", "--no-resources"]  # fmt: skip
    found = iosim(*line)
    assert found.exit_code == 0 and "a power of 2" in found.stderr and "here BLOCK is 1000" in found.stderr
    assert ask(*line)["constants"]["BLOCK"] == 256


@pytest.mark.needs("triton")
def test_what_is_refused_is_refused_after_one_configuration(iosim, tmp_path, monkeypatch):
    """Configurations that differ in a flag are asked, those that differ in sizes alone are not."""
    from iosim.kernels.read.compile import Compilation

    made = []
    monkeypatch.setattr(Compilation, "_bind", lambda self, *_, own=Compilation._bind: (made.append(1), own(self, *_)))
    sizes = [f'triton.Config({{"BLOCK": {2**k}, "LOAD": LOAD}})' for k in range(4, 12)]
    text = f"""
import triton, triton.language as tl
@triton.autotune([c for LOAD in (True, False) for c in ({", ".join(sizes)})], key=[])
@triton.jit
def one(X, BLOCK: tl.constexpr, LOAD: tl.constexpr):
    if LOAD:
        if tl.load(X) > 0:
            tl.store(X, 1.0)
    tl.store(X + tl.arange(0, BLOCK), 0.0)
"""
    (tmp_path / "one.py").write_text(text)
    found = iosim("explain", tmp_path / "one.py", "--grid", 1, "--arg", "X=fp32[4096]", "--no-resources")
    assert found.exit_code == 0 and "BLOCK=16, LOAD=False" in found.stderr and len(made) == 2
    (tmp_path / "one.py").write_text(text.replace("(True, False)", "(True,)"))
    found = iosim("explain", tmp_path / "one.py", "--grid", 1, "--arg", "X=fp32[4096]", "--no-resources")
    assert found.exit_code == 2 and "floating-point number (f32) loaded from X" in found.stderr and len(made) == 3
