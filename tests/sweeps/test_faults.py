"""After any fault nothing is lost, nothing is doubled, nothing is half-written, and the message says what to do.

`python tests/sweeps/test_faults.py` makes all tries and writes the table of docs/scale.md. The long tests make all of
them as well, and the short ones one of each that needs no other process.
"""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "helpers"))
from forks import Forked
from paths import ROOT
from sweeps_run import GRID, LONG, SMALLEST, begun, cluster_of, until
from wings_here import skip_if_gone

from iosim.counting import sweep as counted

PAGE = ROOT / "docs" / "scale.md"
MANY = (*LONG, *SMALLEST)  # 13 parts of usual chunks
MANY_QUICK = (*LONG, "--tiles", "16x16", *SMALLEST)  # 9 parts
PARTS = (*GRID[:-1], "1KB:9KB:+1KB", "--tiles", "16x16", *SMALLEST)  # most of the time is that of writing
PARQUET = (*PARTS, "--format", "parquet")
ROOFLINE = ("sweep", "--what", "roofline", "--N", "64:512:+64", "--d", 8, "--hardware", "h100", "--part-rows", 1)
TRACE = ("trace", "--N", 512, "--d", 8, "--tiles", "16x16", "--format", "csv")


ENDS = Counter()  # the exit codes of runs after SIGKILL: 0 of those that had ended


class Run:
    """A command line of iosim in another process, with chunks as they are here.

    `pace` is shorter when kills came after the end, as where the undisturbed run was measured on a busier machine.
    """

    pace = 1.0

    def __init__(self, place, *args, most_bytes=None):
        skip_if_gone(args)
        self.said, more = place / f"stderr-{os.urandom(4).hex()}", {"most_bytes": most_bytes}
        self.process = Forked("iosim", args, stderr=self.said, chunk_rows=counted.CHUNK_ROWS, **more)

    def end(self):
        """(its exit code, what it wrote to stderr)."""
        return self.process.wait(), self.said.read_text()

    def kill_after(self, seconds):
        time.sleep(seconds * Run.pace)
        self.process.kill()
        code = self.process.wait()
        assert code in (-signal.SIGKILL, 0), self.said.read_text()
        Run.pace = min(1, Run.pace * 1.2) if code else Run.pace / 2
        ENDS[code] += 1


def done(place, *args):
    """Run a command line that ends well."""
    code, said = Run(place, *args).end()
    assert code == 0, said


def after_parts(place, run, chance):
    """The run, when a random number of parts is there, or when it has ended."""
    parts = chance.randrange(10)
    until(lambda: run.process.poll() is not None or parts <= len([*place.glob("sweep/part-*")]))
    return run


def gathered(place, folder):
    """The bytes of a folder of parts."""
    path = Path(str(folder).removeprefix("local://"))
    out = place / f"gathered.{next(path.glob('part-*')).suffix[1:]}"
    done(place, "sweep", "--gather", folder, "-o", out)
    assert not [file.name for file in path.iterdir() if file.name.endswith(".part")], "nothing half-written"
    return out.read_bytes()


def resumed(place, line):
    """The bytes of a folder after --resume."""
    done(place, *line, "--resume", "-o", f"{place}/sweep/")
    return gathered(place, place / "sweep")


class Undisturbed(NamedTuple):
    """What a command line writes if nothing happens, and the seconds that it takes."""

    bytes: bytes
    seconds: float


KNOWN = {}


def undisturbed(line, folder=True):
    if line not in KNOWN:
        with TemporaryDirectory() as found:
            place = Path(found)
            done(place, "--version")  # so that the start of the process that forks is not in the time
            begin = time.monotonic()
            done(place, *line, "-o", f"{place}/sweep/" if folder else place / "x.csv")
            seconds = time.monotonic() - begin
            KNOWN[line] = Undisturbed(
                gathered(place, place / "sweep") if folder else (place / "x.csv").read_bytes(), seconds
            )
    return KNOWN[line]


# ---------------------------------------------------------------- faults: (the bytes wanted, the bytes found)


def killed(place, chance, line=PARTS):
    """SIGKILL at a random moment, and sometimes another one of the run that continues."""
    wanted = undisturbed(line)
    Run(place, *line, "-o", f"{place}/sweep/").kill_after(chance.uniform(0, wanted.seconds))
    if chance.random() < 0.25:
        run = Run(place, *line, "--resume", "-o", f"{place}/sweep/")
        run.kill_after(chance.uniform(0, wanted.seconds / 2))
    return wanted.bytes, resumed(place, line)


def killed_of_two(place, chance):
    """As `killed`, after a random number of parts, because most of the time processes are only starting."""
    with usual_chunks():
        wanted, begins = undisturbed(MANY_QUICK), ["-o", f"{place}/sweep/"]
        for line in [begins, ["--resume", *begins]][: 2 if chance.random() < 0.25 else 1]:
            after_parts(place, Run(place, *MANY_QUICK, "--jobs", 2, *line), chance).kill_after(chance.uniform(0, 0.05))
        return wanted.bytes, resumed(place, MANY_QUICK)


def killed_one_file(place, chance, line=PARTS[:-2]):
    """The file is whole or not there."""
    wanted, file = undisturbed(line, folder=False), place / "x.csv"
    Run(place, *line, "-o", file).kill_after(chance.uniform(0, wanted.seconds))
    assert not file.exists() or file.read_bytes() == wanted.bytes
    done(place, *line, "-o", file)
    return wanted.bytes, file.read_bytes()


def killed_parquet(place, chance):
    """Also the data set has every row once, with what a killed run left beside its parts."""
    import pandas as pd

    wanted, found = killed(place, chance, PARQUET)
    (place / "sweep" / "_part-00000000.parquet.7-ab.part").write_text("unfinished")
    assert len(pd.read_parquet(place / "sweep")) == len(pd.read_parquet(BytesIO(wanted)))
    return wanted, found


def killed_roofline(place, chance):
    return killed(place, chance, ROOFLINE)


def killed_at_address(place, chance):
    """A folder that is written through fsspec, without a lock."""
    wanted = undisturbed(PARTS)
    address = f"local://{place}/sweep/"
    Run(place, *PARTS, "-o", address).kill_after(chance.uniform(0, wanted.seconds))
    done(place, *PARTS, "--resume", "-o", address)
    return wanted.bytes, gathered(place, address)


def killed_local_cluster(place, chance):
    """The run and the workers that it started. They end with it."""
    with usual_chunks():
        first = begun(place / "sweep", "--dask", "local", "--jobs", 2)
        workers = children(first.pid)
        time.sleep(chance.uniform(0, 0.2))
        first.kill()
        first.wait()
        until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in workers))
        return undisturbed(MANY).bytes, resumed(place, MANY)


def killed_trace(place, chance):
    return killed_one_file(place, chance, TRACE)


def disk_full(place, chance):
    """On a small disk if one can be mounted, else with a limit on the size of files. Room comes before --resume."""
    wanted = undisturbed(PARTS).bytes
    room = chance.randrange(1, len(wanted))
    with small_disk(place, room) as (folder, most_bytes, make_room):
        code, said = Run(place, *PARTS, "-o", f"{folder}/sweep/", most_bytes=most_bytes).end()
        assert code == 2 and "Error: -o: found" in said, said
        assert not re.search(r"^note: [1-9]", said, re.M) or "--resume continues" in said
        make_room()
        done(place, *PARTS, "--resume", "-o", f"{folder}/sweep/")
        return wanted, gathered(place, folder / "sweep")


def read_only(place, chance):
    """A folder that is refused, and then may be written again, in the middle of a sweep that was killed."""
    wanted = undisturbed(PARTS)
    with not_writable(place) as (folder, allowed):
        Run(place, *PARTS, "-o", f"{folder}/sweep/").kill_after(wanted.seconds * chance.uniform(0.2, 0.8))
        before = {file.name: file.read_bytes() for file in folder.glob("sweep/*")}
        allowed(False)
        code, said = Run(place, *PARTS, "--resume", "-o", f"{folder}/sweep/").end()
        assert code == 2 and "a folder that can be written" in said, said
        assert {file.name: file.read_bytes() for file in folder.glob("sweep/*")} == before
        allowed(True)
        done(place, *PARTS, "--resume", "-o", f"{folder}/sweep/")
        return wanted.bytes, gathered(place, folder / "sweep")


def two_runs(place, chance):
    """Two at once write the same bytes. One may be ended by the other, which removes what it is writing."""
    first = Run(place, *PARTS, "--resume", "-o", f"{place}/sweep/")
    time.sleep(chance.uniform(0, undisturbed(PARTS).seconds / 4))
    second = Run(place, *PARTS, "--resume", "-o", f"{place}/sweep/")
    codes = {}
    for one in (first, second):
        code, said = one.end()
        assert code in (0, 2) and "Traceback" not in said, said
        codes[one] = code
    assert 0 in codes.values()
    return undisturbed(PARTS).bytes, resumed(place, PARTS)


def killed_worker(place, chance):
    """A process of --jobs."""
    with usual_chunks():
        wanted = undisturbed(MANY_QUICK)
        whole = after_parts(place, Run(place, *MANY_QUICK, "--jobs", 2, "-o", f"{place}/sweep/"), chance)
        until(lambda: children(whole.process.pid) or whole.process.poll() is not None)
        if workers := children(whole.process.pid):
            kill(chance.choice(workers))
        code, said = whole.end()
        assert code == 0, said
        return wanted.bytes, gathered(place, place / "sweep")


def killed_dask_worker(place, chance):
    with usual_chunks(), cluster_of(place) as (address, _, workers):
        first = begun(place / "sweep", "--dask", address)
        chance.choice(workers).kill()
        said = first.communicate(timeout=60)[1]
        assert first.returncode == 0, said
        return undisturbed(MANY).bytes, gathered(place, place / "sweep")


def killed_scheduler(place, chance):
    with usual_chunks(), cluster_of(place) as (address, scheduler, _):
        first = begun(place / "sweep", "--dask", address)
        time.sleep(chance.uniform(0, 0.2))
        scheduler.kill()
        said = first.communicate(timeout=60)[1]
        assert first.returncode == 1 and "is gone" in said and "--resume" in said and "Traceback" not in said
        return undisturbed(MANY).bytes, resumed(place, MANY)


def in_the_middle(place):
    """A folder with some of its parts."""
    Run(place, *PARTS, "-o", f"{place}/sweep/").kill_after(undisturbed(PARTS).seconds * 0.6)
    return place / "sweep"


def cut_part(place, chance):
    """A part ends early, or has another byte, and the sweep is complete or not."""
    if chance.random() < 0.5:
        folder = in_the_middle(place)
    else:
        done(place, *PARTS, "-o", f"{place}/sweep/")
        folder = place / "sweep"
    parts = sorted(folder.glob("part-*.csv"))
    if parts:
        chance.choice([cut, flipped])(chance.choice(parts), chance)
        code, said = Run(place, "sweep", "--gather", folder, "-o", place / "early.csv").end()
        assert code in (1, 2) and "--resume" in said and not (place / "early.csv").exists()
    return undisturbed(PARTS).bytes, resumed(place, PARTS)


def corrupted(place, chance):
    """The manifest ends early or has another byte, or is gone. The folder is refused, or nothing is lost."""
    folder = in_the_middle(place) if chance.random() < 0.5 else place / "sweep"
    done(place, *PARTS, *(["--resume"] if folder.exists() else []), "-o", f"{folder}/")
    chance.choice([cut, flipped, lambda file, chance: file.unlink()])(folder / "_manifest.json", chance)
    code, said = Run(place, "sweep", "--gather", folder, "-o", place / "early.csv").end()
    assert (place / "early.csv").read_bytes() == undisturbed(PARTS).bytes if code == 0 else code in (1, 2), said
    code, said = Run(place, *PARTS, "--resume", "-o", f"{folder}/").end()
    assert code == 0 or (code == 2 and "_manifest.json" in said), said
    if code:
        shutil.rmtree(folder)
    return undisturbed(PARTS).bytes, resumed(place, PARTS)


FAULTS = {
    "SIGKILL, into a folder": (45, killed),
    "SIGKILL, into a folder of Parquet": (20, killed_parquet),
    "SIGKILL, into an address": (20, killed_at_address),
    "SIGKILL, `--what roofline`": (10, killed_roofline),
    "SIGKILL, into one file": (20, killed_one_file),
    "SIGKILL of a trace": (20, killed_trace),
    "disk full": (20, disk_full),
    "folder that may only be read": (5, read_only),
    "two runs into one folder": (20, two_runs),
    "a part cut short, or a byte changed": (20, cut_part),
    "manifest cut short, changed or gone": (20, corrupted),
}
OF_SEVERAL = {
    "SIGKILL, into a folder, `--jobs 2`": (20, killed_of_two),
    "SIGKILL of a process of `--jobs 2`": (10, killed_worker),
    "SIGKILL, `--dask local`": (5, killed_local_cluster),
    "SIGKILL of a worker of Dask": (5, killed_dask_worker),
    "SIGKILL of Dask's scheduler": (5, killed_scheduler),
}
NEEDS = {killed_parquet: "pyarrow", killed_at_address: "fsspec"}
NEEDS |= dict.fromkeys((killed_local_cluster, killed_dask_worker, killed_scheduler), "distributed")

# ---------------------------------------------------------------- what they use


@contextmanager
def usual_chunks():
    """Chunks as they are, because processes that are not forked have no others."""
    small, counted.CHUNK_ROWS = counted.CHUNK_ROWS, USUAL_ROWS
    try:
        yield
    finally:
        counted.CHUNK_ROWS = small


USUAL_ROWS, SMALL_ROWS = counted.CHUNK_ROWS, 500


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Many parts in a short time."""
    monkeypatch.setattr(counted, "CHUNK_ROWS", SMALL_ROWS)


@contextmanager
def small_disk(place, room):
    """(a folder, the most bytes of a file, a function that makes room)."""
    folder = place / "disk"
    folder.mkdir()
    mounted = os.getuid() == 0 and mount("-t", "tmpfs", "-o", f"size={room // 4096 * 4096 + 4096}", "tmpfs", folder)
    try:
        if mounted:
            yield folder, None, lambda: mount("-o", "remount,size=64m", folder)
        else:
            most = min(room, len(undisturbed(PARTS).bytes) // 20)
            yield folder, most, lambda: None
    finally:
        if mounted:
            subprocess.run(["umount", str(folder)], check=True)


def mount(*args):
    return subprocess.run(["mount", *map(str, args)], capture_output=True).returncode == 0


@contextmanager
def not_writable(place):
    """(a folder, a function that says whether it may be written). Root may always, unless the disk is read-only."""
    folder = place / "disk"
    (folder / "sweep").mkdir(parents=True)
    if os.getuid():
        yield folder, lambda may: os.chmod(folder / "sweep", 0o755 if may else 0o555)
    elif mount("-t", "tmpfs", "tmpfs", folder):
        try:
            yield folder, lambda may: mount("-o", f"remount,{'rw' if may else 'ro'}", folder)
        finally:
            subprocess.run(["umount", str(folder)], check=True)
    else:
        pytest.skip("root cannot be refused, and no disk can be mounted")


def cut(file, chance):
    os.truncate(file, chance.randrange(file.stat().st_size))


def flipped(file, chance):
    text = bytearray(file.read_bytes())
    text[chance.randrange(len(text))] ^= 1 << chance.randrange(7)
    file.write_bytes(text)


def children(pid):
    """The processes that count for a process."""
    text = subprocess.run(["ps", "-o", "pid=,args=", "--ppid", str(pid)], capture_output=True, text=True).stdout
    return [int(line.split()[0]) for line in text.splitlines() if "spawn_main" in line]


def kill(pid):
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


# ---------------------------------------------------------------- tests, and the table


LINE = "| --- | --: | --: | --: |\n"


def make_tries(name, tries):
    """(rows lost, rows doubled or wrong) in all tries of a fault."""
    _, fault = {**FAULTS, **OF_SEVERAL}[name]
    lost, doubled, before = 0, 0, ENDS.copy()
    for number in range(tries):
        with TemporaryDirectory() as found:
            os.chmod(found, 0o755)
            wanted, got = fault(Path(found), random.Random(f"{name} {number}"))
        if wanted != got:
            rows, others = Counter(wanted.splitlines()), Counter(got.splitlines())
            lost, doubled = lost + (rows - others).total(), doubled + (others - rows).total()
            assert lost or doubled, "the order of rows"
    for ends in (ENDS - before, ENDS):  # those of this fault, and all until now: of a few, most may be late by chance
        few = ends.total() < 15
        assert few or 4 * ends[-signal.SIGKILL] >= ends.total(), f"most kills came after the end: {ends}"
    return lost, doubled


def line(name, tries, lost, doubled):
    return f"| {name} | {tries} | {lost} | {doubled} |"


def check_tries(name, most=None):
    tries, fault = {**FAULTS, **OF_SEVERAL}[name]
    if (package := NEEDS.get(fault)) and not find_spec(package):
        pytest.skip(f"{package} is not installed: pip install iosim[test-all]")
    assert make_tries(name, min(tries, most or tries)) == (0, 0)


@pytest.mark.parametrize("name", FAULTS)
def test_a_try_of_each(name):
    check_tries(name, 1)


@pytest.mark.long
@pytest.mark.parametrize("name", FAULTS)
def test_nothing_is_lost_and_nothing_is_doubled(name):
    check_tries(name)


@pytest.mark.long
@pytest.mark.early
class TestOfSeveral:
    """In a scope of its own, because processes take long to start."""

    @pytest.mark.parametrize("name", OF_SEVERAL)
    def test_nothing_is_lost_and_nothing_is_doubled(self, name):
        check_tries(name)


def test_the_page_has_all_faults():
    found = re.findall(r"^\| (.*) \| (\d+) \| (\d+) \| (\d+) \|$", PAGE.read_text(), re.M)
    every = {**FAULTS, **OF_SEVERAL}
    assert found == [(name, str(tries), "0", "0") for name, (tries, _) in every.items()]
    assert sum(tries for name, (tries, _) in every.items() if name.startswith("SIGKILL")) == 180


def write_page():
    """Make all tries, and write the table."""
    counted.CHUNK_ROWS, rows = SMALL_ROWS, []
    for name, (tries, _) in {**FAULTS, **OF_SEVERAL}.items():
        begin = time.monotonic()
        rows.append(line(name, tries, *make_tries(name, tries)))
        print(rows[-1], f"{time.monotonic() - begin:.0f} s", flush=True)
    before, rest = PAGE.read_text().split(LINE, 1)
    PAGE.write_text(before + LINE + "\n".join(rows) + "\n\n" + rest.split("\n\n", 1)[1])


if __name__ == "__main__":
    write_page()
