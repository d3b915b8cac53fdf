"""The schedules there are. Each file registers its own when it is imported; this is their order in lists."""

# isort: off
from . import standard, flash, memory_efficient, decode, backward, backward_lse
from . import small_cache, online_softmax, matmul, linear

# isort: on
from .registry import SCHEDULES, Schedule, find, register, require

CORE = ("standard", "standard-tiled", "flash1", "flash2", "block-sparse", "block-sparse-q")

__all__ = [
    "CORE",
    "SCHEDULES",
    "Schedule",
    "backward",
    "backward_lse",
    "decode",
    "find",
    "flash",
    "linear",
    "matmul",
    "memory_efficient",
    "online_softmax",
    "register",
    "require",
    "small_cache",
    "standard",
]
