"""A driver of Triton for a GPU that is not there, so that files which ask for a GPU can be read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from .cuda import Inert

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
