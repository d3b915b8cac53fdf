"""The schedules inside a GPU with what is known of them by hand, and their references in float64."""

from dataclasses import replace

import numpy as np

from iosim.distributed.inside import DOTS, FIRST, GRADIENTS, HOP, MERGE
from iosim.oracles.attention import attention
from iosim.oracles.backward import backward_inputs, backward_output
from iosim.schedules.backward_lse import keys_outside_lse_traffic
from iosim.schedules.cache import cache_room, cache_traffic
from iosim.schedules.flash import flash_footprint, queries_outside_traffic, visited

# ---------------------------------------------------------------- by hand (words of one head)


def gradients_traffic(p, t):
    """Those of flash2-bwd without D: R = Nk (d + dv) + Tc N (2 d + dv + 2), W = Nk (d + dv) + Tc N d."""
    found = {**keys_outside_lse_traffic(p, t)}
    rows = visited(p, t)["rows"]
    del found["O"]
    return {**found, "dO": (rows * p.dv, 0), "D": (rows, 0)}


def dots_traffic(p, t):
    """R = 2 N dv, W = N."""
    return {"dO": (p.N * p.dv, 0), "O": (p.N * p.dv, 0), "D": (0, p.N)}


def gradients_footprint(p, t):
    """K, V, dK, dV, and then Q, dO, dQ, LSE, D, S and dP."""
    rows_q, rows_k = min(t.rows_q, p.N), min(t.rows_k, p.Nk)
    return 2 * rows_k * (p.d + p.dv) + rows_q * (2 * p.d + p.dv) + 2 * rows_q * rows_k + 2 * rows_q


def dots_footprint(p, t):
    """dO, O and D of a tile of rows."""
    return min(t.rows_q, p.N) * (2 * p.dv + 1)


def first_traffic(p, t):
    """Those of flash2 for rows that all see a key, and l and m of each row once."""
    return {**queries_outside_traffic(p, t), "Q": (p.N * p.d, 0), "O": (0, p.N * p.dv), "l": (0, p.N), "m": (0, p.N)}


def later_traffic(p, t):
    """R = N (d + dv + 2) + Nk (d + dv) Tr, W = N (dv + 2) without a mask."""
    keys = cache_traffic(p, visited(p, t)["keys"], -(-p.N // t.rows_q))
    rows = {"O": (p.N * p.dv, p.N * p.dv), "l": (p.N, p.N), "m": (p.N, p.N)}
    return {"Q": (p.N * p.d, 0), **keys, **rows}


def merge_traffic(p, t):
    """R = 2 N (dv + 1), W = N (dv + 1)."""
    words = p.N * p.dv
    return {"O": (words, words), "LSE": (p.N, p.N), "Opart": (words, 0), "LSEpart": (p.N, 0)}


def hop_footprint(p, t):
    """That of flash2: Q, O, l, m, and then K, V and S."""
    rows_q, rows_k = min(t.rows_q, p.N), min(t.rows_k, p.Nk)
    return rows_q * (p.d + p.dv + 2) + cache_room(p, rows_k, rows_q * rows_k)


def merge_footprint(p, t):
    """O, LSE and m of a tile of rows, and one of the two results."""
    return min(t.rows_q, p.N) * (2 * p.dv + 3)


# ---------------------------------------------------------------- references in float64


def state_of(q, k, v):
    """O, l and m of queries that have seen some keys."""
    s = q @ k.T * q.shape[1] ** -0.5
    m = s.max(axis=1)
    return {"O": attention(q, k, v), "l": np.exp(s - m[:, None]).sum(axis=1), "m": m}


def hop_example(rng, p, visible):
    """Queries that have seen two keys, and more keys."""
    q, k, v = rng.normal(size=(p.N, p.d)), rng.normal(size=(p.Nk, p.d)), rng.normal(size=(p.Nk, p.dv))
    seen = {"before K": rng.normal(size=(2, p.d)), "before V": rng.normal(size=(2, p.dv))}
    return {"Q": q, "K": k, "V": v, **seen, **state_of(q, seen["before K"], seen["before V"])}


def hop_answer(hbm, p, visible):
    """Attention to the keys before and to those of this hop."""
    k, v = np.concatenate([hbm["before K"], hbm["K"]]), np.concatenate([hbm["before V"], hbm["V"]])
    all_visible = None if visible is None else np.pad(visible, ((0, 0), (2, 0)), constant_values=True)
    return {"O": attention(hbm["Q"], k, v, all_visible)}


def merge_example(rng, p, visible):
    """Two results of the same queries, and what they were made of."""
    q = rng.normal(size=(p.N, p.d))
    found = {"Q": q}
    for name in ("", "part"):
        k, v = rng.normal(size=(3, p.d)), rng.normal(size=(3, p.dv))
        state = state_of(q, k, v)
        lse = state["m"] + np.log(state["l"])
        found |= {f"K{name}": k, f"V{name}": v, f"O{name}": state["O"], f"LSE{name}": lse}
    return found


def gradients_example(rng, p, visible):
    """What a backward pass begins with, and D. Gradients of queries are 0 before."""
    found = backward_inputs(rng, p, visible)
    return {**found, "D": (found["dO"] * found["O"]).sum(axis=1)}


def dots_answer(hbm, p, visible):
    """D, from whole matrices."""
    return {"D": np.einsum("nv,nv->n", hbm["dO"], hbm["O"])}


def merge_answer(hbm, p, visible):
    """Attention to the keys of both results."""
    both = (np.concatenate([hbm[name], hbm[f"{name}part"]]) for name in "KV")
    return {"O": attention(hbm["Q"], *both)}


def known(schedule, exact_traffic, footprint, **more):
    return replace(schedule, exact_traffic=exact_traffic, footprint=footprint, **more)


SCHEDULES = [
    known(FIRST, first_traffic, flash_footprint),
    known(HOP, later_traffic, hop_footprint, example=hop_example, answer=hop_answer),
    known(MERGE, merge_traffic, merge_footprint, example=merge_example, answer=merge_answer),
    known(GRADIENTS, gradients_traffic, gradients_footprint, example=gradients_example, answer=backward_output),
    known(DOTS, dots_traffic, dots_footprint, example=backward_inputs, answer=dots_answer),
]
