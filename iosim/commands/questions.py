"""The questions that iosim answers, as `iosim.help()` shows them."""

from __future__ import annotations


def help(question: str | None = None) -> None:
    """Print the questions, each a function of iosim and a command with the same name; or the help of one, as
    `iosim.help("count")`. Raises InputError for a name that is no question."""
    import inspect

    import iosim

    from ..errors import InputError, suggestion
    from .listed import all_commands, groups

    if question is None:
        for heading, group in groups().items():
            print(f"{heading}:")
            print("\n".join(f"  iosim.{name:10} {line}" for name, line in group.items() if hasattr(iosim, name)))
        print('iosim.help("count") says more about one.')
        return
    if question not in all_commands() or not hasattr(iosim, question):
        names = [name for name in all_commands() if hasattr(iosim, name)]
        raise InputError("help", question, ", ".join(names), suggestion(question, names))
    function = getattr(iosim, question)
    print(f"iosim.{question}{inspect.signature(function)}\n\n{inspect.getdoc(inspect.unwrap(function))}")
