"""Files that users wrote for 0.1 still work with `--load`."""

import json
import subprocess
import sys
from inspect import isfunction

from wings_here import skip_if_gone

from iosim import softmax
from iosim.steps import softmax as steps

# The schedule of the README of 0.1.
OLD = '''
import iosim
from iosim.softmax import accumulate, scores, softmax_rows, zeros


def one_row(chip, p, t):
    """A query tile sees all keys at once; S never leaves the chip."""
    for i in chip.tiles(p.N, t.rows_q, parallel=True):
        q, k = chip.load("Q", i), chip.load("K")
        s = chip.compute("S", (i, p.Nk), scores, q, k)
        chip.free(q, k)
        chip.update(s, softmax_rows)
        v, o = chip.load("V"), chip.compute("O", (i, p.dv), zeros)
        chip.update(o, accumulate, s, v)
        chip.store(o, "O", i)


iosim.register(iosim.Schedule("one-row", one_row, "whole rows of S on chip"))
'''


def rows(folder, *args):
    """What a process of its own answers: its schedules are nobody else's."""
    skip_if_gone(args)
    line = [sys.executable, "-m", "iosim", "--load", folder / "old.py", *args, "--schedule", "one-row", "--json"]
    done = subprocess.run([*map(str, line)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_file_of_0_1_is_loaded(tmp_path):
    (tmp_path / "old.py").write_text(OLD)
    (result,) = rows(tmp_path, "count", "--N", 512, "--d", 64, "--M", "227KB")["results"]
    assert (result["Br"], result["Bc"], result["total"]) == (128, 512, 327680), "as the README says"
    (row,) = rows(tmp_path, "verify", "--cpu", "--N", 48, "--d", 16, "--tiles", "16x16")["checks"]
    assert row["ok"], row["faults"]


def test_the_old_name_has_every_step_and_mark():
    functions = {name for name, x in vars(steps).items() if isfunction(x) and x.__module__ == steps.__name__}
    assert functions - {"nothing"} <= {*softmax.__all__}
    assert all(getattr(softmax, name) is getattr(steps, name) for name in softmax.__all__ if name != "Cost")
    assert softmax.Cost(timed_as="hide", reads_whole=(1,)) == steps.Operands(reads_whole=(1,)), "the mark of 0.1"
