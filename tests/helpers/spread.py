"""Cases of a test of which some are long: the short run has a spread of them, `-m long` the others."""

import pytest


def spread(cases, short, ids=str):
    """Parameters of a test, one for each case, which may be a tuple. Those for which `short(case)` is false are long."""
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)), id=ids(case), marks=() if short(case) else pytest.mark.long
        )
        for case in cases
    ]


def first_with(names_of):
    """short(case) for `spread`: a case is short if it has a name that no earlier case has. `names_of` says which names a
    case has: its schedule, its mask, its types."""
    seen = set()

    def short(case):
        new = set(names_of(case)) - seen
        seen.update(new)
        return bool(new)

    return short
