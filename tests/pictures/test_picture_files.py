"""Pictures in files of other forms: what they need, and a disk without room."""

import subprocess
import sys

import pytest
from paths import ROOT


def test_a_picture_without_vl_convert(tmp_path):
    """The exit code is 3 and there is one message, whether or not vl-convert is installed here."""
    code = "import sys; sys.modules['vl_convert'] = None\nfrom iosim.commands.cli import main; main(sys.argv[1:])"
    file = tmp_path / "x.png"
    args = [sys.executable, "-c", code, "plot", "--picture", "gap", "--N", "64", "--d", "8", "-o", str(file)]
    done = subprocess.run(args, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 3 and "iosim[plot]" in done.stderr and done.stdout == "" and not file.exists()


@pytest.mark.parametrize("kind, head", [("png", b"\x89PNG"), ("svg", b"<?xml")])
@pytest.mark.needs("vl_convert")
def test_a_picture(iosim, tmp_path, kind, head):
    file = tmp_path / f"x.{kind}"
    assert iosim("plot", "--picture", "gap", "--N", 256, "--d", 16, "-o", file).exit_code == 0
    assert file.read_bytes().startswith(head) and file.stat().st_size > 10_000


@pytest.mark.parametrize("kind", ["png", "svg"])
@pytest.mark.needs("vl_convert")
def test_a_picture_that_does_not_fit_the_disk_leaves_the_older_one(tmp_path, kind):
    """A file may have 4 KiB here. One message, the older picture as it was, and no part of the new one."""
    limit = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    limit += "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
    code = limit + "import sys; from iosim.commands.cli import main; main(sys.argv[1:])"
    for older in (b"older picture", None):
        file = tmp_path / f"{older is None}.{kind}"
        if older is not None:
            file.write_bytes(older)
        args = [sys.executable, "-c", code, "plot", "--picture", "gap", "--N", "256", "--d", "16", "-o", str(file)]
        done = subprocess.run(args, capture_output=True, text=True, cwd=ROOT)
        assert done.returncode == 2 and done.stderr.startswith("Error: -o: found") and done.stdout == ""
        assert (file.read_bytes() if file.exists() else None) == older
    assert [path.name for path in tmp_path.iterdir()] == [f"False.{kind}"]
