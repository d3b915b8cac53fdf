"""Runs of the texts of attention across GPUs, on every machine, with inputs of all heads in the order of the GPUs."""

import random

import numpy as np

from iosim import Attention, Capacity, Folded, Numeric, Tiling, Traffic
from iosim.core.machine import Machine
from iosim.core.problem import DENSE
from iosim.distributed.schedules import SCHEMES, splits_of
from iosim.masks import parse_mask
from iosim.oracles.attention import attention


def splits(name, P, mask="dense", **sizes):
    """The splits of a problem that a scheme may use."""
    return splits_of(SCHEMES[name], Attention(mask=parse_mask(mask), **sizes), P)


def one_and_others(cases, seed):
    """(one of the splits on 2 to 6 GPUs, chosen by a seed; all others)."""
    found = list(cases)
    one = random.Random(seed).choice([k for k, t in enumerate(found) if 2 <= t.ranks <= 6])
    return found.pop(one), found


def random_inputs(p, seed=0):
    """Random Q, K and V of all heads."""
    rng = np.random.default_rng(seed)
    return {
        "Q": rng.normal(size=(p.N, p.heads, p.d)),
        "K": rng.normal(size=(p.Nk, p.kv_heads, p.d)),
        "V": rng.normal(size=(p.Nk, p.kv_heads, p.dv)),
    }


def moved(traffic):
    """The words read, by tensor, of those of which any are."""
    return {name: int(reads) for name, (reads, writes) in traffic.tensors.items() if reads or writes}


def visible_to(t, scheme):
    """What the queries see, both in the order of the GPUs; None without a mask."""
    p = t.problem
    if p.mask is DENSE:
        return None
    queries = np.arange(p.N) if scheme.parts(t) == p.N or p.N % t.ranks else t.hops.order(p.N)
    return p.mask.bind(p, Tiling(1, 1)).visible_at(queries, t.hops.order(p.Nk))


def attention_of_heads(hbm, t, scheme):
    """O of all heads, by the oracle."""
    p, out = t.problem, []
    for h in range(p.heads):
        g = h // (p.heads // p.kv_heads)
        k = hbm["K"][:, g]
        out.append(attention(hbm["Q"][:, h], k, k[:, : p.dv] if p.latent else hbm["V"][:, g], visible_to(t, scheme)))
    return np.stack(out, axis=1)


def runs(scheme, t, *machines):
    """(traffic, footprint) of each machine."""
    found = []
    for machine in machines or (Folded, Machine):
        traffic, room = Traffic(), Capacity()
        machine(t.run, traffic, room).run(scheme.bind(t), scheme.tiling(t))
        found.append((traffic, room))
    return found


def numeric(scheme, t, *watchers):
    """The inputs of a numeric run, its traffic, and O."""
    hbm, traffic = random_inputs(t.problem), Traffic()
    machine = Numeric(t.run, hbm, traffic, *watchers).run(scheme.bind(t), scheme.tiling(t))
    return hbm, traffic, machine.array("O")
