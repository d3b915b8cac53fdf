"""Options that change nothing are accepted, and stderr says so."""

import json

import pytest

from iosim import SCHEDULES, Attention, Schedule, Tiling
from iosim.core.machine import Machine
from iosim.core.watchers import Traffic

SIZES = ("--N", 64, "--d", 8)
COUNT = ("count", *SIZES, "--M", "4KB")

UNREAD = {
    "splits": (*COUNT, "--splits", 8, "--schedule", "flash2"),
    "page size": (*COUNT, "--page-size", 8, "--schedule", "flash2,flash1"),
    "elementwise": (*COUNT, "--elementwise", 2, "--schedule", "flash2"),
    "lse": (*COUNT, "--lse", "--schedule", "attention-2pass", "--schedule", "attention-3pass"),
    "count-init": (*COUNT, "--count-init", "--schedule", "flash2"),
    "keep-p": (*COUNT, "--keep-p", "--schedule", "standard"),
    "tune": ("tune", *SIZES, "--M", "4KB", "--splits", 2, "--schedule", "flash2"),
    "sweep": ("sweep", *SIZES, "--M", "4KB", "--splits", "2,4", "--schedule", "flash2"),
    "roofline": ("roofline", *SIZES, "--hardware", "t4", "--paper-model", "--page-size", 4, "--schedule", "split-kv"),
    "cache": ("cache", *SIZES, "--M", "4KB", "--tiles", "8x8", "--lse", "--schedule", "flash1"),
    "trace": ("trace", *SIZES, "--tiles", "8x8", "--splits", 2, "--schedule", "flash2"),
    "verify": ("verify", "--cpu", "--N", 8, "--d", 4, "--tiles", "4x4", "--elementwise", 1, "--schedule", "flash2"),
    "tune, curve": ("tune", "--curve", *SIZES, "--splits", 2, "--schedule", "flash2,flash1"),
    "report": ("report", *SIZES, "--M", "4KB", "--splits", 2, "--schedule", "flash2"),
}


@pytest.mark.parametrize("args", UNREAD.values(), ids=UNREAD)
def test_what_no_named_schedule_reads_gets_a_note(args, iosim):
    result = iosim(*args)
    option = next(
        x for x in args if x in ("--splits", "--page-size", "--elementwise", "--lse", "--count-init", "--keep-p")
    )
    assert result.exit_code == 0 and result.stdout, result.output
    (note,) = result.stderr.splitlines()
    assert note.startswith(
        f"note: {option} changes nothing with --schedule {args[args.index('--schedule') + 1]}"[:60]
    ), note
    readers = [name for name in note.partition("it is for ")[2].split(", ") if name]
    field = option.strip("-").replace("-", "_")
    assert readers and all(SCHEDULES[name].reads(field) for name in readers)


READ = {
    "one of two": (*COUNT, "--splits", 8, "--schedule", "flash2,split-kv"),
    "best beside given tiles": (*COUNT, "--tile-multiple", 4, "--tiles", "best"),
    "the default": (*COUNT, "--elementwise", 0, "--tile-multiple", 1, "--tiles", "8x8", "--schedule", "flash2"),
    "all of tune": ("tune", *SIZES, "--M", "4KB", "--splits", 2, "--page-size", 4, "--lse"),
    "best of a sweep": (
        "sweep",
        *SIZES,
        "--M",
        "4KB",
        "--tile-multiple",
        "2,4",
        "--tiles",
        "8x8,best",
        "--schedule",
        "flash2",
    ),
    "backward": (
        "count",
        "--pass",
        "step",
        *SIZES,
        "--M",
        "4KB",
        "--tile-multiple",
        4,
        "--tiles",
        "8x8",
        "--backward-tiles",
        "best",
    ),
    "core": (*COUNT, "--lse", "--keep-p", "--elementwise", 1, "--count-init"),
}


@pytest.mark.parametrize("args", READ.values(), ids=READ)
def test_what_one_schedule_reads_is_fine(args, iosim):
    result = iosim(*args)
    assert result.exit_code == 0 and result.stderr == "", result.output


@pytest.mark.parametrize("args", [COUNT, ("sweep", *COUNT[1:]), ("roofline", *SIZES, "--hardware", "t4", "--paper-model"), ("verify", "--cpu", "--N", 8, "--d", 4, "--tiles", "4x4")],
                         ids=lambda args: args[0])  # fmt: skip
def test_a_note_says_what_changes_nothing_where_no_schedule_is_named(args, iosim):
    """The answer is the same."""
    plain, noted = iosim(*args, "--csv"), iosim(*args, "--csv", "--splits", 8)
    assert noted.exit_code == plain.exit_code == 0
    others = "split-kv, paged-split-kv"
    assert noted.stderr == f"note: --splits changes nothing with these schedules; it is for {others}\n"
    assert [line.split(",")[:20] for line in noted.stdout.splitlines()] == [
        line.split(",")[:20] for line in plain.stdout.splitlines()
    ]


def test_a_toml_file_is_looked_at_as_well(tmp_path, iosim):
    file = tmp_path / "sweep.toml"
    file.write_text('N = 64\nd = 8\nM = "4KB"\nsplits = [2, 4]\nschedule = "flash2"\n')
    assert iosim("sweep", file).stderr.startswith("note: --splits changes nothing")
    file.write_text('N = 64\nd = 8\nM = "4KB"\nschedule = "split-kv"\n')
    result = iosim("sweep", file, "--splits", "2,4")
    assert result.exit_code == 0 and result.stderr == ""


VALUES = {"lse": True, "keep_p": True, "elementwise": 2, "splits": 3, "page_size": 6}


@pytest.mark.parametrize("name", SCHEDULES)
def test_an_option_that_is_declared_is_one_that_changes_the_traffic(name):
    """What a schedule says that it reads, against what it moves."""
    schedule = SCHEDULES[name]

    def moved(**fields):
        traffic, p = Traffic(), schedule.about(Attention(16, 8, dtype="fp32", **{"page_size": 4, **fields}))
        if any(getattr(p, name) != value for name, value in fields.items()):
            return None
        Machine(p, traffic).run(schedule, Tiling(8, 8))
        return traffic.tensors

    changed = {field for field, value in VALUES.items() if moved(**{field: value}) not in (None, moved())}
    assert {field for field in VALUES if schedule.reads(field)} == changed
    assert schedule.reads("count_init") == bool(schedule.initialised)


def test_a_schedule_of_ones_own_says_what_it_reads():
    """Without a word on its options it counts as one that reads those that most schedules do."""
    silent = Schedule("mine", lambda chip, p, t: None, "")
    said = Schedule("mine", lambda chip, p, t: None, "", options=("lse",))
    assert silent.reads("lse") and silent.reads("keep_p") and not silent.reads("splits")
    assert said.reads("lse") and not said.reads("keep_p")


@pytest.mark.parametrize("text", [None, "print((\n"], ids=["no such file", "no Python"])
def test_a_file_that_cannot_be_loaded_is_one_message_before_the_command_too(iosim, tmp_path, text):
    if text is not None:
        (tmp_path / "bad.py").write_text(text)
    for line in (["--load", tmp_path / "bad.py", "count"], ["count", "--load", tmp_path / "bad.py"]):
        done = iosim(*line, "--N", 8, "--d", 4)
        assert done.exit_code == 2 and done.stdout == "" and "a Python file that runs" in done.stderr
        assert "Traceback" not in done.output and isinstance(done.exception, SystemExit)


def test_what_a_loaded_file_prints_is_no_answer(iosim, tmp_path):
    (tmp_path / "mine.py").write_text("print('a line of the file')\n")
    done = iosim("--load", tmp_path / "mine.py", "count", "--N", 8, "--d", 4, "--M", "1KB", "--json")
    assert json.loads(done.stdout)["results"] and "a line of the file" in done.stderr


@pytest.mark.parametrize(
    ("line", "readers"),
    [
        (
            "tune --N 64 --d 16 --M 4KB --ring 3",
            "--ring changes nothing with these schedules; it is for state-ring, state-v",
        ),
        ("tune --N 64 --d 16 --M 4KB --rule gdn --top-k 3", "--top-k changes nothing"),
        (
            "bounds --N 64 --d 16 --M 4KB --chunk 8",
            "--chunk changes nothing with these schedules; it is for state-fused, ",
        ),
        ("count --pass step --N 64 --d 16 --M 4KB --top-k 3", "it is for selected, selected-keys-outside, indexer"),
        ("count --pass backward --N 64 --d 16 --M 4KB --splits 3", "it is for split-kv, paged-split-kv"),
        ("links --N 64 --d 16 --ranks 4 --chunk 8", "--chunk changes nothing with these schedules"),
        (
            "count --N 32 --d 16 --tiles 4x4 --schedule state-verify,paged --splits 3",
            "it is for split-kv, paged-split-kv",
        ),
    ],
)
def test_every_command_names_what_none_of_its_schedules_reads(iosim, line, readers):
    found = iosim(*line.split())
    assert found.exit_code == 0 and readers in found.stderr


def test_what_some_searched_schedule_reads_has_no_note(iosim):
    for line in ("tune --N 64 --d 16 --M 4KB --splits 3", "tune --rule gdn --decode --d 128 --drafts 2"):
        found = iosim(*line.split())
        assert found.exit_code == 0 and "changes nothing" not in found.stderr, line


def test_a_pass_that_does_not_exist_has_its_own_error(iosim):
    found = iosim("count", "--N", 64, "--d", 16, "--M", "4KB", "--pass", "forwards", "--top-k", 3)
    assert found.exit_code == 2 and "--pass: found 'forwards'; did you mean 'forward'?" in found.stderr
