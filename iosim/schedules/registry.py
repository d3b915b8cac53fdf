"""The parts of a schedule: its function, formulas derived by hand, a reference in float64, and its source."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, TypeAlias, TypedDict

from ..core.arrays import at_first
from ..core.options import KEY_HEADS, OF_EVERY_PROBLEM, OF_STATE, flag
from ..core.problem import USUAL, Attention, Tensor, mask_matters
from ..core.shapes import same
from ..errors import InputError, InternalError, ScheduleError, did_you_mean, suggestion
from ..options import EXPECTED, Option, declare, declared
from ..oracles.attention import attention_output, plain_inputs, queries_keys_values

if TYPE_CHECKING:
    import numpy as np

    from ..core.machine import ScheduleText
    from ..core.tiling import RuleName, Tiling
    from ..core.typing import Arrays, Bools, Size

    TrafficFormula = Callable[[Attention, Tiling], Mapping[str, tuple[int, int]]]
    """A formula, derived by hand, for the words of one head: {tensor: (reads, writes)}."""
    FootprintFormula = Callable[[Attention, Tiling], int]
    """A formula, derived by hand, for the words in SRAM."""
    Example = Callable[[np.random.Generator, Attention, Bools | None], Arrays]
    """Makes random inputs of one head. The booleans say which keys each query sees; None means all."""
    Answer = Callable[[Arrays, Attention, Bools | None], Arrays]
    """Computes the correct outputs for such inputs, in float64."""
    Candidates = Callable[[Attention, int], Iterable[Tiling[Size]]]  # (p, multiple)
    AttentionInputs = Callable[[Arrays, Attention], Arrays]
    Choices = Callable[[Attention, int], Iterable[int]]

    SchedulesAsked: TypeAlias = "str | Schedule | Iterable[str | Schedule]"

    class ScheduleFields(TypedDict, total=False):
        """Fields of a Schedule that several of them share."""

        outer: str
        rules: tuple[RuleName, ...]
        options: tuple[str | Option, ...]
        exact_traffic: TrafficFormula
        footprint: FootprintFormula
        initialised: tuple[str, ...]
        adds: tuple[str, ...]
        formula: str
        state: str
        candidates: Candidates
        sizes: tuple[tuple[str, str], ...]
        uneven: bool
        axes: Callable[[Attention], Mapping[str, tuple[int, ...]]]
        scales: bool
        more_tiles: tuple[str, ...]
        dominated_by: str
        named_tiles: Callable[[Attention, bool], Tiling | None]
        keys_in_a_row: Callable[[Attention[Size]], Size]

    class FamilyFields(TypedDict, total=False):
        """Fields that all schedules of a family share."""

        tensors: Mapping[str, Tensor]
        family: str
        example: Example
        answer: Answer
        about: Callable[[Attention], Attention]


LATENT_FAMILIES = ("attention", "selected", "cache")  # whose rows of K may hold V


@dataclass(frozen=True, eq=False, repr=False)
class Schedule:
    """The function of a schedule, and what belongs to it. Only name, text and summary are required.

    `exact_traffic` and `footprint` are derived by hand from the source, never from the function. Tests compare the
    function with them.
    """

    name: str
    """Its name: letters and digits, with - . _ between them."""
    text: ScheduleText
    """The schedule's function: it is called as `text(chip, p, t)` with a machine, a problem and a tiling."""
    summary: str
    """A summary in one line, for lists."""
    source: str = ""
    """The publication that it comes from."""
    outer: str = "queries"
    """The axis of its outer loop, "queries" or "keys". A larger tile of that loop means less traffic, unless
    `candidates` are given."""
    keys_in_a_row: Callable[[Attention[Size]], Size] = lambda p: p.Nk
    """`keys_in_a_row(p)`: the most keys that a tile of keys can have: all of them, or those of a page or of a share."""
    rules: tuple[RuleName, ...] = ("best",)
    """The tile rules that `count` shows unless others are asked for: some of best, paper and ideal."""
    skips: bool = False
    """Whether it leaves out the tiles that a mask hides. If not, a mask only hides scores."""
    exact_traffic: TrafficFormula | None = None
    """The words of one head, {tensor: (reads, writes)}, from a problem and a tiling."""
    footprint: FootprintFormula | None = None
    """The most words in SRAM at one time, from a problem and a tiling."""
    initialised: tuple[str, ...] = ()
    """The tensors that the host fills before the start."""
    adds: tuple[str, ...] = ()
    """The tensors that change by atomic adds only: each load and store of a tile stands for an add in HBM."""
    drops: bool = False
    """Whether its function applies dropout."""
    scales: bool = False
    """Whether its function reads K and V of another type than Q, and applies their scales (`schedules/cache.py`)."""
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    """Tensors in HBM beside Q, K, V, O, S, P, l, m and LSE (core/problem.py)."""
    family: str = "attention"
    """The problem that it solves. Bounds and ratios are those of its family."""
    example: Example = queries_keys_values
    """`example(rng, p, visible)`: random arrays of one head, by tensor."""
    follows: Answer | None = None
    """`follows(hbm, p, visible)`: the tensors of an example that follow from the others, as O and LSE from Q, K and V
    in a backward pass. Heads that share K and V get them from the K and V that they share."""
    answer: Answer = attention_output
    """`answer(hbm, p, visible)`: the outputs that it must leave in HBM for such arrays, in float64."""
    attention_inputs: AttentionInputs | None = None
    """`attention_inputs(hbm, p)`: Q, K, V whose softmax attention is the output O. It is needed only if `answer` is not
    the usual one and has that output."""
    sizes: tuple[tuple[str, str], ...] = ()
    """Pairs of its tile sizes that are searched together: traffic falls with either, and without a mask it depends only
    on the passes over their axes. Not needed if only the tile of the outer loop matters."""
    axes: Callable[[Attention], Mapping[str, tuple[int, ...]]] | None = None
    """`axes(p)`: the lengths that its sizes divide, where these are others than in most schedules."""
    candidates: Candidates | None = None
    """`candidates(p, multiple)`: Tilings, of numbers or of arrays, that have a best one for every M, in one undivided
    SRAM. If the schedule skips tiles, they have one under every mask of tokens, too. The curve of least traffic is
    their envelope, and `best` is that curve at one M. They are not needed if a larger tile of the outer loop is best
    without a mask, or with `sizes`."""
    named_tiles: Callable[[Attention, bool], Tiling | None] = lambda p, memory: None
    """`named_tiles(p, memory)`: the tiles that options of the problem name, or that are usual where no M is given; None
    if the rules decide. `memory` says whether M is given."""
    chosen: Mapping[str, Choices] = field(default_factory=dict)
    """Options of the problem that `tune` chooses if they are not given: `{field: values(p, multiple)}`, best first. At
    every M an earlier value moves no more words than a later one."""
    dominated_by: str = ""
    """The schedule whose text this one adds something to, or that is for other sizes of M. The table of `tune` leaves
    this one out wherever that one moves no more in the same M."""
    about: Callable[[Attention], Attention] = lambda p: p
    """`about(p)`: the nearest problem that it applies to. `count` refuses others, and shows the docstring of
    `about` as the reason. Options that the schedule does not read, such as `lse` and `keep_p`, are ignored and not
    refused: `iosim schedules NAME` lists them."""
    options: tuple[str | Option, ...] = ()
    """The options that its function reads: names of those that every problem has, as `lse`, and those of its own. Its
    own ones are known to every command and function once it is registered; `p[OPTION]` is the value."""
    more_tiles: tuple[str, ...] = ()
    """The fields of Tiling that it reads beside Br and Bc."""
    formula: str = ""
    """Its dense traffic in words of one head, in LETTERS and sizes of the problem. A space is a product. A test checks
    that it agrees with `exact_traffic`."""
    state: str = ""
    """The data that stay on chip, and those that wait in HBM."""
    known_as: str = ""
    """Names that papers and libraries give it, with commas. They are not accepted, but messages then suggest its
    name."""
    pointers: Mapping[str, str] = field(default_factory=dict)
    """`{name: text}` for names in `known_as` that stand for more than this schedule: messages add the text."""
    uneven: bool = False
    """Whether a larger second size of a pair may move more under a mask, as where launches have tiles of their own. All
    pairs are then tried, unless they are too many."""

    def __repr__(self) -> str:
        return f"<schedule {self.name}>"

    def reads(self, name: str) -> bool:
        """Whether it reads an option, so that its words or its output may depend on it. A schedule of a user counts as
        one that reads `lse` and `keep_p` unless it names the options that it reads."""
        traits = {
            "mask": self.skips,
            "count_init": bool(self.initialised),
            "latent": self.scales and self.family in LATENT_FAMILIES,
            "kv_dtype": self.scales,
            "kv_scales": self.scales,
            "dropout": self.drops,
        }
        own = [option.name if isinstance(option, Option) else option for option in self.options]
        unknown = not own and not SCHEDULES.built_in(self.name) and name in ("lse", "keep_p")
        return traits.get(name, name in own or unknown)

    @property
    def softmax_inputs(self) -> AttentionInputs | None:
        """`attention_inputs`; if it is not given, a function that takes Q, K, V as they are if `answer` is the usual
        one."""
        return plain_inputs if self.answer is attention_output else self.attention_inputs


LETTERS = {
    "Tr": "ceil(N / Br)",
    "Tc": "ceil(Nk / Bc)",
    "Td": "ceil(d / depth)",
    "To": "ceil(N / rows_o)",
    "Tv": "ceil(dv / cols_o)",
    "r": "min(kept, Nk)",
    "s": "max(0, Nk - kept)",
    "Tx": "ceil(d / cols_o)",
    "Ty": "ceil(Nk / rows_o)",
    "S": "ceil(Nk / ceil(Nk / splits))",
    "Sb": "ceil(N top_k / ceil(N top_k key_block / Nk))",
    "pages": "ceil(Nk / page_size)",
    "Tn": "ceil(N / L)",
    "E": "(ceil(N / L) - 1) L (L - 1) / 2 + (N - L ceil(N / L) + L) (N - L ceil(N / L) + L - 1) / 2",
    "T": "drafts + 1",
    "A": "accepted + 1",
    "Sp": "ceil(ceil(Nk / page_size) / ceil(ceil(Nk / page_size) / splits))",
}  # of `formula`
FA1, FA2 = "Dao et al. 2022 (arXiv 2205.14135)", "Dao 2023 (arXiv 2307.08691)"


GROUP = "iosim.schedules"  # entry points by which other packages bring schedules


class Schedules(MutableMapping[str, Schedule]):
    """Schedules by name, in the order of lists. A file of them is imported when one of its names is looked up.

    Those of other packages come last. They are looked for when a name is unknown, and when all schedules are listed.
    """

    def __init__(self) -> None:
        self._found: dict[str, Schedule | None] = {}
        self._files: dict[str, str] = {}
        self._complete = False

    def complete(self) -> dict[str, Schedule | None]:
        """All names, with those of other packages: an entry point names a Schedule, or a module that registers some.
        Raises InputError for one that cannot be imported."""
        if not self._complete:
            self._complete = True  # before the packages are imported, because they register here
            from importlib.metadata import entry_points

            for point in entry_points(group=GROUP):
                try:
                    found = point.load()
                except Exception as error:
                    raise InputError(
                        GROUP, point.value, "a Schedule, or a module that registers some", str(error)
                    ) from None
                if isinstance(found, Schedule):
                    register(found)
        return self._found

    def expect(self, files: Mapping[str, tuple[str, ...]]) -> None:
        """Expect names that files of this package register: `{file: names}`."""
        self._files |= {name: file for file, names in files.items() for name in names}
        self._found |= dict.fromkeys(self._files)

    def built_in(self, name: str) -> bool:
        """Whether a name is one of iosim's own."""
        return name in self._files

    def pending(self, name: str) -> bool:
        """Whether an expected name is still not registered after its file was imported. A file whose import is under
        way is not imported again."""
        if self._found[name] is None:
            import_module(f".{self._files[name]}", __package__)
        return self._found[name] is None

    def __getitem__(self, name: str) -> Schedule:
        known = self._found if name in self._found else self.complete()
        if (found := known[name]) is None:
            self.pending(name)
            found = self._found[name]
        if found is None:
            raise InternalError(f"schedules/{self._files[name]}.py does not register {name}")
        return found

    def __setitem__(self, name: str, schedule: Schedule) -> None:
        self._found[name] = schedule

    def __delitem__(self, name: str) -> None:
        del self._found[name]

    def __contains__(self, name: object) -> bool:
        return name in self._found or name in self.complete()

    def __iter__(self) -> Iterator[str]:
        return iter(self.complete())

    def __len__(self) -> int:
        return len(self.complete())


SCHEDULES = Schedules()
"""All schedules by name, in the order of lists: a mapping, as in `SCHEDULES["flash2"]`."""


def register(schedule: Schedule) -> Schedule:
    """Add a schedule, and return it. From then on every command and function accepts its name.

    An earlier schedule of the same name is replaced, so that a cell of a notebook may run again. Raises InputError for
    a name that iosim itself uses, and for a field of the wrong kind.
    """
    if not isinstance(schedule, Schedule):
        raise InputError("register", str(schedule), "a Schedule")
    if SCHEDULES.built_in(schedule.name) and not SCHEDULES.pending(schedule.name):
        raise InputError("register", schedule.name, "a name that no schedule of iosim has")
    for option in schedule.options if not SCHEDULES.built_in(schedule.name) else ():
        if isinstance(option, Option) and option.name in EXPECTED and option is not declared(option.name):
            raise InputError(f"register {schedule.name}: options", option.name, "a name that no schedule of iosim has")
    for name, right, allowed in rules_of_fields(schedule):
        if not right:
            raise InputError(f"register {schedule.name}: {name}", str(getattr(schedule, name)), allowed)
    SCHEDULES[schedule.name] = schedule
    for option in schedule.options:
        if isinstance(option, Option):
            declare(option)
    return schedule


def always_skips(schedule: Schedule, name: str, source: str, known_as: str = "") -> Schedule:
    """Register another name of a schedule, which skips hidden tiles with `visit_all` too."""
    summary = f"{schedule.name} that always skips hidden tiles"
    options = tuple(option for option in schedule.options if option != "visit_all")
    return register(
        replace(schedule, name=name, summary=summary, source=source, options=options, known_as=known_as, pointers={})
    )


FUNCTIONS = ("exact_traffic", "footprint", "candidates", "example", "follows", "answer", "about")


def rules_of_fields(s: Schedule) -> Iterator[tuple[str, bool, str]]:
    """(field, whether its value is valid, what is allowed) for each field that is checked."""
    name = isinstance(s.name, str) and bool(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", s.name))
    yield "name", name, "letters, digits, and - . _ between them, as in my-schedule"
    yield "text", callable(s.text), "a function text(chip, p, t)"
    yield "summary", isinstance(s.summary, str), "a text"
    yield "outer", s.outer in ("queries", "keys"), "queries or keys"
    yield "rules", not isinstance(s.rules, str) and {*s.rules} <= {"best", "paper", "ideal"}, "of best, paper, ideal"
    allowed = "options of every problem by name, and Options of other names, as my_option"
    yield "options", all(map(may_declare, s.options)), allowed
    yield "tensors", all(isinstance(t, Tensor) for t in dict(s.tensors).values()), "a Tensor for each name"
    for field_name in FUNCTIONS:
        value = getattr(s, field_name)
        yield field_name, value is None or callable(value), "a function"


def may_declare(option: object) -> bool:
    """Whether a schedule may read an option of this name, or declare this option."""
    if isinstance(option, str):
        return option in OF_EVERY_PROBLEM
    return isinstance(option, Option) and option.name.isidentifier() and option.name not in USUAL


def require(schedule: Schedule, problem: Attention) -> None:
    """Raise InputError if a schedule is not about this problem; the docstring of its `about` says why. Raise
    ScheduleError if a schedule of a user never stores its output."""
    check_cache(schedule, problem)
    if OF_STATE in dict(problem.own) and not schedule.reads(OF_STATE):
        why = f"not with --schedule {schedule.name}, which has no state"
        raise InputError(flag(OF_STATE), str(dict(problem.own)[OF_STATE]), why, "state-fused is one that has")
    of_state = {*dict(problem.own)} & {KEY_HEADS.name, OF_STATE}
    if problem.gqa == "pack" and of_state and KEY_HEADS not in schedule.options:
        options = " and ".join(sorted(map(flag, of_state)))
        raise InputError(
            "--gqa", f"pack with {options}", f"no {options} with {schedule.name}, which packs by --kv-heads"
        )
    nearest = schedule.about(problem)
    for name in dict.fromkeys([*problem.values(), *nearest.values()]):
        value, wanted = getattr(problem, name), getattr(nearest, name)
        if not same(value, wanted):
            option, reason = flag(name), why_not(schedule, name) + others_that_take(schedule, problem)
            if wanted is False:
                raise InputError(option, "given", f"not with --schedule {schedule.name}", reason)
            there, allowed = at_first(value != wanted, value, wanted)
            if name == "choice_rows":  # of packed value heads
                option, there, allowed = flag("gqa"), "pack", "repeat"
            raise InputError(option, str(there), f"{allowed} with --schedule {schedule.name}", reason)
    if not SCHEDULES.built_in(schedule.name):
        check_outputs(schedule)


def why_not(schedule: Schedule, name: str) -> str:
    """Why a schedule is not about an option: what the docstring of its `about` says of it, else all that it says."""
    parts = " ".join((schedule.about.__doc__ or "").split()).rstrip(".").replace(". ", "; ").split("; ")
    word = {"gqa": "pack", "choice_rows": "pack", "rule": "delta", "normalise": "normalis"}.get(name, name)
    return "; ".join([part for part in parts if word in part] or parts)


def others_that_take(schedule: Schedule, problem: Attention) -> str:
    """The schedules of its family that are about a problem, as the end of a hint; nothing if there is none, or for
    problems in arrays."""
    if any(hasattr(value, "ndim") for value in problem.values().values()):
        return ""
    found = [s.name for s in SCHEDULES.values() if s.family == schedule.family and applies(s, problem)]
    return f"; try --schedule {' or '.join(found[:3])}" if found else ""


@lru_cache(maxsize=256)
def check_outputs(schedule: Schedule) -> None:
    """Raise ScheduleError for an output that a small run without a mask never stores.

    An error in the small run is ignored: the real run raises it again, with more detail.
    """
    from ..core.folded import Folded
    from ..core.tiling import Tiling
    from ..core.watchers import Traffic

    problem, traffic = schedule.about(Attention(4, 2)), Traffic()
    try:
        Folded(problem, traffic).run(schedule, Tiling(2, 2))
    except Exception:
        return
    stored = {name for name, (_, writes) in traffic.tensors.items() if writes}
    for name in outputs_of(schedule, problem):
        if name not in stored:
            found = f"what it stores: {', '.join(sorted(stored)) or 'nothing'}"
            hint = f"end with chip.store(block, {name!r}, i), or register it with an `answer` of other tensors"
            raise ScheduleError(f"schedule {schedule.name} never stores its output {name}; {found}; {hint}")


def outputs_of(schedule: Schedule, problem: Attention) -> list[str]:
    """The names of the tensors of a schedule's answer; none if they cannot be found."""
    if schedule.answer is attention_output:
        return ["O"]
    import numpy as np

    try:
        return list(schedule.answer(schedule.example(np.random.default_rng(0), problem, None), problem, None))
    except Exception:
        return []


def check_cache(schedule: Schedule, problem: Attention) -> None:
    """Raise InputError for keys and values that the schedule cannot read: of another type than Q, with scales, or
    latent if it is not a forward pass of attention."""
    if problem.latent and schedule.family not in LATENT_FAMILIES:
        raise InputError("--latent", "given", f"not with --schedule {schedule.name}", "for attention's forward pass")
    rows = [("--kv-dtype", problem.cache_dtype, problem.dtype), ("--kv-scales", problem.kv_scales, "none")]
    for option, found, usual in rows:
        if found != usual and not schedule.scales:
            readers = ", ".join(s.name for s in SCHEDULES.values() if s.scales)
            raise InputError(option, found, f"{usual} with --schedule {schedule.name}", f"others: {readers}")


def reads_cache(schedule: Schedule, problem: Attention) -> bool:
    """Whether a schedule can read the keys and values of this problem."""
    try:
        check_cache(schedule, problem)
    except InputError:
        return False
    return True


def applies(schedule: Schedule, problem: Attention) -> bool:
    """Whether a schedule is about this problem."""
    return reads_cache(schedule, problem) and schedule.about(problem) == problem


def distinct(schedules: Iterable[Schedule], problem: Attention) -> list[Schedule]:
    """The schedules without other names of an earlier one: those of the same text. If the mask changes what it moves,
    they must skip the same tiles, chosen by the same rules."""
    found: dict[object, Schedule] = {}
    for schedule in schedules:
        found.setdefault((schedule.text, mask_matters(schedule, problem) and schedule.rules), schedule)
    return list(found.values())


def find(name: str | Schedule) -> Schedule:
    """A schedule by its name, in upper or lower case. A Schedule is returned as it is, and is registered if it is not
    yet. Raises InputError for an unknown name."""
    if isinstance(name, Schedule):
        there = name.name in SCHEDULES and SCHEDULES[name.name] is name
        return name if there else register(name)
    if name in SCHEDULES:
        return SCHEDULES[name]
    word = str(name).strip().lower()
    for known in SCHEDULES:
        if known.lower() == word:
            return SCHEDULES[known]
    raise InputError("--schedule", name, ", ".join(SCHEDULES), suggested(word))


def check_family(chosen: Iterable[Schedule]) -> None:
    """Raise InputError for schedules that do not all compute the same."""
    several = list(chosen)
    if len({s.family for s in several}) > 1:
        families = ", ".join(f"{s.name} ({s.family})" for s in several)
        raise InputError("--schedule", families, "schedules of one family, since others compute something else")


def suggested(word: str) -> str:
    """The text `did you mean X?`, with the schedules that are known as `word` elsewhere, else with the closest
    names."""
    letters = plain(word)
    meant = [s.name for s in SCHEDULES.values() if letters in map(plain, (s.name, *s.known_as.split(",")))]
    if not meant:
        return suggestion(word, SCHEDULES)
    more = [text for s in SCHEDULES.values() for name, text in s.pointers.items() if plain(name) == letters]
    return " ".join([did_you_mean(meant), *more])


def plain(word: str) -> str:
    """A word without anything but its letters and digits."""
    return re.sub(r"[^a-z0-9]", "", word.lower())


def find_all(names: SchedulesAsked) -> list[Schedule]:
    """The schedules of a text as `flash1,flash2`, or of several such texts or Schedules; each schedule once."""
    asked = [names] if isinstance(names, str | Schedule) else names
    found = [find(part) for one in asked for part in ([one] if isinstance(one, Schedule) else str(one).split(","))]
    return list({id(schedule): schedule for schedule in found}.values())
