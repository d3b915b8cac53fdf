"""The index of sparse attention: by hand, on arrays, and with planted mistakes."""

import random
from dataclasses import replace

import numpy as np
import pytest
from verdicts import wrong

from iosim import SCHEDULES, Attention, InputError, Tiling, count
from iosim.schedules import indexer

INDEXER = SCHEDULES["indexer"]


def test_three_ways():
    rng = random.Random(1)
    for _ in range(60):
        rows, Nk = rng.randint(1, 4), rng.randint(1, 30)
        p = Attention(
            rows * rng.randint(1, 5), rng.randint(1, 10), Nk=Nk, top_k=rng.randint(1, Nk), choice_rows=rows,
            kv_scales=rng.choice(["none", "tensor", "2"]),
        )  # fmt: skip
        t = Tiling(rng.randint(1, 6), rng.randint(1, 8))
        assert wrong(INDEXER, p, t) == set(), (p, t)


def test_a_key_of_deepseek_has_132_bytes():
    p = {"N": 1, "Nk": 4096, "d": 128, "heads": 64, "kv_heads": 1, "gqa": "pack", "dtype": "bf16", "acc_dtype": "fp32",
         "kv_dtype": "fp8", "kv_scales": "128", "top_k": 2048}  # fmt: skip
    found = count(**p, tiles="64x64", schedules="indexer")
    one = found["indexer"]
    assert one.read_bytes == 4096 * 132 + 64 * (2 * 128 + 4) + 4096 * 4 and one.write_bytes == 4 * (4096 + 2048)
    assert found.bounds[0].words == one.total - 4096 - 2 * 4096, "all but the scales and the scores is compulsory"


def test_the_oracle_by_hand():
    p = Attention(2, 2, Nk=3, top_k=2, choice_rows=2)
    hbm = {
        "Q": np.array([[1.0, 0], [0, -1]]),
        "K": np.array([[1.0, 1], [2, -1], [-1, -5]]),
        "weights": np.array([1.0, 2]),
    }
    found = INDEXER.answer(hbm, p, None)  # 1*1 + 0, 1*2 + 2*1, 0 + 2*5
    assert found["scores"].tolist() == [[1, 4, 10]] and found["index"].tolist() == [[2, 1]]


@pytest.mark.parametrize("bad", [{"top_k": 33}, {"mask": "causal"}, {"latent": True}, {"lse": True}])
def test_bad_input(bad):
    with pytest.raises(InputError):
        count(**{"N": 8, "Nk": 32, "d": 8, "top_k": 4, **bad}, tiles="4x4", schedules="indexer")


@pytest.mark.parametrize("mistake, caught_by", [
    ("weighted_sums", {"output"}), ("largest", {"output"}), ("add_scores", {"output"}),
])  # fmt: skip
def test_a_step_that_is_wrong_is_caught(mistake, caught_by, monkeypatch):
    mistakes = {
        "weighted_sums": lambda r, s, w: r.__setitem__(..., (s * w[:, None]).sum(axis=0)),  # without max(s, 0)
        "largest": lambda index, s: index.__setitem__(..., s.argsort(axis=1)[:, : index.shape[1]]),  # the smallest
        "add_scores": lambda s, q, k: s.__setitem__(..., q @ k.T * q.shape[1] ** -0.5),  # scaled
    }
    step = mistakes[mistake]
    step.__name__ = mistake
    monkeypatch.setattr(indexer, mistake, step)
    assert wrong(replace(INDEXER), Attention(8, 5, Nk=20, top_k=4, choice_rows=2), Tiling(2, 3)) == caught_by
