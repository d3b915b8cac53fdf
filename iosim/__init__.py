"""iosim counts, exactly, the words that an attention schedule moves between HBM and SRAM.

    >>> import iosim
    >>> iosim.count(N=8192, d=128, M="100KB")["flash2"].total
    90177536

Start reading at core/machine.py. Names are loaded when they are first used, so that `import iosim` costs nothing.
"""

from time import time_ns as _time_ns

TYPE_CHECKING = False  # as in typing, whose import takes a while, in which Ctrl-C would not be one message
_IMPORTED = _time_ns()  # files that are written later are not those of this process
__version__ = "0.3.0"

_WHERE = {
    "count": "counting.count",
    "sweep": "sweeps.run",
    "tune": "tuning.least",
    "curve": "tuning.least",
    "least_M": "tuning.inverse",
    "batch": "batches.answer",
    "replay": "batches.answer",
    "bounds": "tuning.proven",
    "crossover": "tuning.crossover",
    "fastest": "studies.fastest",
    "roofline": "studies.roofline",
    "training": "studies.training",
    "memory": "studies.memory",
    "links": "distributed.answer",
    "mask": "masks.picture",
    "check": "studies.check",
    "trace": "tracing.events",
    "cache": "tracing.cache_answer",
    "plot": "pictures.picture",
    "floor": "counting.floors",
    "explain": "kernels.explain",
    "prune": "kernels.prune",
    "tensor": "kernels.read.arguments",
    "Report": "counting.report",
    "Result": "counting.result",
    "Explained": "kernels.explain",
    "Best": "tuning.best",
    "Curve": "tuning.every_M",
    "AtMost": "tuning.inverse",
    "WithinFloor": "tuning.inverse",
    "Batched": "batches.answer",
    "Replayed": "batches.trace_rows",
    "Bounds": "tuning.proven",
    "Fastest": "studies.fastest",
    "Roofline": "studies.roofline",
    "Training": "studies.training",
    "Links": "distributed.answer",
    "Checks": "studies.check",
    "Events": "tracing.events",
    "Picture": "pictures.picture",
    "Table": "answer",
    "Floor": "counting.floors",
    "Attention": "core.problem",
    "Tensor": "core.problem",
    "Tiling": "core.tiling",
    "Schedule": "schedules",
    "SCHEDULES": "schedules",
    "register": "schedules",
    "Machine": "core.machine",
    "Folded": "core.folded",
    "Numeric": "core.numeric",
    "Traffic": "core.watchers",
    "Capacity": "core.watchers",
    "Flops": "core.watchers",
    "Trace": "core.watchers",
    "IosimError": "errors",
    "InputError": "errors",
}
__all__ = ["__version__", *_WHERE]

if TYPE_CHECKING:  # the same names, for type checkers
    from .answer import Table as Table
    from .batches.answer import Batched as Batched
    from .batches.answer import batch as batch
    from .batches.answer import replay as replay
    from .batches.trace_rows import Replayed as Replayed
    from .core.folded import Folded as Folded
    from .core.machine import Machine as Machine
    from .core.numeric import Numeric as Numeric
    from .core.problem import Attention as Attention
    from .core.problem import Tensor as Tensor
    from .core.tiling import Tiling as Tiling
    from .core.watchers import Capacity as Capacity
    from .core.watchers import Flops as Flops
    from .core.watchers import Trace as Trace
    from .core.watchers import Traffic as Traffic
    from .counting.count import count as count
    from .counting.floors import Floor as Floor
    from .counting.floors import floor as floor
    from .counting.report import Report as Report
    from .counting.result import Result as Result
    from .distributed.answer import Links as Links
    from .distributed.answer import links as links
    from .errors import InputError as InputError
    from .errors import IosimError as IosimError
    from .kernels.explain import Explained as Explained
    from .kernels.explain import explain as explain
    from .kernels.prune import prune as prune
    from .kernels.read.arguments import tensor as tensor
    from .masks.picture import mask as mask
    from .pictures.picture import Picture as Picture
    from .pictures.picture import plot as plot
    from .schedules import SCHEDULES as SCHEDULES
    from .schedules import Schedule as Schedule
    from .schedules import register as register
    from .studies.check import Checks as Checks
    from .studies.check import check as check
    from .studies.fastest import Fastest as Fastest
    from .studies.fastest import fastest as fastest
    from .studies.memory import memory as memory
    from .studies.roofline import Roofline as Roofline
    from .studies.roofline import roofline as roofline
    from .studies.training import Training as Training
    from .studies.training import training as training
    from .sweeps.run import sweep as sweep
    from .tracing.cache_answer import cache as cache
    from .tracing.events import Events as Events
    from .tracing.events import trace as trace
    from .tuning.best import Best as Best
    from .tuning.crossover import crossover as crossover
    from .tuning.every_M import Curve as Curve
    from .tuning.inverse import AtMost as AtMost
    from .tuning.inverse import WithinFloor as WithinFloor
    from .tuning.inverse import least_M as least_M
    from .tuning.least import curve as curve
    from .tuning.least import tune as tune
    from .tuning.proven import Bounds as Bounds
    from .tuning.proven import bounds as bounds


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module 'iosim' has no attribute {name!r}")
    from importlib import import_module

    found = getattr(import_module(f".{_WHERE[name]}", __name__), name)
    if callable(found) and not isinstance(found, type):
        import_module(".core.shown_options", __name__).spelled_out(found)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
