"""One file a command: the option decorators, and a translation into a call. `commands/cli.py` loads them by name."""
