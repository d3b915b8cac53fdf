"""`iosim links`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..commands.answer import Output, answer_all, emit, say
from ..commands.command import D, N, Need, named_command
from ..commands.notes import check_read, given_variants
from ..commands.open_page import check_opened, open_option, open_page
from ..commands.options import (
    PLACES,
    csv_option,
    file_option,
    gathered,
    gqa_option,
    json_option,
    memory_options,
    model_option,
    multiple_option,
    options,
    own_option,
    problem_asked,
    problem_options,
    repeated_option,
    state_options,
)
from ..counting.given import Asked, Fields
from ..errors import InputError
from ..files import form_of
from ..options import CHOICE, MEMORY, Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .answer import Links


class Target(NamedTuple):
    """Where an answer goes: its form, its file, and whether a browser shows it."""

    as_json: bool
    as_csv: bool
    path: str | None
    in_browser: bool

    @property
    def form(self) -> str:
        """The form that --open or the name of the file asks for; an empty text if --json or --csv do, or for stdout."""
        if self.in_browser:
            if self.as_json or self.as_csv:
                raise InputError("--open", "--json or --csv as well", "one of the two", "--open shows a page")
            check_opened(self.path)
            return form_of(self.path, "page")
        return "" if self.as_json or self.as_csv or self.path in (None, "-") else form_of(self.path, "links")

    @property
    def output(self) -> Output:
        """The output of an answer that is no page."""
        return Output(self.as_json or self.form == "json", self.as_csv or self.form == "csv", self.path)


def read_schemes(value: str | int, option: str) -> object:
    from .schedules import find_schemes
    from .state import SCHEMES as OF_STATE

    return value if value in OF_STATE else find_schemes(str(value))


LINKED = " attention backward"  # the families of what GPUs compute together
SCHEMES = Kind(read_schemes, listed=True)
link_options = options(
    own_option("ranks", "GPUs among which the tokens are divided."),
    own_option("nodes", "Nodes x GPUs of a node, as 4x8: the network is between nodes."),
    own_option("passes", "forward, backward, or step: both in one run, which keeps what it can."),
    repeated_option(
        "--schedule",
        "schedules",
        "Only these, as ring,usp:4x2 for one split of usp (default: those that the problem allows).",
        metavar="NAMES",
        heading=CHOICE,
        kind=SCHEMES,
        also=("scheme", "algorithm", "method", "cp-comm-type"),
    ),
    own_option(
        "link",
        "Bytes a second that a GPU receives from its node, one direction, as 450GB (decimal; default: the preset's).",
        MEMORY,
    ),
    own_option(
        "network",
        "Bytes a second that a GPU receives from other nodes, one direction (default: the preset's).",
        MEMORY,
    ),
    own_option("memory", "Memory of a GPU, as 80GB (default: the preset's).", MEMORY),
)


@named_command(
    "links",
    needs=(N, D, Need("ranks", ("nodes",))),
    axes=PLACES,
    usual=None,
    instead={"--backward": "--pass backward has the words of gradients"},
    first="heads kv_heads causal hardware nodes passes detail",
)
@link_options
@problem_options
@model_option
@memory_options
@state_options
@multiple_option
@gqa_option
@own_option("detail", "Also show the words between each pair of GPUs; with --csv a row for each pair.")
@json_option
@csv_option
@file_option("Write to a file; its ending decides the form: .json, .csv, or a page as .html; - is stdout.")
@open_option
@gathered(target=Target)
@problem_asked
def command(
    asked: Asked,
    ranks: str | None,
    nodes: str | None,
    link: str | None,
    network: str | None,
    memory: str | None,
    passes: str,
    detail: bool,
    target: Target,
) -> None:
    """Words that GPUs receive from one another in attention with ring, Ulysses, meshes and others, beside floors.

    With --rule it is a layer with a state: the state is handed on, or gathered, or heads are exchanged.

    With -o FILE.html or --open the answer is a page, in which tiles move between GPUs.

    Example: iosim links --ranks 8 --N 131072 --d 128 --heads 32 --kv-heads 8 --causal --hardware h100
    """
    from .answer import links

    if asked.given.get("rule"):
        others = {"--nodes": nodes, "--network": network, "--memory": memory, "--detail": detail or None}
        of_state(asked, {"ranks": ranks, "link": link}, others, passes, target)
        return
    check_read(given_variants(asked.given), (), LINKED)
    _ = target.form  # a name that no form has is refused before the work
    choice = asked.choice
    fields: Fields = {
        "tile_multiple": choice.tile_multiple,
        "paper_model": choice.paper_model,
        "schedules": choice.schedules,
    }
    fields |= {"ranks": ranks, "nodes": nodes, "link": link, "network": network, "memory": memory, "detail": detail}
    fields["passes"] = passes
    write([(place.label, links(**place.fields, **fields, **asked.fields)) for place in asked.places], target)


INSTEAD = {
    "--nodes": "--ranks with all GPUs, and the rate between nodes as --link",
    "--network": "--link has the rate between GPUs, of one node or of several",
    "--detail": "leave it out: only neighbours receive, or all from all",
    "--memory": "iosim memory --layers counts states",
    "--pass": "leave it out: what gradients of a state receive is not counted",
    "--M": "leave it out: a state goes between GPUs",
}


def of_state(asked: Asked, own: Fields, others: Fields, passes: str, target: Target) -> None:
    """Write what GPUs receive in a layer with a state."""
    from .state import state_links

    vain = {**others, "--pass": passes if passes != "forward" else None, "--M": asked.choice.M}
    for option, value in vain.items():
        if value is not None:
            raise InputError(option, str(value), "nothing with --rule", INSTEAD[option])
    if target.form == "html":
        raise InputError("-o", target.path or "a page", "a file that ends in .json, .csv or .txt, with --rule")
    hardware = asked.choice.hardware
    answer_all(
        [({}, state_links(hardware=hardware, schedules=asked.choice.schedules, **own, **asked.fields))], target.output
    )


def write(found: Sequence[tuple[dict[str, object], Links]], target: Target) -> None:
    """Write answers in the form asked for, or the page of one."""
    if target.form != "html":
        answer_all(found, target.output)
        return
    from .page import links_page

    if len(found) > 1:
        raise InputError("-o", target.path or "a page", "one SRAM and one GPU for a page", "run it once for each")
    ((_, answer),) = found
    text = links_page(answer)
    say(answer.notes)
    if target.in_browser:
        open_page(text, target.path)
    else:
        emit(text, target.path)
