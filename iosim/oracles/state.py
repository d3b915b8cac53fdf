"""The recurrence of attention with a state in float64, token by token, to judge chunks. It uses no tile step.

NumPy is loaded inside, so that a schedule can name its oracle without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np

    from ..core.typing import Array, Arrays


class Recurrence(NamedTuple):
    """The outputs (N, dv) of a recurrence, and the states (N + 1, d, dv): before each token, and at the end."""

    outputs: Array
    states: Array


def recurrence(q: Array, k: Array, v: Array, log_decay: Array, beta: Array | None, first: Array) -> Recurrence:
    """S = A S + k u^T and o = S^T q for each token, from the state `first` on.

    A is the exponential of `log_decay`, (N, 1) or (N, d). With `beta` (N,), u = beta (v - (A S)^T k), else u = v.
    """
    import numpy as np

    states, outputs = [np.asarray(first, np.float64)], []
    for t in range(len(q)):
        decayed = np.exp(np.asarray(log_decay[t], np.float64))[:, None] * states[-1]
        u = v[t] if beta is None else beta[t] * (v[t] - k[t] @ decayed)
        states.append(decayed + np.outer(k[t], u))
        outputs.append(q[t] @ states[-1])
    return Recurrence(np.array(outputs).reshape(-1, v.shape[1]), np.array(states))


def verifications(
    q: Array, k: Array, v: Array, log_decay: Array, beta: Array | None, first: Array, each: int, kept: int
) -> Recurrence:
    """The outputs of `recurrence` over `each` tokens at a time, every time from the state after the first `kept` of
    those before; and the states of the last time. v, gates and states may be of several heads, one below the other."""
    import numpy as np

    heads, outputs, states = len(v) // len(k), [], []
    for h in range(heads):
        rows, state = slice(h * len(k), (h + 1) * len(k)), np.split(first, heads)[h]
        values, decays, betas = v[rows], log_decay[rows], None if beta is None else beta[rows]
        for place in range(0, len(k), each):
            own = slice(place, place + each)
            b = None if betas is None else betas[own]
            found = recurrence(q[own], k[own], values[own], decays[own], b, state)
            outputs.append(found.outputs)
            state = found.states[kept]
        states.append(found.states)
    return Recurrence(np.concatenate(outputs), np.concatenate(states, axis=1))


def normalised(q: Array, k: Array, v: Array, first: Array, sums: Array) -> tuple[Array, Array, Array]:
    """(outputs, the last state, the last sum of keys) of linear attention, each row divided by its sum of weights, from
    a state and a sum of keys on."""
    import numpy as np

    q, k, v, first, sums = (np.asarray(x, np.float64) for x in (q, k, v, first, sums))
    weights = np.tril(np.einsum("nd,kd->nk", q, k))
    total = weights.sum(axis=1) + q @ sums
    outputs = (weights @ v + q @ first) / np.where(total == 0, 1, total)[:, None]
    return outputs, first + np.einsum("kd,kv->dv", k, v), sums + k.sum(axis=0)


def phi(x: Array, columns: int) -> Array:
    """The features of linear attention: powers 1, 1/2, 1/3, ... of elu(x) + 1, in so many columns."""
    import numpy as np

    x = np.asarray(x, np.float64)
    once = np.where(x > 0, 1 + x, np.exp(np.where(x > 0, 0, x)))
    d = x.shape[1]
    return np.stack([once[:, i % d] ** (1 / (1 + i // d)) for i in range(columns)], axis=1)


def tokens(rng: np.random.Generator, N: int, d: int, dv: int) -> Arrays:
    """Random Q and K of unit rows, and V: then no output grows with N or d faster than their square root."""
    q, k = (x / (x * x).sum(axis=1, keepdims=True) ** 0.5 for x in rng.normal(size=(2, N, d)))
    return {"Q": q, "K": k, "V": rng.normal(size=(N, dv))}
