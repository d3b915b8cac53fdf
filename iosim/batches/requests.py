"""The requests of a batch, read from a text, a file or Python values, with the place of every fault.

A request has new tokens, which are its queries, and all of its tokens, which are its keys. What lies in the cache may
begin with parts that other requests have too: its `prefix`.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ..errors import InputError, suggestion
from ..units import LARGEST_COUNT, parse_count

if TYPE_CHECKING:
    Given: TypeAlias = "str | tuple[int, int] | Mapping[str, object] | Request"
    RequestsAsked: TypeAlias = "str | Iterable[Given]"

WHERE = "--requests"
ALLOWED = "new tokens : all tokens, as 512:4608, or 12 * 1:3000 for twelve"
FIELDS = ("new", "cached", "prefix", "hash_ids")
JSON_LINE = 'a JSON object in each line, as {"new": 1, "cached": 2999}'
BLOCK_TOKENS = 512  # tokens of a hash id, as in the traces of Mooncake
MOST_REQUESTS, MOST_PARTS = 10_000_000, 1000
FILE = re.compile(r"\.(csv|jsonl|ndjson|json)$", re.IGNORECASE)


class Part(NamedTuple):
    """Tokens that all requests with the same `key` have in common. A request may end within them: it has the first
    `tokens` of them."""

    key: Hashable
    tokens: int


class Request(NamedTuple):
    """Requests of one shape: `times` of them, each with `new` queries over `tokens` keys, the last of which are new."""

    new: int
    tokens: int
    times: int = 1
    prefix: tuple[Part, ...] = ()

    @property
    def cached(self) -> int:
        """Tokens whose keys and values lie in the cache already."""
        return self.tokens - self.new


def read_requests(given: RequestsAsked | None) -> list[Request]:
    """The requests that a text, the name of a file, or a list gives. InputError names the place of a fault."""
    if given is None:
        raise InputError(WHERE, "nothing", "new tokens : all tokens, as 512:4608", f"give {WHERE}")
    if isinstance(given, str):
        found = read_file(given) if FILE.search(given.strip()) else [*requests_in(given, WHERE)]
    else:
        found = [*read_values(given, WHERE)]
    if not found:
        raise InputError(WHERE, "no request", f"at least one: {ALLOWED}")
    if (number := sum(one.times for one in found)) > MOST_REQUESTS:
        raise InputError(WHERE, f"{number} requests", f"at most {MOST_REQUESTS}")
    return found


# ---------------------------------------------------------------- a text

ONE = re.compile(r"\s*(?:([^*:\s]+)\s*[*]\s*)?([^*:\s]+)\s*:\s*([^*:\s]+)\s*")


def requests_in(text: str, where: str) -> Iterator[Request]:
    """The requests of a text as `12 * 1:3000, 1:9000`."""
    start = 0
    for part in re.split(r"[,;\n]", text):
        if part.strip() or start == 0 < len(text.strip()):
            column = start + len(part) - len(part.lstrip()) + 1
            yield request_of(part, f"{where}, column {column}")
        start += len(part) + 1


def request_of(text: str, where: str) -> Request:
    """The requests that `12 * 1:3000` stands for."""
    match = ONE.fullmatch(text)
    if match is None:
        count = text.strip()
        hint = f"{count} new tokens without a cache are {count}:{count}" if count.isdecimal() else ""
        raise InputError(where, count, ALLOWED, hint)
    times, new, tokens = (parse_count(one, where) for one in (match[1] or "1", match[2], match[3]))
    return checked(Request(new, tokens, times), where)


def checked(request: Request, where: str) -> Request:
    """The request, if it has no more new tokens than tokens."""
    if request.tokens < request.new:
        hint = f"{request.new} new tokens after {request.tokens} cached ones are {request.new}:{sum(request[:2])}"
        raise InputError(where, f"{request.new}:{request.tokens}", "no fewer tokens in all than new ones", hint)
    return request


# ---------------------------------------------------------------- files and Python values


def read_file(path: str) -> list[Request]:
    """The requests of a CSV file with a header, or of a file with a JSON object in each line."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            text = file.read()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or getattr(error, "reason", None) or str(error)
        raise InputError(WHERE, path, "a file that can be read, or a text as 12 * 1:3000", why) from None
    rows = csv_rows(text, path) if path.lower().endswith(".csv") else json_rows(text, path)
    reader = Reader()
    return [reader.request(row, where) for where, row in rows]


def csv_rows(text: str, path: str) -> Iterator[tuple[str, Mapping[str, object]]]:
    """(place, row) for each line of a CSV file."""
    import csv

    lines = csv.reader(text.splitlines())
    names = [name.strip() for name in next(lines, [])]
    check_names(names, f"{path}, line 1")
    for cells in lines:
        where = f"{path}, line {lines.line_num}"
        if not any(cell.strip() for cell in cells):
            continue
        if len(cells) != len(names):
            raise InputError(where, f"{len(cells)} cells", f"{len(names)}, as in its header")
        yield where, {name: cell.strip() for name, cell in zip(names, cells, strict=True)}


def json_rows(text: str, path: str) -> Iterator[tuple[str, Mapping[str, object]]]:
    """(place, object) for each line of a file of JSON lines."""
    import json

    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            where = f"{path}, line {number}"
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise InputError(f"{where}, column {error.colno}", line.strip(), JSON_LINE, error.msg) from None
            if not isinstance(row, dict):
                raise InputError(where, line.strip(), JSON_LINE)
            check_names(row, where)
            yield where, row


def read_values(given: Iterable[Given], where: str) -> Iterator[Request]:
    """The requests of a list of texts, pairs (new, all tokens), mappings with the columns of a file, or Requests."""
    reader = Reader()
    for number, one in enumerate(given, 1):
        place = f"{where}, request {number}"
        if isinstance(one, Request):
            yield checked(one, place)
        elif isinstance(one, str):
            yield request_of(one, place)
        elif isinstance(one, Mapping):
            check_names(one, place)
            yield reader.request(one, place)
        elif isinstance(one, tuple | list) and len(one) == 2:
            new, tokens = one
            yield checked(Request(parse_count(new, place), parse_count(tokens, place)), place)
        else:
            raise InputError(place, str(one), f"{ALLOWED}; (512, 4608); or a mapping with {', '.join(FIELDS)}")


def check_names(names: Iterable[str], where: str) -> None:
    """Raise InputError for a column that requests do not have, and if one that they need is missing."""
    given = list(names)
    for column, name in enumerate(given, 1):
        if name not in FIELDS or given.count(name) > 1:
            found = name if name not in FIELDS else f"{name} twice"
            of_trace = name in ("timestamp", "input_length", "output_length")
            hint = "examples/replay_trace.py replays a trace" if of_trace else suggestion(name, FIELDS)
            raise InputError(f"{where}, column {column}", found, ", ".join(FIELDS), hint)
    for name in FIELDS[:2]:
        if name not in given:
            raise InputError(where, ", ".join(given) or "nothing", f"the columns new and cached; {name} is missing")


class Reader:
    """Reads the rows of a file, one after the other, and finds prefixes that contradict earlier ones."""

    def __init__(self) -> None:
        self.before: dict[Hashable, tuple[Hashable, int | None, str]] = {}  # key: (the key before it, tokens, place)

    def request(self, row: Mapping[str, object], where: str) -> Request:
        """The request of a row."""
        new, cached = (
            number(row[name], f"{where}, column {name}", least) for name, least in (("new", 1), ("cached", 0))
        )
        given = [name for name in FIELDS[2:] if row.get(name)]
        if len(given) > 1:
            raise InputError(where, "prefix and hash_ids", "one of the two")
        read = {"prefix": self.named, "hash_ids": self.blocks}
        parts = [read[name](row[name], cached, f"{where}, column {name}") for name in given]
        return Request(new, new + cached, 1, *parts)

    def named(self, given: object, cached: int, where: str) -> tuple[Part, ...]:
        """The parts of a prefix as `system:1024/user:300`. A number alone is so many tokens that all requests with a
        number begin with."""
        text = str(given)
        whole = text.strip().isdecimal()
        parts = [Part(("",), number(text, where, 1))] if whole else []
        path: tuple[str, ...] = ()
        if text.count("/") >= MOST_PARTS:
            raise InputError(where, f"{text.count('/') + 1} parts", f"at most {MOST_PARTS}", "hash_ids take more")
        for one in [] if whole else text.split("/"):
            name, _, tokens = one.strip().rpartition(":")
            if not name:
                raise InputError(where, text, "parts with their tokens, as system:1024/user:300, or a number")
            path = (*path, name)
            parts.append(Part(path, number(tokens, where, 1)))
            self.agree(path, path[:-1], parts[-1].tokens, where, "/".join(path))
        if (total := sum(part.tokens for part in parts)) > cached:
            raise InputError(where, f"{text}: {total} tokens", f"at most the {cached} that are cached")
        return tuple(parts)

    def blocks(self, given: object, cached: int, where: str) -> tuple[Part, ...]:
        """The parts of a prefix that hash ids name, one for each block of tokens. Blocks after the cached tokens are
        left out."""
        before: Hashable = None
        parts = []
        for key, start in zip(list_of(given, where), range(0, cached, BLOCK_TOKENS), strict=False):
            self.agree(("#", key), before, None, where, f"hash id {key}")
            before = ("#", key)
            parts.append(Part(before, min(BLOCK_TOKENS, cached - start)))
        return tuple(parts)

    def agree(self, key: Hashable, before: Hashable, tokens: int | None, where: str, name: str) -> None:
        """Raise InputError if a part stood after another one in an earlier row, or had another number of tokens."""
        earlier = self.before.setdefault(key, (before, tokens, where))
        if earlier[0] != before:
            raise InputError(where, f"{name} after {shown(before)}", f"after {shown(earlier[0])}, as in {earlier[2]}")
        if earlier[1] != tokens:
            raise InputError(where, f"{name} with {tokens} tokens", f"{earlier[1]}, as in {earlier[2]}")


def shown(key: Hashable) -> str:
    """The name of a part in a message."""
    return f"hash id {key[1]}" if isinstance(key, tuple) and key else "nothing"


def number(value: object, where: str, least: int) -> int:
    """A whole number of tokens."""
    if isinstance(value, str) and value.isdecimal() and len(value) < 15 and (found := int(value)) >= least:
        return found  # in a fifth of the time
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return parse_count(value, where, least, LARGEST_COUNT)  # type: ignore[arg-type]  # it refuses other types


def list_of(value: object, where: str) -> list[Hashable]:
    """The hash ids of a cell: a list, or numbers with spaces or semicolons between them."""
    if isinstance(value, str):
        value = [text for text in re.split(r"[\s;,\[\]]+", value) if text]
    if not isinstance(value, list) or not all(isinstance(one, int | str) for one in value):
        raise InputError(where, str(value), "a list of numbers, as [46, 47]; in CSV with spaces between them")
    return [str(one) for one in value]
