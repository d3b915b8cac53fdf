"""Tuned kernels on this GPU: output, words, and time against PyTorch's FlashAttention-2 and a copy.

python3 validation/measure_tuned.py FOLDER writes tuned_output.csv and tuned_time.csv there and prints both. Inputs are
random and outputs are poisoned. Ratios come from one run on one GPU.
"""

import argparse
import csv
import sys
from pathlib import Path

import numpy as np

try:
    import cupy as cp
    import torch
except ImportError as missing:
    sys.exit(f"{Path(__file__).name} needs a GPU, CuPy and PyTorch: {missing}")

from iosim import Attention, Folded, Traffic
from iosim.core.problem import DENSE
from iosim.gpu import device
from iosim.gpu.tuned.launch import launches, run_tuned, tuned, tuned_arrays
from iosim.masks import parse_mask
from iosim.schedules import find
from validation.speed import copy_bandwidth

SHAPES = [  # N, Nk, d, heads, kv_heads, dtype, causal
    (128, 128, 64, 1, 1, "fp16", False), (100, 200, 64, 2, 1, "fp16", False), (1, 1000, 128, 4, 2, "fp16", False),
    (777, 777, 128, 3, 3, "fp16", True), (300, 1000, 128, 2, 2, "bf16", True), (500, 100, 64, 2, 2, "fp16", True),
    (1024, 1024, 128, 8, 8, "fp16", False), (2048, 2048, 64, 132, 132, "bf16", False),
    (70, 8, 64, 3, 3, "fp16", False), (300, 136, 128, 2, 1, "bf16", False), (700, 72, 64, 40, 40, "fp16", False),
    (4096, 4096, 128, 4, 4, "fp16", True), (1000, 1000, 128, 2, 2, "bf16", False), (129, 4096, 64, 5, 5, "fp16", False),
]  # fmt: skip
TIMES = [
    (32, 8192, 128, False),
    (32, 8192, 128, True),
    (32, 4096, 128, False),
    (64, 4096, 64, False),
    (16, 16384, 128, False),
]


def problem_of(N, Nk, d, heads, kv_heads, dtype, causal, **more):
    mask = parse_mask("causal") if causal else DENSE
    return Attention(N, d, Nk=Nk, heads=heads, kv_heads=kv_heads, dtype=dtype, acc_dtype="fp32", mask=mask, **more)


def inputs_of(p, scale=1.0):
    rng = cp.random.default_rng(p.N + p.Nk + p.d)
    made = {}
    for name, rows, heads in (("Q", p.N, p.heads), ("K", p.Nk, p.kv_heads), ("V", p.Nk, p.kv_heads)):
        made[name] = rng.standard_normal((heads, rows, p.d), dtype=np.float32) * scale
    return made


def reference(p, arrays, head):
    """(output, log-sum-exp) of one head in float64, over the inputs as rounded on the device."""

    def get(name, h):
        return device.from_device(arrays[name][h], p.dtype).astype(np.float64)

    q, k, v = get("Q", head), get("K", head * p.kv_heads // p.heads), get("V", head * p.kv_heads // p.heads)
    s = q @ k.T * p.d**-0.5
    if p.mask is not DENSE:
        s[cp.arange(p.Nk)[None, :] > cp.arange(p.N)[:, None] + p.Nk - p.N] = -cp.inf
    top = s.max(axis=1, keepdims=True)
    e = cp.exp(s - cp.where(cp.isinf(top), 0, top))
    total = e.sum(axis=1, keepdims=True)
    return e / cp.where(total == 0, 1, total) @ v, (cp.where(cp.isinf(top), 0, top) + cp.log(total))[:, 0]


def simulated(p, kernel):
    traffic = Traffic()
    Folded(p, traffic).run(find(kernel.schedule), kernel.tiling)
    n = p.instances
    return {name: (n * r, n * w) for name, (r, w) in traffic.tensors.items() if r or w}


def check_outputs():
    for shape in SHAPES:
        for name in ("flash2", "standard-tiled"):
            causal, Nk = shape[-1], shape[1]
            if name == "standard-tiled" and (Nk % 8 or causal or shape[0] * Nk > 2**23):
                continue
            schedule = "block-sparse-q" if causal else name
            for scale in (1.0, 12.0):
                p = problem_of(*shape, lse=schedule != "standard-tiled")
                kernel = tuned(schedule, p)
                inputs = inputs_of(p, scale)
                arrays = tuned_arrays(kernel, inputs)
                outputs, words = run_tuned(kernel, inputs, count=True)
                worst = lse = 0.0
                for head in {0, p.heads - 1, p.heads // 2}:
                    expected, sums = reference(p, arrays, head)
                    worst = max(
                        worst,
                        float(cp.nan_to_num(cp.abs(outputs["O"][head].astype(np.float64) - expected).max(), nan=1e9)),
                    )
                    if "LSE" in outputs:
                        found = outputs["LSE"][head].astype(np.float64)
                        same = cp.isneginf(found) & cp.isneginf(sums)
                        lse = max(lse, float(cp.nan_to_num(cp.abs(cp.where(same, 0, found - sums)).max(), nan=1e9)))
                expected_words = simulated(p, kernel)
                equal = words == expected_words
                sizes = {"N": p.N, "Nk": Nk, "d": p.d, "heads": p.heads, "kv_heads": p.kv_heads, "dtype": p.dtype}
                yield {"schedule": schedule, **sizes, "scale": scale,
                       "output_error": worst, "lse_error": lse, "words_equal": equal,
                       "words": sum(map(sum, words.values())) if equal else str(words),
                       "simulated": "" if equal else str(expected_words)}  # fmt: skip


def torch_milliseconds(start, repeats=20):
    """The median time of `start()`, on PyTorch's own stream, after two runs that are not timed."""
    times = []
    for _ in range(repeats + 2):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        start()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return float(np.median(times[2:]))


def attention_milliseconds(q, k, v, causal, backend):
    """The median time of one of PyTorch's attention kernels."""
    with torch.nn.attention.sdpa_kernel(getattr(torch.nn.attention.SDPBackend, backend)):
        return torch_milliseconds(lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal))


def cublas_milliseconds(arrays):
    """The times of the products of the score and output passes by cuBLAS, without a scale."""
    q, k, v, s, o = (torch.as_tensor(arrays[n], device="cuda").view(torch.float16) for n in ("Q", "K", "V", "S", "O"))
    return {"scores": torch_milliseconds(lambda: torch.bmm(q, k.transpose(1, 2), out=s)),
            "output": torch_milliseconds(lambda: torch.bmm(s, v, out=o))}  # fmt: skip


def check_times():
    copied = copy_bandwidth()
    yield {"kernel": "copy", "TB_per_s": copied / 1e12}
    for heads, N, d, causal in TIMES:
        p = problem_of(N, N, d, heads, heads, "fp16", causal)
        kernel = tuned("block-sparse-q" if causal else "flash2", p)
        arrays = tuned_arrays(kernel, inputs_of(p))
        counts = cp.zeros(8, np.uint64)
        (launch,) = launches(kernel, arrays, counts)
        ours = device.milliseconds(launch, 20)
        q, k, v = (torch.as_tensor(arrays[n], device="cuda").view(torch.float16)[None] for n in "QKV")
        flops = 4 * N * N * d * heads * (0.5 if causal else 1)
        row = {"kernel": kernel.schedule, "heads": heads, "N": N, "d": d, "TFLOP_per_s": flops / ours / 1e9}
        for label, backend in (("torch_flash", "FLASH_ATTENTION"), ("torch_cudnn", "CUDNN_ATTENTION")):
            other = attention_milliseconds(q, k, v, causal, backend)
            row |= {f"{label}_TFLOP_per_s": flops / other / 1e9, f"ratio_to_{label}": other / ours}
        yield row
    for heads, N, d in ((16, 8192, 128), (16, 8192, 64), (32, 4096, 128), (33, 4096, 128)):
        p = problem_of(N, N, d, heads, heads, "fp16", False)
        kernel = tuned("standard-tiled", p)
        arrays = tuned_arrays(kernel, inputs_of(p))
        passes = launches(kernel, arrays, cp.zeros(8, np.uint64))
        cublas = cublas_milliseconds(arrays)
        square, row_bytes = 2 * N * N * heads, 2 * N * d * heads
        for label, launch, moved in zip(
            ("scores", "softmax", "output"),
            passes,
            (square + 2 * row_bytes, 2 * square, square + 2 * row_bytes),
            strict=True,
        ):
            ms = device.milliseconds(launch, 20)
            rate = moved / ms / 1e9
            row = {"kernel": label, "heads": heads, "N": N, "d": d, "ms": ms, "TB_per_s": rate,
                   "share_of_copy": rate * 1e12 / copied}  # fmt: skip
            yield row | ({"ratio_to_cublas": cublas[label] / ms} if label in cublas else {})


def write(path, rows):
    rows = list(rows)
    names = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)
    for row in rows:
        print({k: round(v, 5) if isinstance(v, float) else v for k, v in row.items()})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    print(device.name())
    write(folder / "tuned_output.csv", check_outputs())
    write(folder / "tuned_time.csv", check_times())
