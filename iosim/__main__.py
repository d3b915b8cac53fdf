"""`python -m iosim`."""

from .commands.cli import main

main()
