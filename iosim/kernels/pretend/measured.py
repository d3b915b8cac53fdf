"""Measurements of a script: what is timed is called once, and benchmarks run at their first and last sizes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from types import ModuleType

from .cuda import SECONDS, TIMED, saying

VIEWER = "triton.profiler.viewer"


@contextmanager
def measures_pretended(tell: Callable[[str], None], tell_line: Callable[[str], None]) -> Iterator[None]:
    """A context in which `triton.testing` measures nothing. `tell` is called with a note on sizes that are left out,
    `tell_line` with one on times."""
    from unittest import mock

    from triton import testing

    def once(function: Callable[[], object], *values: object, **named: object) -> float | list[float]:
        function()
        tell_line(TIMED)
        parts = named.get("quantiles")
        return SECONDS if not isinstance(parts, Sequence) or len(parts) == 1 else [SECONDS] * len(parts)

    def run(mark, *values, **named):  # type: ignore[no-untyped-def]
        own = {key: value for key, value in named.items() if key not in ("show_plots", "print_data", "save_path",
               "return_df", "diff_col", "save_precision")}  # fmt: skip
        every = [mark.benchmarks] if isinstance(mark.benchmarks, testing.Benchmark) else mark.benchmarks
        for bench in every:
            sizes = list(bench.x_vals)
            name = bench.plot_name or mark.fn.__name__
            if len(sizes) > 2:
                tell(f"benchmark {name}: the first and the last of its {len(sizes)} sizes")
            for x in sizes if len(sizes) < 3 else (sizes[0], sizes[-1]):
                xs = x if isinstance(x, list | tuple) else [x] * len(bench.x_names)
                for y in bench.line_vals:
                    mark.fn(**dict(zip(bench.x_names, xs, strict=True)), **{bench.line_arg: y}, **bench.args, **own)

    with ExitStack() as stack:
        for name in ("do_bench", "do_bench_cudagraph"):
            stack.enter_context(mock.patch.object(testing, name, once))
        stack.enter_context(mock.patch.object(testing.Mark, "run", run))
        with suppress(ImportError):
            profiler = import_module("triton.profiler")
            for name in ("start", "finalize", "activate", "deactivate"):
                stack.enter_context(mock.patch.object(profiler, name, saying(0)))
            viewer = ModuleType(VIEWER)
            vars(viewer).update(parse=saying((None, [])), read=saying((None, [])), print_tree=saying(None))
            before = sys.modules.get(VIEWER)
            sys.modules[VIEWER] = viewer
            stack.callback(lambda: sys.modules.pop(VIEWER) if before is None else sys.modules.update({VIEWER: before}))
            stack.enter_context(mock.patch.object(profiler, "viewer", viewer, create=True))
        yield
