"""Steps of attention across GPUs. Each is a whole schedule inside a GPU, on shards with all their heads.

Arrays have the axes (tokens, heads, words). H query heads share G KV heads in groups of H / G, in order. NumPy is
imported inside the steps of softmax.py, which do the work here, head by head.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .backward import (
    add_key_gradients,
    add_query_gradients,
    add_value_gradients,
    probabilities_from_lse,
    probability_gradients,
    row_dots,
    score_gradients,
)
from .softmax import AnyStep, accumulate, hide, log_sum_exp, merge, normalise, online_softmax, scores

if TYPE_CHECKING:
    from .softmax import Array


def inside(schedule: str) -> Callable[[AnyStep], AnyStep]:
    """A mark with the schedule that a step is, inside a GPU: the name of a kind of work, as `hop`."""

    def mark(step: AnyStep) -> AnyStep:
        step.__dict__["inside"] = schedule
        return step

    return mark


def masked(q: Array, k: Array, visible: Array, h: int, g: int) -> Array:
    """S of one head, -inf where hidden."""
    import numpy as np

    s = np.empty((q.shape[0], k.shape[0]), np.result_type(q.dtype, np.float32))
    scores(s, q[:, h], k[:, g])
    hide(s, visible)
    return s


@inside("first")
def attend_own(m: Array, l: Array, o: Array, q: Array, k: Array, v: Array, visible: Array) -> None:
    """Attention of a shard of queries to the first shard of keys; the arguments are those of `attend_shard`."""
    attend_shard(m, l, o, q, k, v, visible)


@inside("hop")
def attend_shard(m: Array, l: Array, o: Array, q: Array, k: Array, v: Array, visible: Array) -> None:
    """Add a shard of keys to the attention of a shard of queries.

    m and l (rows, H) and o (rows, H, dv) are the state of online softmax, o not yet divided by l. q (rows, H, d),
    k (keys, G, d), v (keys, G, at least dv), visible (rows, keys) of booleans.
    """
    if not visible.any():
        return
    share = q.shape[1] // k.shape[1]
    for h in range(q.shape[1]):
        s = masked(q, k, visible, h, h // share)
        online_softmax(s, m[:, h], l[:, h], o[:, h])
        accumulate(o[:, h], s, v[:, h // share])


def finish(o: Array, l: Array, m: Array) -> None:
    """O / l in the place of O (rows, H, dv), and LSE in the place of l (rows, H), from m (rows, H)."""
    normalise(o.reshape(-1, o.shape[-1]), l.reshape(-1))
    log_sum_exp(l, m)


@inside("merge")
def merge_parts(m: Array, l: Array, o: Array, part: Array, lse: Array) -> None:
    """Add the partial result of another GPU: m, l (rows, H) and o (rows, H, dv); part (..., rows, H, dv), divided by
    its row sums, with its lse (..., rows, H)."""
    merge(m.reshape(-1), l.reshape(-1), o.reshape(-1, o.shape[-1]), part.reshape(-1, o.shape[-1]), lse.reshape(-1))


def take_part(m: Array, l: Array, o: Array, part: Array, lse: Array) -> None:
    """Begin with the partial result of the GPU itself. It lies where the sum will lie; arguments as `merge_parts`."""
    merge_parts(m, l, o, part, lse)


@inside("dots")
def dots(delta: Array, do: Array, o: Array) -> None:
    """D = rowsum(dO * O): delta (rows, H), do and o (rows, H, dv)."""
    row_dots(delta.reshape(-1), do.reshape(-1, do.shape[-1]), o.reshape(-1, o.shape[-1]))


@inside("backward")
def shard_gradients(
    dq: Array, dk: Array, dv: Array, q: Array, do: Array, lse: Array, delta: Array, k: Array, v: Array, visible: Array
) -> None:
    """Add the gradients of a shard of queries and a shard of keys: dq (rows, H, d), dk (keys, G, d), dv (keys, G, dv);
    q (rows, H, d), do (rows, H, dv), lse and delta (rows, H), k (keys, G, d), v (keys, G, dv), visible (rows, keys)."""
    import numpy as np

    if not visible.any():
        return
    share = q.shape[1] // k.shape[1]
    for h in range(q.shape[1]):
        g = h // share
        p, dp = masked(q, k, visible, h, g), np.empty(visible.shape, dq.dtype)
        probabilities_from_lse(p, lse[:, h])
        probability_gradients(dp, do[:, h], v[:, g])
        score_gradients(dp, p, delta[:, h])
        add_value_gradients(dv[:, g], p, do[:, h])
        add_query_gradients(dq[:, h], dp, k[:, g])
        add_key_gradients(dk[:, g], dp, q[:, h])


def add(total: Array, part: Array) -> None:
    """Add a part: both of one shape."""
    total += part


def add_some(total: Array, part: Array, which: Array) -> None:
    """Add a part to some rows of a total; `which` are booleans of its rows."""
    total[which] += part


def copy(new: Array, old: Array) -> None:
    """The same words in another place: both of one shape."""
    new[...] = old


def sum_copies(total: Array, copies: Array) -> None:
    """The sum over the copies of each head: total (keys, G, d), copies (keys, u, d), where u is a multiple of G."""
    keys, heads, width = total.shape
    total[...] = copies.reshape(keys, heads, -1, width).sum(axis=2)
