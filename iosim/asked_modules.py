"""Modules with the name of a question, which answer when they are called: `iosim.hardware("h100")`.

A function of the same name in `iosim` would hide the module.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType

ASKED = {"hardware": "hardware", "schedules": "counting.schedule_text"}
"""{module: where the function of the same name is, which answers}."""


class Asked(ModuleType):
    """A module that can be called."""

    def __call__(self, *values: object, **given: object) -> object:
        """The answer of the function that has the module's name."""
        return self.__wrapped__(*values, **given)  # type: ignore[operator]

    @property
    def __wrapped__(self) -> object:
        """The function that answers, with every option in its signature. `inspect` looks for it here."""
        name = self.__name__.rpartition(".")[2]
        function = getattr(import_module(f".{ASKED[name]}", __package__), name)
        import_module(".core.shown_options", __package__).spelled_out(function)
        return function


def answers(module: str) -> None:
    """Make a module, by its full name, answer when it is called."""
    sys.modules[module].__class__ = Asked
