"""Sentences that compare: each number in them is found again in the rows of the JSON of the same answer.

A sentence is read by a pattern, which says what it claims. One that says how many times, which is least, or once, and
that no pattern reads, is a fault.
"""

import json
import random
import re
import shlex

import pytest
from click.testing import CliRunner
from wings_here import skip_if_gone

from iosim.commands.cli import main

UNITS = {"B": 1, **{f"{u}iB": 1024 ** (k + 1) for k, u in enumerate("KMGTP")}}
NUMBER, AMOUNT = r"[\d,.]*\d(?:e[+-]\d+)?", r"([\d,.]+) (B|[KMGTP]iB)"
COMPARES = re.compile(r"\btimes\b|\bas (?:much|many|long)\b|fewer|fewest|\bleast\b|\bonce\b|best known|\bnext\b|above")


def number(text):
    return float(text.replace(",", ""))


def shows(text, value):
    """Whether digits as `1.28`, `3` or `1,234` are those of a value, rounded."""
    if "e" in text:
        return abs(number(text) - value) <= value * 1e-2
    plain = text.replace(",", "")
    digits = len(plain.partition(".")[2])
    step = 10**-digits if digits else max(1, 10 ** (len(plain) - len(plain.rstrip("0"))) if len(plain) > 3 else 1)
    return abs(number(text) - value) <= step / 2 * (1 + 1e-6) + value * 1e-12


def of_size(amount, unit, value):
    return shows(amount, value / UNITS[unit])


class Answered:
    """An answer whose rows have a cost: `of(name)` are the rows that a sentence may call so."""

    def __init__(self, said, rows, cost, name):
        self.said, self.rows, self.cost, self.name = said, rows, cost, name
        self.fitting = [row for row in rows if row["fits"] is not False and cost(row)]

    def of(self, name):
        found = [row for row in self.rows if self.name(row) == name]
        assert found, f"no row is called {name!r}"
        return found

    def names(self, text):
        """The rows of a list of names as `a, b and c`."""
        return [self.of(part) for part in re.split(r", and |, | and ", text) if part]


def reasons(text, best, other):
    """The reasons after a colon: tensors that move more, and how often keys are read."""
    for one in re.split(r"(?<=HBM),? and |(?<=as much),? and ", text):
        if match := re.fullmatch(rf"keys and values are read (once|{NUMBER} times), not (once|{NUMBER} times)", one):
            for said, row in ((match[1], other), (match[2], best)):
                assert shows("1" if said == "once" else said.split()[0], row["kv_times_read"]), (one, row)
            assert match[1] != match[2] and other["kv_times_read"] > best["kv_times_read"]
        elif match := re.fullmatch(r"(.+?) go(?:es)? through HBM", one):
            for tensor in re.split(", | and ", match[1]):
                assert words(other, tensor) and not words(best, tensor), one
        elif match := re.fullmatch(rf"(.+?) moves? ({NUMBER}) times as much", one):
            for tensor in re.split(", | and ", match[1]):
                assert shows(match[2], words(other, tensor) / words(best, tensor)), one
        else:
            raise AssertionError(f"a reason that nothing reads: {one}")


def words(row, tensor):
    return sum(row["tensors"].get(tensor, {}).get(way, 0) for way in ("reads", "writes"))


def check_ways(found, memory):
    """Read the sentences of a comparison of rows by their bytes."""
    text, cost = found.said, found.cost
    lead, *rest = re.split(r"(?<=[\w%)])\. (?=[\w])", text.rstrip("."))
    match = re.fullmatch(
        rf"(.+?) moves ({NUMBER} words )?\(?{AMOUNT}\)?"
        rf"(?:(, and no .+ can move less)|; no .+ can move (?:less than {AMOUNT}|fewer than ({NUMBER}) words)"
        rf": (?:({NUMBER}) % above|this is ({NUMBER}) times that))?",
        lead,
    )
    assert match, f"a first line that nothing reads: {lead}"
    best = min(found.of(match[1]), key=cost)
    assert cost(best) == min(map(cost, found.fitting)), f"{match[1]} is not the least"
    assert of_size(match[3], match[4], cost(best)), lead
    share = best.get("ratio_to_floor")
    assert (share == 1) == bool(match[5]), lead
    if match[9]:
        assert shows(match[9], 100 * (share - 1)), lead
    if match[10]:
        assert shows(match[10], share), lead
    near = {id(row) for row in found.fitting if cost(row) <= 1.01 * cost(best)}
    for sentence in rest:
        for part in sentence.split("; "):
            check_part(found, part, best, near, memory)


def check_part(found, part, best, near, memory):
    """Read one comparison with the best."""
    cost = found.cost
    if match := re.fullmatch(rf"(.+?) is next, with ({NUMBER}) times as much(?:: (.+))?", part):
        rows, least = found.of(match[1]), min(cost(row) for row in found.fitting if id(row) not in near)
        row = next((row for row in rows if cost(row) == least), None)
        assert row is not None and shows(match[2], least / cost(best)), part
        why = match[3]
    elif match := re.fullmatch(
        rf"(.+?)(?:, which needs ({NUMBER}) times this memory,)? moves? (up to )?(?:({NUMBER}) times )?as much(?:: (.+))?",
        part,
    ):
        rows = found.names(match[1])
        row = rows[-1][0]
        for one in rows:
            shares = [cost(row) / cost(best) for row in one]
            close = [share == 1 if match[4] is None else shows(match[4], share) for share in shares]
            assert any(close) or (match[3] and any(1 <= share <= number(match[4]) for share in shares)), (part, shares)
        if match[2]:
            needs = row.get("smem_peak_bytes") or row["sram_peak_bytes"]
            assert row["fits"] is False and shows(match[2], needs / memory), part
        why = match[5]
    else:
        raise AssertionError(f"a sentence that nothing reads: {part}")
    if why:
        reasons(why, best, row)


def tiles_of(row):
    text = row["schedule"]
    return text if row["Br"] is None else f"{text} {row['Br']}x{row['Bc']}"


def asked(line):
    """The JSON of a line; None if it is refused."""
    skip_if_gone(shlex.split(line))
    found = CliRunner().invoke(main, [*shlex.split(line), "--json"])
    assert found.exit_code in (0, 1, 2) and not isinstance(found.exception, AssertionError), (line, found.exception)
    return json.loads(found.stdout) if found.exit_code == 0 else None


def problem(rng):
    """Options of a random problem, small or large."""
    N, d = rng.choice([rng.randint(1, 40), rng.randint(50, 5000)]), rng.choice([1, 3, 8, 64, rng.randint(2, 130)])
    heads = rng.choice([1, 1, 2, 4])
    line = f"--N {N} --d {d} --heads {heads} --kv-heads {rng.choice([k for k in (1, 2, 4) if heads % k == 0])}"
    line += rng.choice(["", "", f" --Nk {rng.randint(1, 3000)}", f" --dv {rng.randint(1, 2 * d)}"])
    return line + rng.choice(["", "", " --acc-dtype fp32", " --dtype fp32", " --dtype fp32 --acc-dtype fp32"])


def memory(rng, d):
    return rng.choice([rng.randint(6 * d + 40, 40 * d + 200), rng.randint(40 * d, d * d * 20 + 500), 102400])


@pytest.mark.parametrize("problems", [20, pytest.param(200, marks=pytest.mark.long)])
def test_sentences_of_counts_are_true_of_their_rows(problems):
    rng, read = random.Random(3), 0
    while read < problems:
        command = rng.choice(["count", "count", "tune"])
        own = problem(rng)
        d = int(own.split()[3])
        line = f"{command} {own} --M {memory(rng, d)}"
        line += rng.choice(["", "", " --causal", " --mask window:20"]) if command == "count" else ""
        line += rng.choice(["", "", " --backward"]) if command == "tune" and "Nk" not in own else ""
        found = asked(line)
        if found is None or "state" in found["answer"]:
            continue
        said = re.sub(r" \([^()]*(?:kept|columns|rows|depth)[^()]*\)| --[a-z-]+ \d+", "", found["answer"])
        shown = [row for row in found["results"] if not row.get("dominated_by")]  # the others stand in "left out"
        read += check(line, found, said, shown, lambda row: row["total_bytes"], tiles_of)


@pytest.mark.parametrize("problems", [6, pytest.param(40, marks=pytest.mark.long)])
def test_sentences_of_batches_are_true_of_their_rows(problems):
    rng, read = random.Random(4), 0
    while read < problems:
        heads, d = rng.choice([1, 2, 4]), rng.choice([1, 4, 8, 64])
        new = [rng.choice([1, 1, rng.randint(1, 50)]) for _ in range(rng.randint(1, 4))]
        line = f"batch --requests '{', '.join(f'{n}:{n + rng.randint(0, 200)}' for n in new)}' --d {d} --heads {heads}"
        line += f" --kv-heads {rng.choice([k for k in (1, 2, 4) if heads % k == 0])} --M {memory(rng, d)}"
        line += rng.choice(["", " --causal", " --mask 'causal&window:50'"]) + rng.choice(["", " --page-size 8"])
        line += rng.choice(["", "", " --kv-dtype int8 --kv-scales 4", " --splits 5"])
        if (found := asked(line)) is not None:
            read += check(line, found, found["answer"], found["ways"], way_bytes, lambda row: row["way"])


@pytest.mark.parametrize("problems", [10, pytest.param(100, marks=pytest.mark.long)])
def test_sentences_of_bounds_name_the_best_known_and_are_true_of_it(problems):
    rng, read = random.Random(5), 0
    while read < problems:
        own = problem(rng)
        line = f"{own} --M {memory(rng, int(own.split()[3]))}" + rng.choice(["", "", " --causal"])
        found = asked(f"bounds {line}")
        pattern = (
            rf"No .+ moves fewer than ({NUMBER}) words(?:; the (best known|least of what was counted), (.+), moves "
        )
        match = re.fullmatch(
            pattern + rf"({NUMBER}), within a factor of ({NUMBER}) of that|, and the .+, (.+), moves no more)?\.",
            found["answer"],
        )
        rows = {bound["name"]: bound["words"] for bound in found["bounds"]}
        assert match, (line, found["answer"])
        assert number(match[1]) == rows["floor"], line
        if match[2] or match[6]:
            assert (number(match[4]) if match[2] else rows["floor"]) == rows["attainable"], line
            assert match[6] or 0 <= number(match[5]) - rows["attainable"] / rows["floor"] < 1e-3, line
            best, *flags = re.split(r"(?= --(?:gqa pack|short-tile first))", match[3] or match[6])
            others = asked(f"tune {line}{''.join(flags)}") or asked(f"count {line}")
            name = re.sub(r" \(.*\)", "", best)
            totals = [r["total"] for r in others["results"] if r["fits"] and tiles_of(r) == name]
            assert rows["attainable"] in totals, (line, found["answer"])
            read += 1


GPU_NEXT = re.compile(
    rf"(?:(.+?) takes? at least (as long|99 % as long)(?:; |$))?(?:(.+?) is next, with at least ({NUMBER}) times as long: .+)?"
)


@pytest.mark.parametrize("problems", [10, pytest.param(60, marks=pytest.mark.long)])
def test_sentences_on_a_gpu_are_true_of_their_rows(problems):
    rng = random.Random(6)
    for _ in range(problems):
        line = f"count {problem(rng)} --hardware {rng.choice(['h100', 'a100', 't4', 'l4'])}"
        found = asked(line)
        if found is None or not found["answer"].count(". "):
            continue
        rows = [row for row in found["results"] if row["fits"] and row["at_least_seconds"]]
        seconds = {tiles_of(row): row["at_least_seconds"] for row in rows}
        lead, *_, last = re.split(
            r"(?<=[\w%)])\. (?=[\w])", re.sub(r" \([^()]*kept\)", "", found["answer"]).rstrip(".")
        )
        best = seconds.get(lead.partition(" takes at least ")[0])
        if best is None:  # a library is faster, and a sentence names the best of the other rows
            own, share = re.search(
                rf"no library's (.+) is the fastest, with at least ({NUMBER}) us", found["answer"]
            ).groups()
            fastest = min(row["at_least_seconds"] for row in found["published"])
            assert shows(re.search(rf"at least ({NUMBER}) us", lead)[1], fastest * 1e6), line
            best = seconds[re.sub(r" \([^()]*kept\)", "", own)]
            assert shows(share, best * 1e6) and fastest < best, line
        match = GPU_NEXT.fullmatch(last)
        if match is None:
            assert not re.search(r" takes? at least as long| is next", last), (line, last)
            continue
        for name in re.split(r", and |, | and ", match[1]) if match[1] else []:
            assert (1 if match[2] == "as long" else 0.985) <= seconds[name] / best <= 1.011, (line, last)
        if match[3]:
            assert shows(match[4], seconds[match[3]] / best), (line, last)
            kernels = [
                row["at_least_seconds"] for row in rows if row["blocks"] and row["at_least_seconds"] > 1.01 * best
            ]
            assert seconds[match[3]] <= min(kernels, default=seconds[match[3]]), (line, last)


def way_bytes(way):
    return way["read_bytes"] + way["write_bytes"]


def check(line, found, said, rows, cost, name):
    """Read an answer; 1, or 0 if nothing in it compares."""
    if said.startswith("Nothing that was counted fits"):
        assert all(row["fits"] is False for row in rows), line
        return 0
    given = re.search(r"--M (\d+)", line)
    try:
        check_ways(Answered(said, rows, cost, name), int(given[1]))
    except AssertionError as error:
        raise AssertionError(f"{line}: {found['answer']}") from error
    return 1
