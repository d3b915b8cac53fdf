"""Answers that were kept (`iosim explain ... -o words.json`), and what has changed since.

Launches are compared in their order, those of each kernel by themselves. Numbers of words are compared, and of bytes
where the words are as before but have another size. Resources are not: they are the compiler's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, cast

from ..errors import InputError
from ..reading import read_text

if TYPE_CHECKING:
    from .explain import Explained

OPTION = "--check"
ALLOWED = "a JSON file of this command, as `iosim explain launch.toml -o words.json` writes it"
VERBS = {"reads": "read", "writes": "written", "atomics": "changed by atomics"}
BYTES = {"reads": "read_bytes", "writes": "write_bytes", "atomics": "atomic_bytes"}

Tensors = Mapping[str, Mapping[str, int]]
"""{argument: {key of the JSON: number}}"""


def read_kept(path: str) -> dict[str, Tensors]:
    """{launch: its tensors} of a kept answer. A second launch of a kernel is called `name, launch 2`."""
    try:
        found = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise InputError(OPTION, path, ALLOWED, str(error)) from None
    answers = found.get("answers", [found]) if isinstance(found, dict) else []
    if not answers or not all(is_answer(answer) for answer in answers):
        raise InputError(OPTION, path, ALLOWED)
    return by_launch((answer["kernel"], answer["tensors"]) for answer in answers)


def is_answer(found: object) -> bool:
    """Whether a value of JSON has the words of a launch."""
    if not isinstance(found, dict) or not isinstance(found.get("kernel"), str):
        return False
    tensors = found.get("tensors")
    return isinstance(tensors, dict) and all(
        isinstance(row, dict) and all(isinstance(row.get(key), int) for key in (*VERBS, *BYTES.values()))
        for row in tensors.values()
    )


def by_launch(answers: Iterable[tuple[str, Tensors]]) -> dict[str, Tensors]:
    """The tensors of each launch, by the name of the launch."""
    found: dict[str, Tensors] = {}
    seen: dict[str, int] = {}
    for kernel, tensors in answers:
        seen[kernel] = seen.get(kernel, 0) + 1
        found[kernel if seen[kernel] == 1 else f"{kernel}, launch {seen[kernel]}"] = tensors
    return found


def changes(kept: Mapping[str, Tensors], answers: Iterable[Explained]) -> list[str]:
    """A sentence for each number that differs from the kept one, and for each launch that is new or gone."""
    now = by_launch((answer.kernel, cast("Tensors", answer.tensors)) for answer in answers)
    found = []
    for launch in {**kept, **now}:
        if launch not in now:
            found.append(f"{launch}: it was launched, and has no answer now")
        elif launch not in kept:
            found.append(f"{launch}: a launch that was not there")
        else:
            found += [f"{launch}: {change}" for change in changed(kept[launch], now[launch])]
    return found


def changed(before: Tensors, now: Tensors) -> Iterator[str]:
    """A sentence for each number of one launch that changed."""
    nothing = dict.fromkeys((*VERBS, *BYTES.values()), 0)
    for name in {**before, **now}:
        old, new = before.get(name, nothing), now.get(name, nothing)
        for way, verb in VERBS.items():
            key, unit = (way, "words") if old[way] != new[way] else (BYTES[way], "bytes")
            if old[key] != new[key]:
                yield sentence(name, verb, unit, old[key], new[key])


def sentence(name: str, verb: str, unit: str, old: int, new: int) -> str:
    """The sentence about one number that changed."""
    by = f"{abs(new - old)} {'more' if new > old else 'fewer'}"
    times = f", {new / old:.4g} times as many" if old else ""
    return f"{name}: {new} {unit} {verb}, {by} than the {old} before{times}"
