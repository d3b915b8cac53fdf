"""Random masks, from the atoms of the table that have numbers or none, and that are counted by their shape."""

from iosim.masks.atoms import ROWS

COUNTED = [row for row in ROWS if not row.read and (row.shape or row.stands_for)]


def random_atom(rng, most, suffix="", rows=COUNTED):
    """The text of an atom whose numbers are at most `most`. With the suffix b it counts tiles, if it can."""
    row = rng.choice(rows)
    if row.syntax == row.name:
        return f"{row.name}:b" if suffix and row.tiles else row.name
    return ":".join([row.name, *(f"{rng.randint(least, most)}{suffix}" for least in row.least)])


def random_mask(rng, depth=2, suffix=""):
    """The text of an atom, a negation, or a join of masks; some hide everything."""
    kind = rng.random()
    if depth == 0 or kind < 0.5:
        return random_atom(rng, 7, suffix)
    first = random_mask(rng, depth - 1, suffix)
    if kind < 0.65:
        return f"~({first})"
    return f"({first}){rng.choice('&|')}({random_mask(rng, depth - 1, suffix)})"
