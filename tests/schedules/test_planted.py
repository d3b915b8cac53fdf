"""Planted mistakes: each is caught by the checks that are named, and by no other. All machines agree on most of them,
because they run the same schedule."""

import numpy as np
import pytest
from verdicts import mutant, wrong

from iosim import SCHEDULES, Attention, Tiling
from iosim.core.problem import Tensor
from iosim.masks import parse_mask
from iosim.masks.dropout import Dropout
from iosim.steps.passes import add_maximum_and_sum
from iosim.steps.softmax import online_softmax, zeros
from iosim.steps.state import add_chunk

CAUSAL = parse_mask("causal")
ABOUT = {  # the problem and the tiles of each schedule
    "flash2": (Attention(13, 4, Nk=11), Tiling(4, 3)),
    "flash1-bwd": (Attention(13, 4, Nk=11, mask=CAUSAL, dropout=Dropout(0.2)), Tiling(4, 3)),
    "flash2-bwd": (Attention(13, 4, Nk=11, mask=CAUSAL, dropout=Dropout(0.2)), Tiling(4, 3)),
    "flash2-bwd-stored-p-ds": (Attention(13, 4, Nk=11, mask=CAUSAL, dropout=Dropout(0.2)), Tiling(4, 3, rows_o=5, cols_o=3)),
    "small-cache-bwd": (Attention(13, 4, Nk=11, mask=CAUSAL, dropout=Dropout(0.2)), Tiling(4, 3, depth=2, rows_o=5, cols_o=3)),
    "flash2-bwd-panels": (Attention(13, 4, Nk=11, dv=7, mask=CAUSAL), Tiling(4, 3, rows_o=5, cols_o=3)),
    "memory-efficient": (Attention(13, 4, Nk=17, dv=9, mask=CAUSAL), Tiling(4, 3)),
    "flash2-pinned": (Attention(13, 4, Nk=17, dv=9), Tiling(4, 3, kept=7)),
    "state-fused": (Attention(13, 4, dv=5, rule="gdn"), Tiling(4, 1)),
    "state-fused packed": (Attention(13, 4, dv=5, rule="gdn", heads=6, key_heads=2, gqa="pack").packed, Tiling(4, 1)),
    **dict.fromkeys(("state-split", "state-saved"), (Attention(13, 4, dv=5, rule="gdn"), Tiling(4, 1, cols_o=2))),
    "state-decode": (Attention(7, 4, dv=5, rule="gdn"), Tiling(1, 1, cols_o=2)),
    "state-ring": (Attention(7, 4, dv=5, rule="gdn", ring=3, initial_state=True), Tiling(1, 1, cols_o=2)),
    "state-verify": (Attention(7, 4, dv=5, rule="gdn", ring=3, drafts=3, accepted=1), Tiling(1, 1, cols_o=2)),
    "state-tiles": (Attention(13, 4, dv=5, rule="gla"), Tiling(4, 1, cols_o=2, depth=3)),
    "matmul-tiled": (Attention(10, 7, Nk=9), Tiling(4, 3, depth=2)),
    "softmax-2pass": (Attention(5, 2, Nk=9, mask=CAUSAL), Tiling(2, 4)),
    "small-cache": (Attention(9, 8, Nk=7), Tiling(2, 2, depth=2, rows_o=4, cols_o=3)),
    **dict.fromkeys(("split-kv", "paged", "paged-split-kv"),
                    (Attention(7, 4, Nk=26, splits=3, page_size=8, mask=parse_mask("window:9")), Tiling(4, 3))),
}  # fmt: skip


def no_rescale(s, m, l, o):
    """online_softmax that forgets to rescale the accumulator."""
    before = o.copy()
    online_softmax(s, m, l, o)
    o[...] = before


def sum_without_rescaling(m, l, s):
    before = l.copy()
    add_maximum_and_sum(m, l, s)
    l[...] = before + np.exp(s - m[:, None]).sum(axis=1)


def accumulate_half(o, p, v):
    """accumulate for a V with too few columns: the other columns of O stay as they are."""
    o[:, : v.shape[1]] += p @ v


def add_chunk_undecayed(state, k, u, g):
    """add_chunk that forgets the decay of the state."""
    add_chunk(state, k, u, g - g)


def copied(new, old):
    new[...] = old


HALF_OF_V = {"tensors": {"V": Tensor(("Nk", 2), "input")}, "accumulate": accumulate_half}  # the left half alone is read
SCORES, HIDE = "s = masked_scores(chip, p, i, j, q, keys)", "chip.update(s, hide, p.mask.part(i, j))"
GRADIENTS, DROP = "chip.update(dp, score_gradients, s, delta)", "drop, p.dropout_part(i, j))"
LOADS, RELOAD = 'q, do = chip.load("Q", i), chip.load("dO", i)', 'chip.load("Q", i)'
V, DIVIDED = 's, v = chip.load("S", i, j), chip.load("V", j, c)', "chip.update(o, normalise, l)"
O, ROWS = 'chip.store(o, "O", i)', "yield j, cache.load(rows"
MISTAKES = [  # (schedule, the function, what it says, what it shall say, the steps in the place of others, who notices)
    ("flash2", "queries_outside", 'q = chip.load("Q", i, where=mask.row(i))', f"q = {RELOAD}; chip.free(q); q = {RELOAD}", {}, {"formula"}),
    ("flash2", None, "", "", {"online_softmax": no_rescale}, {"output"}),
    ("flash2", "attend", SCORES, f'{SCORES}; chip.compute("K", (j, p.d), copied, keys.k)', {"copied": copied}, {"footprint"}),
    ("flash2", None, "", "", HALF_OF_V, {"output", "formula", "footprint"}),
    ("flash2", "attend", "chip.update(o, accumulate, s, keys.v)", f"chip.update(o, accumulate, s, keys.v); {O}", {}, {"formula"}),
    ("flash2", "queries_outside", O, f'{O}; chip.store(l, "l", i)', {}, {"formula"}),
    ("flash1-bwd", "keys_outside", HIDE, "pass", {}, {"output"}),
    ("flash1-bwd", "keys_outside", GRADIENTS, "pass", {}, {"output"}),
    ("flash2-bwd-stored-p-ds", "both_stored", "chip.update(s, clear, p.mask.part(i, r))", "pass", {}, {"output"}),
    ("flash2-bwd-stored-p-ds", "gradient", "chip.load(other, y, w), Place(w, c)", "chip.load(other, y, w), Place(w)", {}, {"output"}),
    ("small-cache-bwd", "part_of", "chip.update(part, clear, p.mask.part(i, j))", "pass", {}, {"output"}),
    ("small-cache-bwd", "sums", "where=seen.row(i)", "where=None", {}, {"formula"}),
    ("flash2-bwd-panels", "panels", "chip.tiles(p.N, 1, where=mask.column(j))", "chip.tiles(p.N, 1)", {}, {"formula"}),
    ("flash1-bwd", "keys_outside", f"chip.update(dp, {DROP}", "pass", {}, {"output"}),
    ("flash1-bwd", "keys_outside", GRADIENTS, f"chip.update(s, {DROP}; {GRADIENTS}", {}, {"output"}),
    ("flash1-bwd", "keys_outside", 'chip.store(dq, "dQ", i)', "pass", {}, {"output", "formula"}),
    ("flash1-bwd", "keys_outside", 'chip.store(dq, "dQ", i)', 'chip.store(dq, "dQ", i); chip.store(dk, "dK", j)', {}, {"formula"}),
    ("flash1-bwd", "keys_outside", 'dq, l, m = chip.load("dQ", i)', 'dq, l, m = chip.compute("dQ", (i, p.d), zeros)', {"zeros": zeros}, {"output", "formula"}),
    ("flash1-bwd", "keys_outside", "add_key_gradients, dp, q)", f"add_key_gradients, dp, {RELOAD})", {}, {"formula", "footprint"}),
    ("flash2-bwd", None, LOADS, f'{LOADS}; chip.load("O", i)', {}, {"formula", "footprint"}),
    ("flash2-bwd", None, 'dq = chip.load("dQ", i)', 'chip.free(lse); dq = chip.load("dQ", i)', {}, {"footprint"}),
    ("flash2-bwd", None, "add_value_gradients, s, do)", "add_value_gradients, dp, do)", {}, {"output"}),
    ("memory-efficient", None, "chip.tiles(seen(p, i), t.rows_k)", "chip.tiles(p.Nk, t.rows_k)", {}, {"formula"}),
    ("memory-efficient", None, "chip.tiles(seen(p, i), t.rows_k)", "chip.tiles(p.Nk, t.rows_k, where=p.mask.row(i))", {}, {"formula"}),
    ("memory-efficient", None, "chip.free(q, k)", "chip.free(k)", {}, {"footprint"}),
    ("memory-efficient", None, "chip.free(q, k)", "pass", {}, {"footprint"}),
    ("memory-efficient", None, "chip.free(q, k)", f"chip.free(q, k); {RELOAD}", {}, {"formula", "footprint"}),
    ("memory-efficient", None, HIDE, "pass", {}, {"output"}),
    ("memory-efficient", None, DIVIDED, "pass", {}, {"output"}),
    ("memory-efficient", None, "if p.lse:", "if True:", {}, {"formula"}),
    ("memory-efficient", None, "(s, m, l, o), online", '(s, m, l, chip.compute("O", (i, p.dv), zeros)), online', {}, {"output", "footprint"}),
    ("flash2-pinned", "all_keys", "Stretch(p.Nk, first.size, p.Nk - first.size)", "Stretch(p.Nk, 0, p.Nk - first.size)", {}, {"output"}),
    ("flash2-pinned", "all_keys", "Stretch(p.Nk, first.size, p.Nk - first.size)", "p.Nk", {}, {"output", "formula"}),
    ("flash2-pinned", "all_keys", "Keys(k[j], None, v[j])", 'Keys(chip.load("K", j), None, v[j])', {}, {"formula"}),
    ("flash2-pinned", "keys_stay", "Stretch(p.Nk, 0, kept(p, t))", "Stretch(p.Nk, 0, kept(p, t) - 1)", {}, {"formula", "footprint"}),
    ("flash2-pinned", "keys_stay", "chip.free(k, v)", "chip.free(k)", {}, {"error"}),
    ("state-fused", "take_in", "chip.update(state.S, add_chunk, k, u, *gates)", "pass", {}, {"output"}),
    ("state-fused", None, "", "", {"add_chunk": add_chunk_undecayed}, {"output"}),
    ("state-fused", "delta", "chip.free(s)", "pass", {}, {"footprint"}),
    ("state-fused", "output", 'chip.store(o, "O", c, state.x)', 'chip.load("Q", c); chip.store(o, "O", c, state.x)', {}, {"formula", "footprint"}),
    ("state-fused", "of_value_head", "output(chip, p, c, (k, v, *gates), state, q)", "take_in(chip, state, k, v, *gates); output(chip, p, c, (k, v, *gates), state, q)", {}, {"output"}),
    ("state-split", "fused_in_columns", "columns(p, t)", "p.dv", {}, {"formula", "footprint"}),
    ("state-tiles", "tiles_of_state", "m - rows), False)", "m - rows), True)", {}, {"output", "formula"}),
    ("state-saved", "states", "chip.update(u, less_state, chip.load(\"W\", own), S)", "chip.load(\"W\", own)", {}, {"output"}),
    ("state-saved", "states", 'chip.store(state.S, "H", slot(p, c, r), x)', 'chip.store(state.S, "H", r, x)', {}, {"error"}),
    ("state-saved", "outputs", 'state = chip.load("H", slot(p, c, head.state(p, r)))', 'state = chip.compute("H", (r, p.dv), zeros)', {}, {"output", "formula"}),
    ("state-saved", "slot", "((state_rows(p), c), (1, r))", "((1, r),)", {}, {"output"}),
    ("state-fused packed", "through_chunk", "head.state(p, state.r)", "Stretch(p.d * 3, 0, p.d)", {}, {"output"}),
    ("state-fused packed", "through_chunk", "k, own, q)", "k, own, chip.load(\"Q\", c))", {}, {"formula", "footprint"}),
    ("state-decode", "decode", 'chip.store(state.S, "slot", r, x)', "pass", {}, {"output", "formula"}),
    ("state-verify", "verification", "verified(p), kept(p))", "verified(p), verified(p))", {}, {"output"}),
    ("state-verify", "replay", "add_accepted(chip, p, UpTo(share, j, own=False), state)", "pass", {}, {"output", "formula"}),
    ("state-verify", "verification", "if first:\n", "if True:\n", {}, {"formula"}),
    ("state-verify", "verification", "((kept(p), j), *of_head)", "((verified(p), j), *of_head)", {}, {"output"}),
    ("state-verify", "add_accepted", 'chip.update(S, add_chunk, k, u, *decays(chip, p, own, tensor="gring"))',
     'decays(chip, p, own, tensor="gring")', {}, {"output"}),
    ("state-verify", "verification", 'chip.store(v, "Uring", place, state.x)', "pass", {}, {"output", "formula"}),
    ("state-ring", "step_of_ring", 'chip.store(v, "U", own, x)', "pass", {}, {"output", "formula"}),
    ("state-ring", "step_of_ring", "chip.update(o, ring_output, q, k, u, v, *gates)", "pass", {}, {"output"}),
    ("state-ring", "ring", "before := Ends(share, last=False)", "before := share", {}, {"formula", "footprint"}),
    ("state-ring", "last_of_ring", "chip.free(u, v)\n        if q is None:\n            chip.free(k)", "pass", {}, {"footprint"}),
    ("state-ring", "last_of_ring", 'chip.store(state, "slot", rows, x)', 'chip.store(state, "slot", rows, x); chip.store(v, "V", own, x)', {}, {"error"}),
    ("state-ring", "last_of_ring", "chip.update(state, add_ring, k, u, v, *gates)", "chip.update(state, add_chunk, k, chip.load(\"V\", share, x), *gates)", {"add_chunk": add_chunk}, {"output", "formula", "footprint"}),
    ("state-ring", "fill_slot", '"S0", rows, x), "slot"', '"S0", rows, x), "S0"', {}, {"output", "formula"}),
    ("matmul-tiled", "c_stays", "c = chip.compute(\"C\", (i, j), zeros)", 'c = chip.compute("C", (i, j), zeros); chip.compute("A", (i, p.d), zeros)', {}, {"footprint"}),
    ("matmul-tiled", "c_stays", "for k in chip.tiles(p.d, t.depth):\n", "for k in chip.tiles(p.d, t.depth):\n                chip.free(chip.load(\"A\", i, k))\n", {}, {"formula"}),
    ("matmul-tiled", "c_stays", "for k in chip.tiles(p.d, t.depth):\n", "for k in chip.tiles(p.d, t.depth):\n                chip.update(c, zeros)\n", {}, {"output"}),
    ("matmul-tiled", "c_stays", "for k in chip.tiles(p.d, t.depth):\n", "for k in chip.tiles(p.d, t.depth):\n                chip.store(c, \"C\", i, j)\n", {}, {"formula"}),
    ("softmax-2pass", None, "", "", {"add_maximum_and_sum": sum_without_rescaling}, {"output"}),
    ("softmax-2pass", "quotients", "chip.update(s, normalise, l)", "pass", {}, {"output"}),
    ("softmax-2pass", "softmax_2pass", "quotients(", "[load_scores(chip, p, i, j) for j in chip.tiles(p.Nk, t.rows_k)]; quotients(", {}, {"formula"}),
    ("softmax-2pass", "softmax_2pass", "quotients(", 'chip.store(m, "m", i); quotients(', {}, {"formula"}),
    ("softmax-2pass", "softmax_2pass", "load_scores(chip, p, i, j)", 'chip.load("S", i, j)', {}, {"output"}),
    ("small-cache", None, "", "", {"online_softmax": no_rescale}, {"output"}),
    ("small-cache", "online_output", DIVIDED, "pass", {}, {"output"}),
    ("small-cache", "online_output", 'chip.store(o, "O", i, c)', 'chip.store(o, "O", i, c); chip.store(l, "l", i)', {}, {"formula"}),
    ("small-cache", "online_output", V, V.replace('"V", j, c', '"V", j'), {"accumulate": lambda o, s, v: None}, {"output", "formula", "footprint"}),
    ("split-kv", None, 'chip.update(l, log_sum_exp, m)\n    chip.store(l, "LSEp', 'chip.store(l, "LSEp', {}, {"output"}),
    ("split-kv", None, f'{DIVIDED}\n    chip.store(o, "Op', 'chip.store(o, "Op', {}, {"output"}),
    ("split-kv", None, 'chip.store(l, "LSEpart", r)', 'chip.store(l, "LSEpart", r); chip.store(l, "LSEpart", r)', {}, {"formula"}),
    ("split-kv", "partial_result", "attend(chip", f"{RELOAD}; attend(chip", {}, {"formula", "footprint"}),
    ("split-kv", None, "(m, l, o), merge", '(m, l, chip.compute("O", (i, p.dv), zeros)), merge', {}, {"output"}),
    ("split-kv", None, "key_tiles, Share(p.Nk, share_rows(p), c)", "key_tiles, p.Nk", {}, {"formula"}),
    ("split-kv", None, "part, lse =", "r = Moved(partial_rows(p), i, ((1, i),)); part, lse =", {}, {"output"}),
    ("split-kv", "key_tiles", "t.rows_k, where=p.mask.row(i)", "t.rows_k", {}, {"formula"}),
    ("paged-split-kv", None, "page_tiles, share, page", "page_tiles, p.Nk, page", {}, {"formula"}),
    *((name, "page_tiles", *change, {}, caught) for name in ("paged", "paged-split-kv") for *change, caught in (
        ("cache.load(rows_of_page(p, b, j, entry))", "cache.load(Moved(cache_rows(p), j, ((1, j),)))", {"output"}),
        (ROWS, f'chip.load("table", PagesOf(pages(p), b, p[PAGE_SIZE])); {ROWS}', {"formula", "footprint"}),
        ("p[PAGE_SIZE], where=p.mask.row(i)", "p[PAGE_SIZE]", {"formula"}),
        ("t.rows_k, where=p.mask.row(i)", "t.rows_k", {"formula"}),
        (ROWS, f"cache.load(j); {ROWS}", {"error"}),  # a tile of keys indexes no cache in pages
    )),
]  # fmt: skip


@pytest.mark.parametrize("name, within, old, new, steps, caught", MISTAKES)
def test_a_mistake_is_caught(name, within, old, new, steps, caught):
    assert wrong(mutant(SCHEDULES[name.split()[0]], old, new, within, **steps), *ABOUT[name]) == caught


@pytest.mark.parametrize("name", ABOUT)
def test_the_text_without_a_mistake_passes_every_check(name):
    assert wrong(mutant(SCHEDULES[name.split()[0]]), *ABOUT[name]) == set()
