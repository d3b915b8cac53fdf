"""The answer of a roofline in a sentence: the schedule that is fastest at the peaks, its advantage, and its limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..counting.sentence import BASELINE, NEAR, distance_to_floor, joined, times

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .roofline import Roofline, RooflineRow

SLOWEST = {
    "memory": "the HBM binds", "matrix": "matrix products bind", "exp": "exponentials bind",
    "other": "operations outside of products bind",
}  # fmt: skip


def winners(found: Roofline) -> list[RooflineRow]:
    """The row of least time at the peaks for each phase: of all launches, among those that fit."""
    within = [row for row in found.rows if row.launch == "all" and row.fits]
    phases = dict.fromkeys(row.phase for row in within)
    return [min((row for row in within if row.phase == phase), key=lambda row: row.seconds) for phase in phases]


def answer_lines(found: Roofline) -> list[str]:
    """The sentences of the answer, about each phase."""
    lines = [line for winner in winners(found) for line in lines_of_phase(found, winner)]
    return lines or ["Nothing that was asked for fits in this SRAM."]


def lines_of_phase(found: Roofline, winner: RooflineRow) -> list[str]:
    """The sentences about one phase."""
    phase = [row for row in found.rows if row.phase == winner.phase and row.launch == "all" and row is not winner]
    slower = sorted((row for row in phase if row.seconds > NEAR * winner.seconds), key=lambda row: row.seconds)
    near = [row for row in phase if row.fits and row not in slower]
    baseline = [row for row in phase if row.schedule == BASELINE]
    within = [row for row in slower if row.fits]
    other = next(iter([*baseline, *within, *slower]), None)
    first = "" if len({row.phase for row in found.rows}) == 1 else f"{winner.phase}: "
    first += f"{named(winner)} takes {winner.seconds * 1e6:.2f} us at the peaks of {found.hardware.name}"
    lines = [first + (f", {compared(winner, other, found.M_bytes)}" if other else f"; {SLOWEST[winner.binds]}.")]
    lines += with_ideal_l2(winner)
    lines += [nearly_as_fast(winner, near)] if near else []
    lines += [f"It takes {compared(winner, within[0], found.M_bytes)}"] if within and within[0] is not other else []
    lines += as_generated(winner, [row for row in [winner, *phase] if row.fits])
    distance = distance_to_floor(winner.ratio_to_floor, found.M_bytes)
    return [*lines, distance] if distance else lines


def named(row: RooflineRow) -> str:
    """A row by its schedule and tiles."""
    return row.schedule + (f" ({row.Br}x{row.Bc})" if row.Br else "")


def with_ideal_l2(row: RooflineRow) -> list[str]:
    """The sentence about the time with an ideal L2, if something else binds then; else nothing."""
    if row.ideal_l2_binds == row.binds:
        return []
    return [f"With an ideal L2, which serves all that is read again, it takes {row.ideal_l2_seconds * 1e6:.2f} us, and "
            f"{SLOWEST[row.ideal_l2_binds]}."]  # fmt: skip


def as_generated(winner: RooflineRow, fitting: Sequence[RooflineRow]) -> list[str]:
    """The sentences about the predicted time of generated kernels: the winner's, and a shorter one of other rows that
    fit."""
    timed = [(row.predicted_seconds, row) for row in fitting if row.predicted_seconds is not None]
    if not timed:
        return []
    least, fastest = min(timed, key=lambda one: one[0])
    own, lines = winner.predicted_seconds, []
    if own is not None:
        share = times(own, winner.seconds)
        lines = [f"Its generated kernels are predicted to take {own * 1e6:.2f} us, {share}x its time at the peaks."]
    if own is None or own > NEAR * least:
        which = f"Of the generated kernels whose time is predicted, those of {named(fastest)} are fastest"
        lines.append(f"{which}: {least * 1e6:.2f} us.")
    return lines


def nearly_as_fast(winner: RooflineRow, near: Sequence[RooflineRow]) -> str:
    """The sentence about rows that take as long as the winner, or hardly longer."""
    most = times(max(row.seconds for row in near), winner.seconds)
    verb = "takes" if len(near) == 1 else "take"
    return f"{joined(map(named, near))} {verb} {'as long' if most == '1' else f'at most {most} times as long'}."


def compared(winner: RooflineRow, other: RooflineRow, M_bytes: int) -> str:
    """The end of a sentence: the winner's time and bytes compared with those of another row, and the limit of both."""
    beyond = "" if other.fits else f", which would need {times(other.smem_peak_bytes or 0, M_bytes)} times this SRAM"
    less = winner.seconds <= other.seconds
    share = times(*sorted((winner.seconds, other.seconds), reverse=True))
    text = f"{share}x {'less' if less else 'more'} than {named(other)}{beyond}: "
    mine, its = winner.work.total_bytes, other.work.total_bytes
    if mine != its:
        text += f"it moves {times(max(its, mine), min(its, mine))}x {'fewer' if its > mine else 'more'} bytes, and "
    done, theirs = winner.work.matrix_flops, other.work.matrix_flops
    if theirs > NEAR * done and "matrix" in (winner.binds, other.binds):
        text += f"computes {times(theirs, done)}x fewer FLOPs of products, and "
    if winner.binds == other.binds:
        return f"{text}{SLOWEST[winner.binds]} in both."
    return f"{text}{SLOWEST[winner.binds]}, not {SLOWEST[other.binds].rpartition(' ')[0]}."
