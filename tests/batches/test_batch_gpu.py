"""validation/batch_gpu.py, which needs a GPU: what it makes of a profile is tested here without one."""

import importlib.util
from types import SimpleNamespace

from paths import ROOT

import iosim


def script():
    path = ROOT / "validation" / "batch_gpu.py"
    spec = importlib.util.spec_from_file_location("batch_gpu", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_batch_is_equal_only_to_the_byte():
    module = script()
    first = module.batches()[0]
    kernel = SimpleNamespace(load_bytes=212_451_328, grid=(16, 5, 16), name="flash_fwd_kernel")
    assert module.row_of(first, [kernel])["equal"] is True
    kernel.load_bytes += 32
    assert module.row_of(first, [kernel])["equal"] is False


def test_batches_at_random_are_allowed_and_differ():
    found = script().batches()
    assert len(found) == 33 and len({str(one) for one in found}) == 33
    for one in found:
        asked = [tuple(pair) for pair in one["requests"]]
        batch = iosim.batch(asked, d=one["d"], heads=one["heads"], kv_heads=one["kv_heads"], ways="repeat").batch
        assert all(1 <= request.new <= request.tokens for request in batch.requests)
    assert {one["causal"] for one in found} == {True, False} and {one["d"] for one in found} == {64, 128}
