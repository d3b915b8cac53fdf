"""Gradients of the recurrence of attention with a state in float64, token by token, to judge backward passes.

It uses no tile step. NumPy is loaded inside, so that a schedule can name its oracle without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .state import recurrence

if TYPE_CHECKING:
    import numpy as np

    from ..core.problem import Attention
    from ..core.typing import Array, Arrays


def gradients(hbm: Arrays, log_decay: Array, first: Array, last: Array) -> Arrays:
    """Gradients of the loss sum(dO * O) + sum(last * S_N) by the chain rule: dQ, dK, dV, dS0, dg, and dbeta if there is
    a beta.

    `hbm` has Q, K, V, dO, and beta (N,) for the delta rule. The decay of token t is exp(log_decay[t]), one for all
    words of a key or one each; dg is the gradient by log_decay. S starts as `first`.
    """
    import numpy as np

    q, k, v, do = (np.asarray(hbm[name], np.float64) for name in ("Q", "K", "V", "dO"))
    beta = hbm.get("beta")
    states = recurrence(q, k, v, log_decay, beta, first).states
    of = {"dQ": q, "dK": k, "dV": v, "dg": log_decay, **({} if beta is None else {"dbeta": beta})}
    found: Arrays = {name: np.zeros(np.shape(x)) for name, x in of.items()}
    ds = np.asarray(last, np.float64)
    for t in reversed(range(len(q))):
        decay = np.exp(np.asarray(log_decay[t], np.float64))[:, None]
        decayed = decay * states[t]
        ds = ds + np.outer(q[t], do[t])
        found["dQ"][t] = states[t + 1] @ do[t]
        b, rest = (1.0, v[t]) if beta is None else (beta[t], v[t] - k[t] @ decayed)
        du = k[t] @ ds
        found["dK"][t] = ds @ (b * rest)
        found["dV"][t] = b * du
        if beta is not None:
            found["dbeta"][t] = du @ rest
            found["dK"][t] -= b * decayed @ du
            ds = ds - b * np.outer(k[t], du)
        by_row = (ds * decayed).sum(axis=1)
        found["dg"][t] = by_row if log_decay.shape[1] > 1 or len(by_row) == 1 else by_row.sum()
        ds = decay * ds
    return {**found, "dS0": ds}


def given(rng: np.random.Generator, p: Attention) -> Arrays:
    """Random gradients of the outputs and of the last state of a problem."""
    return {"dO": rng.normal(size=(p.N, p.dv)), "dSN": rng.normal(size=(p.d, p.dv))}


def padded(found: Arrays, N: int) -> Arrays:
    """Gradients with N tokens: 0 for those at the end that are padding."""
    import numpy as np

    whole: Arrays = {name: np.zeros((N, *x.shape[1:])) for name, x in found.items() if name != "dS0"}
    for name, x in whole.items():
        x[: len(found[name])] = found[name]
    return {**found, **whole}


def slots(states: Array, N: int) -> Array:
    """States (n, d, dv) one below the other, with 0 for those of N tokens that are padding."""
    import numpy as np

    whole = np.zeros((N, *states.shape[1:]))
    whole[: len(states)] = states
    return whole.reshape(-1, states.shape[2])
