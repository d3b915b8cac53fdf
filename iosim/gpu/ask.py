"""`iosim.verify` and `iosim.profile`: the questions of both commands, from Python or from a command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Unpack

from ..core.problem import Attention
from ..core.tiling import tiles_text
from ..counting.given import problem
from ..counting.names import takes_options
from ..errors import InputError, MissingError
from ..masks import parse_mask
from ..masks.dropout import parse_dropout
from ..schedules import find_all
from .cpu_runs import check_problem
from .verify_run import Choice, KeptProfile, Measurement, parse_request, run_request

if TYPE_CHECKING:
    from ..core.keywords import ProblemOptions, UndroppedOptions
    from ..core.mask_types import Mask
    from ..core.tiling import TilesAsked
    from ..counting.given import Given
    from ..schedules.registry import SchedulesAsked
    from .cpu_runs import Checks
    from .profile.run import Explanations
    from .verify_run import Source, Verdicts

SMALL = {"N": "96", "d": "16"}  # the problem of a run on the CPU, where sizes are not given
Tell = Callable[[str], None]


class OnCpu(NamedTuple):
    """What is asked of a run on the CPU: whether the CPU is asked for, the inputs' seed, the probability of dropout."""

    cpu: bool = False
    seed: str | int = "0"
    dropout: str | None = None

    @property
    def asked(self) -> bool:
        """Whether only the CPU answers: no kernel drops elements of P."""
        return self.cpu or self.dropout is not None


def verified(
    given: Given,
    choice: Choice,
    source: Source,
    on_cpu: OnCpu,
    hardware: str | None = None,
    tell: Tell = lambda _: None,
) -> tuple[Checks | Verdicts, list[str]]:
    """(the verdicts of a GPU or a kept profile, or without a GPU those of the CPU; notes)."""
    notes: list[str] = []
    if on_cpu.asked:
        check_cpu(choice, source, "--cpu" if on_cpu.cpu else "--dropout")
    elif not isinstance(source, KeptProfile) and (why := without_gpu()):
        if of_gpu(choice, source):
            raise why
        notes = [f"words of kernels, bytes and time need a GPU: {str(why).partition('; this works')[0]}"]
    if not (on_cpu.asked or notes):
        return run_request(parse_request(given, choice, hardware, source), tell), []
    sizes = {**given, **{name: size for name, size in SMALL.items() if given.get(name) is None}}
    p = problem(sizes, dropout=parse_dropout(on_cpu.dropout, str(on_cpu.seed)))
    asked = choice.tiles, choice.schedules, on_cpu.seed
    return check_problem(p, *asked, lambda name: tell(f"checking {name}"), choice.M), notes


def without_gpu() -> MissingError | None:
    """What is missing for a run on a GPU; None if nothing is."""
    from . import device

    try:
        device.cupy()
    except MissingError as why:
        return why
    return None


def of_gpu(choice: Choice, source: Source) -> dict[str, object]:
    """The options that only a GPU can answer, with their values."""
    if isinstance(source, KeptProfile):
        return {"--from-ncu": source.path}
    asked = {
        "--keep": source.keep,
        "--no-counters": None if source.counters else "given",
        "--tuned": "given" if choice.tuned else None,
        "--M": choice.M if choice.sweeps else None,
    }
    return {option: value for option, value in asked.items() if value is not None}


def check_cpu(choice: Choice, source: Source, why: str) -> None:
    """Raise InputError for an option that only a GPU can answer."""
    for option, value in of_gpu(choice, source).items():
        raise InputError(option, value, f"nothing with {why}", "it is about kernels on a GPU")


@takes_options()
def verify(
    N: int | None = None,
    d: int | None = None,
    M: int | str | None = None,
    *,
    tiles: TilesAsked | None = None,
    schedules: SchedulesAsked = (),
    cpu: bool = False,
    seed: int | str = 0,
    dropout: float | str | None = None,
    hardware: str | None = None,
    from_ncu: str | None = None,
    keep: str | None = None,
    counters: bool = True,
    tuned: bool = False,
    mask: str | Mask = "dense",
    **options: Unpack[UndroppedOptions],
) -> Checks | Verdicts:
    """Run schedules, and compare what they do with the model: Verdicts of a GPU, or Checks of the CPU.

    On a GPU: words counted by the generated kernels, bytes counted by the hardware (with `counters`), time and output.
    Without one, or with `cpu` or `dropout`: output, words and SRAM of runs in NumPy; N is then 96 and d is 16 unless
    given, and tiles are 16x16 or smaller. `from_ncu` judges a kept profile. `tuned` and `keep` are those of the
    command. Other options are those of `count`. Raises InputError for whatever is not allowed.
    """
    sizes: dict[str, object] = {"N": N, "d": d, "mask": None if mask == "dense" else str(parse_mask(mask)), **options}
    given = {
        name: value if isinstance(value, bool) else str(value) for name, value in sizes.items() if value is not None
    }
    names = tuple(schedule.name for schedule in find_all(schedules))
    choice = Choice(names, None if tiles is None else tiles_text(tiles), None if M is None else str(M), tuned)
    source: Source = KeptProfile(from_ncu) if from_ncu else Measurement(counters, keep)
    on_cpu = OnCpu(cpu, seed, None if dropout is None else str(dropout))
    return verified(given, choice, source, on_cpu, hardware)[0]


@takes_options()
def profile(
    kernel: str | None = None,
    N: int | None = None,
    d: int | None = None,
    *,
    from_ncu: str | None = None,
    keep: str | None = None,
    mask: str | Mask = "dense",
    **options: Unpack[ProblemOptions],
) -> Explanations:
    """The schedule and tiles that explain an attention kernel which somebody else wrote: Explanations.

    `kernel` is torch-flash, torch-cudnn, torch-efficient, torch-math or torch-flex, profiled on this GPU; or any name
    with `from_ncu`, a kept profile. Without N and d each call of the file is explained with the shape that it names.
    Other options are those of `count`, of which `lse` is True unless given. Raises InputError for whatever is not
    allowed.
    """
    from .profile.run import Explanations, explain_kernel

    p = None
    if N is not None and d is not None:
        p = Attention(N, d, mask=parse_mask(mask), **{"acc_dtype": "fp32", "lse": True, **options})  # type: ignore[arg-type]
    elif N is not None or d is not None or not from_ncu:
        raise InputError("--N, --d", "nothing", "a value for each", "or from_ncu alone")
    return Explanations(explain_kernel(kernel, p, from_ncu, keep)[0])
