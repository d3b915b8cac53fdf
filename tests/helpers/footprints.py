"""The footprints of many tilings, from one walk."""

from dataclasses import fields

import numpy as np

from iosim import Tiling
from iosim.core.watchers import Footprint
from iosim.search.best import footprint


def footprints(schedule, problem, tilings):
    """The footprint of each tiling, as a list. The sizes are arrays, which count like numbers (test_every_schedule.py)."""
    sizes = {field.name: [getattr(tiling, field.name) for tiling in tilings] for field in fields(Tiling)}
    arrays = Tiling(**{name: None if None in values else np.array(values) for name, values in sizes.items()})
    columns = (np.broadcast_to(column, len(tilings)).tolist() for column in footprint(schedule, problem, arrays))
    return [Footprint(*row) for row in zip(*columns, strict=True)]
