"""iosim counts, exactly, the words that an attention schedule moves between HBM and SRAM.

    >>> import iosim
    >>> iosim.count(N=8192, d=128, M="100KB")["flash2"].total
    90177536

Start reading at machine.py. Names are loaded when they are first used, so that `import iosim` costs nothing.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_WHERE = {
    "count": "experiment",
    "Report": "experiment",
    "Result": "experiment",
    "sweep": "grid",
    "Attention": "problem",
    "Tensor": "problem",
    "Tiling": "tiling",
    "Schedule": "schedules",
    "SCHEDULES": "schedules",
    "register": "schedules",
    "Machine": "machine",
    "Folded": "folded",
    "Numeric": "numeric",
    "Traffic": "watchers",
    "Capacity": "watchers",
    "Flops": "watchers",
    "Trace": "watchers",
    "IosimError": "errors",
    "InputError": "errors",
}
__all__ = ["__version__", *_WHERE]

if TYPE_CHECKING:  # the same names, for type checkers
    from .errors import InputError as InputError
    from .errors import IosimError as IosimError
    from .experiment import Report as Report
    from .experiment import Result as Result
    from .experiment import count as count
    from .folded import Folded as Folded
    from .grid import sweep as sweep
    from .machine import Machine as Machine
    from .numeric import Numeric as Numeric
    from .problem import Attention as Attention
    from .problem import Tensor as Tensor
    from .schedules import SCHEDULES as SCHEDULES
    from .schedules import Schedule as Schedule
    from .schedules import register as register
    from .tiling import Tiling as Tiling
    from .watchers import Capacity as Capacity
    from .watchers import Flops as Flops
    from .watchers import Trace as Trace
    from .watchers import Traffic as Traffic


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'iosim' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_WHERE[name]}", __name__), name)
