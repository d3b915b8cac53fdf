"""Measures this GPU, and writes a hardware file: the keys of configs/hardware/*.toml, and a table [measured].

`measure_all` measures memory, L2, arithmetic and latencies with small kernels of its own (calibrate.cu), then tile
steps (calibrate/steps.py) and loops (calibrate/loop.py). It needs a GPU. `toml` and `effective_bytes` do not: they are
plain functions of what was found.
"""

from __future__ import annotations

import datetime
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from ...core.problem import Attention
from ...core.tiling import Tiling
from ...errors import MissingError
from .. import device
from ..arrays import DeviceArray
from ..jobs import ScheduleJob, WaitJob
from ..ncu import counters
from ..ncu import run as ncu
from ..tuned.launch import source
from .loop import asking_ratio, far_seconds, loop_ratios
from .steps import first_seconds, measure_steps

SOURCE = Path(__file__).with_name("calibrate.cu")
BIG_BYTES = 1 << 31  # a buffer far larger than any L2
L2_STEP_BYTES = 4 << 20  # from one size of buffer to the next
L2_PASS_BYTES = 1 << 32  # read in all for each size
LOOP_THREADS, TIMES = 256, 4096  # threads of a block; iterations of a loop of arithmetic
PEAK_REPEATS = 7  # launches, of which the median time counts
WGMMA_TIMES = 64  # iterations: a third of a millisecond, because the GPU lowers its clock when it is busy for longer
MMA_FLOPS = 16 * 8 * 16 * 2  # of one m16n8k16
WGMMA_FLOPS = 64 * 128 * 16 * 2  # of one m64n128k16
CHAINS = 8  # independent operations of a thread
EMPTY_LAUNCHES = 9
WAIT_MILLISECONDS = 400
CHASE_STRIDE_BYTES, CHASE_STEPS = 4096 + 128, 20_000  # of a chain of dependent loads

TomlValues = dict[str, Any]  # type: ignore[explicit-any] # the tables of a TOML file: strings, numbers and tables
"""The measured values, by their keys in a hardware file."""


class Bench:
    """The kernels of calibrate/calibrate.cu on the current device."""

    def __init__(self) -> None:
        self.xp = device.cupy()
        self.module = self.xp.RawModule(code=SOURCE.read_text(), options=("-std=c++17",))
        self.attributes = self.xp.cuda.Device().attributes
        self.sms = self.attributes["MultiProcessorCount"]
        self.out = self.xp.zeros(1024, self.xp.uint32)

    def seconds(
        self, name: str, blocks: int, threads: int, *arguments: object, flush: DeviceArray | None = None
    ) -> float:
        """The median time of a launch. `flush`: a buffer that is overwritten before each."""
        kernel = self.module.get_function(name)
        return 1e-3 * device.milliseconds(lambda: kernel((blocks,), (threads,), arguments), PEAK_REPEATS, flush)

    def memory(self) -> TomlValues:
        """Bytes a second of the DRAM: copying (bytes read plus bytes written), reading, writing."""
        xp, count = self.xp, BIG_BYTES // 16
        a, b = xp.ones(BIG_BYTES // 4, xp.uint32), xp.empty(BIG_BYTES // 4, xp.uint32)
        grids, n = (
            (self.sms * 16, count // LOOP_THREADS),
            xp.int64(count),
        )  # few blocks with many iterations, or many blocks with one
        copy, read, write = (
            BIG_BYTES / min(self.seconds(f"{name}_bytes", blocks, LOOP_THREADS, a, b, n) for blocks in grids)
            for name in ("copy", "read", "write")
        )
        return {
            "dram_bytes_per_second": 2 * copy,
            "dram_read_bytes_per_second": read,
            "dram_write_bytes_per_second": write,
        }

    def l2(self) -> TomlValues:
        """Bytes a second from the L2, and the largest buffer that all multiprocessors can read from it."""
        xp, blocks = self.xp, self.sms * 2
        size = self.attributes["L2CacheSize"]
        buffer = xp.ones(2 * size // 4, xp.uint32)
        rates = {}
        for part in range(L2_STEP_BYTES, 2 * size + 1, L2_STEP_BYTES):
            n = part // 16 // blocks * blocks
            times = max(2, L2_PASS_BYTES // part)
            seconds = self.seconds("read_again", blocks, 512, buffer, self.out, xp.int64(n), xp.int32(times))
            rates[part] = n * 16 * times / seconds
        return {
            "l2_bytes_per_second": max(rates.values()),
            "l2_effective_bytes": effective_bytes(rates),
            "l2_rates": rates,
        }

    def arithmetic(self) -> TomlValues:
        """Multiply-adds, exponentials and flops of products a second, of all multiprocessors together."""
        xp, blocks, times = self.xp, self.sms * 8, self.xp.int32(TIMES)
        lanes = blocks * LOOP_THREADS * CHAINS * TIMES
        f = xp.float32
        fma = lanes / self.seconds("fma_rate", blocks, LOOP_THREADS, self.out, f(1.0001), f(0.5), times)
        exp = lanes / self.seconds("exp_rate", blocks, LOOP_THREADS, self.out, f(-0.001), times)
        tensor = {}
        for name, one in (("fp16", 0x3C003C00), ("bf16", 0x3F803F80)):
            a, b = xp.uint32(one), xp.uint32(one + 0x00010001)
            seconds = self.seconds(f"mma_{name}", blocks, LOOP_THREADS, self.out, a, b, times)
            tensor[name] = lanes // 32 * MMA_FLOPS / seconds
        return {
            "simt_operations_per_second": fma,
            "exponentials_per_second": exp,
            "tensor_flops_per_second": tensor,
            "wgmma_flops_per_second": self.wgmma(),
        }

    def wgmma(self) -> float:
        """Flops a second of warpgroup products; 0 on GPUs other than Hopper, which have none."""
        if self.xp.cuda.Device().compute_capability != "90":
            return 0.0
        options = ("-std=c++17", "--gpu-architecture=sm_90a")
        kernel = device.cubin_module(source(str(Path(__file__).with_name("wgmma_rate.cu"))), options).get_function(
            "wgmma_rate"
        )
        blocks, times = 4 * self.sms, WGMMA_TIMES
        ms = device.milliseconds(lambda: kernel((blocks,), (256,), (self.out, self.xp.int32(times))))
        return blocks * 2 * times * 16 * WGMMA_FLOPS / (ms * 1e-3)

    def latency(self) -> TomlValues:
        """Seconds of an empty launch, and of a load that the next one depends on, from DRAM and from the L2."""
        flush = self.xp.empty(BIG_BYTES, self.xp.uint8)
        far, near = self._chain(BIG_BYTES, flush), self._chain(1 << 20, None)
        return {"launch_seconds": self._launch(flush), "latency_seconds": far, "l2_latency_seconds": near}

    def _launch(self, flush: DeviceArray) -> float:
        """Seconds of an empty launch among others. The GPU is kept busy until all are in its queue."""
        xp, empty, count = self.xp, self.module.get_function("nothing"), 500
        start, stop = xp.cuda.Event(), xp.cuda.Event()
        for _ in range(20):
            flush.fill(0)
        start.record()
        for _ in range(count):
            empty((1,), (1,), ())
        stop.record()
        stop.synchronize()
        return float(xp.cuda.get_elapsed_time(start, stop) * 1e-3 / count)

    def _chain(self, size: int, flush: DeviceArray | None) -> float:
        """Seconds of one load in a chain of dependent loads, far apart, over a buffer of this size in bytes."""
        xp = self.xp
        count, stride = size // 4, CHASE_STRIDE_BYTES // 4
        chain = ((xp.arange(count, dtype=xp.int64) + stride) % count).astype(xp.uint32)
        steps = CHASE_STEPS
        return self.seconds("chase", 1, 1, chain, self.out, xp.int32(steps), flush=flush) / steps

    def limits(self) -> TomlValues:
        """The properties of the GPU that the driver reports: the keys LIMITS."""
        a = self.attributes
        return {
            "sms": self.sms,
            "shared_memory_per_block_bytes": a["MaxSharedMemoryPerBlockOptin"],
            "shared_memory_per_sm_bytes": a["MaxSharedMemoryPerMultiprocessor"],
            "l2_bytes": a["L2CacheSize"],
            "hbm_bytes": int(self.xp.cuda.runtime.memGetInfo()[1]),
        }


def profiler_overheads() -> TomlValues:
    """Seconds of an empty kernel under the profiler, and the driver's own DRAM traffic in bytes a second.

    Empty kernels stand between the profiled jobs. The driver's traffic is measured while a kernel only waits. Empty if
    there is no profiler.
    """
    job = ScheduleJob("flash2", Attention(16, 16, dtype="fp32"), Tiling(16, 16))
    with tempfile.TemporaryDirectory() as folder:
        try:
            found = ncu.profile([job] * EMPTY_LAUNCHES + [WaitJob(WAIT_MILLISECONDS)], str(Path(folder, "ncu.csv")))
        except MissingError:
            return {}
    launch = {"profiled_launch_seconds": median(kernel.seconds for kernel in found.empty)}
    if not found.jobs[-1]:  # the kernel that waits did not run
        return launch
    (waited,) = found.jobs[-1]
    moved = waited.get(counters.DRAM_READ) + waited.get(counters.DRAM_WRITE)
    return {**launch, "idle_bytes_per_second": moved / waited.seconds}


def effective_bytes(rates: dict[int, float]) -> int:
    """The largest size of buffer, in bytes, that still comes from the L2; `rates` are {size: bytes a second}.

    The largest buffer of all comes from DRAM. A buffer comes from the L2 if its rate, and those of all smaller ones, is
    nearer to the fastest rate than to that of the largest, by ratio.
    """
    threshold = (max(rates.values()) * rates[max(rates)]) ** 0.5
    largest = 0
    for size, rate in sorted(rates.items()):
        if rate < threshold:
            break
        largest = size
    return largest


def measure_all(tell: Callable[[str], None] = lambda text: None) -> TomlValues:
    """All that a hardware file needs, with the date and the GPU. It takes some minutes, and tells what is measured."""
    bench = Bench()
    properties = bench.xp.cuda.runtime.getDeviceProperties(bench.xp.cuda.Device().id)
    found: TomlValues = {"name": properties["name"].decode(), "date": datetime.date.today().isoformat()}
    found |= {"cuda": bench.xp.cuda.runtime.runtimeGetVersion(), **smi()}
    parts = {
        "limits": bench.limits,
        "memory": bench.memory,
        "the L2": bench.l2,
        "arithmetic": bench.arithmetic,
        "latencies": bench.latency,
        "the profiler": profiler_overheads,
    }
    for name, measure in parts.items():
        tell(f"measuring {name}")
        found |= measure()
    tell("measuring the steps of schedules")
    steps = measure_steps(bench.sms, found["shared_memory_per_sm_bytes"])
    tell("measuring loops of tiles")
    found["tile_latency_seconds"] = found["l2_latency_seconds"] + far_seconds()
    ratios = loop_ratios(steps, bench.sms)
    found["asking_ratio"] = asking_ratio(steps, ratios, bench.sms, found["shared_memory_per_sm_bytes"])
    found["steps"] = {str(key): list(rates) for key, rates in steps.items()}
    found["loop_ratios"] = {str(key): ratio for key, ratio in ratios.items()}
    return found | {"first_seconds": first_seconds()}


def smi() -> TomlValues:
    """The driver and the clocks, as nvidia-smi reads them just after some work. Nothing is set."""
    fields = {"driver": "driver_version", "sm_clock": "clocks.sm", "memory_clock": "clocks.mem"}
    if not shutil.which("nvidia-smi"):
        return dict.fromkeys(fields, "unknown")
    query = ["nvidia-smi", f"--query-gpu={','.join(fields.values())}", "--format=csv,noheader"]
    done = subprocess.run(query, capture_output=True, text=True, timeout=30, check=False)
    values = [part.strip() for part in (done.stdout.splitlines() or [""])[0].split(",")]
    return dict(zip(fields, values, strict=True)) if len(values) == len(fields) else dict.fromkeys(fields, "unknown")


# Keys that the driver knows, then how the others are measured, as comments of the file.
LIMITS = ("shared_memory_per_block_bytes", "shared_memory_per_sm_bytes", "sms", "l2_bytes", "hbm_bytes")
HOW = {
    "dram_bytes_per_second": "copy of 2 GiB, read plus written",
    "dram_read_bytes_per_second": "read of 2 GiB",
    "dram_write_bytes_per_second": "write of 2 GiB",
    "l2_bytes_per_second": "the fastest repeated read of a buffer by all multiprocessors",
    "l2_effective_bytes": "the largest such buffer before the rate falls to that of DRAM; no prediction reads it",
    "simt_operations_per_second": "fp32 multiply-adds, 8 chains a thread, one operation each",
    "exponentials_per_second": "ex2.approx, 8 chains a thread",
    "wgmma_flops_per_second": "wgmma m64n128k16 with fp32 sums, operands in shared memory; 0: there is none",
    "launch_seconds": "500 empty launches that wait in the GPU's queue",
    "profiled_launch_seconds": "an empty kernel by itself, by Nsight Compute",
    "idle_bytes_per_second": "to DRAM and from it while one kernel only waits, by Nsight Compute",
    "latency_seconds": "a chain of dependent loads over 2 GiB, the L2 full of other lines",
    "l2_latency_seconds": "a chain of dependent loads over 1 MiB",
    "tile_latency_seconds": "l2_latency_seconds, plus the extra time of a tile of flash2 whose K and V come from DRAM",
    "asking_ratio": "share of the time in which a warp asks for copies and others wait: flash2, many blocks",
    "tensor_flops_per_second": "mma.sync m16n8k16 with fp32 sums, 8 accumulators a warp",
}
HOW_LOOPS = (
    "products and softmax in the loop of flash2, over the same by themselves; unsized: with last tiles of 60, not 64"
)
HOW_FIRST = "extra time of a step the first time in a launch, in the median of the steps below"
HOW_STEPS = "of generated kernels: seconds and work a second of one warp, then of a block among many (work: of the GPU)"


def toml(found: TomlValues) -> str:
    """The text of a hardware file: the keys of configs/hardware/*.toml, and [measured] for predictions."""
    where = f"{found['name']}, driver {found['driver']}, {found['date']}"
    device_property, measured = f"device property, {where}", f"iosim calibrate, {where}"
    rates = {
        **found["tensor_flops_per_second"],
        "fp32": 2 * found["simt_operations_per_second"],
        "exp": found["exponentials_per_second"],
    }
    lines = [f"# {where}; clocks just before: SM {found['sm_clock']}, memory {found['memory_clock']}"]
    lines += [
        "# Written by iosim calibrate. Bytes, and bytes or operations a second, all multiprocessors together.",
        "",
    ]
    lines += [f'name = "{found["name"]} (measured)"']
    lines += [f"{key} = {found[key]}" for key in LIMITS]
    lines += [f"hbm_bytes_per_second = {round(found['dram_bytes_per_second'])}", ""]
    lines += ["[flops_per_second]  # 16-bit types with mma.sync; wgmma_flops_per_second is the peak if it is higher"]
    lines += [f"{dtype} = {round(rate)}" for dtype, rate in rates.items()]
    lines += ["", "[sources]", *[f'{key} = "{device_property}"' for key in LIMITS]]
    lines += [f'hbm_bytes_per_second = "{measured}: {HOW["dram_bytes_per_second"]}"']
    how = f"{HOW['tensor_flops_per_second']}; fp32: two a multiply-add; exp: {HOW['exponentials_per_second']}"
    lines += [f'flops_per_second = "{measured}: {how}"']
    texts = ("date", "driver", "cuda", "sm_clock", "memory_clock")
    lines += ["", "[measured]", f'device = "{found["name"]}"', *[f'{key} = "{found[key]}"' for key in texts]]
    numbers = [key for key in HOW if key in found and key != "tensor_flops_per_second"]
    lines += [f"{key} = {_number(found[key])}  # {HOW[key]}" for key in numbers]
    lines += ["", f"[measured.tensor_flops_per_second]  # {HOW['tensor_flops_per_second']}"]
    lines += [f"{dtype} = {_number(rate)}" for dtype, rate in found["tensor_flops_per_second"].items()]
    lines += ["", f"[measured.loop_ratios]  # {HOW_LOOPS}"]
    lines += [f"{kind} = {ratio:.4f}" for kind, ratio in found["loop_ratios"].items()]
    lines += ["", f"[measured.first_seconds]  # {HOW_FIRST}"]
    lines += [f"{kind} = {_number(seconds)}" for kind, seconds in found["first_seconds"].items()]
    lines += ["", f"[measured.steps]  # {HOW_STEPS}"]
    lines += [f"{name} = [{', '.join(map(_number, rates))}]" for name, rates in found["steps"].items()]
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    return str(round(value)) if value >= 1000 or value == 0 else f"{value:.4e}"
