"""Files that a user names and that are none: devices without end, TOML that is nested too deep, a program that ends."""

import pytest


@pytest.mark.parametrize("args", [("count", "--N", 64, "--d", 16, "--hardware", "{}")])
@pytest.mark.parametrize("text", ["a = " + "[" * 5000 + "]" * 5000, "a = " + "{b=" * 5000 + "1" + "}" * 5000])
def test_toml_that_is_nested_too_deep_is_one_message(iosim, tmp_path, args, text):
    """All TOML goes through one reader."""
    (tmp_path / "deep.toml").write_text(text)
    done = iosim(*(str(tmp_path / "deep.toml") if arg == "{}" else arg for arg in args))
    assert done.exit_code == 2 and "lists nested too deep" in done.stderr and "Traceback" not in done.stderr


def test_the_one_reader_of_toml_is_in_one_place():
    from paths import ROOT

    users = [file.name for file in (ROOT / "iosim").rglob("*.py") if "import tomllib" in file.read_text()]
    assert users == ["reading.py"]


def test_a_file_of_load_that_ends_the_program_is_a_fault(iosim, tmp_path):
    (tmp_path / "ends.py").write_text("raise SystemExit(0)\n")
    done = iosim("count", "--N", 64, "--d", 16, "--M", "4KB", "--load", tmp_path / "ends.py")
    assert done.exit_code == 2 and done.stdout == "" and "it ends the program: SystemExit(0)" in done.stderr


def test_a_text_of_too_many_bytes_is_not_read(tmp_path):
    from iosim.reading import Unreadable, read_text

    (tmp_path / "long.txt").write_text("x" * 11)
    assert read_text(tmp_path / "long.txt", 11) == "x" * 11
    with pytest.raises(Unreadable, match="more than 10 bytes"):
        read_text(tmp_path / "long.txt", 10)


def test_a_name_with_a_null_byte_is_one_message(iosim):
    done = iosim("sweep", "\0", "--N", 4)
    assert done.exit_code == 2 and "no null byte" in done.stderr and "Traceback" not in done.output
