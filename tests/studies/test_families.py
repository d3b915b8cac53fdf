"""Times compare only what computes the same: schedules of one family, and options that change the work."""

import re

from wings_here import skip_if_gone

import iosim as package

H100 = ("--N", 8192, "--d", 128, "--heads", 32, "--hardware", "h100")


def test_each_family_of_a_roofline_has_its_bound(iosim):
    text = iosim("roofline", *H100, "--schedule", "flash2,flash1,state-fused").stdout
    lead = text.split("attention: N")[0]
    assert [line.split()[0] for line in lead.splitlines() if "takes at least" in line] == ["flash2", "state-fused"]
    assert not any("state-fused" in line and "flash" in line for line in text.splitlines() if " takes " in line)


def test_a_bound_above_a_measured_time_names_its_schedule(iosim):
    """The measured kernel does less: it stores neither S nor P."""
    for name, of in (("standard-tiled", " of standard-tiled"), ("flash2", "")):
        text = iosim("roofline", *H100, "--schedule", name).stdout
        (ratio,) = re.findall(r"torch-cudnn [\d,.]+ us \(([\d.]+) times the bound" + of + r"\)", text)
        assert (float(ratio) < 1) == bool(of)


def test_a_title_names_the_options_of_its_problem():
    skip_if_gone(["plot"])
    asked = {"picture": "roofline", "N": 1024, "d": 128, "hardware": "h100", "schedules": "block-sparse-q"}
    titles = {package.plot(**asked, **more).drawn.title for more in ({}, {"mask": "causal"}, {"dv": 64})}
    assert len(titles) == 3
