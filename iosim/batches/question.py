"""`iosim.batch`: what one step of a server moves, in layers with attention and in those with a state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Unpack, overload

from ..core.problem import Attention
from ..counting.conditions import conditions
from ..counting.given import Fields, head_dimension
from ..counting.layers import ATTENTION, heads_of, split_layers
from ..counting.names import takes_options
from ..errors import InputError
from ..options import declared
from ..schedules import SCHEDULES
from .answer import with_attention
from .claim import claim_on
from .layers import BatchOfLayers, about_states, of_attention, of_state
from .requests import read_requests
from .shapes import shapes_of

if TYPE_CHECKING:
    from ..core.keywords import ProblemOptions
    from ..core.mask_types import Mask
    from ..core.tiling import TilesAsked
    from .answer import Batched
    from .requests import RequestsAsked


OF_LAYERS = "layers with a state, and their sizes, stand in --layers, as --layers 'gdn heads=4 key-heads=2 * 3'"


def check_options(options: Mapping[str, object]) -> None:
    """Raise InputError for an option that no schedule of softmax attention reads: its answer would be of another
    problem."""
    for name, value in options.items():
        row = declared(name)
        if row is not None and value not in (None, row.default):
            readers = [schedule for schedule in SCHEDULES.values() if schedule.reads(name)]
            if readers and all(schedule.family != ATTENTION for schedule in readers):
                of_state = any(schedule.family == "state" for schedule in readers)
                hint = OF_LAYERS if of_state else f"iosim count --schedule {readers[0].name} reads it"
                raise InputError(row.flag, str(value), "options of softmax attention", hint)


@overload
def batch(
    requests: RequestsAsked,
    d: int | None = None,
    M: int | str | None = None,
    *,
    model: str | None = None,
    hardware: str | None = None,
    paper_model: bool = False,
    ways: str | Sequence[str] = (),
    tiles: TilesAsked | None = None,
    tile_multiple: int | None = None,
    mask: str | Mask = "dense",
    layers: int = 1,
    chunks: int | str | Sequence[int] = (),
    detail: bool = False,
    claim: str | None = None,
    **options: Unpack[ProblemOptions],
) -> Batched: ...


@overload
def batch(
    requests: RequestsAsked,
    d: int | None = None,
    M: int | str | None = None,
    *,
    model: str | None = None,
    hardware: str | None = None,
    paper_model: bool = False,
    ways: str | Sequence[str] = (),
    tiles: TilesAsked | None = None,
    tile_multiple: int | None = None,
    mask: str | Mask = "dense",
    layers: str,
    chunks: int | str | Sequence[int] = (),
    detail: bool = False,
    claim: str | None = None,
    **options: Unpack[ProblemOptions],
) -> Batched | BatchOfLayers: ...


@takes_options()
def batch(
    requests: RequestsAsked,
    d: int | None = None,
    M: int | str | None = None,
    *,
    model: str | None = None,
    hardware: str | None = None,
    paper_model: bool = False,
    ways: str | Sequence[str] = (),
    tiles: TilesAsked | None = None,
    tile_multiple: int | None = None,
    mask: str | Mask = "dense",
    layers: int | str = 1,
    chunks: int | str | Sequence[int] = (),
    detail: bool = False,
    claim: str | None = None,
    **options: Unpack[ProblemOptions],
) -> Batched | BatchOfLayers:
    """The words that one step of a server moves, by the ways to run its batch: a Batched; with layers of two kinds the
    bytes of each kind: a BatchOfLayers.

    - `requests`: new tokens and all tokens, as `"12 * 1:3000, 1:9000, 512:4608"`, a list of such texts or of pairs, the
      name of a CSV or JSON-lines file with the columns `new`, `cached`, and `prefix` or `hash_ids`, or a list of
      mappings with these.
    - `ways`: names, as `"repeat,pack"`; by default all that can be run.
    - `tiles`: Br x Bc as `128x64`, or `best`: those of least traffic for each way that fit in M.
    - `model`: a config.json, as in `count`, whose layers are taken too.
    - `layers`: layers of the model, of which each has its own Q, K and V; or their kinds, as
      `"gdn*36, attention*12"`: a request has a state in a layer of the first kind. `"gdn d=128 heads=32 key-heads=16 *
      36"` gives sizes that are not those of attention, `ring=16` rows beside the state, `state=bf16` its type.
    - `chunks`: sizes of prefill chunks, as 512, `"512,2048"` or [512, 2048], each of which is a further way.
    - `claim`: a time or a rate of the step on the `hardware`, as `215us`, `3.5TB/s` or `700TFLOP/s`: the answer's
      `claim` says whether it is possible.
    - Other arguments are those of `count`. The requests say N and Nk, and the ways what the heads of a group share.

    Raises InputError for a value that is not allowed.
    """
    check_options(options)
    (depth, states), asked = split_layers(layers), read_requests(requests)
    given: Fields = {"hardware": hardware, "paper_model": paper_model, "ways": ways, "tiles": tiles, "mask": mask}
    given |= {"tile_multiple": tile_multiple, "chunks": chunks, "detail": detail, **options}
    found = with_attention(asked, d, M, layers=depth, **given) if depth else None
    p, shapes = Attention(1, head_dimension(d), **conditions(hardware, options).options), shapes_of(asked)[0]
    judgement = None if claim is None else claim_on(claim, hardware, p, shapes, found, states)
    if found is not None and not states:
        return replace(found, claim=judgement)
    parts = [*(of_state(kind, p, shapes) for kind in states), *([of_attention(found)] if found else [])]
    sentences = [about_states(kind, heads_of(kind, p), shapes) for kind in states]
    return BatchOfLayers(parts, found, shapes, sentences, judgement)
