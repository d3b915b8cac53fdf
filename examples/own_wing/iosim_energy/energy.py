"""`iosim.energy`, and `energy` at each point of a sweep."""

from iosim import InputError, count
from iosim.answer import Column, Table
from iosim.options import COUNT, Option
from iosim.points import Question

PICOJOULES = Option("picojoules", COUNT, "of a byte between HBM and SRAM (default: 30, a round number).", 30)
COLUMNS = (
    Column("schedule", "string", "schedule"),
    Column("bytes", "integer", "bytes", "bytes"),
    Column("millijoules", "number", "mJ", ".3f"),
)


def energy(N, d, M=None, *, picojoules=PICOJOULES.default, **options):
    """The energy of the bytes that each schedule moves, where each costs some picojoules: a Table.

    Other options are those of `iosim.count`. Schedules that do not fit are left out. Raises InputError if none fits.
    """
    results = [result for result in count(N, d, M, **options).results if result.fits is not False]
    rows = [
        {"schedule": result.schedule, "bytes": result.total_bytes, "millijoules": result.total_bytes * picojoules / 1e9}
        for result in results
    ]
    if not rows:
        raise InputError("--M", M, "an SRAM in which some schedule fits")
    least = min(rows, key=lambda row: row["bytes"])
    said = f"{least['schedule']} spends {least['millijoules']:.3f} mJ on its bytes, at {picojoules} pJ a byte.\n"
    return Table(COLUMNS, rows, "energy", text=(said, Table(COLUMNS, rows)))


def rows_of(p):
    """The rows at a point of a sweep."""
    more = {"schedules": p.schedules, "tiles": p.tiles, "tile_multiple": p.tile_multiple}
    return energy(**p.place, paper_model=p.paper_model, **more, **p.fields, **p.own).to_rows()


ENERGY = Question(rows_of, lambda: COLUMNS, own=(PICOJOULES,))
