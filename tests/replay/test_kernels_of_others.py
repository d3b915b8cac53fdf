"""What docs/explain.md says of kernels that nobody here wrote is what validation/kernels/counted.csv has."""

import csv
import re
import tomllib

from paths import DOCS, VALIDATION

import iosim

PAGE = (DOCS / "explain.md").read_text()
with open(VALIDATION / "kernels" / "counted.csv") as file:
    ROWS = list(csv.DictReader(file))
LAUNCHES = tomllib.loads((VALIDATION / "kernels" / "launches.toml").read_text())


def test_every_launch_has_an_answer():
    launched = [(p["version"], one["file"], one["kernel"]) for p in LAUNCHES.values() for one in p["launch"]]
    assert [(row["package"], row["file"], row["kernel"]) for row in ROWS] == launched
    assert {row["answer"] for row in ROWS} == {"counted", "refused"} and max(float(row["seconds"]) for row in ROWS) < 1
    assert [row["why"] for row in ROWS if row["answer"] == "counted" and row["why"]] == []


def test_the_table_of_the_page():
    rows = re.findall(r"^\| ([^|]+) \| (\d+) \| (\d+) \| (\d+)[^|]* \|$", PAGE, re.M)
    assert [row[0] for row in rows] == [p["version"] for p in LAUNCHES.values()]
    for version, launches, counted, refused in rows:
        answers = [row["answer"] for row in ROWS if row["package"] == version]
        assert (len(answers), answers.count("counted"), answers.count("refused")) == (
            int(launches),
            int(counted),
            int(refused),
        )
    assert all("tl.float32(" in row["why"] for row in ROWS if row["answer"] == "refused")


def test_the_words_of_attention_are_those_of_its_schedule():
    words = LAUNCHES["dao"]["launch"][0]["words"]
    found = iosim.count(N=2048, d=128, heads=4, mask="causal", tiles="128x128", schedules=["block-sparse-q"])[
        "block-sparse-q"
    ]
    assert {name: list(row.values()) for name, row in found.tensors.items()} == {
        "O" if n == "Out" else n: words[n] for n in ("Q", "K", "V", "Out")
    }
    turns = sum(range(1, 2048 // 128 + 1)) * 4
    assert words["TMP"] == [128 * (turns + 64)] * 2 == [77_824] * 2 and "77,824 words each way" in PAGE
