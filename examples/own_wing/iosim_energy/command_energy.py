"""`iosim energy`."""

from iosim.commands.answer import answer_all
from iosim.commands.command import D, N, named_command
from iosim.commands.options import memory_options, outputs, own_option, problem_asked, problem_options, tile_options
from iosim.units import parse_count


@named_command("energy", needs=(N, D))
@problem_options
@memory_options
@tile_options
@own_option("picojoules", "Energy of a byte between HBM and SRAM.")
@outputs
@problem_asked
def command(asked, picojoules, output):
    """Millijoules of the bytes that schedules move between HBM and SRAM.

    Example: iosim energy --N 8192 --d 128 --M 100KB --picojoules 30
    """
    from .energy import energy

    each = parse_count(picojoules, "--picojoules")
    answer_all([({}, energy(**asked.fields, **asked.choice._asdict(), picojoules=each))], output)
