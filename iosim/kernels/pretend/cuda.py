"""A GPU that is not there, so that files which ask for one can be read: what PyTorch says of it, and Triton's driver.

`torch.cuda` is that of a machine with one GPU that runs nothing. What a script measures is called once, and benchmarks
run at their first and last sizes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from types import ModuleType, SimpleNamespace

NAME = "NVIDIA H100 80GB HBM3"
MEMORY_BYTES = 80 << 30
CUDA_VERSION = "13.0"
MULTIPROCESSORS = 132
INERT = ("device", "device_of", "Event", "Stream", "stream", "CUDAGraph", "graph")
SECONDS = 1.0  # what a measured time is said to be, in whatever unit is asked for: scripts divide by it
TIMED = "nothing is timed: where the script asks for a time it is 1"


class Inert:
    """A stream, an event, a graph or a context of a GPU. Whatever is asked of it, nothing happens."""

    cuda_stream = 0
    stream_id = 0

    def __init__(self, *values: object, **named: object) -> None:
        pass

    def __enter__(self) -> Inert:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def query(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Callable[..., object]:  # type: ignore[explicit-any]  # of any arguments
        if name.startswith("__"):
            raise AttributeError(name)
        return saying(None)


def properties(capability: int) -> object:
    """The properties of the GPU that launches ask PyTorch for."""
    return SimpleNamespace(
        multi_processor_count=MULTIPROCESSORS,
        total_memory=MEMORY_BYTES,
        major=capability // 10,
        minor=capability % 10,
        name=NAME,
        gcnArchName="",
        shared_memory_per_block=49_152,
        shared_memory_per_block_optin=232_448,
        shared_memory_per_multiprocessor=233_472,
        warp_size=32,
        L2_cache_size=50 << 20,
        max_threads_per_multi_processor=2048,
        max_threads_per_block=1024,
        regs_per_multiprocessor=65_536,
    )


def answers(capability: int, tell: Callable[[str], None]) -> Mapping[str, object]:
    """{name in torch.cuda: what stands in its place}. Each is an object of its own, as PyTorch's compiler asks for.

    `tell` is called with a note when a script asks for a time.
    """

    def elapsed_time(begin: object, end: object) -> float:
        tell(TIMED)
        return SECONDS

    numbers = {"device_count": 1, "current_device": 0, "memory_allocated": 0, "max_memory_allocated": 0,
               "memory_reserved": 0, "max_memory_reserved": 0, "initial_seed": 0,
               "_exchange_device": 0, "_maybe_exchange_device": 0}  # fmt: skip
    truths = {
        "is_available": True,
        "is_initialized": True,
        "is_bf16_supported": True,
        "is_current_stream_capturing": False,
    }
    said: dict[str, object] = {
        **numbers, **truths, "get_device_name": NAME, "mem_get_info": (MEMORY_BYTES, MEMORY_BYTES),
        "get_device_capability": (capability // 10, capability % 10), "get_device_properties": properties(capability),
        "current_stream": Inert(), "default_stream": Inert(), "get_arch_list": [f"sm_{capability}"],
    }  # fmt: skip
    none = ("synchronize", "init", "empty_cache", "set_device", "manual_seed", "manual_seed_all", "set_stream",
            "reset_peak_memory_stats", "reset_max_memory_allocated", "ipc_collect")  # fmt: skip
    return {
        **{name: saying(value) for name, value in said.items()},
        **{name: saying(None) for name in none},
        **{name: type(name, (Inert,), {"elapsed_time": elapsed_time}) for name in INERT},
        "make_graphed_callables": lambda callables, *_, **__: callables,
    }


def saying(value: object) -> Callable[..., object]:  # type: ignore[explicit-any]  # of any arguments
    """A function that always answers so."""
    return lambda *_, **__: value


SEEN = {  # properties that files of kernels ask for, with the values of an H100
    "multiprocessor_count": 132,
    "max_shared_mem": 232_448,
    "max_num_regs": 65_536,
    "warpSize": 32,
    "sm_clock_rate": 1_980_000,
    "mem_clock_rate": 2_619_000,
    "mem_bus_width": 5120,
}


class Utilities:
    """The part of a driver that reports properties of the GPU."""

    def get_device_properties(self, device: int = 0) -> dict[str, int]:
        return dict(SEEN)


class Driver:
    """A driver of Triton with a target, which runs nothing."""

    utils = Utilities()

    def __init__(self, capability: int) -> None:
        self.capability = capability

    @classmethod
    def is_active(cls) -> bool:
        return True

    def get_current_target(self) -> object:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self.capability, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int = 0) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        pass

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        return self.capability // 10, self.capability % 10

    def get_active_torch_device(self) -> object:
        import torch

        return torch.device("cuda", 0)

    def get_benchmarker(self) -> object:
        return lambda *values, **named: [0.0, 0.0, 0.0]


@contextmanager
def absent_gpu(capability: int = 90) -> Iterator[None]:
    """A context in which Triton sees a GPU of this capability, with properties, that runs nothing."""
    from unittest import mock

    from triton.backends import backends
    from triton.runtime import driver

    before = driver._active
    driver.set_active(Driver(capability))
    with ExitStack() as stack:
        with suppress(ImportError):
            from triton._C.libtriton import nvidia

            stack.enter_context(mock.patch.object(nvidia.cublas, "CublasLt", Inert, create=True))
        for name, backend in backends.items():
            there = name == "nvidia"
            stack.enter_context(mock.patch.object(backend.driver, "is_active", lambda there=there: there))
        try:
            yield
        finally:
            driver._active = before


VIEWER = "triton.profiler.viewer"


@contextmanager
def measures_pretended(tell: Callable[[str], None], tell_line: Callable[[str], None]) -> Iterator[None]:
    """A context in which `triton.testing` measures nothing. `tell` is called with a note on sizes that are left out,
    `tell_line` with one on times."""
    from unittest import mock

    from triton import testing

    def once(function: Callable[[], object], *values: object, **named: object) -> float | list[float]:
        function()
        tell_line(TIMED)
        parts = named.get("quantiles")
        return SECONDS if not isinstance(parts, Sequence) or len(parts) == 1 else [SECONDS] * len(parts)

    def run(mark, *values, **named):  # type: ignore[no-untyped-def]
        own = {
            key: value
            for key, value in named.items()
            if key not in ("show_plots", "print_data", "save_path", "return_df", "diff_col", "save_precision")
        }
        every = [mark.benchmarks] if isinstance(mark.benchmarks, testing.Benchmark) else mark.benchmarks
        for bench in every:
            sizes = list(bench.x_vals)
            name = bench.plot_name or mark.fn.__name__
            if len(sizes) > 2:
                tell(f"benchmark {name}: the first and the last of its {len(sizes)} sizes")
            for x in sizes if len(sizes) < 3 else (sizes[0], sizes[-1]):
                xs = x if isinstance(x, list | tuple) else [x] * len(bench.x_names)
                for y in bench.line_vals:
                    mark.fn(**dict(zip(bench.x_names, xs, strict=True)), **{bench.line_arg: y}, **bench.args, **own)

    with ExitStack() as stack:
        for name in ("do_bench", "do_bench_cudagraph"):
            stack.enter_context(mock.patch.object(testing, name, once))
        stack.enter_context(mock.patch.object(testing.Mark, "run", run))
        with suppress(ImportError):
            profiler = import_module("triton.profiler")
            for name in ("start", "finalize", "activate", "deactivate"):
                stack.enter_context(mock.patch.object(profiler, name, saying(0)))
            viewer = ModuleType(VIEWER)
            vars(viewer).update(parse=saying((None, [])), read=saying((None, [])), print_tree=saying(None))
            before = sys.modules.get(VIEWER)
            sys.modules[VIEWER] = viewer
            stack.callback(lambda: sys.modules.pop(VIEWER) if before is None else sys.modules.update({VIEWER: before}))
            stack.enter_context(mock.patch.object(profiler, "viewer", viewer, create=True))
        yield
