"""`iosim calibrate`."""

from __future__ import annotations

from ..commands.command import named_command
from ..commands.options import file_option, json_option


@named_command("calibrate", gpu=True)
@json_option
@file_option("Write to a file, FILE.toml or FILE.json; - is stdout.")
def command(as_json: bool, path: str | None) -> None:
    """Measure this GPU (memory, L2, arithmetic, launches, limits) into a hardware file, for --hardware FILE.toml.

    Example: iosim calibrate -o h200.toml
    """
    import sys

    from ..commands.answer import emit, say
    from ..files import form_of
    from ..progress import under_way
    from ..tables import to_json
    from .calibrate.gpu import measure_all, toml

    as_json = as_json or form_of(path, "calibrate") == "json"
    with under_way() as tell:
        found = measure_all(tell)
    emit(to_json({"measured": found}, sys.argv[1:]) if as_json else toml(found), path)
    if path not in (None, "-") and not as_json:
        say([f"these are the rates of {found['name']}: give them as --hardware {path}"])
