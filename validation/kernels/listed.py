"""The launches of launches.toml, ready to be explained or run."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from iosim.kernels.explain import Explained, Question, explained
from iosim.kernels.read.arguments import read_grid
from iosim.kernels.read.kernel import STAGES, WARPS, Configuration, Kernel, KernelLaunch
from iosim.kernels.read.kernel_file import kernel_of
from iosim.kernels.read.launch_texts import given_values, reader

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Listed:
    """A launch as the list has it: texts by name, of which the kernel takes what it needs."""

    package: str
    file: str
    path: str
    kernel: str
    grid: str
    texts: dict[str, str]
    sizes: str
    words: dict[str, list[int]]

    def given(self, kernel: Kernel) -> tuple[dict[str, str], dict[str, object]]:
        """The texts that the kernel needs, and the values of its parameters."""
        texts = {n: text for n in kernel.parameters if (text := self.text_of(n)) is not None}
        wanted = [self.grid, *texts.values()]
        while wanted:
            for name in re.findall(r"[A-Za-z_]\w*", wanted.pop()):
                text = self.text_of(name) if name not in texts and name not in kernel.parameters else None
                if text is not None:
                    texts[name] = text
                    wanted.append(text)
        return texts, given_values(kernel, texts, {})

    def text_of(self, name: str) -> str | None:
        return next((text for pattern, text in self.texts.items() if fnmatchcase(name, pattern)), None)

    def number(self, name: str) -> int | None:
        return int(self.texts[name]) if name in self.texts else None


def listed(
    folder: str | Path, all_sizes: bool = False, small: bool = False, name: str = "launches.toml"
) -> list[Listed]:
    """All launches of a list: each with all of its sizes, with its small ones, or else with the first."""
    found = []
    for package in tomllib.loads((HERE / name).read_text()).values():
        root = HERE.parents[1] / package["root"] if "root" in package else Path(folder) / package["package"]
        for one in package["launch"]:
            sizes = one.get("sizes", package.get("sizes", [{}]))
            if small:
                sizes = [{**package["small"], **one.get("small", {})}]
            for size in sizes if all_sizes else sizes[:1]:
                texts = size | {k: v for k, v in one.get("values", {}).items() if k not in size}
                texts |= {k: v for k, v in package["values"].items() if k not in texts}
                label = ", ".join(f"{name}={text}" for name, text in size.items())
                grid = texts.pop("grid", one["grid"])
                path = str((root / one["file"]).resolve())
                found.append(Listed(package["version"], one["file"], path, one["kernel"], grid, texts, label,
                                    one.get("words", {}) if not size else {}))  # fmt: skip
    return found


@dataclass(frozen=True)
class Ready:
    """A launch with one configuration of its kernel."""

    listed: Listed
    kernel: Kernel
    chosen: Configuration
    grid: tuple[int, int, int]
    values: dict[str, object]
    num_warps: int
    num_stages: int

    def explained(self, resources: bool = True, hardware: str | None = None) -> Explained:
        """What iosim says of it."""
        launch = KernelLaunch(self.kernel, self.grid, self.values, self.num_warps, self.num_stages)
        return explained(launch, self.chosen, Question(hardware=hardware, resources=resources))


def ready(one: Listed) -> list[Ready]:
    """A launch with each configuration of `@triton.autotune` that is left."""
    kernel = kernel_of(one.path, one.kernel)
    texts, given = one.given(kernel)
    found = []
    for chosen in kernel.choices(given):
        values = kernel.completed(given, chosen)
        grid = read_grid(reader(texts, {}, values).value(f"({one.grid},)"))
        warps = chosen.num_warps or one.number("num_warps") or WARPS
        stages = chosen.num_stages or one.number("num_stages") or STAGES
        found.append(Ready(one, kernel, chosen, grid, values, warps, stages))
    return found
