"""`iosim calibrate`."""

from __future__ import annotations

from .options import file_option, json_option, named_command


@named_command("calibrate")
@json_option
@file_option("Write to a file, FILE.toml or FILE.json; - is stdout.")
def command(as_json: bool, path: str | None) -> None:
    """Measure this GPU (memory, L2, arithmetic, launches, limits) into a hardware file, for --hardware FILE.toml.

    Example: iosim calibrate -o h200.toml
    """
    import sys

    from ..calibrate.gpu import measure_all, toml
    from ..tables import to_json
    from .answer import Output, emit

    found = measure_all()
    output = Output.asked(as_json, False, path)
    emit(to_json({"measured": found}, sys.argv[1:]) if output.as_json else toml(found), path)
