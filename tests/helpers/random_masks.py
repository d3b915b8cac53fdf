"""Random masks of tokens."""

ATOMS = ["causal", "window:0", "window:{}", "global:{}", "strided:{}", "dense", "sink:{}", "chunk:{}", "dilated:2:{}"]


def random_mask(rng, depth=2):
    """The text of an atom, a negation, or a join of masks; some hide everything."""
    kind = rng.random()
    if depth == 0 or kind < 0.5:
        return rng.choice(ATOMS).format(rng.randint(0, 7) or 1)
    if kind < 0.65:
        return f"~({random_mask(rng, depth - 1)})"
    return f"({random_mask(rng, depth - 1)}){rng.choice('&|')}({random_mask(rng, depth - 1)})"
