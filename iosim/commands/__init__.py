"""The command line: a file for each command, which translates options into a call. `cli.py` loads them by name."""
