"""Prefixes that requests have in common: their tree, the floor of the batch as one problem, and the cascade."""

import numpy as np
import pytest

import iosim
from iosim.batches.cascade import LEVEL, MERGE
from iosim.batches.floor import floor_of, seen_by
from iosim.batches.requests import Part, Request, read_requests
from iosim.core.numeric import Numeric
from iosim.core.problem import DENSE, Attention, narrowed
from iosim.core.tiling import Tiling
from iosim.core.watchers import Traffic
from iosim.errors import InputError
from iosim.masks import parse_mask
from iosim.masks.grouped import grouped
from iosim.masks.visible import visible
from iosim.oracles.attention import attention

TREE = """new,cached,prefix
1,30,system:8/ann:6
2,20,system:8/ann:6
1,12,system:8
3,9,other:9
1,40,other:9
4,10,
"""
FIELDS = {"d": 8, "heads": 4, "kv_heads": 2, "mask": "causal"}


@pytest.fixture
def tree(tmp_path):
    path = tmp_path / "requests.csv"
    path.write_text(TREE)
    return str(path)


def test_a_tree_by_hand(tree):
    found = iosim.batch(tree, **FIELDS, tiles="4x4").batch
    assert [(node.tokens, node.users) for node in found.tree.shared] == [(8, (0, 1, 2)), (6, (0, 1)), (9, (3, 4))]
    assert found.tree.paths == {0: (0, 1), 1: (0, 1), 2: (0,), 3: (2,), 4: (2,)}
    assert found.tokens == 31 + 22 + 13 + 12 + 41 + 14 and found.distinct_tokens == found.tokens - 2 * 8 - 6 - 9
    assert sorted(found.tree.families()) == [(0, 1, 2), (3, 4)]


def test_hash_ids_are_a_tree_of_blocks(tmp_path):
    """Two requests share two blocks, and a third one ends within the second block."""
    path = tmp_path / "requests.jsonl"
    path.write_text(
        '{"new": 1, "cached": 1500, "hash_ids": [4, 5, 6]}\n'
        '{"new": 9, "cached": 1100, "hash_ids": [4, 5, 7]}\n'
        '{"new": 2, "cached": 700, "hash_ids": [4, 5, 8, 9]}\n'
    )
    found = iosim.batch(str(path), **FIELDS).batch
    assert [(node.tokens, node.users) for node in found.tree.shared] == [(700, (0, 1, 2)), (324, (0, 1))]
    assert found.distinct_tokens == 1501 + 1109 + 702 - 2 * 700 - 324


def test_numbers_alone_are_one_prefix():
    rows = [{"new": 1, "cached": 30, "prefix": 20}, {"new": 1, "cached": 30, "prefix": 12}]
    tree = iosim.batch([*rows, {"new": 1, "cached": 30}], **FIELDS).batch.tree
    assert [(node.tokens, node.users) for node in tree.shared] == [(12, (0, 1))]


# ---------------------------------------------------------------- the floor


def mask_of(batch):
    """Booleans (new tokens x distinct keys) of a batch as one problem, with an own column for each distinct token."""
    columns, rows = {}, []
    for index, request in enumerate(batch.requests):
        keys = [(part.key, k) for part in request.prefix for k in range(part.tokens)]
        keys += [(index, k) for k in range(request.tokens - len(keys))]
        places = [columns.setdefault(key, len(columns)) for key in keys]
        rows += [places[: request.cached + n + 1] for n in range(request.new)]
    table = np.zeros((len(rows), len(columns)), bool)
    for row, places in zip(table, rows, strict=True):
        row[places] = True
    return table


@pytest.mark.parametrize("M", [None, 200, 1000, 4000])
def test_the_floor_of_a_family_is_that_of_a_problem_with_its_mask(M, tmp_path):
    """The mask is written out, and the floor of that problem is found without batches."""
    rows = ["1,30,system:8/ann:6", "2,20,system:8/ann:6", "1,12,system:8"]
    path = tmp_path / "family.csv"
    path.write_text("new,cached,prefix\n" + "\n".join(rows) + "\n")
    batch = iosim.batch(str(path), **FIELDS, M=M, tiles="1x1").batch
    table = mask_of(batch)
    np.save(tmp_path / "mask.npy", table)
    mask = parse_mask(f"file:{tmp_path / 'mask.npy'}")
    whole = Attention(len(table), 8, table.shape[1], heads=4, kv_heads=2, mask=mask)
    assert floor_of(batch).words == iosim.floor(whole, M, tiles=Tiling(1, 1)).words
    assert floor_of(batch).pairs == table.sum()


def test_the_floors_of_families_and_of_others_add_up(tree):
    lines = TREE.splitlines()
    parts = [[*lines[:4]], [lines[0], *lines[4:6]], [lines[0], lines[6]]]
    found = []
    for part in parts:
        requests = [dict(zip(("new", "cached", "prefix"), line.split(","), strict=True)) for line in part[1:]]
        found.append(iosim.batch(requests, **FIELDS, M=1000, tiles="1x1").floor.words)
    assert iosim.batch(tree, **FIELDS, M=1000, tiles="1x1").floor.words == sum(found)


@pytest.mark.parametrize("M", [None, 500, "16KB"])
def test_the_floor_of_separate_requests_is_the_sum_of_theirs(M):
    found = iosim.batch("3 * 1:40, 9:9, 5:33, 1:1", **FIELDS, M=M, tiles="1x1").floor.words
    problems = [(1, 40)] * 3 + [(9, 9), (5, 33), (1, 1)]
    mask = parse_mask("causal")
    wanted = [iosim.floor(Attention(n, 8, k, heads=4, kv_heads=2, mask=mask), M).words for n, k in problems]
    assert found == sum(wanted)


def test_causal_visibility_is_that_of_visible():
    mask = parse_mask("causal")
    for new in range(1, 9):
        for tokens in range(new, 12):
            assert seen_by(mask, new, tokens) == visible(mask, new, tokens)
            assert seen_by(DENSE, new, tokens) == visible(DENSE, new, tokens)


# ---------------------------------------------------------------- the cascade


def test_the_words_of_a_cascade_by_hand(tree):
    """d = dv = 8, two KV heads, groups of two: packed rows are twice the new tokens. Tiles have 4 rows and 4 keys."""
    found = iosim.batch(tree, **FIELDS, tiles="4x4")["cascade"].tensors
    nodes = [(4, 8), (3, 6), (4, 9)]  # new tokens of all users, tokens
    below = [(1, 31 - 14), (2, 22 - 14), (1, 13 - 8), (3, 12 - 9), (1, 41 - 9)]
    rows = 2 * (sum(n for n, _ in nodes) + sum(n for n, _ in below) + 4)  # packed rows that read Q
    keys = sum(-(-2 * n // 4) * k for n, k in nodes)
    keys += sum(seen(n, k) for n, k in [*below, (4, 14)])
    partial = 2 * (sum(n for n, _ in nodes) + sum(n for n, _ in below))  # rows that are written and read
    assert found["Q"] == {"reads": 2 * rows * 8, "writes": 0, "bytes": 2 * 2 * rows * 8}
    assert found["K"] == found["V"] == {"reads": 2 * keys * 8, "writes": 0, "bytes": 2 * 2 * keys * 8}
    assert found["Opart"] == {"reads": 2 * partial * 8, "writes": 2 * partial * 8, "bytes": 8 * partial * 8}
    assert found["LSEpart"] == {"reads": 2 * partial, "writes": 2 * partial, "bytes": 8 * partial}
    assert found["O"]["writes"] == 2 * 2 * (1 + 2 + 1 + 3 + 1 + 4) * 8


def seen(new, tokens):
    """Keys that the tiles of 4 packed rows of a request load: whole tiles of 4 keys up to the last one they see."""
    total = 0
    for first in range(0, 2 * new, 4):
        last = (min(first + 4, 2 * new) - 1) // 2  # the last new token of the tile
        total += min(tokens, -(-(tokens - new + last + 1) // 4) * 4)
    return total


def test_a_numpy_run_of_a_cascade_gives_attention_and_its_words(tree):
    batch = iosim.batch(tree, **FIELDS, tiles="4x4")
    rng, tiling, moved = np.random.default_rng(2), Tiling(4, 4), {}
    requests, nodes, paths = batch.batch.requests, batch.batch.tree.shared, batch.batch.tree.paths
    base = Attention(1, 8, heads=1)
    of_nodes = [rng.normal(size=(2, node.tokens, 8)) for node in nodes]
    Q = [rng.normal(size=(2 * one.new, 8)) for one in requests]
    parts = {index: [] for index in paths}

    def walk(schedule, p, hbm):
        traffic = Traffic()
        machine = Numeric(p, hbm, traffic).run(schedule, tiling)
        for name, (reads, writes) in traffic.tensors.items():
            before = moved.get(name, (0, 0))
            moved[name] = before[0] + 2 * reads, before[1] + 2 * writes
        return machine

    for node, (K, V) in zip(nodes, of_nodes, strict=True):
        rows = np.concatenate([Q[user] for user in node.users])
        machine = walk(LEVEL, narrowed(base, N=len(rows), Nk=node.tokens), {"Q": rows, "K": K, "V": V})
        start = 0
        for user in node.users:
            part = slice(start, start + len(Q[user]))
            parts[user].append((machine.array("Opart")[part], machine.array("LSEpart")[part]))
            start = part.stop
    for index, path in paths.items():
        one, prefix = requests[index], np.concatenate([of_nodes[node] for node in path], axis=1)
        own = rng.normal(size=(2, one.tokens - prefix.shape[1], 8))
        p = narrowed(base, N=2 * one.new, Nk=own.shape[1], mask=grouped(parse_mask("causal"), 2))
        machine = walk(LEVEL, p, {"Q": Q[index], "K": own[0], "V": own[1]})
        parts[index].append((machine.array("Opart"), machine.array("LSEpart")))
        O, LSE = (np.concatenate(arrays) for arrays in zip(*parts[index], strict=True))
        merged = walk(MERGE, narrowed(p, mask=DENSE, splits=len(path) + 1), {"Opart": O, "LSEpart": LSE})
        K, V = np.concatenate([prefix, own], axis=1)
        visible_keys = np.arange(one.tokens)[None, :] <= np.arange(2 * one.new)[:, None] // 2 + one.cached
        assert np.allclose(merged.array("O"), attention(Q[index], K, V, visible_keys), rtol=1e-12, atol=1e-12)
    alone = iosim.batch("4:14", **FIELDS, tiles="4x4")["pack"].tensors
    for name, words in alone.items():
        before = moved.get(name, (0, 0))
        moved[name] = before[0] + words["reads"], before[1] + words["writes"]
    assert {n: (w["reads"], w["writes"]) for n, w in batch["cascade"].tensors.items()} == moved


@pytest.mark.parametrize("schedule", [LEVEL, MERGE])
def test_the_schedules_of_a_cascade_are_what_their_formulas_say(schedule):
    from iosim.core.machine import Machine

    rng = np.random.default_rng(4)
    for _ in range(40):
        N, Nk, splits, Br, Bc = (int(rng.integers(1, top)) for top in (20, 30, 5, 25, 13))
        mask = parse_mask("causal") if Nk >= N and schedule is LEVEL else DENSE
        p = Attention(N, 3, Nk, dv=2, splits=splits, mask=mask)
        traffic = Traffic()
        Machine(p, traffic).run(schedule, Tiling(Br, Bc))
        assert traffic.tensors == schedule.exact_traffic(p.tiled(Tiling(Br, Bc)), Tiling(Br, Bc))


def test_requests_of_one_shape_have_their_own_part_in_the_detail():
    """Two requests alike below a prefix: the words of each are those of a request with a prefix of its own."""
    rows = [{"new": 1, "cached": 40, "prefix": "a:8"}, {"new": 1, "cached": 20, "prefix": "a:8"}]
    found = iosim.batch([rows[0], *rows], **FIELDS, tiles="4x4", detail=True, ways="cascade").to_rows()
    other = iosim.batch(rows, **FIELDS, tiles="4x4", detail=True, ways="cascade").to_rows()
    each = [{row["part"]: (row["total"], row["bytes"]) for row in some if row.get("new")} for some in (found, other)]
    assert each[0] == each[1] and all(words > 0 for words, _ in each[0].values())


# ---------------------------------------------------------------- faults


@pytest.mark.parametrize(
    ("name", "text", "place", "word"),
    [
        ("a.csv", "new,cached,prefxi\n1,2,3\n", "line 1, column 3", "prefix"),
        ("a.csv", "new\n1\n", "line 1", "cached is missing"),
        ("a.csv", "", "line 1", "new and cached"),
        ("a.csv", "new,cached\n", "--requests", "at least one"),
        ("a.csv", "new,cached\n1,5\n1\n", "line 3", "2, as in its header"),
        ("a.csv", "new,cached\n1,5\n1,x\n", "line 3, column cached", "whole number"),
        ("a.csv", "new,cached\n0,5\n", "line 2, column new", "from 1"),
        ("a.csv", "new,cached,prefix\n1,5,system:9\n", "line 2, column prefix", "at most the 5"),
        ("a.csv", "new,cached,prefix\n1,5,system\n", "line 2, column prefix", "system:1024"),
        ("a.csv", "new,cached,prefix\n1,5,a:3\n1,5,a:4\n", "line 3, column prefix", "3, as in"),
        ("a.jsonl", '{"new": 1, "cached": 2}\n{"new": 1,\n', "line 2, column 11", "JSON object"),
        ("a.jsonl", "[1]\n", "line 1", "JSON object"),
        ("a.jsonl", '{"new": 1, "cached": true}\n', "line 1, column cached", "whole number"),
        ("a.jsonl", '{"timestamp": 1, "input_length": 2}\n', "line 1, column 1", "replay_trace"),
        ("a.jsonl", '{"new": 1, "cached": 2, "tokens": 3}\n', "line 1, column 3", "hash_ids"),
        ("a.jsonl", '{"new":1,"cached":9000,"hash_ids":[1,2]}\n{"new":1,"cached":9000,"hash_ids":[2]}\n', "line 2", "after"),
        ("a.jsonl", '{"new":1,"cached":9000,"hash_ids":[[1]]}\n', "line 1, column hash_ids", "list of numbers"),
        ("a.jsonl", '{"new":1,"cached":9000,"hash_ids":[1],"prefix":"a:1"}\n', "line 1", "one of the two"),
    ],
)  # fmt: skip
def test_faults_in_files(name, text, place, word, tmp_path):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_requests(str(path))
    message = str(caught.value)
    assert place in caught.value.where and word in message and message.count("\n") == 0


def test_python_values_are_those_of_files(tree):
    rows = [dict(zip(("new", "cached", "prefix"), line.split(","), strict=True)) for line in TREE.splitlines()[1:]]
    assert read_requests(rows) == read_requests(tree)
    assert read_requests(["2 * 1:9", (3, 4)]) == [Request(1, 9, 2), Request(3, 4)]
    assert read_requests([Request(1, 9, 1, (Part("a", 4),))])[0].prefix == (Part("a", 4),)


def test_a_prefix_has_at_most_a_thousand_parts():
    """Each part has the names before it, so twenty thousand took half a minute."""
    row = {"new": 1, "cached": 20000, "prefix": "/".join(f"p{k}:1" for k in range(20000))}
    with pytest.raises(InputError, match="20000 parts.*at most 1000"):
        iosim.batch([row], 8)
    row["prefix"] = "/".join(f"p{k}:1" for k in range(1000))
    assert iosim.batch([row], 8, mask="causal", ways="repeat").batch.tokens == 20001
