"""The bound on partial sectors, against the requests of kernels that run on the CPU, and against hardware that was
measured (issue of packed split-kv, found on an H200)."""

import on_cpu
import pytest

from iosim import SCHEDULES, Attention, Tiling
from iosim.core.dependent_tiles import Moved, Share
from iosim.gpu.cuda.copies import words_between
from iosim.gpu.cuda.machine import generate
from iosim.gpu.cuda.record import SymbolicTile
from iosim.gpu.cuda.sectors import partial_sectors
from iosim.gpu.jobs import ScheduleJob
from iosim.gpu.moved import moved
from iosim.gpu.outputs import example_inputs
from iosim.hardware import SECTOR_BYTES
from iosim.schedules import find
from validation.random_rows import ON_CPU, Range, draw

pytestmark = pytest.mark.skipif(bool(on_cpu.WHY_NOT), reason=on_cpu.WHY_NOT)

LARGER = Range(100, 300, 4, 12, 1e6)
LATENT = {"latent": True, "kv_heads": 1, "gqa": "pack"}
# problem, tiles, and the bytes that an H200 read beyond the words
MEASURED = [
    (Attention(1, 80, heads=16, dv=64, Nk=2680, **LATENT), Tiling(16, 64), 128),
    (Attention(64, 192, heads=64, dv=128, Nk=5061, **LATENT), Tiling(16, 64), 32_768),
    (Attention(100, 128, heads=16, dtype="bf16", kv_heads=4, Nk=8452, gqa="pack", splits=9), Tiling(16, 32), 28_800),
]


@pytest.mark.parametrize("p, tiling, beyond", MEASURED)
def test_the_bound_of_packed_heads_is_what_the_hardware_read(p, tiling, beyond):
    """The second kernel has no product, so its teams have 8 rows: 8 words of an LSE in fp16 are half a sector."""
    assert partial_sectors(find("split-kv"), p, tiling) == (beyond, 0)


def test_rows_of_48_bytes_that_are_copied_asynchronously():
    """A warp copies each row of Q in three pieces of 16 bytes, and every second row begins in the middle of a sector. An
    H100 counted 4,125,440 bytes beyond the words, more than the sectors that the pieces touch."""
    latent = {"latent": True, "kv_dtype": "fp8", "kv_scales": "16", "gqa": "pack"}
    p = Attention(40, 24, Nk=9000, dv=16, dtype="bf16", acc_dtype="fp32", **latent)
    assert 4_125_440 <= partial_sectors(find("flash1"), p, Tiling(7, 7)).read_bytes < 5_000_000


def ran(jobs, folder, steps=True):
    """Each job after a run on the CPU: (job, its program, inputs of each instance, outputs, words, sectors)."""
    made = [generate(find(job.name), job.problem, job.tiling, count=True) for job in jobs]
    library = on_cpu.build(made, folder, requests=True, steps=steps)
    for k, (job, program) in enumerate(zip(jobs, made, strict=True)):
        inputs, instances = example_inputs(find(job.name), program, k, on_cpu.rounded)
        outputs, words, _ = on_cpu.run(library, k, program, inputs)
        yield job, program, instances, outputs, words, on_cpu.sectors_moved(library, program)


def beyond_words(runs):
    """(job, bytes that partial sectors add on the CPU, the bound), each (read, written)."""
    for job, _, _, _, words, sectors in runs:
        said = moved(find(job.name), job.problem.packed, job.tiling)
        assert words == said.tensors, job
        read, written = (SECTOR_BYTES * sum(pair[way] for pair in sectors.values()) for way in (0, 1))
        found = read - said.read_bytes, written - said.write_bytes
        yield job, found, partial_sectors(find(job.name), job.problem, job.tiling)


def check(rows):
    """The rows whose bound is what the kernel touched, after none was found outside its bound."""
    met = []
    for job, found, bound in rows:
        assert all(0 <= one <= most for one, most in zip(found, bound, strict=True)), (job, found, bound)
        met += [job] if found == tuple(bound) else []
    return met


@pytest.fixture(scope="module")
def drawn():
    """A random row of each schedule."""
    return list(draw(34, len(SCHEDULES), ON_CPU))


@pytest.fixture(scope="module", params=[pytest.param(0, marks=pytest.mark.long), 1], ids=["even", "odd"])
def random_rows(request, drawn, tmp_path_factory):
    """Every second random row, after its run on the CPU."""
    return list(ran(drawn[request.param :: 2], tmp_path_factory.mktemp("rows")))


def test_no_request_of_a_random_row_touches_more_than_the_bound(random_rows):
    """All schedules and options. The bound is met exactly where the place of each tile in a sector is known."""
    met = check(beyond_words(random_rows))
    assert len(met) >= len(random_rows) / 3


def test_outputs_of_a_random_row_are_those_of_the_same_steps(random_rows):
    """All schedules and options: no false alarm, and nearly all outputs are equal to the bit."""
    rows = [(job, on_cpu.slope(job, program, outputs, made)) for job, program, made, outputs, *_ in random_rows]
    assert all(found.bias <= found.allowed_bias for _, found in rows), rows
    assert sum(found.bias < 1e-6 for _, found in rows) > 0.8 * len(rows)


def test_the_shapes_of_packed_split_kv_on_the_cpu(tmp_path):
    """The first of the measured shapes, and the layout of the others with fewer keys and heads."""
    small = [
        MEASURED[0][0],
        Attention(4, 192, heads=8, dv=128, Nk=61, **LATENT),
        Attention(20, 128, heads=4, dtype="bf16", kv_heads=1, Nk=52, gqa="pack", splits=9),
    ]
    jobs = [ScheduleJob("split-kv", p, tiling) for p, (_, tiling, _) in zip(small, MEASURED, strict=True)]
    rows = list(beyond_words(ran(jobs, tmp_path)))
    assert check(rows) == jobs and rows[0][1] == (128, 0) and all(found[0] > 0 for _, found, _ in rows)


@pytest.mark.long
@pytest.mark.parametrize("seed, sizes", [(9, ON_CPU), *((seed, LARGER) for seed in range(100, 104))])
def test_many_random_rows(tmp_path, seed, sizes):
    """No request touches more than the bound, and outputs are those of the same steps."""
    rows = list(ran(list(draw(seed, 54, sizes)), tmp_path))
    check(beyond_words(rows))
    for job, program, made, outputs, *_ in rows:
        found = on_cpu.slope(job, program, outputs, made)
        assert found.bias <= found.allowed_bias, (job, found)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_no_request_of_many_random_rows_touches_more_than_the_bound(tmp_path, seed):
    """Tile steps touch only the chip, so none is compiled."""
    check(beyond_words(ran(list(draw(seed, 153, ON_CPU)), tmp_path, steps=False)))


def test_heads_that_do_not_begin_at_a_sector_may_cost_more():
    """15 x 17 words of fp16 are 510 bytes: the first head begins at a sector, the second one in the middle of one."""
    one, two, three = (partial_sectors(find("flash2"), Attention(15, 17, heads=n), Tiling(16, 16)) for n in (1, 2, 3))
    assert two.read_bytes > 2 * one.read_bytes
    assert three.read_bytes > two.read_bytes + one.read_bytes
    shared = Attention(15, 17, heads=4, kv_heads=2)
    four = partial_sectors(find("flash2"), Attention(15, 17, heads=4), Tiling(16, 16))
    assert 0 < partial_sectors(find("flash2"), shared, Tiling(16, 16)).read_bytes < four.read_bytes


def test_the_starts_of_parts_of_an_axis():
    """A share of 5 positions begins at a multiple of 5. Tile i of share c, moved by 12 c + i, begins at one of 4."""
    share = SymbolicTile(4, 1, 1, None, 0)
    tile = SymbolicTile(12, 4, 4, None, 0)
    assert words_between(Share(20, 5, share)) == 5 and words_between(tile) == 4
    assert words_between(Moved(48, tile, ((12, share), (1, tile)))) == 4
    assert words_between(SymbolicTile(12, 16, 12, None, 0)) == 0, "the only tile begins at 0"
    assert words_between(17) == 0
