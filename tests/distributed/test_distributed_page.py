"""The numbers of docs/links.md, docs/distributed-proofs.md and validation/links: each stands there, and the program gives
it."""

import re
import shlex

import pytest
from link_words import mesh, pass_q, ring, ulysses, widths
from paths import DOCS, VALIDATION

import iosim
from iosim import Attention
from iosim.distributed.across import Across
from iosim.distributed.floors import floor_across
from iosim.masks import parse_mask

PAGES = DOCS / "links.md", DOCS / "distributed-proofs.md", VALIDATION / "links" / "README.md"
PAGE = "".join(page.read_text() for page in PAGES)
FLAT = re.sub(r"\s+", " ", PAGE)

# The rows of the first table: their text, and the problem.
EXAMPLES = {
    "131,072 tokens, 8 GPUs, 32 query and 8 KV heads": Attention(131072, 128, heads=32, kv_heads=8),
    "131,072 tokens, 8 GPUs, 56 query and 8 KV heads": Attention(131072, 128, heads=56, kv_heads=8),
    "1,024 new tokens, 131,072 keys, 8 GPUs, 32 query and 8 KV heads": Attention(
        1024, 128, Nk=131072, heads=32, kv_heads=8
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_first_table(name):
    problem = EXAMPLES[name]
    found = floor_across(problem, 8)
    words = [f(problem, 8) // 8 for f in (ring, pass_q, ulysses)]
    cells = [f"{n:,}" for n in (*words, found.mean_received_words.numerator)]
    assert f"| {name} | " + " | ".join(cells) + f" | {found.theorem} |" in PAGE
    assert found.mean_received_words == min(words), "one of the three is optimal"


def test_the_three_clusters(iosim):
    """The cells of the table of links.md are of the commands below it."""
    text = PAGES[0].read_text()
    rows = re.findall(r"^\| \d .*? \| (.*? receives .*?) \| (.*?) \|$", text, re.M)
    commands = re.findall(r"^iosim (links .*--causal --hardware.*)$", text, re.M)
    assert len(rows) == len(commands) == 3
    for cells, command in zip(rows, commands, strict=True):
        shown = iosim(*shlex.split(command)).stdout
        assert shown.startswith(cells[0]) and f"At the peaks {cells[1]}" in shown


def test_the_mesh_and_the_ring_of_one_head():
    one = Attention(65536, 128)
    floor = floor_across(one, 64, layout="free", balanced=True).received_words
    assert mesh(one, 8, 8) == floor == 64 * 3670016 and ring(one, 64) == 64 * 16515072 == 4.5 * floor
    assert "receives 3,670,016 words" in FLAT and "receives 16,515,072, which is 4.5 times" in FLAT
    backward = Attention(65536 * 3, 128)
    assert mesh(backward, 6, 8, backward=True) == floor_across(
        backward, 48, layout="free", balanced=True, backward=True).received_words  # fmt: skip


def test_p4_is_above_p3_up_to_two_heads_fewer_than_devices():
    for P in (4, 8, 16):
        for heads in range(1, P + 3):
            problem = Attention(1024 * P, 128, heads=heads)
            one, both = (floor_across(problem, P, balanced=b) for b in (False, True))
            assert (both.received_words > one.received_words) == (heads <= P - 2)


def holds(text, **values):
    """Whether a condition of the page holds: `3g >= 4 (p - 1)`, with products as the page writes them."""
    return eval(re.sub(r"(?<=\d)(?=[a-z])|(?<=[\w)]) (?=[\w(])", "*", text), {}, values)


STATED = re.findall(r"optimal if and only if ([^*]*?)\*\*", FLAT)  # dense, contiguous and zigzag rings
OF_PASSES = re.findall(r"forward if (g >= [^,]*?), (?:and )?backward with d = dv if (3g >= \d \(p - 1\))", FLAT)


@pytest.mark.parametrize("which, mask", [("ring", "dense"), ("ring-needed", "causal"), ("zigzag-needed", "causal")])
@pytest.mark.parametrize("passes", ["forward", "backward"])
def test_when_the_page_calls_a_ring_optimal(which, mask, passes):
    """The conditions that stand on the page, against the answers of links."""
    at, d, answers = {"ring": 0, "ring-needed": 1, "zigzag-needed": 2}[which], 128, set()
    alpha, beta = widths(Attention(1, d), backward=passes == "backward")
    for p in (2, 3, 4, 6):
        for g in (*range(1, 8), 2 * p, 3 * p):
            (row,) = iosim.links(2048 * p, d, p, heads=g, kv_heads=1, mask=mask, passes=passes, schedules=which).results
            optimal = row.received_words - row.tensors.get("LSEpart", 0) == row.floor_words
            answers.add(optimal)
            assert holds(STATED[at], alpha=alpha, beta=beta, g=g, p=p) == optimal, (p, g, row)
            assert holds(OF_PASSES[at][passes == "backward"], g=g, p=p) == optimal
    assert answers == {True, False} and len(STATED) == len(OF_PASSES) == 3


def test_what_is_optimal_in_a_step():
    """All-gather and Ulysses meet P3s on their sides of g = p - 1, and no ring does; the ring against Ulysses."""
    assert "| P3s | P3's layout, forward and backward in one run |" in PAGE and "| all-gather, Ulysses |" in PAGE
    for p in (4, 8):
        for g in (1, p - 2, p - 1, p, 2 * p):
            found = iosim.links(512 * p, 16, p, heads=p * g, kv_heads=p, passes="step")
            assert (found["ulysses"].ratio_to_floor == 1) == (g <= p - 1) and found["ulysses"].theorem == "P3s"
            assert (found["all-gather"].ratio_to_floor == 1) == (g >= p - 1)
            assert found["ring"].ratio_to_floor >= 1.5 and found["pass-q"].ratio_to_floor > 1
    least = {}
    for passes in ("forward", "backward", "step"):
        for g in range(1, 14):
            found = iosim.links(4096, 16, 8, heads=8 * g, kv_heads=8, passes=passes, schedules="ring,ulysses")
            ring_words, others = (sum(n for x, n in r.tensors.items() if x not in ("LSE", "D")) for r in found.results)
            if ring_words <= others:
                least.setdefault(passes, g)
        assert least[passes] == next(one.least for one in found.crossings if one.axis == "g")
    assert least == {"forward": 7, "backward": 10, "step": 3 * 8 // 2 - 1}
    assert "from g = 7 on forward, from 10 on backward, and from 11 on in a step" in FLAT


# ---------------------------------------------------------------- published times

PUBLISHED = PAGE.split("## Published")[1]
LISTS = [[8192], [256, 7392, 544], [4096, 4096], [3104, 3200, 1600, 160, 128]]  # lengths of documents on one GPU


def visible_pairs(tokens, layout="blocks", documents=()):
    """The visible pairs of each of 8 GPUs, and the keys that they need of the others."""
    text = "causal" + (f"&documents:{','.join(map(str, documents))}" if len(documents) > 1 else "")
    hops = Across(Attention(tokens, 128, mask=parse_mask(text)), 8, layout=layout).hops
    return hops.pairs_of_mesh(1), sum(hops.needed) / (7 * tokens)


def table_row(name, *per_cents):
    return f"| {name} | " + " | ".join(per_cents) + " |"


def test_balance_and_needed_keys_of_the_published_rings():
    found = [visible_pairs(65536, layout) for layout in ("blocks", "zigzag", "striped")]
    shares = [sum(pairs) / (8 * max(pairs)) for pairs, _ in found]
    assert (
        table_row("balance", f"{100 * shares[0]:.1f}", f"{100 * shares[1]:.1f}", f"{100 * shares[2]:.2f}") in PUBLISHED
    )
    needed = [share for _, share in found]
    cells = f"{100 * needed[0]:.1f}", f"{100 * needed[1]:.1f}", f"{100 * needed[2]:.2f}"
    assert table_row("keys received that are needed", *cells) in PUBLISHED
    assert round(100 * 8 / 15, 1) == round(100 * shares[0], 1) == 53.3


def test_balance_of_packed_documents():
    """One sixteenth of the lengths: shares of the work do not change in the first three digits."""
    mean = most = 0
    for lengths in LISTS:
        pairs, _ = visible_pairs(4096, documents=[8 * n // 16 for n in lengths])
        mean, most = mean + sum(pairs) / 8, most + max(pairs)
    assert f"| {100 * mean / most:.1f} |" in PUBLISHED and f"{100 * mean / most:.1f}" == "53.8"


def test_what_is_explained():
    rows = re.findall(r"^\| forward[^|]*, 8 \w+ \| ([\d.]+) \| [\d.]+ \| ([\d.]+) \|", PUBLISHED, re.M)
    rings, others = [float(first) for first, _ in rows], [float(last) for _, last in rows[4:]]
    assert len(rings) == 8 and sum(value > 53.3 for value in rings) == 1 and sum(value > 53.8 for value in others) == 3
    shares = [100 * value / (800 / 15) for value in rings[:4]]
    assert f"reach {min(shares):.0f} to {max(shares):.0f} % of that" in re.sub(r"\s+", " ", PUBLISHED)
    moved = ring(Attention(65536, 128, heads=32, kv_heads=8), 8) // 8 * 2
    assert f"{moved:,} bytes" in PUBLISHED and f"{moved / 100e9 * 1000:.1f} ms" in PUBLISHED
    assert f"{1000 / 63.0:.1f} ms" in PUBLISHED
