"""A count from Python: what a Report is, and the messages for a wrong keyword or value."""

import pickle

import pytest

from iosim import InputError, count
from iosim.tuning.least import tune


@pytest.fixture
def report():
    return count(1024, 64, "32KB", schedules=["flash1", "flash2"])


def test_a_report_is_a_collection_of_results(report):
    assert list(report) == report.results and len(report) == 3
    assert "flash1" in report and ("flash1", "paper") in report and report.results[0] in report
    assert "flash3" not in report and ("flash2", "paper") not in report and 7 not in report
    assert len({*report, *report}) == 3, "results can be members of a set"


def test_of_several_tilings_the_first_that_fits(report):
    assert not report["flash1", "paper"].fits and report["flash1"] is report["flash1", "best"]
    nothing = count(1024, 64, "256", schedules=["flash1"])
    assert nothing["flash1"] is nothing["flash1", "paper"], "where none fits, the first"


@pytest.mark.parametrize("key", ["flash3", ("flash1", "given"), 7])
def test_a_key_that_is_not_there(report, key):
    with pytest.raises(KeyError, match=r"there is \('flash1', 'paper'\), \('flash1', 'best'\), \('flash2', 'best'\)"):
        report[key]


def test_the_name_of_another_program_gets_the_key_here(report):
    with pytest.raises(KeyError, match="'fa2' was not counted; did you mean 'flash2'"):
        report["fa2"]


@pytest.mark.parametrize("names", ["flash2", "flash2,flash1", ["flash2"], ("flash2,flash1", "flash2"), "FLASH2"])
def test_names_of_schedules(names):
    found = count(64, 8, tiles="8x8", schedules=names)
    assert [r.schedule for r in found] == ["flash2", "flash1"][: len(found)] and len(found) == 1 + (
        "flash1" in str(names)
    )


WRONG = [
    ({"tile": "8x8"}, "did you mean 'tiles'"),
    ({"schedul": "flash2"}, "did you mean 'schedule'"),
    ({"head": 2}, "did you mean 'heads'"),
    ({"N": "64"}, "without quotes"),
    ({"heads": "2"}, "without quotes"),
    ({"schedules": "flash"}, "did you mean 'flash"),
    ({"N": 0}, "from 1"),
]


@pytest.mark.parametrize("fields, message", WRONG, ids=str)
def test_what_is_wrong_is_said(fields, message):
    for function in (count, tune):
        if function is tune and "tile" in fields:
            continue
        with pytest.raises(InputError, match=message) as fault:
            function(**{"N": 64, "d": 8, "M": "4KB", **fields})
        assert isinstance(fault.value, ValueError)


def test_an_error_travels_between_processes():
    """A pool of processes sends errors pickled, and hangs if one cannot be unpickled."""
    with pytest.raises(InputError) as caught:
        count(N=0, d=64, M=1000)
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is InputError and str(again) == str(caught.value) and again.where == caught.value.where


@pytest.mark.parametrize("names", ["flash1,flash2", "FLASH1, flash2"])
def test_a_list_of_schedules_is_one_everywhere(names, ask):
    size = ("--N", 64, "--d", 8, "--schedule", names)
    assert {r["schedule"] for r in ask("count", *size, "--M", "4KB")["results"]} == {"flash1", "flash2"}
    assert {r["check"] for r in ask("verify", "--cpu", *size)["checks"]} == {"flash1", "flash2"}
    assert {r["schedule"] for r in ask("tune", *size, "--M", "4KB")["results"]} == {"flash1", "flash2"}
