"""A GPU that is not there, so that files which ask for one can be read: what PyTorch says of it, and Triton's driver.

`torch.cuda` is that of a machine with one H100 that runs nothing. What a script measures is called once, and benchmarks
run at their first and last sizes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from types import SimpleNamespace
from unittest.mock import MagicMock, patch

MEMORY_BYTES = 80 << 30
CUDA_VERSION = "13.0"
SECONDS = 1.0  # what a measured time is said to be, in whatever unit is asked for: scripts divide by it
TIMED = "nothing is timed: where the script asks for a time it is 1"
H100 = {
    "name": "NVIDIA H100 80GB HBM3", "multi_processor_count": 132, "total_memory": MEMORY_BYTES, "gcnArchName": "",
    "shared_memory_per_block": 49_152, "shared_memory_per_block_optin": 232_448, "warp_size": 32,
    "shared_memory_per_multiprocessor": 233_472, "L2_cache_size": 50 << 20, "max_threads_per_multi_processor": 2048,
    "max_threads_per_block": 1024, "regs_per_multiprocessor": 65_536,
}  # fmt: skip
OF_DRIVER = {
    "multiprocessor_count": 132, "max_shared_mem": 232_448, "max_num_regs": 65_536, "warpSize": 32,
    "sm_clock_rate": 1_980_000, "mem_clock_rate": 2_619_000, "mem_bus_width": 5120,
}  # fmt: skip
ZEROS = ("current_device", "memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved",
         "initial_seed", "_exchange_device", "_maybe_exchange_device")  # fmt: skip
INERT = ("synchronize", "init", "empty_cache", "set_device", "manual_seed", "manual_seed_all", "set_stream",
         "reset_peak_memory_stats", "reset_max_memory_allocated", "ipc_collect", "device", "device_of", "Event",
         "Stream", "stream", "CUDAGraph", "graph", "current_stream", "default_stream")  # fmt: skip
NO_OPTIONS = ("show_plots", "print_data", "save_path", "return_df", "diff_col", "save_precision")  # of a benchmark


def answers(capability: int, tell: Callable[[str], object]) -> Mapping[str, object]:
    """{name in torch.cuda: what stands in its place}. `tell` is called with a note when a script asks for a time."""
    of_gpu = capability // 10, capability % 10

    def timed(end: object) -> float:
        tell(TIMED)
        return SECONDS

    inert = MagicMock(cuda_stream=0, stream_id=0)
    inert.elapsed_time = timed
    said: dict[str, object] = {
        **dict.fromkeys(ZEROS, 0),
        **dict.fromkeys(("is_available", "is_initialized", "is_bf16_supported"), True),
        "is_current_stream_capturing": False,
        "device_count": 1,
        "get_device_name": H100["name"],
        "mem_get_info": (MEMORY_BYTES, MEMORY_BYTES),
        "get_device_capability": of_gpu,
        "get_device_properties": SimpleNamespace(major=of_gpu[0], minor=of_gpu[1], **H100),
        "get_arch_list": [f"sm_{capability}"],
    }
    return {
        **{name: MagicMock(return_value=value) for name, value in said.items()},
        **{name: MagicMock(return_value=inert) for name in INERT},
        "make_graphed_callables": lambda callables, *_, **__: callables,
    }


def driver_of(capability: int) -> MagicMock:
    """A driver of Triton with a target, which runs nothing."""
    from triton.backends.compiler import GPUTarget

    def torch_device() -> object:
        import torch

        return torch.device("cuda", 0)

    driver = MagicMock(get_active_torch_device=torch_device)
    driver.get_current_target.return_value = GPUTarget("cuda", capability, 32)
    driver.get_current_device.return_value = driver.get_current_stream.return_value = 0
    driver.get_device_capability.return_value = capability // 10, capability % 10
    driver.utils.get_device_properties.return_value = OF_DRIVER
    driver.get_benchmarker.return_value = lambda *values, **named: [0.0, 0.0, 0.0]
    return driver


@contextmanager
def absent_gpu(capability: int = 90) -> Iterator[None]:
    """A context in which Triton sees a GPU of this capability, with properties, that runs nothing."""
    from triton.backends import backends
    from triton.runtime import driver

    with ExitStack() as stack:
        stack.enter_context(patch.object(driver, "_active", driver_of(capability)))
        with suppress(ImportError):
            from triton._C.libtriton import nvidia

            stack.enter_context(patch.object(nvidia.cublas, "CublasLt", MagicMock(), create=True))
        for name, backend in backends.items():
            stack.enter_context(patch.object(backend.driver, "is_active", partial(bool, name == "nvidia")))
        yield


@contextmanager
def measures_pretended(tell: Callable[[str], object], tell_line: Callable[[str], object]) -> Iterator[None]:
    """A context in which `triton.testing` and Triton's profiler measure nothing. `tell` is called with a note on sizes
    that are left out, `tell_line` with one on times."""
    import triton
    from triton import testing

    def once(function: Callable[[], object], *_: object, quantiles: tuple[float, ...] = (), **__: object) -> object:
        function()
        tell_line(TIMED)
        return [SECONDS] * len(quantiles) if quantiles and len(quantiles) > 1 else SECONDS

    def run(mark, *values, **named):  # type: ignore[no-untyped-def]
        own = {key: value for key, value in named.items() if key not in NO_OPTIONS}
        for bench in [mark.benchmarks] if isinstance(mark.benchmarks, testing.Benchmark) else mark.benchmarks:
            sizes = list(bench.x_vals)
            if len(sizes) > 2:
                name = bench.plot_name or mark.fn.__name__
                tell(f"benchmark {name}: the first and the last of its {len(sizes)} sizes")
            for x in sizes if len(sizes) < 3 else (sizes[0], sizes[-1]):
                xs = x if isinstance(x, list | tuple) else [x] * len(bench.x_names)
                for y in bench.line_vals:
                    mark.fn(**dict(zip(bench.x_names, xs, strict=True)), **{bench.line_arg: y}, **bench.args, **own)

    profiler = MagicMock()
    modules = {"triton.profiler": profiler, "triton.profiler.viewer": profiler.viewer}
    before = {name: sys.modules.pop(name) for name in modules if name in sys.modules}
    sys.modules.update(modules)
    with (
        patch.multiple(testing, do_bench=once, do_bench_cudagraph=once),
        patch.object(testing.Mark, "run", run),
        patch.object(triton, "profiler", profiler, create=True),
    ):
        try:
            yield
        finally:
            for name in modules:
                del sys.modules[name]
            sys.modules.update(before)
