"""`python -m iosim`."""

from .cli import main

main()
