"""Words that all devices together receive in well-known schedules, each by hand from its description.

A problem is one KV head of one sequence, with the rows of all heads of the group. alpha is the words of a row and beta
of a key, as docs/distributed-proofs.md has them. Log-sum-exp is not counted.
"""


def widths(problem, backward=False, step=False):
    """(alpha, beta)."""
    d, dv = problem.d, problem.dv
    if step:
        return 2 * (d + dv), 2 * (d + dv)
    if backward:
        return 2 * d + dv, 2 * (d + dv)
    return d + dv, d if problem.latent else d + dv


def ring(problem, P, **what):
    """K and V (in a backward pass also dK and dV) visit P - 1 devices."""
    return problem.batch * problem.kv_heads * (P - 1) * widths(problem, **what)[1] * problem.Nk


def pass_q(problem, P, **what):
    """Rows visit P - 1 devices, and their partial results come back."""
    return problem.batch * problem.heads * (P - 1) * widths(problem, **what)[0] * problem.N


def ulysses(problem, P, **what):
    """Every problem goes to one device, and its results go home: a share (P - 1) / P of all words."""
    alpha, beta = widths(problem, **what)
    words = problem.batch * (problem.heads * alpha * problem.N + problem.kv_heads * beta * problem.Nk)
    return words * (P - 1) // P


def mesh(problem, a, b, **what):
    """Rows in a parts, keys in b parts: each device gathers its rows and its keys, and has 1 / ab of both."""
    alpha, beta = widths(problem, **what)
    rows, keys = problem.batch * problem.heads * problem.N, problem.batch * problem.kv_heads * problem.Nk
    return b * alpha * rows + a * beta * keys - alpha * rows - beta * keys


def ulysses_of_meshes(problem, P, a, b, **what):
    """The KV heads go to groups of a x b devices, and each group is a mesh. Needs P = KV heads x batch x a x b."""
    alpha, beta = widths(problem, **what)
    group = problem.heads // problem.kv_heads
    one = alpha * group * problem.N // a + beta * problem.Nk // b - (alpha * group * problem.N + beta * problem.Nk) // P
    assert problem.batch * problem.kv_heads * a * b == P
    return P * one
