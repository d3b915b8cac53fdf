"""iosim counts, exactly, the words that an attention schedule moves between HBM and SRAM.

    >>> import iosim
    >>> iosim.count(N=8192, d=128, M="100KB")["flash2"].total
    90177536

Start reading at core/machine.py. Names are loaded when they are first used, so that `import iosim` costs nothing.
"""

from typing import TYPE_CHECKING

__version__ = "0.1.0"

_WHERE = {
    "count": "counting.count",
    "Report": "counting.count",
    "Result": "counting.count",
    "sweep": "counting.sweep",
    "floor": "counting.floors",
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
    from .counting.count import Report as Report
    from .counting.count import Result as Result
    from .counting.count import count as count
    from .counting.floors import Floor as Floor
    from .counting.floors import floor as floor
    from .counting.sweep import sweep as sweep
    from .errors import InputError as InputError
    from .errors import IosimError as IosimError
    from .schedules import SCHEDULES as SCHEDULES
    from .schedules import Schedule as Schedule
    from .schedules import register as register


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module 'iosim' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_WHERE[name]}", __name__), name)
