"""The fused kernels of compiled models that validation/kernels/compiled.json keeps: iosim says today what it said."""

import json

import compiled_on_gpu as kept
import pytest

ENTRIES = json.loads(kept.PREPARED.read_text())


@pytest.mark.needs("torch")
@pytest.mark.needs("triton")
def test_kept_kernels_are_explained_as_they_were(tmp_path):
    """The kept function has only `@triton.jit`, so this also shows that nothing of PyTorch's decorators is counted."""
    from iosim.kernels.explain import Question, explained
    from iosim.kernels.read.kernel import Configuration, Kernel, KernelLaunch
    from iosim.kernels.walk.launch import Tensor

    words = Question("sm_90", resources=False)
    for entry in ENTRIES:
        values = {n: Tensor(v[0], (v[1],)) if isinstance(v, list) else v for n, v in entry["arguments"].items()}
        kernel = Kernel(kept.function_of(entry, tmp_path))
        launch = KernelLaunch(kernel, tuple(entry["grid"]), values, entry["num_warps"], entry["num_stages"])
        said = kept.said_of(explained(launch, Configuration(), words))
        assert said.items() <= entry["said"].items(), entry["kernel"]


@pytest.mark.long
@pytest.mark.needs("torch")
@pytest.mark.needs("triton")
def test_the_models_still_have_the_kept_kernels():
    assert kept.prepared() == ENTRIES
