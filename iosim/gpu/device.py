"""CuPy and the GPU: arrays, compilation with NVRTC, launches, times. No other module imports CuPy.

Every function raises MissingError (exit code 3) if CuPy or the GPU is missing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, cast

import numpy as np

from ..core.rounding import e4m3_bits, of_e4m3_bits
from ..errors import CapacityError, InternalError, MissingError
from .arrays import CompiledKernel, DeviceArray, DeviceArrays, DeviceTables, ElementType, Module, WordCounts
from .cuda.program import Kernel, Program

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..core.typing import Array

WARM_UP = 3
BUSY_NANOSECONDS = 50_000  # long enough to put a launch and its events into the GPU's queue
WAIT_SOURCE = """
extern "C" __global__ void iosim_wait(long long nanoseconds) {
    long long start, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
    do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); while (now - start < nanoseconds);
}
"""
NO_GPU = "no NVIDIA GPU, or no driver for it, was found on this machine"
WITHOUT = (
    "this works without: verify on the CPU, verify and profile with --from-ncu FILE (a kept profile), roofline and "
    "tune --hardware (least times), count, sweep, and all other commands"
)
ERRORS = {
    3: "it could not start; see whether nvidia-smi lists the GPU",
    34: "a stub stands in for the driver; take the folder of stubs out of LD_LIBRARY_PATH",
    100: "it finds no CUDA device; see whether nvidia-smi lists one, and whether CUDA_VISIBLE_DEVICES hides it",
    802: "the links between GPUs are not ready yet; see whether NVIDIA's Fabric Manager runs",
    803: "the driver in the kernel and its CUDA library are of versions that do not fit together; restart after an "
    "update of the driver, or take another libcuda.so.1 out of LD_LIBRARY_PATH",
    804: "this GPU does not take a newer CUDA library than its driver; take cuda-compat out of LD_LIBRARY_PATH",
    999: "an error without a name; restart the machine or load the driver again, and see what nvidia-smi says",
}  # what the driver means by them, and what to try
DRIVERS = ("libcuda.so.1", "nvcuda.dll")


def cupy() -> ModuleType:
    """The module CuPy, if there is a GPU.

    Without a GPU the error says so first, because CuPy would not help there. `import cupy` alone succeeds without a
    GPU, and its later errors mislead.
    """
    try:
        import cupy
    except ImportError as fault:
        if driver_sees() == 0:
            raise MissingError(f"{no_gpu()}; {WITHOUT}") from fault
        raise MissingError(
            f'CuPy is not installed ({fault}): pip install "iosim[gpu]", about 400 MB; {WITHOUT}'
        ) from fault
    if not cupy.cuda.is_available():
        raise MissingError(f"{no_gpu()}; {WITHOUT}")
    return cupy  # type: ignore[no-any-return]


def no_gpu() -> str:
    """Why no GPU was found: there is none, or its driver does not start."""
    error = driver_answer()[1]
    means = ERRORS.get(error, "nvidia-smi may say why")
    return f"no NVIDIA GPU can be used: its driver answers error {error} ({means})" if error else NO_GPU


def driver_sees() -> int:
    """The number of GPUs that NVIDIA's driver sees; 0 without a driver."""
    return driver_answer()[0]


def driver_answer() -> tuple[int, int]:
    """(the number of GPUs that NVIDIA's driver sees, the error that it answers or 0). It needs no package.

    Without a driver both are 0.
    """
    import ctypes

    for name in DRIVERS:
        try:
            driver = ctypes.CDLL(name)
        except OSError:
            continue
        count = ctypes.c_int(0)
        error = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
        return (0, error) if error else (count.value, 0)
    return 0, 0


def cupy_dtype(name: str) -> ElementType:
    """The element type of an array of a dtype; bf16 and fp8 are stored as their bits."""
    types: dict[str, ElementType] = {
        "fp64": np.float64,
        "fp32": np.float32,
        "fp16": np.float16,
        "bf16": np.uint16,
        "fp8": np.uint8,
    }
    return types[name]


def to_device(array: object, dtype: str) -> DeviceArray:
    """The floats of a NumPy or CuPy array as a device array of a dtype, rounded to nearest even."""
    xp = cupy()
    if dtype == "fp8":
        bits: DeviceArray = xp.asarray(e4m3_bits(cast("Array", on_host(array))))
        return bits
    if dtype != "bf16":
        return xp.ascontiguousarray(xp.asarray(array).astype(cupy_dtype(dtype)))
    words = xp.asarray(array).astype(np.float32).view(np.uint32)
    rounded = (words + 0x7FFF + ((words >> 16) & 1)) >> 16
    return xp.ascontiguousarray(rounded.astype(np.uint16))


def from_device(array: DeviceArray, dtype: str) -> DeviceArray:
    """The floats of a device array (bits of bf16 and of fp8 become float32)."""
    if dtype == "fp8":
        floats: DeviceArray = cupy().asarray(of_e4m3_bits(cast("NDArray[np.uint8]", on_host(array))))
        return floats
    if dtype != "bf16":
        return array
    return (array.astype(np.uint32) << 16).view(np.float32)


def on_host(array: object) -> NDArray[np.generic]:  # type: ignore[explicit-any]  # NumPy's own class holds an Any
    """A NumPy array of the same values."""
    return np.asarray(getattr(array, "get", lambda: array)())


def rounded(array: object, dtype: str) -> DeviceArray:
    """The floats of an array rounded to a dtype, as float32 on the device."""
    return from_device(to_device(array, dtype), dtype).astype(np.float32)


@lru_cache(maxsize=1024)
def _module(source: str, options: tuple[str, ...]) -> Module:
    return cupy().RawModule(code=source, options=options, backend="nvrtc")


@lru_cache(maxsize=1024)
def _function(source: str, options: tuple[str, ...], name: str, smem_bytes: int) -> CompiledKernel:
    found = _module(source, options).get_function(name)
    limit = cupy().cuda.Device().attributes["MaxSharedMemoryPerBlockOptin"]
    needed = smem_bytes + found.shared_size_bytes
    if needed > limit:
        raise CapacityError(
            f"{name} needs {needed} B of shared memory; a block of this GPU has {limit} B; try smaller tiles"
        )
    found.max_dynamic_shared_size_bytes = smem_bytes
    return found


def function(program: Program, kernel: Kernel) -> CompiledKernel:
    """The compiled kernel, allowed to use its dynamic shared memory. It is cached by source and options."""
    return _function(program.source, program.defines, kernel.name, kernel.smem_bytes)


def compile_all(programs: Iterable[Program]) -> None:
    """Compile every kernel, on all processors, because compiling may take longer than running."""
    cupy().zeros(1)  # a context, before threads ask for one
    kernels = [(program, kernel) for program in programs for kernel in program.kernels]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda each: function(*each), kernels))


def launch(program: Program, kernel: Kernel, arrays: DeviceArrays, tables: DeviceTables, counts: WordCounts) -> None:
    """Start one kernel on the current stream."""
    pointers = [arrays[name] for name in kernel.tensors] + [tables[name] for name in kernel.tables]
    function(program, kernel)(kernel.grid, kernel.block, (*pointers, counts), shared_mem=kernel.smem_bytes)


@lru_cache(maxsize=64)
def cubin_module(source: str, options: tuple[str, ...]) -> Module:
    """The module compiled for the architecture named in `options`. CuPy alone never chooses sm_90a."""
    import tempfile

    xp = cupy()
    nvrtc = xp.cuda.nvrtc
    handle = nvrtc.createProgram(source, "tuned.cu", (), ())
    try:
        nvrtc.compileProgram(handle, options)
        cubin = nvrtc.getCUBIN(handle)
    except Exception as fault:
        raise InternalError(f"a tuned kernel does not compile: {nvrtc.getProgramLog(handle)}") from fault
    finally:
        nvrtc.destroyProgram(handle)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        module = xp.RawModule(path=file.name)
        module.compile()
    return module  # type: ignore[no-any-return]


def waiting(nanoseconds: int) -> Callable[[], None]:
    """A function that launches one thread, which waits for so long and touches no memory."""
    wait = cupy().RawKernel(WAIT_SOURCE, "iosim_wait")
    return lambda: wait((1,), (1,), (np.int64(nanoseconds),))


def milliseconds(start: Callable[[], None], repeats: int = 10, flush: DeviceArray | None = None) -> float:
    """The median time of `start()`, which puts work on the current stream. The first runs are not timed.

    The GPU is kept busy before each run, so that its launch is queued before it can start. With `flush`, an array
    larger than the L2, the GPU fills that array meanwhile. Then no input is in a cache, as under the profiler.
    """
    xp, times = cupy(), []
    busy = waiting(BUSY_NANOSECONDS)
    for _ in range(WARM_UP + repeats):
        begin, end = xp.cuda.Event(), xp.cuda.Event()
        if flush is not None:
            flush.fill(0)
        else:
            busy()
        begin.record()
        start()
        end.record()
        end.synchronize()
        times.append(xp.cuda.get_elapsed_time(begin, end))
    return float(np.median(times[WARM_UP:]))


def name() -> str:
    """The names of the GPU, of its CUDA version and of CuPy's."""
    xp = cupy()
    properties = xp.cuda.runtime.getDeviceProperties(xp.cuda.Device().id)
    return f"{properties['name'].decode()}, CUDA {xp.cuda.runtime.driverGetVersion() / 1000:.1f}, CuPy {xp.__version__}"
