"""iosim counts, exactly, the words that an attention schedule moves between HBM and SRAM.

    >>> import iosim
    >>> iosim.count(N=8192, d=128, M="100KB")["flash2"].total
    90177536

Start reading at machine.py. Names are loaded when they are first used, so that `import iosim` costs nothing.
"""

from typing import Any

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


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'iosim' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_WHERE[name]}", __name__), name)
