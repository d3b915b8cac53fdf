"""Messages about a grid name one of its points, and no array."""

import pytest


@pytest.mark.parametrize(
    "line, said",
    [
        (("--N", "1,2,40", "--Nk", "1,2,30", "--schedule", "selected"), "--top-k: found '16'; allowed: 1 with"),
        (
            ("--N", "40,2", "--Nk", "30", "--schedule", "indexer", "--top-k", 64),
            "--top-k: found '64'; allowed: 30 with",
        ),
        (("--N", "1,40", "--Nk", "40,30", "--schedule", "cache-write"), "--N: found '40'; allowed: 30 with"),
        (("--N", 8, "--dv", 16, "--latent", "--schedule", "flash2"), "--dv: found 16; allowed: at most --d 8 with"),
        (("--N", 8, "--heads", "6,4", "--kv-heads", "2,4"), "--kv-heads: found 4; allowed: a divisor of --heads 6"),
    ],
)
def test_a_message_names_one_point(line, said, iosim):
    result = iosim("sweep", "--d", "64,8", "--tiles", "16x16", *line)
    assert result.exit_code == 2 and said in result.stderr and "[" not in result.stderr, result.output
