"""examples/replay_trace.py: the steps of ten lines, and what they move."""

import importlib.util
import json

import pytest
from paths import ROOT

FILE = ROOT / "tests" / "data" / "trace.jsonl"
LINES = [json.loads(line) for line in FILE.read_text().splitlines()]
LIMITS = [(1000, 3, 8192), (50, 2, 8192), (4000, 256, 8192), (300, 256, 64), (1, 256, 8192)]
"""New tokens and requests of a step, and new tokens of an input."""


def example(most_tokens, most_requests, chunk):
    spec = importlib.util.spec_from_file_location("replay_trace", ROOT / "examples" / "replay_trace.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.MAX_TOKENS, module.MAX_REQUESTS, module.CHUNK = most_tokens, most_requests, chunk
    return module


def shapes_of(step):
    return [(one["new"], one["new"] + one["cached"], one["hash_ids"]) for one in step]


def test_the_first_steps_by_hand():
    """1000 new tokens a step and three requests. Blocks have 512 tokens."""
    module = example(1000, 3, 8192)
    found = [shapes_of(step) for step in module.steps(module.read(FILE.read_text()))]
    # The first input takes two steps: 1000, then 300. The second finds blocks that are whole by then: one of 512.
    assert found[0] == [(1000, 1000, [])]
    assert found[1] == [(300, 1300, [1]), (700, 1212, [1])]
    # The first decodes its second token. The second has 288 tokens left; the third computes its 700 tokens.
    assert found[2] == [(1, 1301, [1, 2]), (288, 1500, [1]), (700, 700, [])]
    # The third ended with its only token. The fourth has 1024 tokens: one block is found, one is computed again.
    assert found[3] == [(1, 1302, [1, 2]), (1, 1501, [1]), (512, 1024, [1])]


@pytest.mark.parametrize("limits", LIMITS)
def test_every_token_is_computed_within_the_limits(limits):
    module = example(*limits)
    steps = [shapes_of(step) for step in module.steps(module.read(FILE.read_text()))]
    for step in steps:
        assert sum(new for new, _, _ in step) <= limits[0] and len(step) <= limits[1]
        assert all(new <= limits[2] and 512 * len(held) <= tokens - new for new, tokens, held in step)
    ends = sorted(tokens for step in steps for _, tokens, _ in step)
    for line in LINES:  # each decoding step of a request has one token more
        assert all(line["input_length"] + k in ends for k in range(1, line["output_length"]))
    decoded = sum(line["output_length"] - 1 for line in LINES)
    computed = sum(new for step in steps for new, _, _ in step) - decoded
    assert 0 < computed <= sum(line["input_length"] for line in LINES)


def test_a_step_shares_the_blocks_that_were_computed():
    """Steps 1 and 3 of the first test: a cascade reads 512 tokens once, and single tokens beside them pack in FA2."""
    module = example(1000, 3, 8192)
    steps = [*module.steps(module.read(FILE.read_text()))]
    rows = [module.row_of(step) for step in steps]
    assert [(row["new"], row["tokens"], row["distinct"]) for row in rows[:2]] == [
        (1000, 1000, 1000),
        (1000, 2512, 2000),
    ]
    assert rows[3]["tokens"] - rows[3]["distinct"] == 2 * 512
    assert [row["cascade"] == row["pack"] for row in rows[:2]] == [True, False]
    assert all((row["FA2"] == row["repeat"]) == (row["new"] > row["requests"]) for row in rows)


def test_columns_of_azure_have_no_blocks():
    """Two inputs of 374 and 396 tokens in one step, then 43 and 108 steps of one token."""
    module = example(1000, 3, 8192)
    text = "TIMESTAMP,ContextTokens,GeneratedTokens\n18:15:46.68,374,44\n18:15:50.99,396,109\n"
    steps = [shapes_of(step) for step in module.steps(module.read(text))]
    assert steps[0] == [(374, 374, []), (396, 396, [])] and len(steps) == 109
    assert steps[1] == [(1, 375, []), (1, 397, [])] and steps[-1] == [(1, 504, [])]
