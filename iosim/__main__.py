"""`python -m iosim` and `iosim`: the command line."""

import gc
import signal
import sys

NEW_OBJECTS = 100_000  # between two searches for garbage; Python's 700 cost a tenth of the time to start


class Pressed(KeyboardInterrupt):
    """Ctrl-C. After a plain KeyboardInterrupt in code that was made from a text, as that of a dataclass, Python ends by
    the signal and not with the exit code, though the interrupt was handled."""


def main() -> None:
    """Run the command line. Ctrl-C while its files are imported ends it as Ctrl-C later does."""
    gc.set_threshold(NEW_OBJECTS)
    try:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, pressed)
        from .commands.cli import main as run
    except KeyboardInterrupt:
        sys.stderr.write("Aborted!\n")
        sys.exit(130)
    run()


def pressed(number: int, frame: object) -> None:
    """Raise Pressed."""
    raise Pressed


if __name__ == "__main__":
    main()
