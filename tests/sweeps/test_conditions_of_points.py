"""What a GPU implies is implied at each point of a sweep."""

import json

import iosim as package

GPU = "h100"


def test_a_sweep_in_a_file_and_over_gpus(tmp_path, iosim):
    """Every point has the conditions, of each type its own; the file may ask for the paper's model."""
    file = tmp_path / "grid.toml"
    file.write_text('N = 1024\nd = 64\nhardware = ["t4", "h100"]\ndtype = ["fp16", "fp32"]\nschedule = "flash2"\n')
    out = iosim("sweep", file, "--json")
    rows = [json.loads(row) for row in out.stdout.splitlines()]
    assert [r["acc_dtype"] for r in rows] == ["fp32"] * 4 and all(r["Br"] % 16 == 0 == r["Bc"] % 16 for r in rows)
    assert out.stderr.count("--hardware implies fp32 accumulators and best tiles") == 1
    assert {r["total"] for r in rows if r["hardware"] == "h100" and r["dtype"] == "fp16"} == {
        package.tune(1024, 64, hardware=GPU, schedules="flash2").results[0].total
    }
    file.write_text(file.read_text() + "paper_model = true\n")
    assert iosim("sweep", file, "--json").stdout != out.stdout
    assert '"acc_dtype":"fp16"' in iosim("sweep", file, "--json").stdout
    file.write_text(file.read_text().replace("true", "1"))
    assert "true or false" in iosim("sweep", file).stderr


def test_a_sweep_of_tune_asks_the_gpu(iosim):
    """Published tiles, and the goals of tune, are those of the GPU at each point."""
    line = ("--N", 1024, "--d", 64, "--hardware", GPU, "--schedule", "flash2", "--json")
    labels = [json.loads(row)["label"] for row in iosim("sweep", "--what", "tune", *line).stdout.splitlines()]
    assert "FlashAttention-3" in labels
    goal = iosim("sweep", "--what", "tune", *line, "--at-most", "1MB")
    (row,) = map(json.loads, goal.stdout.splitlines())
    assert row["Br"] % 16 == 0 and row["acc_dtype"] == "fp32"
