"""The version, and when this process began to import iosim."""

from time import time_ns

__version__ = "0.3.0"
IMPORTED = time_ns()  # files that are written later are not those of this process
