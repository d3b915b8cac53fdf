"""Charts of traffic, of rows and of gaps: every point is one that was counted."""

import re

import pandas as pd
import pytest
from paths import DOCS, ROOT
from wings_here import skip_if_gone

import iosim as package
from iosim.core.tiling import Tiling
from iosim.counting.bounds import floor_of
from iosim.counting.count import count
from iosim.drawing.chart import shapes
from iosim.drawing.chart_svg import OUTLINES
from iosim.drawing.proven import FLOOR
from iosim.errors import InputError
from iosim.hardware import load
from iosim.pictures.mask import tile_map
from iosim.pictures.mask_text import describe
from iosim.pictures.traffic import from_rows, octaves, read_rows, rows_where, sheet_of_rows, traffic_chart
from iosim.pictures.tune_curve import LEAST, curve_sheet
from iosim.tuning.least import curve, tune


@pytest.mark.parametrize("mask", ["dense", "causal"])
def test_lines_are_counts(mask):
    chart = traffic_chart({"N": "512", "d": "32", "M": "8KB:64KB:x2", "mask": mask})
    lines = {line.label: line for line in chart.lines}
    for k, M in enumerate((8192, 16384, 32768, 65536)):
        report = count(N=512, d=32, M=M, mask=mask)
        assert lines["flash2, best tiles"].x[k] == M
        assert lines["flash2, best tiles"].y[k] == report["flash2"].total
        assert lines["flash1, paper tiles"].fits[k] == report["flash1", "paper"].fits
        known = {bound.name: bound for bound in report.bounds}
        assert lines["floor"].y[k] == known["floor"].words
        if mask == "dense":
            order = dict(zip(lines["N²d²/M (order only)"].x, lines["N²d²/M (order only)"].y, strict=True))
            assert (M in order) == known["N^2 d^2 / M"].valid
            assert M not in order or order[M] == known["N^2 d^2 / M"].words


def test_against_queries():
    chart = traffic_chart({"N": "256:1024:x2", "d": "32", "M": "16KB"}, ("flash2",))
    assert chart.x_name == "N" and chart.lines[0].x == [256, 512, 1024]
    assert chart.lines[0].y == [count(N=n, d=32, M="16KB")["flash2"].total for n in (256, 512, 1024)]


def test_the_sizes_chosen_reach_from_one_row_to_everything():
    sizes = octaves({"N": "1024", "d": "64"})
    assert sizes[0] == 1024 and sizes[-1] >= 4 * 1024 * 64 * 2 and len(sizes) > 60


def test_what_fits_nowhere_is_said_so():
    chart = traffic_chart({"N": "4096", "d": "64", "M": "8KB:16KB:x2"}, ("standard",))
    assert chart.lines[0].label == "standard (does not fit)"


# ---------------------------------------------------------------- rows


def rows(N=(64, 128), d=(8, 16), schedules=(), M=(1024, 4096, 16384), **more):
    skip_if_gone(["sweep"])
    return package.sweep(N=list(N), d=list(d), M=list(M), schedules=list(schedules), **more)


def test_lines_split_until_each_place_has_one_value():
    chart = from_rows(rows([256, 512], [16], ["flash1", "flash2"], [1024, 2048]), "M_bytes", "total", ("schedule",))
    assert len(chart.lines) == 6, "flash1 with two tilings and flash2, at two N"
    labels = {line.label for line in chart.lines}
    assert labels >= {"flash2, best tiles, N = 256", "flash1, paper tiles, N = 512 (does not fit)"}
    one = chart.line("flash2, best tiles, N = 512")
    assert one.y == [count(N=512, d=16, M=m)["flash2"].total for m in (1024, 2048)]


def test_a_sweep_over_two_axes_has_a_chart_for_each_problem():
    sheet = sheet_of_rows(rows(), "M_bytes", "total", ("schedule",))
    assert [chart.title for chart in sheet.charts] == [f"d = {d}, N = {N}" for N in (64, 128) for d in (8, 16)]
    for chart in sheet.charts:
        d, N = map(int, re.findall(r"\d+", chart.title))
        assert chart.line("flash2, best tiles").y == [count(N, d, M)["flash2"].total for M in (1024, 4096, 16384)]
    assert len(sheet.legend) == 5 and len({chart.frame["y"] for chart in sheet.framed}) == 1
    few = sheet_of_rows(rows(schedules=("flash2",)), "M_bytes", "total", ("schedule",))
    assert len(few.charts) == 1 and len(few.charts[0].lines) == 4, "a few lines stay in one chart"


@pytest.mark.parametrize("N, d, columns", [
    ((64, 128, 192), (8, 12, 16, 20), 4), ((64, 128, 192, 256), (8, 16), 2), ((64, 128), (8, 12, 16), 3),
    ((64, 128), (8, 10, 12, 14, 16), 3),
])  # fmt: skip
def test_values_of_the_inner_axis_stand_below_each_other(N, d, columns):
    """Five values have no room. Labels and the axis are those of the whole sheet, also where only the best tiles fit."""
    sheet = sheet_of_rows(rows(N, d, ("flash1", "flash2")), "M_bytes", "ratio_to_floor", ("schedule",))
    assert sheet.columns == columns and len({chart.is_log("y") for chart in sheet.framed}) == 1
    assert {line.label for line in sheet.lines} == {"flash1, paper tiles", "flash1, best tiles", "flash2, best tiles"}


def test_what_does_not_fit_is_dashed_and_hollow():
    found = rows([1024, 4096, 8192], [64, 128], ["flash1", "flash2", "standard"], ["16KB:256KB:x2"])
    sheet = sheet_of_rows(found, "M_bytes", "total", ("schedule",))
    found, text = shapes(sheet.lines), sheet.svg()
    assert all(text.count(OUTLINES[shape]) > 6 for shape in found.values() if shape != "circle")
    hollow = {*re.findall(r'<path transform="[^"]*" d="([^"]*)" fill="#fff"', text)}
    assert OUTLINES[found["standard"]] in hollow and OUTLINES[found["flash2, best tiles"]] not in hollow
    assert sheet.notes == ["dashed: needs more SRAM than M"] and 'stroke-dasharray="5 4"' in text


def test_a_column_that_follows_from_another_splits_nothing():
    """Nk is N in every row, so a picture against N has no chart for each Nk."""
    sheet = sheet_of_rows(rows((64, 96, 1024), (8, 16, 32), batch=3), "N", "total", ("schedule",))
    assert [chart.title for chart in sheet.charts] == [f"d = {d}, M = {M} KiB" for d in (8, 16, 32) for M in (1, 4, 16)]
    assert all(line.x == [64, 96, 1024] for chart in sheet.charts for line in chart.lines if line.label == "standard")


def test_too_much_says_what_to_fix_with_which_option():
    with pytest.raises(InputError, match="one b for each a"):
        from_rows(pd.DataFrame({"a": [1, 1], "b": [2, 3]}), "a", "b", ())
    with pytest.raises(InputError, match="at most 12 charts.*--where N=16 keeps the rows of one N; or draw -x N"):
        sheet_of_rows(rows(N=range(16, 160, 16)), "M_bytes", "total", ("schedule",))
    many = pd.concat([rows(N=[64], d=[8]).assign(schedule=f"s{k}") for k in range(3)], ignore_index=True)
    with pytest.raises(InputError, match="--by: found .45 lines.*at most 8 lines; keep the rows of fewer"):
        sheet_of_rows(many.assign(tiling=range(len(many))), "M_bytes", "total", ("tiling",))


def test_rows_of_some_values_are_drawn_where_all_are_too_many():
    found = rows(N=range(16, 160, 16))
    kept = rows_where(found, ["N=32,4K", "M_bytes=1KB,4096"])
    assert {*kept["N"]} == {32} and {*kept["M_bytes"]} == {1024, 4096}
    assert len(sheet_of_rows(rows_where(found, ["N=32"]), "M_bytes", "total", ("schedule",)).charts) <= 12
    assert {*rows_where(found, ["schedule=flash1,flash2"])["schedule"]} == {"flash1", "flash2"}
    for text, message in (
        ("N=5", "a N that is there: 16, 32"),
        ("N", "COLUMN=VALUE"),
        ("M=1", "did you mean 'M_bytes'"),
    ):
        with pytest.raises(InputError, match=f"^--where: .*{message}"):
            rows_where(found, [text])


def test_a_picture_of_rows_names_what_they_have_in_common():
    found = rows(N=[64], d=[8, 16]).assign(Nk=64, heads=4, kv_heads=2, batch=1, mask="causal", hardware=None)
    sheet = sheet_of_rows(found, "M_bytes", "total", ("schedule",))
    about = "N = 64, heads = 4, kv_heads = 2, fp16, mask causal"
    assert sheet.title == f"traffic, words, against M, bytes of SRAM: {about}"
    one = sheet_of_rows(found[found.d == 8].assign(mask="dense"), "M_bytes", "total", ())
    assert one.charts[0].title.endswith(": N = 64, d = 8, heads = 4, kv_heads = 2, fp16")


def test_one_M_is_a_picture_that_reaches_beyond_it(iosim, tmp_path):
    """The same lines as without M, and from half of it to twice as much, however small the problem."""
    chart = traffic_chart({"N": "64", "d": "8", "M": "1MB"}, ("flash2",))
    plain = traffic_chart({"N": "64", "d": "8"}, ("flash2",))
    assert max(plain.lines[0].x) < 2**20 and chart.frame["x"][1] >= 2**21
    assert (
        dict(zip(plain.lines[0].x, plain.lines[0].y, strict=True)).items()
        <= dict(zip(chart.lines[0].x, chart.lines[0].y, strict=True)).items()
    )
    done = iosim("plot", "--N", 64, "--d", 8, "--hardware", "h100", "-o", tmp_path / "a.svg")
    assert done.exit_code == 0 and "<svg" in (tmp_path / "a.svg").read_text()


def drawn(iosim, folder, text, x, y):
    (folder / "rows.csv").write_text(text)
    return iosim("plot", folder / "rows.csv", "-x", x, "-y", y, "-o", folder / "x.svg")


@pytest.mark.parametrize("axes", [("N", "total"), ("total", "N")])
def test_numbers_that_can_be_drawn_and_those_that_cannot(axes, iosim, tmp_path):
    for values in ("1e299,1e-299", "0,1e300", "-1e300,1e300", "1e-300,1e-299"):
        lines = "".join(f"{k},{value}\n" for k, value in enumerate(values.split(","), 1))
        done = drawn(iosim, tmp_path, "N,total\n" + lines, *axes)
        assert done.exit_code == 0 and "<svg" in (tmp_path / "x.svg").read_text(), done.output
    (tmp_path / "x.svg").unlink()
    for bad in ("inf", "-inf", "1e308", "-1e301", "1e-308", "2e-301"):
        done = drawn(iosim, tmp_path, f"N,total\n1,5\n2,{bad}\n3,1e-3\n", *axes)
        option = "-y" if axes[1] == "total" else "-x"
        assert done.exit_code == 2 and f"{option}: found " in done.stderr and not (tmp_path / "x.svg").exists()


def test_a_folder_of_parts_is_read_as_one_file(iosim, tmp_path):
    (tmp_path / "parts").mkdir()
    rows = [f"{n},{n * n}\n" for n in range(1, 7)]
    for k in range(3):
        (tmp_path / "parts" / f"part-{k:08d}.csv").write_text("N,total\n" + "".join(rows[2 * k : 2 * k + 2]))
    (tmp_path / "parts" / "_manifest.json").write_text("{}")
    (tmp_path / "rows.csv").write_text("N,total\n" + "".join(rows))
    for name in ("parts", "rows.csv"):
        assert iosim("plot", tmp_path / name, "-x", "N", "-y", "total", "-o", tmp_path / f"{name}.svg").exit_code == 0
    assert (tmp_path / "parts.svg").read_text() == (tmp_path / "rows.csv.svg").read_text()


def test_too_many_points_are_refused_before_they_are_counted(iosim, tmp_path):
    result = iosim("plot", "--N", "1:1000000:+1", "--d", 64, "--M", "100KB", "-o", tmp_path / "x.svg")
    assert result.exit_code == 2 and "5000000 points; allowed: at most 100000" in result.stderr.replace("'", "")
    done = drawn(iosim, tmp_path, "N,total\n" + "".join(f"{k},{k}\n" for k in range(100_001)), "N", "total")
    assert done.exit_code == 2 and "100001 points" in done.stderr


@pytest.mark.parametrize(
    "given, meant", [("M", "M_bytes"), ("bytes", "total_bytes"), ("words", "total"), ("totl", "total")]
)
def test_a_column_by_another_name(given, meant):
    rows = pd.DataFrame({"M_bytes": [1], "M_words": [1], "read_bytes": [1], "total_bytes": [1], "total": [1]})
    with pytest.raises(InputError, match=f"did you mean '{meant}'"):
        from_rows(rows, given, "total", ())


# ---------------------------------------------------------------- the gap


def test_the_gap_is_what_is_counted():
    sheet = curve_sheet(curve(256, 16))
    words, ratios = sheet.charts
    p = package.Attention(256, 16)
    assert all(chart.shaded == (LEAST, FLOOR) for chart in sheet.charts)
    least, floor, share = words.line(LEAST), words.line(FLOOR), ratios.line(LEAST)
    assert least.x == floor.x == share.x
    steps = [step.M_bytes for step in curve(256, 16).steps if step.M_bytes >= least.x[0]]
    assert {M - 1 for M in steps[1:]} | {*steps} <= {*least.x}, "each step has its first and its last byte"
    for k in range(0, len(least.x), 61):
        M = int(least.x[k])
        assert least.y[k] == tune(256, 16, M).winner.total and floor.y[k] == floor_of(p, M, "attention")
        assert share.y[k] == least.y[k] / floor.y[k] >= 1
    for name in ("flash1", "flash2", "standard-tiled"):
        line = words.line(name)
        for M, total in list(zip(line.x, line.y, strict=True))[::67]:
            assert count(256, 16, int(M), schedules=name, tiles="best")[name].total == total
    ideal, needs = words.line("standard"), count(256, 16, "1MB", schedules="standard")["standard"].sram_peak_bytes
    assert [x >= needs for x in ideal.x] == ideal.fits and False in ideal.fits and len(set(ideal.y)) == 1


def test_schedules_that_move_alike_share_a_line():
    labels = [line.label for line in curve_sheet(curve(256, 16)).charts[0].lines if line.kind == "data"]
    assert len(labels) <= 6 and "flash2" in labels and "paged" not in labels and "split-kv" not in labels


def test_the_picture_of_the_readme_is_what_the_tool_draws():
    """`iosim plot --picture gap --N 8192 --d 128 -o docs/gap.svg`."""
    first = re.search(r"!\[[^\]]*\]\((?!https://img.shields.io)([^)]*)\)", (ROOT / "README.md").read_text())
    assert first[1] == "docs/gap.svg"  # after the badges
    if not (DOCS / "gap.svg").exists():
        pytest.skip("a package without the pictures of the README")
    assert curve_sheet(curve(8192, 128)).svg() == (DOCS / "gap.svg").read_text()


# ---------------------------------------------------------------- masks


def test_shares_of_a_mask_by_hand():
    """causal, 5 x 5 tokens in tiles of 2 x 2: the diagonal tiles see 3 of 4 pairs, the corner of one token all."""
    tiles = tile_map("causal", 5, None, Tiling(2, 2))
    assert tiles.shares.tolist() == [[0.75, 0, 0], [1, 0.75, 0], [1, 1, 1]]
    assert "6 of 9 tiles active" in tiles.title
    assert tile_map("dense", 10, 4, Tiling(4, 3)).shares.tolist() == [[1, 1]] * 3


def test_active_tiles_and_densities_are_those_of_the_shares():
    for mask in ("causal&window:9", "global:3|strided:7", "~causal", "window:1b"):
        shares, row = tile_map(mask, 50, 40, Tiling(8, 9)).shares, describe(mask, Tiling(8, 9), 50, 40)
        assert int((shares > 0).sum()) == row["active_tiles"] and row["tile_density"] == (shares > 0).mean()
        heights, widths = [8] * 6 + [2], [9] * 4 + [4]
        pairs = sum(
            s * h * w for line, h in zip(shares, heights, strict=True) for s, w in zip(line, widths, strict=True)
        )
        assert round(pairs) == row["visible_pairs"] and row["token_density"] == row["visible_pairs"] / 2000


def test_a_picture_sees_the_options_of_a_schedule():
    """Each option changes the words, so a picture that left it out would differ."""
    for name, options in (("split-kv", {"splits": "7"}), ("paged", {"page_size": "3"}), ("flash2", {"gqa": "pack"})):
        values = {"N": "64,128", "d": "8", "M": "4KB", "heads": "4", "kv_heads": "2"}
        plain, given = (traffic_chart({**values, **more}, (name,), "best").lines[0].y for more in ({}, options))
        assert plain != given, name


def test_a_picture_against_n_needs_no_sram():
    chart = traffic_chart({"N": "64,128", "d": "8"}, ("flash2",), "8x8")
    assert "M =" not in chart.title and [line.kind for line in chart.lines] == ["data", "floor"]


@pytest.mark.parametrize(
    "options, floors",
    [({"splits": "1,4", "schedules": "split-kv"}, 1), ({"kv_dtype": "fp8,fp16"}, 2), ({"register_bytes": "0,64K"}, 2)],
    ids=str,
)
def test_any_option_may_split_the_lines_of_a_picture(options, floors):
    """There is one line of the floor, unless the option changes it."""
    text = package.plot(N="1024:4096:x2", d=64, M="100KB", **{"schedules": "flash2", **options}).svg()
    assert len(set(re.findall(rf"{next(iter(options))} = (\w+)", text))) == 2 and text.count(">floor") == floors


def test_a_title_names_the_options_of_its_problem():
    ask = {"N": "1024,2048", "d": 128, "M": "100KB", "schedules": "flash2"}
    titles = {package.plot(**ask, **more).drawn.title for more in ({}, {"heads": 4}, {"Nk": 512}, {"kv_dtype": "fp8"})}
    assert len(titles) == 4


def test_counts_above_int64_are_drawn(tmp_path, iosim):
    line = ("--N", "1073741824,64", "--d", 1024, "--heads", 1024, "--M", "1KB", "--schedule", "standard")
    assert iosim("sweep", *line, "-o", tmp_path / "x.csv").exit_code == 0
    (line,) = from_rows(read_rows(str(tmp_path / "x.csv")), "N", "total", ()).lines
    assert line.x == [64, 2**30] and line.y[1] == pytest.approx(4722370986469272584192) and line.y[0] < 2**40


def test_a_picture_has_the_conditions_of_a_gpu():
    asked = {"N": "1024,2048", "d": 64, "schedules": "flash2"}
    chart, paper = package.plot(**asked, hardware="h100"), package.plot(**asked, hardware="h100", paper_model=True)
    assert chart.notes and "fp32 accumulators" in chart.notes[0]
    assert paper.svg() != chart.svg() and paper.svg() == package.plot(**asked, M=load("h100").sram_bytes).svg()
