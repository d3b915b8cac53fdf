"""The option --load: Python files that register schedules."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import click

from ..errors import InputError, IosimError
from ..options import ANSWER
from .options import Option

LOADED: list[str] = []
BROUGHT: dict[str, set[str]] = {}
"""{file: the names of the modules that came with it}."""
FILES, AHEAD = "iosim.files", "iosim.ahead"


def load_file(file: str) -> None:
    """Run a file that registers schedules."""
    import runpy
    import sys
    from contextlib import redirect_stdout

    from ..reading import Unreadable, check_no_device

    LOADED.append(file)
    before = {*sys.modules}
    try:
        check_no_device(file)
        with redirect_stdout(sys.stderr):  # stdout is for the answer
            runpy.run_path(file)
        BROUGHT.setdefault(file, set()).update({*sys.modules} - before)
    except IosimError:
        raise
    except Unreadable as error:
        raise InputError("--load", file, "a Python file that runs", str(error)) from None
    except SystemExit as error:
        found = f"it ends the program: SystemExit({error.code!r})"
        raise InputError("--load", file, "a Python file that runs to its end", found) from None
    except Exception as error:
        raise InputError("--load", file, "a Python file that runs", f"{type(error).__name__}: {error}") from None


def load_files(ctx: click.Context, option: click.Parameter, files: tuple[str, ...]) -> None:
    """Run the files of --load that were not run yet, and record their names for `loaded`."""
    done = ctx.meta.pop(AHEAD, ())
    for file in files:
        if file not in done:
            load_file(file)
    ctx.meta[FILES] = (*loaded(ctx), *files)


def load_ahead(ctx: click.Context, args: Sequence[str]) -> None:
    """Run the files of --load, and import the packages of schedules that are named, before the rest of a line is
    parsed, because they may declare options."""
    files = [text.partition("=")[2] for text in args if text.startswith("--load=")]
    files += [file for option, file in pairwise(args) if option == "--load"]
    for file in files:
        load_file(file)
    ctx.meta[AHEAD] = files
    asked = [text.partition("=")[2] for text in args if text.startswith("--schedule=")]
    asked += [names for option, names in pairwise(args) if option == "--schedule"]
    for name in (name for names in asked for name in names.split(",")):
        from ..schedules import SCHEDULES

        SCHEDULES.get(name)  # an unknown name is looked for in other packages


def loaded(ctx: click.Context) -> tuple[str, ...]:
    """The files that this command line loaded, before or after the command's name."""
    return ctx.meta.get(FILES, ())


load_option = Option(
    ["--load"],
    heading=ANSWER,
    multiple=True,
    metavar="FILE.py",
    help="Run these Python files, which register schedules.",
    is_eager=True,
    expose_value=False,
    callback=load_files,
)
