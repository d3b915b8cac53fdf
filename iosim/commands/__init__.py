"""One file a command: the option decorators, and a translation into a call. `cli.py` loads them by name."""
