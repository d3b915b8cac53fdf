"""Scripts as people write them: modules on a GPU, operators of their own, benchmarks, profilers, and graphs."""

import json

import pytest

pytestmark = [pytest.mark.needs("triton"), pytest.mark.needs("torch")]
HEADER = """
import torch, triton, triton.language as tl
@triton.jit
def add(X, Y, Z, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(Z + at, tl.load(X + at, mask=at < n) + tl.load(Y + at, mask=at < n), mask=at < n)
def run(x, y=None):
    o = torch.empty_like(x)
    add[(triton.cdiv(x.numel(), 256),)](x, x if y is None else y, o, x.numel(), BLOCK=256)
    return o
"""


@pytest.fixture
def launched(iosim, tmp_path):
    """(the exit code, [(kernel, equal launches, words written)], the notes) of a script."""

    def explain(text, *more):
        path = tmp_path / "bench.py"
        path.write_text(HEADER + text)
        found = iosim("explain", "--script", path, "--no-resources", "--json", *more)
        if not found.stdout:
            return found.exit_code, [], found.stderr
        answer = json.loads(found.stdout)
        rows = [(a["kernel"], a["launches"], a["writes"]) for a in answer.get("answers", [answer])]
        return found.exit_code, rows, found.stderr

    return explain


SCRIPTS = {
    "modules move to a GPU": ("""
m = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)).to("cuda")
m.to(torch.device("cuda:0"), torch.float16).float()
run(m(torch.randn(4, 8, device="cuda")))
run(torch.nn.Linear(8, 16).cuda().half()(torch.randn(4, 8).cuda().half()))
w = torch.nn.Linear(8, 16, device="cuda").weight
assert w.is_cuda and run(w).device.type == "cuda"
opt = torch.optim.AdamW(m.parameters(), lr=1e-3)
m(torch.randn(4, 8, device="cuda")).square().mean().backward()
opt.step()
""", [("add", 1, 32), ("add", 1, 64), ("add", 1, 128)]),
    "the device is the pretended GPU": ("""
DEVICE = triton.runtime.driver.active.get_active_torch_device()
x = torch.rand(1000, device=DEVICE)
assert x.device == DEVICE == torch.device("cuda:0") and run(x).device == DEVICE
with torch.cuda.device(x.device), torch.device("cuda"): run(torch.rand(300))
""", [("add", 1, 1000), ("add", 1, 300)]),
    "a grid is a list": ("""
x = torch.rand(1000, device="cuda")
for _ in range(2):
    add[lambda meta: [triton.cdiv(1000, meta["BLOCK"])]](x, x, x, 1000, BLOCK=256)
""", [("add", 2, 1000)]),
    "operators of one's own": ("""
@torch.library.custom_op("iosim_test::one", mutates_args=())
def one(x: torch.Tensor) -> torch.Tensor:
    return run(x)
@one.register_fake
def _(x): return torch.empty_like(x)
one.register_autograd(lambda ctx, g: run(g, ctx.saved_tensors[0]),
                      setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]))
x = torch.randn(500, device="cuda", requires_grad=True)
(one(x) * torch.ones(500)).sum().backward()
torch.ops.iosim_test.one(x)
@torch.library.triton_op("iosim_test::two", mutates_args={})
def two(x: torch.Tensor) -> torch.Tensor:
    o = torch.empty_like(x)
    torch.library.wrap_triton(add)[(1,)](x, x, o, 100, BLOCK=128)
    return o
two(torch.randn(100, device="cuda"))
torch.library.define("iosim_test::three", "(Tensor x) -> Tensor")
@torch.library.impl("iosim_test::three", "CUDA")
def three(x): return run(x)
torch.ops.iosim_test.three(torch.randn(640, device="cuda"))
library = torch.library.Library("iosim_test_too", "DEF")
library.define("four(Tensor x) -> Tensor")
library.impl("four", run, "CUDA")
torch.ops.iosim_test_too.four(torch.randn(641, device="cuda"))
""", [("add", 2, 500), ("add", 1, 500), ("add", 1, 100), ("add", 1, 640), ("add", 1, 641)]),
    "integers have values": ("""
i = torch.arange(10, device="cuda")
assert i.tolist() == list(range(10)) and i.sum().item() == 45 and torch.bincount(i % 3).tolist() == [4, 3, 3]
assert torch.nonzero(i > 4).flatten().tolist() == [5, 6, 7, 8, 9] and torch.unique(i % 4).numel() == 4
assert (i.cpu().numpy() == range(10)).all() and torch.sort(i, descending=True)[0][0] == 9
run(torch.rand(int(i[7]), device="cuda"))
""", [("add", 1, 7)]),
    "measurements, graphs and streams": ("""
x = torch.rand(50, device="cuda")
ms, low, high = triton.testing.do_bench(lambda: run(x), quantiles=[0.5, 0.2, 0.8])
ms + triton.testing.do_bench_cudagraph(lambda: run(x)) + triton.testing.do_bench(lambda: run(x))
stream, graph, event = torch.cuda.Stream(), torch.cuda.CUDAGraph(), torch.cuda.Event(enable_timing=True)
stream.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(stream): run(x)
with torch.cuda.graph(graph): run(x)
graph.replay()
event.record()
f"{event.elapsed_time(event):.2f} {torch.cuda.max_memory_allocated() / 1e9:.1f}"
""", [("add", 5, 50)]),
    "benchmarks run at two sizes": ("""
@triton.testing.perf_report(triton.testing.Benchmark(
    x_names=["n"], x_vals=[64, 128, 256], line_arg="p", line_vals=["triton"], line_names=["Triton"],
    plot_name="adding", args={}))
def bench(n, p): return triton.testing.do_bench(lambda: run(torch.rand(n, device="cuda")))
bench.run(print_data=True, save_path=".")
""", [("add", 1, 64), ("add", 1, 256)]),
    "a pointer that is given is not null": ("""
@triton.jit
def maybe(X, B, Z, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.load(X + at)
    if B:
        v += tl.load(B + at)
        tl.store(B + at, v)
    tl.store(Z + at, v)
x = torch.rand(64, device="cuda")
maybe[(1,)](x, x, x, BLOCK=64)
maybe[(1,)](x, None, x, BLOCK=64)
""", [("maybe", 1, 128), ("maybe", 1, 64)]),
    "views that begin elsewhere are other launches": ("""
x = torch.rand(96, device="cuda")
for start in (0, 8, 8): run(x[start:start + 64])
""", [("add", 1, 64), ("add", 2, 64)]),
    "types as constants": ("""
@triton.jit
def cast(X, Z, T: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(Z + at, tl.load(X + at).to(T))
x = torch.rand(64, device="cuda")
cast[(1,)](x, x.half(), tl.float16, BLOCK=64)
cast[(1,)](x, x.half(), tl.float16, BLOCK=32)
""", [("cast", 1, 64), ("cast", 1, 32)]),
    "descriptors of the host": ("""
from triton.tools.tensor_descriptor import TensorDescriptor
@triton.autotune(configs=[triton.Config({"BM": m}, pre_hook=lambda n: (
    setattr(n["a"], "block_shape", [n["BM"], 32]), setattr(n["b"], "block_shape", [n["BM"], 32])))
    for m in (16, 64)], key=["n"])
@triton.jit
def copy(a, b, n, BM: tl.constexpr):
    for k in range(0, n, 32):
        b.store([tl.program_id(0) * BM, k], a.load([tl.program_id(0) * BM, k]))
x = torch.rand(100, 200, device="cuda")
y = torch.empty_like(x)
a, b = TensorDescriptor(x, x.shape, x.stride(), [1, 1]), TensorDescriptor.from_tensor(y, [1, 1])
copy[lambda meta: (triton.cdiv(100, meta["BM"]),)](a, b, 200)
assert copy.best_config.kwargs["BM"] == 16
@triton.jit
def layer(a, y, N: tl.constexpr, D: tl.constexpr):
    at = tl.arange(0, N)[:, None] * D + tl.arange(0, D)[None]
    tl.store(y + tl.program_id(0) * N * D + at, a.load([tl.program_id(0), 0, 0]).reshape([N, D]))
x = torch.rand(3, 16, 32, device="cuda")
layer[(3,)](TensorDescriptor.from_tensor(x, [1, 16, 32]), torch.empty_like(x), 16, 32)
""", [("copy", 1, 20000), ("layer", 1, 1536)]),
    "options of GPUs of AMD": ("""
@triton.autotune([triton.Config({"BLOCK": 64, "waves_per_eu": 2, "kpack": 2, "matrix_instr_nonkdim": 16})], key=[])
@triton.jit
def fill(X, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(X + at, 0.0, mask=at < n)
fill[lambda meta: (triton.cdiv(100, meta["BLOCK"]),)](torch.empty(100, device="cuda"), 100)
add[(1,)](*[torch.rand(64, device="cuda")] * 3, 64, BLOCK=64, waves_per_eu=1, matrix_instr_nonkdim=32, kpack=1)
""", [("fill", 1, 100), ("add", 1, 64)]),
    "a package is asked for before it is imported": ("""
import importlib.util, nothing_of_this_name
from importlib.util import find_spec
assert importlib.util.find_spec("nothing_at_all") is None is find_spec("nothing_of_this_name")
assert find_spec("triton") is not None
run(torch.rand(3))
""", [("add", 1, 3)]),
    "a warm-up tells of registers": ("""
kernel = add.warmup(torch.rand(9), torch.rand(9), torch.rand(9), 9, BLOCK=64, grid=(1,))
kernel._init_handles()
assert kernel.n_regs > 0 and kernel.metadata.shared == 0 and kernel.n_spills == 0
assert "tt.load" in kernel.asm["ttir"] and "ld.global" in kernel.asm["ptx"]
x = torch.rand(9, device="cuda")
kernel[(1, 1, 1)](x, x, x, 9, 64)
""", [("add", 1, 9)]),
    "grids of functions that have seen other values": ("""
x = torch.rand(64, device="cuda")
for programs in (1, 2, 2):
    add[lambda meta: (programs,)](x, x, x, 64, BLOCK=32)
""", [("add", 1, 32), ("add", 2, 64)]),
    "heuristics that ask for the GPU": ("""
@triton.heuristics({"WIDE": lambda args: torch.cuda.get_device_capability()[0] >= 9})
@triton.jit
def wide(Z, n, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(Z + at, 0.0, mask=at < n * (1 + WIDE))
wide[(1,)](torch.empty(64, device="cuda"), 20, BLOCK=64)
""", [("wide", 1, 40)]),
    "classes of packages that are missing": ("""
from nothing_of_this_name import Base, Other
class First(Base): pass
class Second(Other, First): pass
class Third(Base, kw_only=True): pass
assert issubclass(Second, First) and Third(1, size=3).size == 3
run(torch.rand(6))
""", [("add", 1, 6)]),
    "what a script can do without": ("""
try:
    from nothing_of_this_name import fast
except ModuleNotFoundError:
    fast = None
assert fast is None
run(torch.rand(5))
""", [("add", 1, 5)]),
}  # fmt: skip


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_as_it_is(launched, name):
    text, rows = SCRIPTS[name]
    assert launched(text)[:2] == (0, rows), launched(text)[2]


TIMES = {
    "do_bench": "ms = triton.testing.do_bench(lambda: run(torch.rand(64, device='cuda')))",
    "do_bench_cudagraph": "ms = triton.testing.do_bench_cudagraph(lambda: run(torch.rand(64, device='cuda')))",
    "elapsed_time": """run(torch.rand(64, device='cuda'))
begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
ms = begin.elapsed_time(end)""",
}


@pytest.mark.parametrize("how", TIMES)
def test_a_time_that_nobody_measured_is_one_and_told(launched, how):
    code, rows, told = launched(TIMES[how] + "\nprint(f'{1e-9 / ms:.1f} TFLOP/s')\nassert ms == 1")
    line = len(HEADER.splitlines()) + len(TIMES[how].splitlines())
    assert (code, rows) == (0, [("add", 1, 64)])
    note = f"note: nothing is timed: where the script asks for a time it is 1, first at bench.py, line {line} `ms = "
    assert note in told and told.count("nothing is timed") == 1


def test_floating_point_numbers_are_zero_and_told(launched):
    text = "x = torch.rand(9, device='cuda')\nassert x.sum().item() == 0.0 and f'{x.max():.1f}' == '0.0'\nrun(x)\n"
    code, rows, told = launched(text)
    assert (code, rows) == (0, [("add", 1, 9)])
    assert "where the script asks for one it is 0, first at bench.py, line 12 `assert x.sum()" in told


def test_integers_that_a_kernel_changes_are_not_known_any_more(launched):
    """The kernel is not run, so neither the tensor nor its views have their values; other tensors keep theirs."""
    code, rows, notes = launched("""
@triton.jit
def fill(T): tl.store(T + tl.program_id(0), 3)
@triton.jit
def use(T, O):
    for i in range(tl.load(T + tl.program_id(0))):
        tl.store(O + i, 1.0)
T, O = torch.ones(4, dtype=torch.int32, device="cuda"), torch.empty(9, device="cuda")
use[(4,)](T, O)
fill[(2,)](T[1:])
for changed in (T, T + 1, T[2:].contiguous()):
    use[(4,)](changed, O)
use[(4,)](torch.ones(4, dtype=torch.int32, device="cuda"), O)
""")
    assert (code, rows) == (1, [("use", 2, 4), ("fill", 1, 2)])
    assert "line 22 `use[(4,)](changed, O)`" in notes and "what is loaded from T decides" in notes


def test_what_is_left_out_is_told(launched):
    told = launched("import nothing_of_this_name\n" + SCRIPTS["benchmarks run at two sizes"][0])[2]
    assert "note: not installed, so stand-ins took their place: nothing_of_this_name" in told
    assert "note: benchmark adding: the first and the last of its 3 sizes" in told


def test_operations_of_pytorch_are_said_not_to_be_counted(launched):
    """What makes, copies or views a tensor is not among them, nor what computes integers."""
    text = """x = torch.rand(8, 8, device="cuda").half().t().contiguous()
rows = torch.arange(8, device="cuda") * 2
y = x @ x
for _ in range(2): y = torch.softmax(y, -1)
run(y.mm(x))
"""
    assert (
        "note: 2 matmuls (lines 13 to 15) and 2 other operations (line 14) of PyTorch are not counted\n"
        in launched(text)[2]
    )
    assert "not counted" not in launched("run(torch.rand(8, device='cuda').view(2, 4))")[2]
    assert (
        "note: 1 matmul (line 11) of PyTorch is not counted\n"
        in launched("run(torch.rand(8, 8) @ torch.rand(8, 8))")[2]
    )


FLEX = """
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
def seen(b, h, q_idx, kv_idx): return q_idx >= kv_idx
q = torch.rand(2, 8, 256, 64, device="cuda", dtype=torch.float16, requires_grad=True)
k = torch.rand(2, 2, 512, 64, device="cuda", dtype=torch.float16)
blocks = create_block_mask(seen, None, None, 256, 512, device="cuda")
scored = lambda score, b, h, q_idx, kv_idx: score * 2
o = torch.compile(flex_attention)(q, k, k, score_mod=scored, block_mask=blocks, enable_gqa=True)
assert o.shape == q.shape and flex_attention(q, k, k, return_lse=True, enable_gqa=True)[1].shape == q.shape[:-1]
o.sum().backward()
assert q.grad.shape == q.shape
"""


def test_flex_attention_has_no_answer_and_the_way_round(iosim, launched, tmp_path):
    """The line that is said counts the same problem."""
    code, _, told = launched(FLEX)
    assert code == 2 and "line 18 `o = torch.compile(flex_attention)" in told and "FlexAttention" not in told
    said = "--N 256 --Nk 512 --d 64 --dv 64 --batch 2 --heads 8 --kv-heads 2 --dtype float16"
    line = (
        f"iosim count {said} --mask py:{tmp_path / 'bench.py'}:seen; --pass backward counts its gradients; tensors that"
    )
    assert line in told
    code, rows, told = launched(FLEX + "run(q)\n")
    assert (code, rows) == (1, [("add", 1, 2 * 8 * 256 * 64)]) and told.count(
        "This counts its problem: iosim count"
    ) == 2
    first = iosim("explain", "--script", tmp_path / "bench.py", "--no-resources").stdout.splitlines()[0]
    assert first.startswith("No answer for flex_attention: ") and "iosim count --mask py:FILE.py:NAME" in first
    assert iosim("count", *said.split(), "--M", "100KB", "--mask", "causal").exit_code == 0


@pytest.mark.parametrize("end, told", [
    ("while True:\n    try: pass\n    except Exception: pass\n", "ended early, after 2 s (--timeout), at line 1"),
    ("import sys; sys.exit(3)\n", "ended early, line 12 `import sys; sys.exit(3)`: SystemExit: 3"),
    ("1 // 0\n", "ended early, line 12 `1 // 0`: ZeroDivisionError"),
])  # fmt: skip
def test_a_script_that_ends_early_is_answered_so_far(launched, end, told):
    code, rows, said = launched("run(torch.rand(5))\n" + end, "--timeout", 2)
    assert (code, rows) == (1, [("add", 1, 5)]) and told in said


@pytest.mark.parametrize("text", ["0", "soon", "inf"])
def test_a_timeout_is_a_number_of_seconds(launched, text):
    assert launched("", "--timeout", text)[0] == 2
