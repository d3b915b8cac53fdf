"""`python -m iosim` and `iosim`: the command line."""

import sys


def main() -> None:
    """Run the command line. Ctrl-C while its files are imported ends it as Ctrl-C later does."""
    try:
        from .commands.cli import main as run
    except KeyboardInterrupt:
        sys.stderr.write("Aborted!\n")
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
