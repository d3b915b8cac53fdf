"""The parser of a mask's text, such as `causal&window:64|file:PATH`. The names and numbers are those of atoms.py."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..errors import InputError, suggestion
from ..units import parse_count
from .atoms import BY_NAME, ROWS, Row
from .expression import Atom, Expr, Join

if TYPE_CHECKING:
    from .expression import Value

WHERE = "--mask"
ALLOWED = (
    f"{', '.join(row.syntax for row in ROWS)}, joined by &, |, ~ and parentheses; sizes in tokens, or in tiles as 2b"
)
LONGEST, DEEPEST = 2000, 50

_CALL = r"\([^()]*\)"
for _ in range(5):  # brackets in brackets
    _CALL = rf"\((?:[^()]|{_CALL})*\)"
_QUOTED = r"\"[^\"]*\"|'[^']*'"
_FILE = rf"file:(?:{_QUOTED}|[^&|()\s]*)|py:(?:{_QUOTED}:?)?[^&|()\s]*(?:{_CALL})?"
_TOKEN = re.compile(rf"\s*([&|~()]|{_FILE}|[^&|~()\s]+)")


def parse_expression(text: str) -> Expr:
    """The expression that a mask's text stands for; InputError for any other text."""
    if not isinstance(text, str):
        raise InputError(WHERE, text, ALLOWED)
    if len(text) > LONGEST:
        raise InputError(WHERE, text, f"at most {LONGEST} characters")
    return _Parser(text).parse()


class _Parser:
    """A parser by recursive descent: ~ binds tightest, then &, then |."""

    def __init__(self, text: str):
        self.text, self.words, self.at, self.depth = text, _TOKEN.findall(text), 0, 0

    def parse(self) -> Expr:
        """The expression of the whole text."""
        expr = self.join("|")
        if self.at < len(self.words):
            unexpected = self.words[self.at]
            hint = "unbalanced parentheses" if unexpected == ")" else f"join {unexpected!r} by & or |"
            raise self.error(hint)
        return expr

    def error(self, hint: str) -> InputError:
        """An InputError about this text, with a hint."""
        return InputError(WHERE, self.text, ALLOWED, hint)

    def take(self, *words: str) -> bool:
        """Whether the next word is one of these. If so, the parser moves past it."""
        found = self.at < len(self.words) and self.words[self.at] in words
        self.at += found
        return found

    def join(self, op: str) -> Expr:
        """Operands joined by `op`. A single operand is returned as it is."""
        parts = [self.operand(op)]
        while self.take(op):
            parts.append(self.operand(op))
        return parts[0] if len(parts) == 1 else Join(op, tuple(parts))

    def operand(self, op: str) -> Expr:
        """An operand of `op`. It may contain operators that bind tighter."""
        return self.join("&") if op == "|" else self.unary()

    def unary(self) -> Expr:
        """An atom or a bracket, after any number of ~."""
        negated = False
        while self.take("~"):
            negated = not negated
        expr = self.bracket() if self.take("(") else self.atom()
        return Join("~", (expr,)) if negated else expr

    def bracket(self) -> Expr:
        """The expression in parentheses, after the opening one."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise self.error(f"at most {DEEPEST} parentheses may be nested")
        expr = self.join("|")
        if not self.take(")"):
            raise self.error("unbalanced parentheses")
        self.depth -= 1
        return expr

    def atom(self) -> Expr:
        """The predicate that the next word names."""
        word = self.words[self.at] if self.at < len(self.words) else ""
        if word in ("", "&", "|", ")"):
            raise self.error("a mask is missing " + (f"before {word!r}" if word else "at the end"))
        self.at += 1
        name, colon, value = word.partition(":")
        row = BY_NAME.get(name)
        if row is None:
            raise self.error(spelt(word) or suggestion(name, BY_NAME) or f"there is no mask {name!r}")
        if row.read:
            return Atom(name, self.read(row, value, word))
        if ":" in row.syntax:
            return self.numbers(row, value, f"{WHERE} ({word})")
        if colon and not (row.tiles and value == "b"):
            raise self.error(f"`{name}` or `{name}:b`" if row.tiles else f"`{name}` takes no number")
        return Atom(name, tiles=bool(colon))

    def read(self, row: Row, text: str, word: str) -> Value:
        """What a file holds. Its path may stand in quotes."""
        assert row.read is not None
        path = re.sub(rf"^(?:{_QUOTED})", lambda found: found[0][1:-1], text)
        try:
            return row.read(path, f"{WHERE} ({word})")
        except InputError as error:
            if self.at == len(self.words) or self.words[self.at] in ("&", "|", ")"):
                raise
            hint = f"a path with a space or a parenthesis stands in quotes, as {row.name}:'my {row.name} (1)'"
            raise InputError(error.where, error.found, error.allowed, f"{error.hint}; {hint}") from None

    def numbers(self, row: Row, text: str, where: str) -> Expr:
        """The predicate with the numbers that stand after its name, in tiles if they end with b."""
        texts = text.split(":", len(row.least) - 1)
        texts += [""] * (len(row.least) - len(texts))
        found = []
        for one, least in zip(texts, row.least, strict=True):
            found.append(parse_count(one.removesuffix("b") if row.tiles else one, where, least))
        in_tiles = {one.endswith("b") for one in texts}
        if len(in_tiles) > 1:
            names = " and ".join(row.syntax.split(":")[1:])
            raise self.error(f"{names} of {row.syntax} both in tokens, or both in tiles")
        tiles = in_tiles.pop()
        if row.stands_for is None:
            return Atom(row.name, found[0], tiles)
        return Join("&", tuple(Atom(kind, n, tiles) for kind, n in row.stands_for(*found).items()))


def spelt(word: str) -> str:
    """The hint for masks with commas between them, and for `window=512`; an empty text for any other word."""
    names = [re.split("[:=]", part)[0] for part in word.split(",")]
    if not all(name in BY_NAME for name in names):
        return ""
    masks = [part.replace("=", ":") for part in word.split(",")]
    return f"write {'&'.join(masks)}" + (f" (both) or {'|'.join(masks)} (either)" if len(masks) > 1 else "")
