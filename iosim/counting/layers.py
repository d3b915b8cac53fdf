"""Layers of a model of two kinds: with attention, and with a state instead of a cache, as `--layers` names them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from ..answer import numbered
from ..errors import InputError, suggestion
from ..options import Kind
from ..units import dtype_bytes, parse_count, type_name
from .state_heads import StateHeads, rule_of

if TYPE_CHECKING:
    from ..core.problem import Attention

WHERE, ATTENTION = "--layers", "attention"
ALLOWED = "a number of layers, or kinds as 'gdn*36, attention*12'"
SIZES = ("d", "dv", "heads", "key-heads", "ring", "state")
OWN_SIZES = "--heads and others say them; those of a layer with a state stand after its name, as gdn heads=4 * 2"
ONE = re.compile(r"\s*(?:(\d+)\s*\*\s*)?([a-z][\w-]*)((?:\s+[\w-]+=\w+)*)\s*(?:\*\s*(\d+))?\s*")


class LayerKind(NamedTuple):
    """Layers of one kind: attention, or the name of a rule with its sizes where these differ from the problem's."""

    name: str
    layers: int
    sizes: dict[str, str]


def read_layers(given: int | str) -> list[LayerKind]:
    """The kinds of layers of a text. InputError for any that is not allowed, with its place."""
    text = str(given).strip()
    if text[:1].isdigit() and "*" not in text:
        return [LayerKind(ATTENTION, parse_count(text, WHERE), {})]
    found = [kind_of(part, f"{WHERE} {part.strip()}") for part in text.split(",")]
    if sum(kind.name == ATTENTION for kind in found) > 1:
        raise InputError(WHERE, text, "attention once", "add the numbers")
    return found


def kind_of(text: str, where: str) -> LayerKind:
    """The layers of one part, as `gdn*36` or `gdn d=128 heads=32 key-heads=16 * 36`."""
    match = ONE.fullmatch(text)
    if match is None or (match[1] and match[4]):
        raise InputError(WHERE, text.strip() or "nothing", ALLOWED)
    sizes = dict(part.split("=") for part in match[3].split())
    for name in sizes:
        if match[2] == ATTENTION:
            raise InputError(where, name, "attention without sizes, as attention*3", OWN_SIZES)
        if name not in SIZES:
            raise InputError(where, name, ", ".join(SIZES), suggestion(name, SIZES))
    if match[2] != ATTENTION:
        rule_of(match[2], WHERE, ATTENTION)
    return LayerKind(match[2], parse_count(match[1] or match[4] or "1", where), sizes)


def heads_of(kind: LayerKind, p: Attention) -> StateHeads:
    """The heads of the layers of a kind, of one request. Sizes that are not given are the problem's."""
    where = f"{WHERE} {kind.name}"
    given = {name: parse_count(value, f"{where}, {name}") for name, value in kind.sizes.items() if name != "state"}
    heads = given.get("heads", p.heads)
    keys = given.get("key-heads", heads)
    if heads % keys:
        raise InputError(f"{where}, key-heads", keys, f"a divisor of its {numbered(heads, 'value head')}")
    d = given.get("d", p.d)
    state = type_name(kind.sizes.get("state", "fp32"), f"{where}, state")
    words = (given.get("dv", given.get("d", p.dv)), heads // keys, kind.layers * keys)
    return StateHeads(rule_of(kind.name), d, *words, p.word_bytes, dtype_bytes(state))


def ring_of(kind: LayerKind) -> int:
    """The rows of the ring of a kind; 1 where the state is written in each step."""
    return parse_count(kind.sizes.get("ring", "1"), f"{WHERE} {kind.name}, ring")


def kept_bytes(kind: LayerKind, p: Attention) -> int:
    """The bytes that a layer of a kind with a state keeps in HBM for all sequences: states, and rows of a ring."""
    heads = heads_of(kind, p)
    each = heads.state_bytes + (ring_of(kind) - 1) * heads.row_bytes
    return p.batch * heads.instances // kind.layers * each


def split_layers(given: int | str) -> tuple[int, list[LayerKind]]:
    """(layers with attention, the kinds of layers with a state) of a text."""
    kinds = read_layers(given)
    return sum(k.layers for k in kinds if k.name == ATTENTION), [k for k in kinds if k.name != ATTENTION]


def as_text(value: str | int, option: str) -> str | int:
    """The value itself, if it names layers."""
    read_layers(value)
    return value


LAYERS = Kind(as_text)
