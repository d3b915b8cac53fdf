"""Words and room of the texts across GPUs, derived by hand from their papers and never from the texts.

`words` are those that all GPUs receive for one sequence, by tensor, and `room` the most words in the memory of one.
"""

from collections import Counter

from iosim import Folded
from iosim.distributed.arrivals import Loads


def arrivals(scheme, t):
    """The loads of a scheme with one split that bring words from other GPUs."""
    loads = Loads(t)
    Folded(t.run, loads).run(scheme.bind(t), scheme.tiling(t))
    return loads


def sent(scheme, t):
    """{(sender, receiver, tensor): words}, as iosim counts them."""
    loads, found = arrivals(scheme, t), Counter()
    for r in range(t.ranks):
        for arrival in loads.arrivals(r):
            for sender in arrival.senders:
                if sender != r:
                    found[sender, r, arrival.tensor] += arrival.of(sender)
    return +found


def words(scheme, t):
    """All words that are not 0."""
    ahead, back = forward_words(scheme.name, t), {}
    if scheme.kind != "forward":
        back = backward_words(scheme.name, t, scheme.kind == "step")
    return +(Counter(back) + Counter(ahead if scheme.kind != "backward" else {}))


def room(scheme, t):
    ahead = forward_room(scheme.name, t)
    if scheme.kind == "forward":
        return ahead
    found = backward_room(scheme.name, t)
    return max(found, ahead, kept_room(scheme.name, t)) if scheme.kind == "step" else found


def width(p):
    """The words of a key's row, by tensor; V is in K if it is latent."""
    return {"K": p.d} if p.latent else {"K": p.d, "V": p.dv}


def keys_of_ring(name, t):
    """Keys that come from other groups: of (P - u) Nk those that a mask shows, if only these are sent."""
    return t.apart * sum(t.hops.needed) if name.endswith("-needed") else t.problem.Nk * (t.ranks - t.apart)


def once_more(name, t):
    """The keys of a hop more, in which keys come home."""
    return t.problem.Nk * t.apart * (name == "ring-coded" and t.ring > 1)


MESH, ROUND, DECODING = ("mesh", "all-gather"), ("pass-q",), ("tree", "gathered-q")


def forward_words(name, t):
    """Keys go round: each GPU receives all keys but its own, of the KV heads that it works on, and Q of its heads from
    the other u - 1 GPUs of its group, and O of its tokens back. A mesh gathers the queries of b - 1 and the keys of a - 1
    others, and receives b - 1 partial results. Where queries go round every row goes to P - 1 other GPUs, and as many
    partial results come back; in decoding P - 1 GPUs receive each row, or P - 1 shares of each row are received."""
    p, u = t.problem, t.apart
    if name in (*ROUND, *DECODING, *MESH):
        others = t.keys_apart - 1 if name in MESH else t.ranks - 1
        rows, keys = p.N * others * p.heads, p.Nk * (t.rows_apart - 1) * p.kv_heads * (name in MESH)
        return {"Q": rows * p.d, "Opart": rows * p.dv, "LSEpart": rows, **{x: keys * w for x, w in width(p).items()}}
    exchanged = p.N * (u - 1) * (p.heads // u)
    keys = (p.Nk * (u - 1) + keys_of_ring(name, t) + once_more(name, t)) * t.kv_heads
    return {"Q": exchanged * p.d, **{x: keys * w for x, w in width(p).items()}, "Oheads": exchanged * p.dv}


def backward_words(name, t, step):
    """Keys go round: in place of O dO comes and dQ goes back, and dK and dV follow the keys, and go home in the group.
    LSE and D come with dO. A mesh gathers Q, dO, LSE, D and the keys, and receives parts of dQ, dK and dV. Where rows go
    round they have dO, LSE and D, and parts of dQ come back. A step has kept what the forward pass gathered, but not
    what came round; LSE lies where it is needed, if heads were exchanged."""
    p, u = t.problem, t.apart
    if name in ROUND:
        rows = p.N * (t.ranks - 1) * p.heads
        return {"Q": rows * p.d, "dO": rows * p.dv, "LSE": rows, "D": rows, "dQpart": rows * p.d}
    if name in MESH:
        rows, keys = p.N * (t.keys_apart - 1) * p.heads, p.Nk * (t.rows_apart - 1) * p.kv_heads
        found = {"dO": rows * p.dv, "LSE": rows, "D": rows, "dQpart": rows * p.d}
        found |= {f"d{x}part": keys * w for x, w in width(p).items()}
        return found if step else {**found, "Q": rows * p.d, **{x: keys * w for x, w in width(p).items()}}
    rows, group, ring = p.N * (u - 1) * (p.heads // u), p.Nk * (u - 1), keys_of_ring(name, t)
    found = {"dO": rows * p.dv, "D": rows, "dQheads": rows * p.d}
    found |= {} if step else {"Q": rows * p.d, "LSE": rows}
    for x, w in width(p).items():
        found[x] = (ring + (0 if step else group)) * t.kv_heads * w
        found[f"d{x}part"] = (ring + once_more(name, t)) * t.kv_heads * w
        found[f"d{x}heads"] = group * t.kv_heads * w
    return found


def came_keys(name, t):
    """Keys of a GPU that came from another group."""
    if name.endswith("-needed"):
        return max((visit.keys for _, visit in t.hops.others), default=0)
    return t.apart * t.nk * (t.ring > 1)


def forward_room(name, t):
    """Keys go round: Q, O, l and m of a group's tokens and own heads; two shards of K and V, one of which came. Else
    queries with their state and keys; then the merge of a partial result with its LSE into O, l and m."""
    p, w = t.problem, sum(width(t.problem).values())
    rows, keys, state = t.n * p.heads, t.nk * p.kv_heads * w, p.d + p.dv + 2
    if name in MESH:
        return max(t.keys_apart * rows * state + t.rows_apart * keys, rows * (2 * p.dv + 3))
    if name in ROUND:
        return max(keys + rows * p.d * (t.ranks > 1) + rows * state, rows * (2 * p.dv + 3))
    if name in DECODING:
        return max(p.N * p.heads * state + keys, p.N * t.heads * (2 * p.dv + 3))
    return rows * state + (t.apart * t.nk + came_keys(name, t)) * t.kv_heads * w


def backward_room(name, t):
    """Q, dO, LSE, D and dQ of rows, K, V, dK and dV; then the sums of gradients, and D before all. A shard of keys that
    came has its dK and dV beside it; rows that came have their part of dK and dV beside them."""
    p, a, b, w = t.problem, t.rows_apart, t.keys_apart, t.problem.d + t.problem.dv
    rows, keys, of_row = t.n * p.heads, t.nk * p.kv_heads, 2 * p.d + p.dv + 2
    dots = rows * (2 * p.dv + 1)
    if name in ROUND:
        return max((3 if t.ranks > 1 else 2) * keys * w + rows * of_row, 2 * rows * p.d, dots)
    if name in MESH:
        sums = max(2 * rows * p.d, keys * 2 * p.d, keys * (p.d + 2 * p.dv))
        return max(b * rows * of_row + 2 * a * keys * w, sums, dots)
    shard = t.apart * t.nk * t.kv_heads
    came = came_keys(name, t) * t.kv_heads
    main = rows * of_row + shard * w + max(shard, 2 * came * (t.ring > 1)) * w
    return max(main, 2 * shard * p.d, shard * (p.d + 2 * p.dv), dots)  # dK and dV are summed one after the other


def kept_room(name, t):
    """What the forward pass of a step keeps, Q, K and V, and a copy of one of them."""
    p = t.problem
    if name in ROUND:
        return 0
    rows, keys = t.n * p.heads, t.apart * t.nk * t.kv_heads
    if name in MESH:
        rows, keys = t.keys_apart * rows, t.rows_apart * t.nk * p.kv_heads
    return rows * p.d + keys * (p.d + p.dv) + max(rows * p.d, keys * p.d, keys * p.dv)
