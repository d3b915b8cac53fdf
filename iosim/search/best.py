"""The tiles of least traffic that fit in M, and the candidates of which one is best at every M.

Dense traffic depends on a tile size only through the number of passes over its axis, and falls with it. So for each
number of passes the smallest size is enough, about 2 sqrt(N) of them. Beside each first size of a pair, the largest
second one that fits is best at one M. Under a mask of tokens a larger first size may move more: then every one is a
candidate. A schedule that names no sizes loads whole tiles if any of it is seen, so its second size is the smallest.

A schedule names its pairs of sizes as `Schedule(sizes=...)`. Pairs are used one after the other: what they move adds
up, and the largest need counts. Sizes that stand in no pair change no traffic, so the smallest is best.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, lru_cache, reduce, wraps
from itertools import islice, product
from math import isqrt, prod
from typing import TYPE_CHECKING, NamedTuple, ParamSpec, TypeVar, cast

from ..core.arrays import anywhere, keep_freed_memory, larger, last_true
from ..core.folded import Folded, Unsummed
from ..core.options import NUMBERS
from ..core.problem import DENSE, Attention, as_moved, mask_matters, with_mask
from ..core.tiling import Tiling
from ..core.watchers import Capacity, Footprint, Traffic
from ..errors import InputError
from ..progress import watched

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..core.machine import ScheduleLike, ScheduleText
    from ..core.typing import Same, Size, Test
    from ..schedules import Schedule

    SizeArray = NDArray[np.int64]  # or of Python integers, where a count may not fit

MOST_ALONE, MOST_PAIRS = 2**18, 2**24  # candidates without a mask; they take some seconds
MOST_MASKED, MOST_IN_ARRAYS = 2**14, 2**20  # sizes under a mask, counted one by one or in arrays: up to 20 s
MOST_MASKED_PAIRS = 2**18  # under a mask each is counted, which takes some seconds
NEWTON_STEPS = 4
AT_ONCE = 2**17  # candidates; they take some hundred MB
WORTH_NUMPY = 1024  # sizes under a mask: to count so many one by one takes as long as to import NumPy
P = ParamSpec("P")
T = TypeVar("T")


def kept(function: Callable[P, T], most: int = 4096) -> Callable[P, T]:
    """The function, whose last answers about Python's own integers are kept: searches for many M ask the same again."""
    once = lru_cache(maxsize=most)(function)

    @wraps(function)
    def answer(*args: P.args, **options: P.kwargs) -> T:
        if all(in_integers(x) for x in args if isinstance(x, Attention | Tiling)):
            with suppress(TypeError):  # of an option that has no hash
                return once(*args, **options)  # type: ignore[arg-type]
        return function(*args, **options)

    return answer


def in_integers(sizes: Attention[Size] | Tiling[Size]) -> bool:
    """Whether sizes are Python's own integers: neither arrays nor numbers of NumPy, which are equal to integers but not
    exact."""
    given = vars(sizes)
    return all(given[n] is None or type(given[n]) is int for n in (NUMBERS if isinstance(sizes, Attention) else given))


# ---------------------------------------------------------------- what a tiling needs and moves


def footprint(schedule: ScheduleLike | ScheduleText, problem: Attention[Size], tiling: Tiling[Size]) -> Footprint:
    """The space that a schedule needs on the chip, without its mask. Only `smem_bytes` must fit in M."""
    return dense_footprint(schedule, with_mask(problem), tiling)


@kept
def dense_footprint(schedule: ScheduleLike | ScheduleText, problem: Attention[Size], tiling: Tiling[Size]) -> Footprint:
    """The footprint of a problem without a mask."""
    if problem.divided:
        from ..core.placement import placed

        return placed(schedule, problem, tiling)
    capacity = Capacity()
    Unsummed(problem, capacity).run(schedule, tiling)
    return footprint_of(capacity)


def footprint_of(capacity: Capacity) -> Footprint:
    """The footprint in one undivided SRAM, from what was measured in a walk."""
    peak = capacity.peak_bytes
    return Footprint(capacity.peak_words, peak, peak, 0, peak)


@kept
def moved_bytes(schedule: ScheduleLike | ScheduleText, problem: Attention[Same], tiling: Tiling[Same]) -> Same:
    """The bytes that one head moves. Words are not compared: some tensors have wider ones than others."""
    watcher = Traffic()
    machine = Folded(problem, watcher).run(schedule, tiling)
    moved = ((machine.tensors[name], reads + writes) for name, (reads, writes) in watcher.tensors.items())
    return cast("Same", sum(problem.in_bytes(tensor, words) for tensor, words in moved))


# ---------------------------------------------------------------- two sizes of a schedule


def sizes_by_passes(length: int, multiple: int) -> Iterator[int]:
    """The smallest tile, a multiple of `multiple`, for each number of passes over an axis, from most to one."""
    size = multiple
    yield size
    while size < length:
        passes = -(-length // size)
        size = up(-(-length // (passes - 1)), multiple)
        yield size


def up(n: Same, multiple: int) -> Same:
    """n rounded up to a multiple."""
    return cast("Same", -(-n // multiple) * multiple)


class Pair(NamedTuple):
    """Two sizes of a schedule that are searched together, beside the smallest others. Lengths and sizes may be
    arrays."""

    schedule: Schedule
    p: Attention[Size]
    multiple: int
    first: str
    second: str

    def axes(self, name: str) -> tuple[Size, ...]:
        """The lengths that a size divides."""
        p, own = self.p, self.schedule.axes
        if own and name in (axes := own(cast("Attention", p))):
            return axes[name]
        keys = self.schedule.keys_in_a_row(p)
        return ({"rows_q": p.N, "rows_k": keys, "rows_o": p.N, "cols_o": p.dv, "depth": p.d}[name],)

    def units(self, name: str) -> Size:
        """The longest of them, in multiples."""
        return -(-reduce(larger, self.axes(name)) // self.multiple)

    def smallest(self, name: str, size: Size) -> Size:
        """The smallest size with as few passes as this one over each of its axes."""
        sizes = [up(-(-length // -(-length // size)), self.multiple) for length in self.axes(name)]
        return reduce(larger, sizes)

    def counts(self, name: str) -> int:
        """About how many sizes `worth` finds at most."""
        return sum(2 * isqrt(length // self.multiple + 1) for length in cast("tuple[int, ...]", self.axes(name)))

    def worth(self, name: str) -> list[int]:
        """The smallest size for each number of passes over each of them, by rising size."""
        lengths = cast("tuple[int, ...]", self.axes(name))
        return sorted({size for length in lengths for size in sizes_by_passes(length, self.multiple)})

    @property
    def masked(self) -> bool:
        """Whether a mask changes what moves."""
        return mask_matters(self.schedule, self.p)

    @property
    def matters(self) -> bool:
        """Whether dense traffic depends on the second size."""
        return bool(self.schedule.sizes) or inner_matters(self.schedule, self.p, self.multiple)

    def tiling(self, one: Size, two: Size, others: Size | None = None) -> Tiling[Size]:
        """The tiling with these sizes; `others` are the sizes of other pairs, or the smallest."""
        smallest = dict.fromkeys(("rows_q", "rows_k", *self.schedule.more_tiles), self.multiple)
        rest = {} if others is None else dict.fromkeys((n for pair in self.schedule.sizes for n in pair), others)
        return Tiling(**{**smallest, **rest, self.first: one, self.second: two})  # type: ignore[arg-type]

    def needed(self, one: Size, two: Size) -> Size:
        """The bytes that must fit in M."""
        return footprint(self.schedule, self.p, self.tiling(one, two)).smem_bytes

    def moved(self, one: Size, two: Size) -> Size:
        """The bytes moved, beside whole axes as the sizes of other pairs, which are quick to count."""
        whole = None if len(self.schedule.sizes) < 2 else max(self.lengths) * self.multiple
        return counts(self.schedule, as_moved(self.schedule, self.p), self.tiling(one, two, whole))

    @property
    def lengths(self) -> tuple[int, ...]:
        """The lengths of the axes of one problem."""
        return cast("tuple[int, ...]", (self.p.N, self.p.Nk, self.p.d, self.p.dv))

    def most(self, M_bytes: Size) -> Size:
        """The largest first size that fits, in multiples; 0 if none does."""
        return last_within(lambda n: self.needed(n * self.multiple, self.multiple), M_bytes, self.units(self.first))

    def widest(self, one: Size, M_bytes: Size, guess: int = 1) -> Size:
        """The largest second size that fits beside a first one; 0 if none does. A good guess, in multiples, makes the
        search short."""
        units = 0 * one + self.units(self.second)
        return self.multiple * last_within(lambda n: self.needed(one, n * self.multiple), M_bytes, units, guess)


def pairs_of(schedule: Schedule, p: Attention[Size], multiple: int) -> list[Pair]:
    """The pairs of sizes that are searched: those of its outer and inner loop unless the schedule names others."""
    usual = ("rows_q", "rows_k") if schedule.outer == "queries" else ("rows_k", "rows_q")
    return [Pair(schedule, p, multiple, *names) for names in schedule.sizes or (usual,)]


@kept
def inner_matters(schedule: Schedule, problem: Attention[Size], multiple: int = 1) -> bool:
    """Whether dense traffic depends on the inner tile, beside the smallest outer tile or the largest."""
    pair = pairs_of(schedule, with_mask(problem), multiple)[0]
    outer, inner = (pair.units(name) * multiple for name in (pair.first, pair.second))
    return any(anywhere(pair.moved(size, multiple) != pair.moved(size, inner)) for size in (multiple, outer))


def last_within(needed: Callable[[Size], Size], M_bytes: Size, most: Size, guess: int = 1) -> Size:
    """The largest n from 1 to `most` whose need is at most M; 0 if there is none. The need grows with n.

    The need is nearly linear in n. So for numbers a few steps of Newton's method come before the binary search.
    """
    low, high = 0 * most, most
    if isinstance(M_bytes, int) and isinstance(low, int) and isinstance(high, int):
        n = max(1, min(guess, high - 1))
        for _ in range(NEWTON_STEPS):
            if high - low < NEWTON_STEPS or not low < n < high:
                break
            here, there = needed(n), needed(n + 1)
            if here > M_bytes:
                high = n - 1
            elif there <= M_bytes:
                low = n + 1
            else:
                return n
            n = cast("int", n + (M_bytes - here) // (there - here)) if there > here else high - 1
            n = min(max(n, low + 1), high - 1)
    return low + last_true(lambda more: needed(low + more) <= M_bytes, high - low)


# ---------------------------------------------------------------- the best tiling at one M


def best_tiles(schedule: Schedule, problem: Attention, M_bytes: int, multiple: int = 1) -> Tiling | None:
    """The tiles of least traffic in bytes that fit, exactly; None if nothing fits.

    Where the second size of a pair does not matter it is the largest that fits, or under a mask the smallest. Of equal
    tiles under a mask, and where it does not matter, the first size is the smallest.
    """
    stated = schedule.candidates
    if problem.divided and (stated or schedule.sizes):
        found, allowed = f"best tiles of {schedule.name}", "a schedule without a search of its own"
        raise InputError("--registers, --stages", found, allowed, "iosim count --tiles counts given ones")
    if stated is not None:
        if hasattr(stated, "best"):
            return cast("Tiling | None", stated.best(problem, M_bytes, multiple))
        return least_of(schedule, problem, stated(problem, multiple), M_bytes)
    if pairs_depend(schedule, problem) and few(schedule, problem, multiple):
        return least_of(schedule, problem, every_size(schedule, problem, multiple), M_bytes)
    tilings = [best_pair(pair, M_bytes) for pair in pairs_of(schedule, problem, multiple)]
    *before, last = tilings
    if last is None or None in before:
        return None
    own = {n: getattr(t, n) for t, pair in zip(tilings, schedule.sizes, strict=False) for n in pair}
    return replace(last, **own)


def best_pair(pair: Pair, M_bytes: int) -> Tiling | None:
    """The tiling of least traffic that fits, with the smallest sizes of other pairs."""
    most = cast("int", pair.most(M_bytes))
    if not most:
        return None
    if pair.masked:
        return best_masked(pair, most, M_bytes)
    if not pair.matters:
        one = cast("int", pair.smallest(pair.first, most * pair.multiple))
        return cast("Tiling", pair.tiling(one, pair.widest(one, M_bytes)))
    return cast("Tiling", pair.tiling(*least_dense(pair, most, M_bytes)))


def least_dense(pair: Pair, most: int, M_bytes: int) -> tuple[int, int]:
    """The first size of least traffic, and the largest second one that fits beside it, which shrinks as that grows. If
    other sizes share the SRAM, the second one is the smallest of as few passes.

    The largest first size of a range with the second size of its smallest one moves no more than any pair of the range.
    Ranges are halved until this bound is no better than the best pair found. Where only passes matter, a range of as
    many passes is not halved: its smallest size is the best of them. Ranges that cannot be as good as a pair found by
    descent are left out from the start. Pairs that are as good stay in, so that of equal ones the same one is found.
    Where a size divides several axes it is the one of the smallest first size.
    """
    guess = second_sizes(pair, most, M_bytes)
    ties = len(pair.axes(pair.first)) > 1
    smallest = pair.smallest if pair.schedule.sizes else lambda _, size: size
    passes = cache(lambda n: smallest(pair.first, n * pair.multiple))
    widest = cache(lambda n: pair.widest(n * pair.multiple, M_bytes, guess(n)))

    @cache
    def cost(low: int, high: int) -> int:
        return cast("int", pair.moved(high * pair.multiple, widest(low)))

    near = descent(lambda n: cast("int", pair.moved(n * pair.multiple, max(guess(n), 1) * pair.multiple)), most)
    best, found = min((cost(1, 1), 1), (cost(most, most), most), (cost(near, near) + 1, near))
    ranges = [(1, most)]
    while ranges:
        low, high = ranges.pop()
        if cost(low, high) >= best + ties:
            continue
        best, found = min((best, found), (cost(low, low), low))
        middle = (low + high) // 2
        if passes(low) != passes(high):
            ranges += [(low + 1, middle)] * (low < middle) + [(middle + 1, high)]
    one = cast("int", passes(found))
    if not pair.schedule.sizes or not pair.schedule.more_tiles:
        return one, cast("int", pair.widest(one, M_bytes))
    return one, cast("int", pair.smallest(pair.second, widest(found)))


def descent(cost: Callable[[int], int], most: int) -> int:
    """A number from 1 to `most` of nearly the least cost: the best power of two, then by ever smaller steps."""
    cost = cache(cost)
    step = near = min((1 << bit for bit in range(most.bit_length())), key=cost)
    while step := step // 2:
        near = min((n for n in (near, near - step, near + step) if 1 <= n <= most), key=cost)
    return near


def second_sizes(pair: Pair, most: int, M_bytes: int) -> Callable[[int], int]:
    """A guess, in multiples, of the largest second size that fits beside a first one: exact where the bytes needed are
    linear in each size, as four tilings of middle sizes show them."""
    first = isqrt(most)
    low = cast("int", pair.widest(first * pair.multiple, M_bytes)) // pair.multiple // 2 or 1
    corners = [(one, two) for one in (first, 2 * first) for two in (low, 2 * low)]
    a, b, c, d = (cast("int", pair.needed(one * pair.multiple, two * pair.multiple)) for one, two in corners)

    def guess(n: int) -> int:
        here, there = a * first + (c - a) * (n - first), b * first + (d - b) * (n - first)
        return low + low * (M_bytes * first - here) // (there - here) if there > here else 1

    return guess


def best_masked(pair: Pair, most: int, M_bytes: int) -> Tiling:
    """The tiling of least traffic under a mask, where every first size is counted. Of equal ones it is the smallest."""
    require_tokens(pair, most)
    if not pair.schedule.sizes and pair.matters:
        return every_pair(pair, most, M_bytes)
    ones = range(pair.multiple, most * pair.multiple + 1, pair.multiple)
    if not pair.schedule.sizes and most <= WORTH_NUMPY and "numpy" not in sys.modules:
        one = min(ones, key=lambda one: cast("int", pair.moved(one, pair.multiple)))
        return cast("Tiling", pair.tiling(one, pair.multiple))
    import numpy as np

    best: list[tuple[int, int, int]] = []
    for part in in_parts(len(ones)):
        some = np.array(ones[part], kind_of(pair))
        widest = pair.widest(some, M_bytes) if pair.schedule.sizes else pair.multiple
        if pair.schedule.uneven:
            some, widest = narrower(pair, some, cast("SizeArray", widest))
        moved, two = np.broadcast_arrays(pair.moved(some, widest), widest, some)[:2]
        k = int(np.argmin(moved))
        best.append((int(moved[k]), int(some[k]), int(two[k])))
    return cast("Tiling", pair.tiling(*min(best)[1:]))


def narrower(pair: Pair, ones: SizeArray, widest: SizeArray) -> tuple[SizeArray, SizeArray]:
    """All pairs of first sizes and second ones up to the widest, the widest first; of too many only the widest."""
    import numpy as np

    each = widest // pair.multiple  # if int64, at most 2^30 and AT_ONCE of them: see `kind_of`
    mask = pair.p.mask
    if int(each.sum()) > (MOST_MASKED_PAIRS if mask.counts_arrays and mask.counts_at_once else MOST_MASKED):
        return ones, widest
    each = each.astype(np.int64)
    below = np.arange(int(each.sum())) - np.repeat(np.cumsum(each) - each, each)
    return np.repeat(ones, each), np.repeat(widest, each) - pair.multiple * below.astype(widest.dtype)


def every_pair(pair: Pair, most: int, M_bytes: int) -> Tiling:
    """The best of all pairs of sizes, for a schedule of which nothing is known under a mask."""
    step = pair.multiple
    ones = range(step, most * step + 1, step)
    sizes = ((one, two) for one in ones for two in range(step, cast("int", pair.widest(one, M_bytes)) + 1, step))
    some = list(islice(sizes, MOST_MASKED + 1))
    if len(some) > MOST_MASKED:
        found, allowed = f"best among more than {MOST_MASKED} tilings", "fewer where a mask is counted for each"
        raise InputError("--tiles", found, allowed, "give --tiles as 128x64, or a --tile-multiple")
    return cast("Tiling", pair.tiling(*min(some, key=lambda one: cast("int", pair.moved(*one)))))


def pairs_depend(schedule: Schedule, p: Attention[Size]) -> bool:
    """Whether pairs of a schedule depend on each other: under a mask whose rows and keys are in different ones."""
    together = any({"rows_q", "rows_k"} <= {*pair} for pair in schedule.sizes)
    return bool(schedule.sizes) and not together and mask_matters(schedule, p)


def few(schedule: Schedule, p: Attention, multiple: int) -> bool:
    """Whether all sizes of all pairs can be counted under a mask. Of more, pairs are searched one after the other."""
    pairs = pairs_of(schedule, p, multiple)
    return prod(cast("int", pair.units(name)) for pair in pairs for name in (pair.first, pair.second)) <= MOST_MASKED


def every_size(schedule: Schedule, p: Attention, multiple: int) -> Iterator[Tiling]:
    """All sizes of all pairs, those of the outer loop slowest: under a mask pairs depend on each other."""
    pairs = pairs_of(schedule, p, multiple)
    require_tokens(pairs[0], 1)
    outer = "rows_q" if schedule.outer == "queries" else "rows_k"
    units = {name: cast("int", pair.units(name)) for pair in pairs for name in (pair.first, pair.second)}
    names = sorted(units, key=lambda name: name != outer)
    for sizes in product(*(range(multiple, units[name] * multiple + 1, multiple) for name in names)):
        least = dict.fromkeys(("rows_q", "rows_k", *schedule.more_tiles), multiple)
        yield Tiling(**{**least, **dict(zip(names, sizes, strict=True))})


def require_tokens(pair: Pair, sizes: int) -> None:
    """Raise InputError for a mask that changes with the tiles, and for more sizes than can be counted under a mask."""
    mask = pair.p.mask
    if mask.tile_units:
        allowed = f"a mask that does not change with the tiles (--mask {mask} counts tiles)"
        raise InputError("--tiles", "best", allowed, "give --tiles as 128x64, or the mask in tokens")
    arrays = bool(pair.schedule.sizes) or (mask.counts_arrays and mask.counts_at_once)
    most = MOST_IN_ARRAYS if arrays else MOST_MASKED
    if sizes > most:
        found, allowed = f"best among {sizes} outer tiles", f"at most {most} where a mask is counted for each"
        raise InputError("--tiles", found, allowed, "give --tiles as 128x64, or a --tile-multiple")


def counts(schedule: ScheduleLike, p: Attention[Size], tiling: Tiling[Size]) -> Size:
    """The bytes moved by tilings of arrays; one after the other under a mask that is not counted for arrays."""
    if p.mask is DENSE or p.mask.counts_arrays or all(isinstance(size, int | None) for size in vars(tiling).values()):
        return moved_bytes(schedule, p, tiling)
    import numpy as np

    each = [*one_by_one(tiling)]
    told = watched(each, f"tiles of {getattr(schedule, 'name', 'the schedule')}", len(each))
    return np.array([moved_bytes(schedule, p, one) for one in told], object)


def one_by_one(tiling: Tiling[Size]) -> Iterator[Tiling]:
    """The tilings of a tiling of arrays."""
    import numpy as np

    sizes = {name: size for name, size in vars(tiling).items() if size is not None}
    columns = np.broadcast_arrays(*map(np.atleast_1d, sizes.values()))
    for each in zip(*(column.tolist() for column in columns), strict=True):
        yield Tiling(**dict(zip(sizes, each, strict=True)))


def in_parts(length: int) -> Iterable[slice[int, int, None]]:
    """Slices of so many candidates."""
    starts = range(0, length, AT_ONCE)
    return (slice(start, start + AT_ONCE) for start in watched(starts, "candidates, in parts", len(starts)))


def kind_of(pair: Pair) -> str | type[object]:
    """The element type of arrays in which every count fits: the smallest tiles without a mask move most."""
    dense, whole = with_mask(pair.p), max(pair.lengths)
    most = moved_bytes(pair.schedule, dense, pair._replace(multiple=1).tiling(1, 1))
    room = footprint(pair.schedule, dense, pair.tiling(whole, whole, whole)).peak_bytes
    return integers(cast("int", most), cast("int", room), (pair.lengths[0] + pair.lengths[1] + 2) ** 2)


def integers(*most: int) -> str | type[object]:
    """The element type for arrays of numbers up to `most` and sums of a few: int64, or object if that is too small."""
    return "int64" if 16 * max(most) < 2**63 else object


def least_of(schedule: Schedule, p: Attention, tilings: Iterable[Tiling[Size]], M_bytes: int) -> Tiling | None:
    """The tiling of least traffic that fits, of tilings whose sizes may be arrays; None if none fits. Of equal ones it
    is one that needs the least SRAM."""
    counted, found = as_moved(schedule, p), list[tuple[int, int, int, Tiling]]()
    for number, one in enumerate(one for tiling in tilings for one in one_by_one(tiling)):
        if (need := footprint(schedule, p, one).smem_bytes) <= M_bytes:
            found.append((moved_bytes(schedule, counted, one), cast("int", need), number, one))
    return min(found)[-1] if found else None


# ---------------------------------------------------------------- many problems


def search(schedule: Schedule, problem: Attention[Size], M_bytes: Size, multiple: int = 1) -> tuple[Tiling[Size], Test]:
    """The arrays (best tiles, whether any fit) of many problems: in one walk where neither a mask nor the inner tile
    matters, else one problem at a time."""
    import numpy as np

    (pair,) = pairs_of(schedule, problem, multiple)
    if not pair.masked and not pair.matters:
        most = pair.most(M_bytes)
        one = pair.smallest(pair.first, larger(most, 1) * multiple)
        return pair.tiling(one, larger(pair.widest(one, M_bytes), multiple)), most > 0
    columns = np.broadcast_arrays(M_bytes, *(getattr(problem, name) for name in NUMBERS))
    points = zip(*(column.ravel().tolist() for column in columns), strict=True)
    problems = [(replace(problem, **dict(zip(NUMBERS, sizes, strict=True))), M) for M, *sizes in points]
    found = [best_tiles(schedule, cast("Attention", p), M, multiple) for p, M in problems]
    given = [tiling or Tiling(multiple, multiple) for tiling in found]
    rows_q, rows_k = (np.array([getattr(t, name) for t in given], columns[1].dtype) for name in ("rows_q", "rows_k"))
    return replace(pair.tiling(1, 1), rows_q=rows_q, rows_k=rows_k), np.array([t is not None for t in found])


# ---------------------------------------------------------------- at every M


def candidates(schedule: Schedule, p: Attention, multiple: int) -> Iterator[Tiling[Size]]:
    """Tilings of arrays that have a best one for every M."""
    keep_freed_memory()
    pairs = pairs_of(schedule, p, multiple)
    if len(pairs) > 1:
        yield together(pairs)
        return
    yield from products(pairs[0])


def products(pair: Pair) -> Iterator[Tiling[Size]]:
    """The candidates of one pair: every first size beside every second one, and the smallest sizes of other pairs.

    Of equal candidates the one that stands first is taken: that of the smallest first size, or under a mask, and where
    a size divides several axes, of the smallest second one.
    """
    import numpy as np

    kind, names, sizes = kind_of(pair), (pair.first, pair.second), sizes_at_every_M(pair)
    if pair.masked or pair.schedule.axes:
        names, sizes = names[::-1], sizes[::-1]
    slow, fast = (np.array(some, kind) for some in sizes)
    step = max(1, AT_ONCE // len(fast))
    starts = range(0, len(slow), step)
    for start in watched(starts, f"tiles of {pair.schedule.name}, in parts", len(starts)):
        some = slow[start : start + step]
        of = dict(zip(names, (np.repeat(some, len(fast)), np.tile(fast, len(some))), strict=True))
        yield pair.tiling(of[pair.first], of[pair.second])


def sizes_at_every_M(pair: Pair) -> tuple[Sequence[int], Sequence[int]]:
    """The first and the second sizes of candidates: the smallest for each number of passes, and under a mask all. The
    second one is the smallest alone, if it does not matter."""
    step, paired = pair.multiple, bool(pair.schedule.sizes)
    if not pair.masked:
        names, most = (pair.first, pair.second)[: 1 + paired], MOST_PAIRS if paired else MOST_ALONE
        few = max(pair.counts(name) for name in names) <= most  # else there is no room for the sizes themselves
        ones, twos = (pair.worth(pair.first), pair.worth(pair.second) if paired else [step]) if few else ([], [])
        pairs = len(ones) * len(twos) if few else prod(map(pair.counts, names))
        if pairs > most:
            allowed, enough = f"at most {most} pairs of tile counts", 1 << (pairs // most).bit_length()
            raise InputError("--N", max(pair.lengths), allowed, f"give --tile-multiple {max(enough, 2 * step)}")
        return ones, twos
    units = [cast("int", pair.units(name)) for name in (pair.first, pair.second)]
    require_tokens(pair, units[0])
    if paired and units[0] * units[1] > MOST_MASKED_PAIRS:
        enough = step << (((units[0] * units[1] - 1) // MOST_MASKED_PAIRS).bit_length() + 1) // 2
        found, allowed = f"{units[0]} x {units[1]} tile sizes", f"at most {MOST_MASKED_PAIRS} pairs under a mask"
        raise InputError("--mask", found, allowed, f"give --tile-multiple {enough}, or other schedules")
    every = [range(step, count * step + 1, step) for count in units]
    return every[0], every[1] if paired else [step]


def together(pairs: Sequence[Pair]) -> Tiling[Size]:
    """The best tiles of pairs that are used one after the other, at each M where the traffic of any falls."""
    import numpy as np

    every = [falls(pair) for pair in pairs]
    M = np.unique(np.concatenate([needed for needed, _, _ in every]))
    M = M[max(needed[0] for needed, _, _ in every) <= M]
    sizes: dict[str, Size] = {}
    for pair, (needed, ones, twos) in zip(pairs, every, strict=True):
        at = np.searchsorted(needed, M, side="right") - 1
        sizes |= {pair.first: ones[at], pair.second: twos[at]}
    return replace(pairs[0].tiling(1, 1), **sizes)


def falls(pair: Pair) -> list[SizeArray]:
    """Arrays of M, first sizes and second ones: from each M on, its sizes move less than all before them."""
    import numpy as np

    found = []
    for tiling in products(pair):
        one, two = (cast("SizeArray", getattr(tiling, name)) for name in (pair.first, pair.second))
        columns = np.broadcast_arrays(pair.needed(one, two), one, two, pair.moved(one, two))
        order = cheaper(columns[0], columns[3])
        found.append([column[order] for column in columns])
    *sizes, moved = (np.concatenate(parts) for parts in zip(*found, strict=True))
    order = cheaper(sizes[0], moved)
    return [column[order] for column in sizes]


def cheaper(M: SizeArray, cost: SizeArray) -> NDArray[np.intp]:
    """The indices, in the order of M, of the entries that cost less than every entry that needs as much M or less."""
    import numpy as np

    order = np.argsort(cost, kind="stable")
    order = order[np.argsort(M[order], kind="stable")]
    least = np.minimum.accumulate(cost[order])
    return order[np.append(True, least[1:] < least[:-1]).astype(bool)]
