"""All commands that are there: those of the house stand here, those of the wings in their manifests."""

from __future__ import annotations

from functools import cache

from ..wings import rows

GROUPS: dict[str, dict[str, str]] = {
    "Start here": {
        "count": "Words and bytes for each schedule, with fit, ratios and bounds.",
        "tune": "The best schedules and tiles: least traffic for an M, least time on a GPU; --curve for every M.",
    },
    "What is possible": {
        "bounds": "Proven statements about the least traffic.",
    },
    "Many answers": {},
    "On a GPU": {"hardware": "Hardware presets, each number with unit and source."},
    "Look inside": {
        "schedules": "All schedules: source, formula, state and options of each.",
    },
}
"""The commands of the house, each with a line of help, under the headings of `iosim --help`. Wings add theirs."""


@cache
def groups() -> dict[str, dict[str, str]]:
    """All commands that are there, with a line of help each, under their headings."""
    found = {heading: {**group} for heading, group in GROUPS.items()}
    for _, heading, group in rows(lambda wing: wing.commands):
        listed = {name for each in found.values() for name in each}
        found.setdefault(heading, {}).update((name, line) for name, line in group.items() if name not in listed)
    return found


@cache
def all_commands() -> dict[str, str]:
    """All commands that are there, each with its line of help."""
    return {name: line for group in groups().values() for name, line in group.items()}


@cache
def module_of(command: str) -> str | None:
    """The module of a command; None if there is no such command. For one of the house no manifest is read."""
    if any(command in group for group in GROUPS.values()):
        return f"{__package__}.{command}"
    owners = (package for package, _, group in rows(lambda wing: wing.commands) if command in group)
    return next((f"{package}.command_{command}" for package in owners), None)
