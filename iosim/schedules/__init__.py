"""The schedules there are. Each file registers its own when it is imported; this is their order in lists."""

from . import standard, flash  # isort: skip
from .registry import SCHEDULES, Schedule, find, register

CORE = ("standard", "standard-tiled", "flash1", "flash2", "block-sparse", "block-sparse-q")

__all__ = ["CORE", "SCHEDULES", "Schedule", "find", "flash", "register", "standard"]
