"""`python -m iosim`: the command line."""

from .commands.cli import main

main()
