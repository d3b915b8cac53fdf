"""The schedule and tiles of iosim whose traffic is nearest to that of a kernel, and the differences."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import product

from ..core.folded import Folded
from ..core.problem import Attention
from ..core.tiling import Tiling
from ..core.watchers import Traffic
from ..errors import InputError, IosimError
from ..schedules import SCHEDULES, Schedule
from ..schedules.ways import PROFILE_TILES, number_of_launches, ways

Words = Mapping[str, tuple[int, int]]
"""Words (read, written) by the name of a tensor."""

SPELLINGS = {
    "Q": ("q", "query"),
    "K": ("k", "key"),
    "V": ("v", "value"),
    "O": ("o", "out", "output"),
    "LSE": ("lse", "l", "m"),
}
NAMES = {spelling: tensor for tensor, spellings in SPELLINGS.items() for spelling in spellings}
NEEDED = ("Q", "K", "V", "O")


@dataclass(frozen=True)
class Nearest:
    """A schedule and its tiles, with the words of each tensor in it and in the kernel.

    `alike` are other tiles with the same words. With `visit_all`, the schedule visits the tiles that the mask hides,
    too.
    """

    schedule: str
    tiles: str
    words: Words
    kernel: Words
    alike: tuple[str, ...] = ()
    visit_all: bool = False

    @property
    def name(self) -> str:
        """The schedule and its tiles, as `flash2 128x64`."""
        return f"{self.schedule} {self.tiles}" + " with --visit-all" * self.visit_all

    @property
    def distance_words(self) -> int:
        """The sum of the differences in words, over all tensors."""
        return distance(self.words, self.kernel)

    @property
    def equal(self) -> bool:
        """Whether every tensor has the same words."""
        return self.distance_words == 0

    def differences(self) -> list[str]:
        """A sentence for each difference in the words that are read or written of a tensor."""
        found = []
        for name in {**self.words, **self.kernel}:
            both = (words.get(name, (0, 0)) for words in (self.kernel, self.words))
            for way, own, other in zip(("read", "written"), *both, strict=True):
                if own != other:
                    found.append(difference(name, way, own, other, self.name))
        return found

    def to_dict(self) -> dict[str, object]:
        """The keys of the JSON."""
        return {
            "schedule": self.schedule,
            "tiles": self.tiles,
            "visit_all": self.visit_all,
            "alike": list(self.alike),
            "equal": self.equal,
            "distance_words": self.distance_words,
            "tensors": {name: {"reads": r, "writes": w} for name, (r, w) in self.words.items()},
            "differences": self.differences(),
        }


def difference(name: str, way: str, own: int, other: int, schedule: str) -> str:
    """The sentence about one difference."""
    if not other:
        return f"{name} is {way}, {own:,} words, and not at all in {schedule}"
    if not own:
        return f"{name} is not {way}; {schedule} has {other:,} words"
    more = f"{abs(own - other):,} words {'more' if own > other else 'less'}"
    ratio = next(text for digits in range(4, 18) if (text := f"{own / other:.{digits}g}") != "1" or own == other)
    times = f"{ratio} times as many" if own != other else "as many"
    return f"{name} is {way} {own:,} words, {more} than in {schedule} ({times})"


def distance(one: Words, two: Words) -> int:
    """The sum of the differences in words read and in words written, over all tensors."""
    pairs = ((one.get(name, (0, 0)), two.get(name, (0, 0))) for name in {**one, **two})
    return sum(abs(a - c) + abs(b - d) for (a, b), (c, d) in pairs)


def tensor_names(arguments: Collection[str], given: Mapping[str, str]) -> dict[str, str]:
    """{argument: tensor of attention}, as `given`, else by its name. Other arguments keep their names."""
    for name, tensor in given.items():
        if name not in arguments or tensor not in SPELLINGS:
            allowed = f"{', '.join(NEEDED)} or LSE = one of {', '.join(arguments)}"
            raise InputError("--as attention", f"{tensor}={name}", allowed)
    found = dict(given)
    for name in arguments:
        meant = NAMES.get(plain_name(name), name)
        found.setdefault(name, name if meant in found.values() else meant)
    missing = [name for name in NEEDED if name not in found.values()]
    if missing:
        hint = "name them as in --as attention:Q=query,O=result"
        absent = f"no argument that is {', '.join(missing)}"
        raise InputError("--as attention", absent, "arguments with such names", hint)
    return found


def plain_name(name: str) -> str:
    """The name of an argument in lower case, without a mark that it is a pointer: `q` for `Q_ptr`."""
    return name.lower().strip("_").removesuffix("ptr").removeprefix("ptr").strip("_")


def nearest(words: Words, problem: Attention, products: Collection[tuple[int, int]] = ()) -> Nearest:
    """The schedule and tiles with the least distance. At equal distance, tiles that have the shape of a matrix product
    in the kernel (`products`) are preferred."""
    sizes = sorted({*PROFILE_TILES, *(n for pair in products for n in pair)})
    found = {
        (schedule.name, pair, p.visit_all): own
        for schedule, p in ways(problem)
        if number_of_launches(schedule, problem) == 1
        for pair in product(sizes, sizes)
        if (own := counted(schedule, p, pair)) is not None
    }
    least = min(distance(own, words) for own in found.values())
    best = {key: own for key, own in found.items() if distance(own, words) == least}
    chosen = min(best, key=lambda key: unlikely(key[0], key[1], products))
    name, pair, visits = chosen
    alike = [tiles_name(key[1]) for key in best if key != chosen and (key[0], key[2]) == (name, visits)]
    return Nearest(name, tiles_name(pair), best[chosen], words, tuple(alike), visits)


def tiles_name(pair: tuple[int, int]) -> str:
    """The tiles as `128x64`."""
    return f"{pair[0]}x{pair[1]}"


def unlikely(name: str, pair: tuple[int, int], products: Collection[tuple[int, int]]) -> tuple[int, ...]:
    """A sort key for choices at equal distance: reasons against a schedule and its tiles, the strongest first."""
    q, k = pair
    odd = sum(n & (n - 1) != 0 for n in pair)
    return pair not in products, list(SCHEDULES).index(name), odd, k > q, -k, -q


def counted(schedule: Schedule, problem: Attention, pair: tuple[int, int]) -> dict[str, tuple[int, int]] | None:
    """The words of a schedule with these tiles, over all heads; None if it is for other problems."""
    traffic = Traffic()
    try:
        Folded(problem, traffic).run(schedule, Tiling(*pair))
    except (IosimError, AttributeError, TypeError):
        return None
    n = problem.instances
    return {name: (n * int(reads), n * int(writes)) for name, (reads, writes) in traffic.tensors.items()}
