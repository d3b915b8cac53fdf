"""Predicted times of generated kernels, where they were compared with measured ones. The commands have them on request.

The kernels are those that iosim writes from a schedule, not those that a GPU's user runs, so `iosim roofline` and
`iosim tune --by time` predict them only with `--predict generated`. `iosim verify` compares predictions with a GPU, and
asks nothing here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import InputError, IosimError
from ..progress import State, under_way
from .effort import seconds_to_predict
from .generated import check_room, predict_generated

if TYPE_CHECKING:
    from ..core.typing import Attention
    from ..cuda.program import Program
    from ..hardware import Hardware
    from ..schedules import Schedule
    from .predict import Prediction

GENERATED = "generated"
COMPARED = (  # schedules of whose predicted times validation/*/rows.csv has at least two on a GPU
    "standard", "standard-tiled", "flash1", "flash2", "block-sparse", "block-sparse-q", "memory-efficient",
    "flash2-one-room", "attention-2pass",
)  # fmt: skip
LEAST_QUERIES = 32  # with fewer, decoding, predictions were 0.45 to 0.54 of the measured time
PROGRESS_SECONDS = 1.0  # predictions that take longer say so


def asks_for_generated(what: str | None) -> bool:
    """Whether predictions of generated kernels are asked for. Raises InputError for any other word."""
    if what not in (None, GENERATED):
        raise InputError("--predict", what, f"{GENERATED}: the times of the kernels that iosim writes itself")
    return what == GENERATED


def check_compared(schedule: Schedule, p: Attention) -> None:
    """Raise IosimError, with the reason, where predictions were not compared with measurements or differ much."""
    if schedule.name not in COMPARED:
        raise IosimError("the time model was not compared with measurements of this schedule; iosim verify does that")
    if p.N < LEAST_QUERIES:
        raise IosimError(f"the time model is wrong by half for fewer than {LEAST_QUERIES} queries")
    if p.divided:
        raise IosimError(
            "the generated kernels keep their tiles in shared memory, and load one tile at a time; leave "
            "out --registers and --stages"
        )
    if p.kv_dtype or p.latent:
        raise IosimError("the time model was not compared with measurements of such a cache")


def predict_compared(schedule: Schedule, program: Program, chip: Hardware) -> Prediction:
    """The prediction of a program made from a schedule. A long one says on stderr how long it takes."""
    check_room(program, chip)
    seconds, tiling = seconds_to_predict(schedule, program, chip), program.tiling
    with under_way(quiet=seconds < PROGRESS_SECONDS or State.busy or not State.wanted) as tell:
        tell(f"predicting {schedule.name} {tiling.rows_q}x{tiling.rows_k}: about {seconds:.0f} s")
        return predict_generated(schedule, program, chip)
