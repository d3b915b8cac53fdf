"""`iosim links`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..counting.given import Asked
from ..options import CHOICE, COUNT, MEMORY, SIZE, Kind, one_of
from ..units import parse_rate
from .answer import Output, answer_all
from .command import D, N, Need, named_command
from .options import (
    PLACES,
    flag_option,
    memory_options,
    multiple_option,
    options,
    outputs,
    problem_asked,
    problem_options,
    repeated_option,
    text_option,
)

if TYPE_CHECKING:
    from ..counting.given import Fields


def read_schemes(value: str | int, option: str) -> object:
    from ..distributed.schedules import find_schemes

    return find_schemes(str(value))


def read_nodes(value: str | int, option: str) -> object:
    from ..distributed.answer import machines_of

    return machines_of(None, str(value))


PASS = Kind(one_of("forward", "backward", "step"))
RATE, SCHEMES, NODES = Kind(parse_rate), Kind(read_schemes, listed=True), Kind(read_nodes)
link_options = options(
    text_option(
        "--ranks",
        "GPUs among which the tokens are divided.",
        metavar="COUNT",
        kind=COUNT,
        also=("gpus", "world-size", "world", "devices", "cp", "cp-size", "context-parallel-size", "num-gpus", "ngpus"),
    ),
    text_option("--nodes", "Nodes x GPUs of a node, as 4x8: the network is between nodes.", metavar="AxB", kind=NODES),
    text_option(
        "--pass",
        "forward, backward, or step: both in one run, which keeps what it can.",
        "forward",
        "passes",
        metavar="WHAT",
        kind=PASS,
    ),
    repeated_option(
        "--schedule",
        "schedules",
        "Only these, as ring,ulysses (default: those that the problem allows).",
        metavar="NAMES",
        heading=CHOICE,
        kind=SCHEMES,
        also=("scheme", "algorithm", "method", "cp-comm-type"),
    ),
    text_option(
        "--link",
        "Bytes a second that a GPU receives from its node, one direction, as 450GB (decimal; default: the preset's).",
        metavar="RATE",
        heading=MEMORY,
        kind=RATE,
        also=("link-bandwidth", "nvlink", "bandwidth"),
    ),
    text_option(
        "--network",
        "Bytes a second that a GPU receives from other nodes, one direction (default: the preset's).",
        metavar="RATE",
        heading=MEMORY,
        kind=RATE,
        also=("network-bandwidth", "inter-node-bandwidth"),
    ),
    text_option(
        "--memory", "Memory of a GPU, as 80GB (default: the preset's).", metavar="SIZE", heading=MEMORY, kind=SIZE,
        also=("hbm", "device-memory", "gpu-memory"),
    ),
)  # fmt: skip


@named_command("links", needs=(N, D, Need("ranks", ("nodes",))), axes=PLACES, usual=None)
@link_options
@problem_options
@memory_options
@multiple_option
@flag_option("--detail", "Also show the words between each pair of GPUs; with --csv a row for each pair.")
@outputs
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
    output: Output,
) -> None:
    """Words that GPUs receive from one another in attention with ring, Ulysses, meshes and others, beside floors.

    Example: iosim links --ranks 8 --N 131072 --d 128 --heads 32 --kv-heads 8 --causal --hardware h100
    """
    from ..distributed.answer import links

    choice = asked.choice
    fields: Fields = {
        "tile_multiple": choice.tile_multiple,
        "paper_model": choice.paper_model,
        "schedules": choice.schedules,
    }
    fields |= {"ranks": ranks, "nodes": nodes, "link": link, "network": network, "memory": memory, "detail": detail}
    fields["passes"] = passes
    answer_all([(place.label, links(**place.fields, **fields, **asked.fields)) for place in asked.places], output)
