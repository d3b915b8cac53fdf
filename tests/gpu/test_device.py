"""Time between events, on a GPU that only notes what it is asked to do."""

import ctypes
import sys
from types import SimpleNamespace

import pytest

from iosim.commands.listed import all_commands
from iosim.gpu import device

COMMANDS = all_commands()


@pytest.mark.parametrize("flushed", [False, True])
def test_a_median_without_the_first_runs(monkeypatch, flushed):
    """Each run is timed by itself, on a GPU that is busy until then; runs that warm up are slow and do not count."""
    notes, slow = [], [100.0] * device.WARM_UP
    durations = iter([*slow, 3.0, 9.0, 1.0, 2.0, 8.0])
    event = SimpleNamespace(record=lambda: notes.append("event"), synchronize=lambda: notes.append("wait"))
    cuda = SimpleNamespace(Event=lambda: event, get_elapsed_time=lambda begin, end: next(durations))
    spin = SimpleNamespace(RawKernel=lambda source, name: lambda *launch: notes.append("spin"))
    monkeypatch.setattr(device, "cupy", lambda: SimpleNamespace(cuda=cuda, **vars(spin)))
    flush = SimpleNamespace(fill=lambda value: notes.append("flush")) if flushed else None
    assert device.milliseconds(lambda: notes.append("run"), 5, flush) == 3.0
    once = ["flush" if flushed else "spin", "event", "run", "event", "wait"]
    assert notes == once * (device.WARM_UP + 5)


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setattr(device, "driver_sees", lambda: 0)


def test_commands_that_need_a_gpu_say_so(iosim, no_gpu):
    """Also without any option."""
    found = [name for name in COMMANDS if "no NVIDIA GPU" in iosim(name).stderr]
    assert found == ["verify", "profile"] and iosim("verify").exit_code == 0


@pytest.mark.parametrize("line", ["profile", "profile torch-flash",
                                  "profile --N 512 --d 64", "profile torch-flash --d 64"])  # fmt: skip
def test_without_a_gpu_nobody_is_asked_for_missing_options(iosim, no_gpu, monkeypatch, line):
    done = iosim(*line.split())
    assert done.exit_code == 3 and done.stderr.startswith("Error: no NVIDIA GPU") and "nothing" not in done.stderr
    monkeypatch.setattr(device, "cupy", lambda: None)  # a machine with a GPU asks for them
    there = iosim(*line.split())
    assert there.exit_code == 2 and "found 'nothing'" in there.stderr and "no NVIDIA GPU" not in there.stderr


def test_the_driver_is_asked_without_a_package(monkeypatch):
    def count(pointer):
        pointer._obj.value = 3
        return 0

    drivers = {"libcuda.so.1": SimpleNamespace(cuInit=lambda flags: 0, cuDeviceGetCount=count)}

    def library(name):
        if name not in drivers:
            raise OSError(name)
        return drivers[name]

    monkeypatch.setattr(ctypes, "CDLL", library)
    assert device.driver_sees() == 3
    drivers["libcuda.so.1"].cuInit = lambda flags: 803  # CUDA_ERROR_SYSTEM_DRIVER_MISMATCH
    assert device.driver_sees() == 0 and device.no_gpu().startswith(
        "no NVIDIA GPU can be used: its driver answers error 803"
    )
    assert "do not fit together" in device.no_gpu() and "restart" in device.no_gpu()
    drivers["libcuda.so.1"].cuInit = lambda flags: 999  # CUDA_ERROR_UNKNOWN
    assert "999 (an error without a name; restart the machine" in device.no_gpu()
    drivers["libcuda.so.1"].cuInit = lambda flags: 700
    assert device.no_gpu().endswith("error 700 (nvidia-smi may say why)")
    drivers["libcuda.so.1"].cuInit = lambda flags: 100  # CUDA_ERROR_NO_DEVICE
    assert device.driver_sees() == 0 and "answers error 100 (it finds no CUDA device; " in device.no_gpu()
    drivers.clear()
    assert device.driver_sees() == 0 and device.no_gpu() == device.NO_GPU


def test_all_kernels_are_compiled_once_a_context_is_there(monkeypatch):
    """Threads that ask for a context at the same time may not get one."""
    notes = []
    monkeypatch.setattr(device, "cupy", lambda: SimpleNamespace(zeros=lambda count: notes.append("context")))
    monkeypatch.setattr(device, "function", lambda program, kernel: notes.append((program.name, kernel)))
    programs = [SimpleNamespace(name=name, kernels=kernels) for name, kernels in (("one", "a"), ("three", "abc"))]
    device.compile_all(iter(programs))
    assert notes[0] == "context" and sorted(notes[1:]) == [("one", "a"), *(("three", kernel) for kernel in "abc")]
