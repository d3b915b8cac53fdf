"""The options that a schedule lets `tune` choose beside tiles."""

import random

import pytest
from test_curve import every_tiling, staircase

from iosim import SCHEDULES, Attention
from iosim.schedules import decode
from iosim.tuning.curve import choices, free_steps, step_at
from iosim.tuning.least import curve, tune

CHOSEN = [s.name for s in SCHEDULES.values() if s.chosen]
PAGES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def allowed(name, p, multiple):
    """All problems that the definition in docs/tiles.md puts in the space."""
    key_tile = min(multiple, p.Nk)
    if name == "split-kv":
        splits = [s for s in range(1, p.Nk + 1) if -(-p.Nk // s) >= key_tile]
        return [with_option(p, splits=s) for s in splits]
    if name == "paged":
        pages = [page for page in PAGES if page < 2 * p.Nk]
        return [with_option(p, page_size=page) for page in pages if page >= key_tile] or [
            with_option(p, page_size=pages[-1])
        ]
    if name == "paged-split-kv":
        return [with_option(p, splits=s) for s in range(1, decode.pages(p) + 1)]
    return [p]


def with_option(p, **option):
    return Attention(**{**vars(p), **option})


def problems(name, count, most=11):
    rng = random.Random(name)
    for _ in range(count):
        sizes = {"Nk": rng.randint(1, most), "heads": rng.choice([1, 3]), "acc_dtype": rng.choice(["fp16", "fp32"])}
        sizes["page_size"] = 3 if name == "paged-split-kv" else 16
        yield Attention(rng.randint(1, most), rng.randint(1, 5), **sizes), rng.choice([1, 1, 2, 3, 4, 20]), rng


def test_the_schedules_that_let_choose():
    assert CHOSEN == ["split-kv", "paged", "paged-split-kv"]


@pytest.mark.parametrize("name", CHOSEN)
def test_the_first_choice_is_the_least_of_all(name):
    """At every M the result is that of trying all values and all tilings."""
    for p, multiple, _ in problems(name, 12):
        pairs = [pair for q in allowed(name, p, multiple) for pair in every_tiling(SCHEDULES[name], q, multiple)]
        found = free_steps(SCHEDULES[name], p, multiple, ())
        assert [(s.M_bytes, s.total_bytes) for s in found] == staircase(pairs), (p, multiple)


@pytest.mark.parametrize("name", CHOSEN)
def test_an_earlier_choice_is_never_worse(name):
    """At every M an earlier value is no worse, as `Schedule.chosen` says."""
    for p, multiple, _ in problems(name, 8):
        before = None
        for options in choices(SCHEDULES[name], p, multiple, ()):
            own = free_steps(SCHEDULES[name], with_option(p, **options), multiple, options)
            for step in own if before else []:
                better = step_at(before, step.M_bytes)
                assert better is not None and better.total_bytes <= step.total_bytes, (p, multiple, options)
            before = own


@pytest.mark.parametrize("multiple", [1, 2, 5, 50])
def test_every_number_of_shares_is_chosen_from_once(multiple):
    for Nk in (1, 7, 12, 40):
        p = Attention(1, 4, Nk=Nk)
        found = [o["splits"] for o in choices(SCHEDULES["split-kv"], p, multiple, ())]
        assert found == sorted(
            {decode.shares(with_option(p, splits=q.splits)) for q in allowed("split-kv", p, multiple)}
        )


@pytest.mark.parametrize("name, M", [("split-kv", 600), ("paged", 500), ("split-kv", 100_000)])
def test_one_m_finds_what_all_of_them_find(name, M):
    found = tune(100, 8, M, schedules=[name])
    step = step_at(curve(100, 8, schedules=[name]).steps, M)
    assert found.winner.total_bytes == step.total_bytes and found.winner.options == step.options != {}


def test_what_is_given_is_not_chosen(ask):
    size = ["tune", "--N", 16, "--Nk", 500, "--d", 8, "--M", "4KB", "--schedule", "split-kv", "--schedule", "paged"]
    free, fixed = ask(*size), ask(*size, "--splits", 4, "--page-size", 16)
    named = {r["schedule"]: r for r in free["results"]}
    assert named["split-kv"]["options"] == {"splits": 1} and named["paged"]["options"] == {"page_size": 256}
    for r in fixed["results"]:
        assert r["options"] == {} and r["total"] > named[r["schedule"]]["total"]
