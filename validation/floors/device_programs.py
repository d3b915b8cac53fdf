"""The exact least words across devices of tiny problems, by integer programs. Needs SciPy; uses nothing of iosim.

A program chooses on which device each product p v is computed, where each product q k of its score is computed, and so
which words every device must receive. Memory is not limited. Words go straight from their home to where they are used,
and partial results straight to the device of their sum. The optimum is an upper bound that a real schedule reaches, so
it must not be below a floor.

    forward(tiny)           homes fixed: P3 and the causal floors
    balanced(tiny, most)    the same with at most `most` products a device: P4
    free(tiny, most)        any homes, at most `most` products a device: P1
    step(tiny)              forward and backward in one run, d = dv = 1: P3s
    meeting(homes, ...)     the set lemma
"""

from collections.abc import Callable, Hashable, Iterable
from typing import NamedTuple

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

Pair = Callable[[int, int], bool]
Home = Callable[[int], int]


def everything(i: int, j: int) -> bool:
    return True


class Tiny(NamedTuple):
    """A problem with one head. Rows and keys lie on the devices that `home_q` and `home_k` give."""

    N: int
    Nk: int
    p: int
    d: int
    dv: int
    home_q: Home
    home_k: Home
    visible: Pair = everything


class Program:
    """Binary variables by name with their costs, and constraints: sum of factor x variable >= least."""

    def __init__(self) -> None:
        self.names: dict[Hashable, int] = {}
        self.costs: list[float] = []
        self.rows: list[tuple[dict[int, int], int]] = []

    def var(self, *name: Hashable, cost: float = 0) -> int:
        """The number of a variable. Its cost is that of the first call."""
        if name not in self.names:
            self.names[name] = len(self.costs)
            self.costs.append(cost)
        return self.names[name]

    def at_least(self, terms: Iterable[tuple[int, int]], least: int) -> None:
        row: dict[int, int] = {}
        for factor, var in terms:
            row[var] = row.get(var, 0) + factor
        self.rows.append((row, least))

    def implies(self, first: int, second: int) -> None:
        """If the first is chosen, so is the second."""
        self.at_least([(1, second), (-1, first)], 0)

    def solve(self, seconds: float = 60) -> tuple[int, int]:
        """(least cost found, proven lower bound on it), both whole."""
        data, indices, starts = [], [], [0]
        for row, _ in self.rows:
            indices += row.keys()
            data += row.values()
            starts.append(len(data))
        matrix = csr_array((data, indices, starts), shape=(len(self.rows), len(self.costs)))
        found = milp(
            np.array(self.costs),
            integrality=np.ones(len(self.costs)),
            bounds=Bounds(0, 1),
            constraints=LinearConstraint(matrix, [least for _, least in self.rows], np.inf),
            options={"time_limit": seconds, "mip_rel_gap": 0},
        )
        if found.x is None:
            return -1, int(np.ceil(found.mip_dual_bound - 1e-6))
        return round(found.fun), int(np.ceil(found.mip_dual_bound - 1e-6))


def score(
    program: Program, p: int, d: int, pair: tuple[int, int], where: int, words: tuple[str, str], kind: str
) -> int:
    """A variable: the score `kind` of a pair is on device `where`. Its d products may be computed on several devices,
    each of which sends one word."""
    i, j = pair
    here = program.var(kind, i, j, where)
    for m in range(d):
        made = [program.var("made", kind, i, j, m, u, where) for u in range(p)]
        program.at_least([(1, v) for v in made] + [(-1, here)], 0)
        for u, v in enumerate(made):
            program.implies(v, program.var(words[0], i, m, u))
            program.implies(v, program.var(words[1], j, m, u))
            if u != where:
                program.implies(v, program.var("sent", kind, i, j, u, where, cost=1))
    return here


def declare(program: Program, name: str, count: int, width: int, p: int, home: Home) -> None:
    """Words (name, row, column, device), which cost 1 beside their home."""
    for i in range(count):
        for m in range(width):
            for t in range(p):
                program.var(name, i, m, t, cost=t != home(i))


def use(program: Program, product: tuple, scores: list[int], words: list[tuple]) -> list[int]:
    """Choose a device for a product; there it needs the score's variable and the words. Gives a variable a device."""
    chosen = [program.var("product", *product, t) for t in range(len(scores))]
    program.at_least([(1, v) for v in chosen], 1)
    for t, v in enumerate(chosen):
        program.implies(v, scores[t])
        for word in words:
            program.implies(v, program.var(*word, t))
    return chosen


def forward_program(one: Tiny) -> tuple[Program, list[list[int]]]:
    """The program of a forward pass with fixed homes, and the devices of each product."""
    program, p, products = Program(), one.p, []
    declare(program, "q", one.N, one.d, p, one.home_q)
    declare(program, "o", one.N, one.dv, p, one.home_q)
    declare(program, "k", one.Nk, one.d, p, one.home_k)
    declare(program, "v", one.Nk, one.dv, p, one.home_k)
    for i in range(one.N):
        seen = [j for j in range(one.Nk) if one.visible(i, j)]
        for j in seen:
            scores = [score(program, p, one.d, (i, j), t, ("q", "k"), "s") for t in range(p)]
            if len(seen) == 1:  # p = 1 needs no score
                scores = [program.var("free", i, j, t) for t in range(p)]
            for m in range(one.dv):
                products.append(use(program, ("o", i, j, m), scores, [("v", j, m), ("o", i, m)]))
    return program, products


def forward(one: Tiny, seconds: float = 60) -> tuple[int, int]:
    """(least words found, proven lower bound) of a forward pass whose rows and keys have fixed homes."""
    return forward_program(one)[0].solve(seconds)


def balanced(one: Tiny, most: int, seconds: float = 60) -> tuple[int, int]:
    """The same if each device computes at most `most` products p v."""
    program, products = forward_program(one)
    for t in range(one.p):
        program.at_least([(-1, product[t]) for product in products], -most)
    return program.solve(seconds)


def free(one: Tiny, most: int, seconds: float = 60) -> tuple[int, int]:
    """The same for any homes, if each device computes at most `most` products p v. Each input word lies on one of the
    devices that use it, and each output word ends on one that adds to it, so one of its words costs nothing."""
    least, bound = balanced(one._replace(home_q=lambda i: -1, home_k=lambda j: -1), most, seconds)
    once = (one.N + one.Nk) * (one.d + one.dv)
    return least - once, bound - once


def gradient_score(program: Program, p: int, i: int, j: int, s: list[int], dp: list[int]) -> list[int]:
    """For each device a variable: dS of a pair is there, computed from p and dP, or received."""
    ds = [program.var("ds", i, j, t) for t in range(p)]
    for t in range(p):
        made = program.var("ds made", i, j, t)
        got = [program.var("ds sent", i, j, u, t, cost=1) for u in range(p) if u != t]
        program.at_least([(1, made), (-1, ds[t]), *((1, g) for g in got)], 0)
        program.implies(made, s[t])
        program.implies(made, dp[t])
        for u in (u for u in range(p) if u != t):
            program.implies(program.var("ds sent", i, j, u, t), program.var("ds made", i, j, u))
    return ds


def step(one: Tiny, backward_only: bool = False, seconds: float = 60) -> tuple[int, int]:
    """The same for a backward pass, with the forward pass in the same run unless `backward_only`; d = dv = 1."""
    program, p = Program(), one.p
    for name in ("q", "do", "dq", "o"):
        declare(program, name, one.N, 1, p, one.home_q)
    for name in ("k", "v", "dk", "dv"):
        declare(program, name, one.Nk, 1, p, one.home_k)
    for i in range(one.N):
        for j in range(one.Nk):
            s = [score(program, p, 1, (i, j), t, ("q", "k"), "s") for t in range(p)]
            dp = [score(program, p, 1, (i, j), t, ("do", "v"), "dp") for t in range(p)]
            ds = gradient_score(program, p, i, j, s, dp)
            use(program, ("dv", i, j), s, [("do", i, 0), ("dv", j, 0)])
            use(program, ("dq", i, j), ds, [("k", j, 0), ("dq", i, 0)])
            use(program, ("dk", i, j), ds, [("q", i, 0), ("dk", j, 0)])
            if not backward_only:
                use(program, ("o", i, j), s, [("v", j, 0), ("o", i, 0)])
    return program.solve(seconds)


def meeting(homes: list[int], p: int, x: int, y: int, visible: Pair = everything, seconds: float = 60) -> int:
    """The least x sum(|A_r| - 1) + y sum(|B_s| - 1) of sets of p devices that meet for each visible (r, s). A_r and B_r
    contain the r-th home."""
    program = Program()
    for name, cost in (("A", x), ("B", y)):
        for r, home in enumerate(homes):
            for t in range(p):
                program.var(name, r, t, cost=cost * (t != home))
    for r in range(len(homes)):
        for s in (s for s in range(len(homes)) if visible(r, s)):
            both = [program.var("both", r, s, t) for t in range(p)]
            program.at_least([(1, v) for v in both], 1)
            for t, v in enumerate(both):
                program.implies(v, program.var("A", r, t))
                program.implies(v, program.var("B", s, t))
    least, bound = program.solve(seconds)
    assert least == bound, "not solved to the end"
    return least
