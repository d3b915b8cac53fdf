"""iosim counts, exactly, the words that an attention schedule moves between HBM and SRAM.

    >>> import iosim
    >>> iosim.count(N=8192, d=128, M="100KB")["flash2"].total
    90177536

Start reading at core/machine.py. Names are loaded when they are first used, so that `import iosim` costs nothing.
"""

from .version import __version__ as __version__

_WHERE = {
    "help": "commands.questions",
    "count": "counting.question",
    "tune": "tuning.least",
    "curve": "tuning.least",
    "least_M": "tuning.inverse",
    "ring": "tuning.ring",
    "bounds": "tuning.proven",
    "over_N": "tuning.over_N",
    "floor": "counting.floors",
    "Report": "counting.report",
    "Step": "counting.step",
    "Result": "counting.result",
    "Best": "tuning.best",
    "Curve": "tuning.every_M",
    "OverN": "tuning.over_N",
    "AtMost": "tuning.inverse",
    "WithinFloor": "tuning.inverse",
    "Bounds": "tuning.proven",
    "Picture": "drawing.picture",
    "Table": "answer",
    "Floor": "counting.floors",
    "Attention": "core.problem",
    "Tensor": "core.problem",
    "Tiling": "core.tiling",
    "schedules": "counting.schedule_text",
    "hardware": "hardware",
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
"""{name: its module}, of the house. Wings name theirs in their manifests; type checkers read __init__.pyi."""


def _module_of(name: str) -> str | None:
    """The module that has a public name; None if there is no such name."""
    if name in _WHERE:
        return f"{__name__}.{_WHERE[name]}"
    if name.startswith("_"):
        return None
    from .wings import rows

    found = (f"{package}.{module}" for package, word, module in rows(lambda wing: wing.names) if word == name)
    return next(found, None)


def _public() -> list[str]:
    """All public names."""
    from .wings import rows

    return ["__version__", *_WHERE, *(name for _, name, _ in rows(lambda wing: wing.names))]


def __getattr__(name: str) -> object:
    if name == "__all__":
        return _public()
    from importlib import import_module

    if (where := _module_of(name)) is None:
        old = import_module(".commands.old_words", __name__).in_python(name)
        raise AttributeError(old or f"module 'iosim' has no attribute {name!r}")

    if name in import_module(".asked_modules", __name__).ASKED:
        return import_module(f".{name}", __name__)
    found = getattr(import_module(where), name)
    if callable(found) and not isinstance(found, type):
        import_module(".core.shown_options", __name__).spelled_out(found)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*_public(), *(name for name in globals() if name.startswith("__"))})
