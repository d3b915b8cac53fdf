"""validation/kernels/interpreted_drawn.py tells loads that the compiler leaves out from mistakes of iosim."""

from math import prod

import pytest

pytestmark = pytest.mark.needs("triton")
KERNEL = """
import triton
import triton.language as tl


@triton.jit
def sums(X, W, Y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + at, mask=at < n)
    unused = tl.load(W + at, mask=at < n)
    again = tl.load(X + at, mask=at < n)
    tl.store(Y + at, x + again, mask=at < n)
"""


@pytest.fixture
def found(tmp_path, monkeypatch):
    """The rows of a kernel with a load that is not used and one that is made twice, by what iosim says of it."""
    import interpreted_drawn

    import iosim
    from iosim.kernels.explain import Question, explained
    from iosim.kernels.read.kernel import Configuration, KernelLaunch
    from iosim.kernels.read.kernel_file import kernel_of

    file = tmp_path / "sums.py"
    file.write_text(KERNEL)
    kernel = kernel_of(str(file), "sums")
    values = {**dict.fromkeys("XWY", iosim.tensor("fp32", (300,))), "n": 300, "BLOCK": 64}

    def rows(change=lambda answer: answer):
        def said():
            launch = KernelLaunch(kernel, (4,), values, 4, 3)
            return change(explained(launch, Configuration(), Question(resources=False)))

        asked = interpreted_drawn.Asked(str(file), "sums", (4, 1, 1), values, kernel.constants)
        small = interpreted_drawn.Small(asked, kernel, prod(asked.grid), said)
        return interpreted_drawn.rows_of(iter([small]), {}, tmp_path)

    return rows


def test_a_load_that_the_compiler_leaves_out_has_its_line(found):
    rows = {(row["argument"], row["way"]): row for row in found()}
    assert {key: (row["words"], row["iosim_words"], row["verdict"]) for key, row in rows.items()} == {
        ("W", "reads"): (256, 0, "fewer"),
        ("X", "reads"): (512, 256, "fewer"),
        ("Y", "writes"): (256, 256, "same"),
    }
    assert rows["W", "reads"]["why"] == ("sums.py, line 10 `unused = tl.load(W + at, mask=at < n)`: 256 words less")
    assert rows["X", "reads"]["why"].startswith("sums.py, line 11 `again = ")


def test_a_count_that_is_wrong_is_told(found):
    from dataclasses import replace

    def wrong(answer):
        """An answer in which a store moves one word less."""
        y = answer.ways["Y"]
        less = {**y, "writes": replace(y["writes"], words=y["writes"].words - 1)}
        return replace(answer, ways={**answer.ways, "Y": less})

    verdicts = {row["argument"]: row["verdict"] for row in found(wrong)}
    assert verdicts == {"W": "fewer", "X": "fewer", "Y": "different"}
