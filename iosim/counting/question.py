"""`iosim.count`: the words of a forward pass, of a backward pass, or of both together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, Unpack, overload

from ..core.problem import Attention
from ..core.tiling import read_tiles
from ..errors import InputError, suggestion
from ..masks import parse_mask
from ..units import parse_bytes
from . import count as forward
from .conditions import conditions
from .given import head_dimension, memory
from .names import takes_options

if TYPE_CHECKING:
    from ..core.keywords import ProblemOptions
    from ..core.mask_types import Mask
    from ..core.tiling import TilesAsked
    from ..schedules.registry import SchedulesAsked
    from .report import Report
    from .step import Step

PASSES = ("forward", "backward", "step")


@overload
def count(
    N: int,
    d: int | None = None,
    M: int | str | None = None,
    *,
    model: str | None = None,
    passes: Literal["forward", "backward"] = "forward",
    hardware: str | None = None,
    paper_model: bool = False,
    schedules: SchedulesAsked = (),
    tiles: TilesAsked | None = None,
    tile_multiple: int | None = None,
    mask: str | Mask = "dense",
    **options: Unpack[ProblemOptions],
) -> Report: ...


@overload
def count(
    N: int,
    d: int | None = None,
    M: int | str | None = None,
    *,
    model: str | None = None,
    passes: Literal["step"],
    hardware: str | None = None,
    paper_model: bool = False,
    schedules: SchedulesAsked = (),
    tiles: TilesAsked | None = None,
    tile_multiple: int | None = None,
    combinations: str | Iterable[str] = (),
    backward_tiles: TilesAsked | None = None,
    unfused: str | Iterable[str] = (),
    mask: str | Mask = "dense",
    **options: Unpack[ProblemOptions],
) -> Step: ...


@takes_options()
def count(
    N: int,
    d: int | None = None,
    M: int | str | None = None,
    *,
    model: str | None = None,
    passes: str = "forward",
    hardware: str | None = None,
    paper_model: bool = False,
    schedules: SchedulesAsked = (),
    tiles: TilesAsked | None = None,
    tile_multiple: int | None = None,
    combinations: str | Iterable[str] = (),
    backward_tiles: TilesAsked | None = None,
    unfused: str | Iterable[str] = (),
    mask: str | Mask = "dense",
    **options: Unpack[ProblemOptions],
) -> Report | Step:
    """The words that schedules move between HBM and an SRAM of M, exactly: a Report, or a Step of both passes.

    - `N`, `d`: queries, and the head dimension.
    - `M`: the SRAM of one thread block, in bytes, as text with a unit (`100KB`; K, M, G and T are powers of 1024), or
      in words (`51200el`). It may be left out if `tiles` are sizes.
    - `passes`: `forward`, `backward`, or `step`: both, and what is kept in HBM between them.
    - `hardware`: a GPU whose SRAM is M, as `H100`, or a hardware file. It implies fp32 accumulators and `best` tiles in
      multiples of 16, as its kernels have them. What is given wins, and `paper_model` leaves both out.
    - `schedules`: names or Schedules, as `["flash1", mine]`, or `"flash1,flash2"`. By default they are standard,
      standard-tiled, flash1 and flash2, and under a mask with `visit_all` block-sparse and block-sparse-q as well.
      Those that cannot read K and V of another type, or with scales, are left out with a note.
    - `tiles`: `paper`, `best`, or Br x Bc as `128x64`, `(128, 64)` or a Tiling. By default each schedule is counted
      with its own rules.
    - `tile_multiple`: the sizes of `best` tiles are multiples of it.
    - `model`: a config.json of Hugging Face's form, or its folder, whose heads, head dimension and window are taken
      where they are not given. A warning says what is left out.
    - `mask`: a string as `causal&window:128`, or a mask made by `iosim.masks.parse_mask`.
    - Of a step: `combinations` are names of passes.COMBINATIONS, `backward_tiles` is `tiles` unless given, and
      `unfused` are operations that standard attention does in separate passes (names of passes.UNFUSED).
    - Other options are the fields of `Attention`.

    Raises InputError for a value that is not allowed, and for a keyword that is not known.
    """
    if passes not in PASSES:
        raise InputError("--pass", passes, ", ".join(PASSES), suggestion(passes, PASSES))
    of_step = {"--combination": combinations, "--backward-tiles": backward_tiles, "--unfused": unfused}
    wrong = [name for name, value in of_step.items() if value not in (None, ())] if passes != "step" else []
    if wrong:
        raise InputError(wrong[0], of_step[wrong[0]], "with --pass step")
    both = tiles and (tiles, backward_tiles) if passes == "step" else tiles
    under, d = conditions(hardware, options, tile_multiple, paper_model, both), head_dimension(d)
    if passes != "forward" and options.get("rule"):
        allowed = "forward with --rule; --schedule state-bwd or state-bwd-saved counts a backward pass with a state"
        raise InputError("--pass", f"{passes} with --rule {options.get('rule')}", allowed)
    if passes == "step":
        from .passes import combinations_of
        from .step import count_steps

        p, size = Attention(N, d, mask=parse_mask(mask), **under.options), memory(M, hardware)
        rules = read_tiles(tiles), read_tiles(backward_tiles, "--backward-tiles")
        M_bytes = None if size is None else parse_bytes(size, p.word_bytes)
        return count_steps(p, M_bytes, combinations_of(p, combinations, schedules), rules, unfused, under)
    if passes == "backward":
        from .passes import backward_schedules

        schedules = backward_schedules(Attention(N, d, mask=parse_mask(mask), **under.options), schedules)
    return forward.count(
        N,
        d,
        M,
        hardware=hardware,
        paper_model=paper_model,
        schedules=schedules,
        tiles=tiles,
        tile_multiple=tile_multiple,
        mask=mask,
        **options,
    )
