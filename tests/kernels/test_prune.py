"""`iosim.prune` drops what does not fit a GPU, and what it compiled Triton takes from its cache."""

import numpy as np
import pytest

import iosim
from iosim.errors import InputError

pytestmark = pytest.mark.needs("triton")
SIZES = {"M": 512, "N": 512, "K": 512, "GROUP": 4}


class Tensor:
    """A tensor as Triton's launcher sees it, on a GPU that is not there."""

    dtype, shape = np.dtype("float16"), (512, 512)

    def __init__(self):
        import triton.language as tl

        self.dtype = tl.float16

    def data_ptr(self):
        return 256

    def stride(self):
        return (512, 1)

    def storage_offset(self):
        return 0

    def __getitem__(self, key):
        raise AssertionError("nothing is read")


@pytest.fixture
def cache(monkeypatch, tmp_path):
    """A cache of Triton of its own, a GPU that is not there, and the list of compilations that were no hits."""
    import triton

    from iosim.kernels.pretend.cuda import absent_gpu

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    compiled = []

    def listen(*, src, metadata, metadata_group, times, cache_hit):
        compiled.extend([src.name] * (not cache_hit))

    monkeypatch.setattr(triton.knobs.compilation, "listener", listen)
    with absent_gpu(90):
        yield compiled


def tuner(prune, *configs, kernel="matmul"):
    """A kernel with these configurations, as `triton.autotune` makes it."""
    import triton
    import triton_kernels

    function = getattr(triton_kernels, kernel).fn
    made = [triton.Config(dict(constants), num_warps=warps, num_stages=stages) for constants, warps, stages in configs]
    decorate = triton.autotune(made, key=["M"], prune_configs_by={"early_config_prune": prune})
    return decorate(triton.jit(function))


def tiles(BM, BN, BK=64):
    return {"BM": BM, "BN": BN, "BK": BK}


CONFIGS = (tiles(128, 128), 8, 5), (tiles(64, 64), 4, 2), (tiles(256, 128), 8, 5)


def pruned(tuned, **given):
    """The configurations that are left, as Triton asks for them before it times any."""
    tuned.nargs = dict(zip("ABC", [Tensor()] * 3, strict=True))
    return [(config.kwargs, config.num_warps, config.num_stages) for config in tuned.prune_configs({**SIZES, **given})]


def test_what_does_not_fit_is_dropped_and_nothing_is_compiled_twice(cache, capsys):
    tuned = tuner(iosim.prune("h100"), *CONFIGS)
    assert pruned(tuned) == list(CONFIGS[:2])
    said = "iosim.prune: matmul: 1 of 3 configurations dropped for H100 (1 by shared memory); compiled in "
    assert said in capsys.readouterr().err
    assert len(cache) == 3
    assert pruned(tuned) == list(CONFIGS[:2]) and len(cache) == 3
    for config in tuned.configs:  # as Triton's launcher compiles them
        tuned.fn.warmup(*[Tensor()] * 3, grid=(1,), **SIZES, **config.all_kwargs())
    assert len(cache) == 3


def test_a_smaller_gpu_drops_more(cache, capsys):
    """Of an L4, a program has at most 99 KiB of shared memory; the code is that of its own compute capability."""
    assert pruned(tuner(iosim.prune("l4"), *CONFIGS)) == [CONFIGS[1]]
    assert "2 of 3 configurations dropped for L4 (2 by shared memory)" in capsys.readouterr().err


def test_spilled_registers_are_dropped_if_asked(cache, capsys):
    few = (tiles(64, 128), 1, 2)
    assert pruned(tuner(iosim.prune("h100"), CONFIGS[1], few)) == [CONFIGS[1], few]
    assert pruned(tuner(iosim.prune("h100", spills=False), CONFIGS[1], few)) == [CONFIGS[1]]
    assert "1 of 2 configurations dropped for H100 (1 by spilled registers)" in capsys.readouterr().err


def test_registers_are_given_in_eights_to_each_thread():
    """An H100 has 65,536 registers: 8 warps of 255, given as 256, take all of them."""
    from iosim.hardware import load
    from iosim.kernels.prune import over
    from iosim.kernels.read.compile import Resources

    def lacking(registers, warps):
        return list(over(Resources(0, registers, 0, warps), load("h100"), True))

    assert lacking(255, 8) == [] and lacking(128, 16) == [] and lacking(57, 32) == []
    assert lacking(257, 8) == lacking(129, 16) == lacking(65, 32) == ["registers"]


def test_what_does_not_compile_is_left_to_triton(cache):
    odd = (tiles(100, 64), 4, 2)
    assert pruned(tuner(iosim.prune("h100"), CONFIGS[1], odd)) == [CONFIGS[1], odd]


def test_errors_say_what_is_allowed(cache):
    with pytest.raises(InputError, match="--hardware: found 'h1000'"):
        iosim.prune("h1000")
    with pytest.raises(InputError, match="found '1 configuration'; allowed: one that fits L4"):
        pruned(tuner(iosim.prune("l4"), CONFIGS[2]))
    with pytest.raises(InputError, match="found 'MI300X'; allowed: a GPU of NVIDIA whose file names its target"):
        pruned(tuner(iosim.prune("mi300x"), CONFIGS[0]))
    with pytest.raises(InputError, match="early_config_prune"):
        iosim.prune("h100")([], {})
