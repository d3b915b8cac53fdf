"""Catches what `torch.compile` makes of a script: the code that Inductor writes, for a GPU that is not there.

PyTorch traces the script with pretended tensors, which lie on the CPU (pretend/tensors.py). Its graphs are then moved
to a GPU, and lowered by Inductor up to the code, which is kept and not run. The graph itself runs in its place, so the
script goes on. Where PyTorch traces another operator on a GPU than on a CPU, the graph gets that of the GPU
(`FORMS_OF_GPU`).

Parts of PyTorch that are replaced have no promise to stay. So only the releases of TESTED are taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...errors import InputError, IosimError, MissingError
from ..pretend.values import VALUES
from ..read.faults import paused

if TYPE_CHECKING:
    from ..walk.numbers import Elements

TESTED = ("2.13",)
SHOWN = 300  # characters of PyTorch's message
NO_AUTOCAST = (
    "torch.autocast: its rules for a GPU are not known here; cast the model and its inputs, as .to(torch.bfloat16)"
)


@dataclass
class Graph:
    """A graph that Inductor compiled: its code, and how often the script ran it."""

    code: str
    backward: bool
    line: int
    """The line of the script that called the compiled function."""
    runs: int = 0
    data: dict[str, Elements] = field(default_factory=dict)
    """{input: its integers} at the first run, where the script's tensor keeps them."""


@dataclass
class Compilations:
    """What `torch.compile` made of a script."""

    graphs: list[Graph] = field(default_factory=list)
    refused: list[tuple[int, str]] = field(default_factory=list)
    """(line of the script, reason) of calls that were not compiled. They ran as they are."""


def check_release() -> None:
    """Raise MissingError for a PyTorch that is not tested."""
    import torch

    release = ".".join(torch.__version__.split(".")[:2])
    if release not in TESTED:
        tested = ", ".join(TESTED)
        raise MissingError(
            f"torch.compile is explained with PyTorch {tested}, and this is {torch.__version__}: install that one, or "
            "keep Inductor's code where it runs (TORCH_COMPILE_DEBUG=1) and give its folder: --inductor FOLDER"
        )


@contextmanager
def compilations_caught(found: Compilations, line: Callable[[], int]) -> Iterator[None]:
    """A context in which `torch.compile` adds to `found`. `line` says which line of the script is being run."""
    from importlib.util import find_spec
    from unittest import mock

    if find_spec("torch") is None:
        yield
        return
    import torch

    with ExitStack() as stack:
        compiler = Compiler(found, line, stack)
        stack.enter_context(mock.patch.object(torch, "compile", compiler.compile(torch.compile)))
        yield


class Compiler:
    """Stands for `torch.compile` in a script."""

    def __init__(self, found: Compilations, line: Callable[[], int], stack: ExitStack) -> None:
        self.found, self.line, self.stack, self.caller = found, line, stack, 0
        self.begun = False

    def begin(self) -> None:
        """Prepare PyTorch for the first call of torch.compile. Scripts without one are left as they are."""
        check_release()
        if not self.begun:
            self.stack.enter_context(on_the_cpu())
            self.begun = True

    def compile(self, own):  # type: ignore[no-untyped-def]
        """The function that takes the place of `own`, which is torch.compile."""
        import torch

        def compile(model=None, *, fullgraph=False, dynamic=None, backend="inductor", **options):  # type: ignore[no-untyped-def]
            given = {"fullgraph": fullgraph, "dynamic": dynamic, "backend": backend, **options}
            if model is None:
                return lambda function: compile(function, **given)
            if backend != "inductor":
                return own(model, **given)
            self.begin()
            made = own(model, fullgraph=fullgraph, dynamic=False, backend=self.backend)
            if isinstance(made, torch.nn.Module):
                plain = model.__call__
                made.forward = self.called(made.forward, plain, dynamic)
                return made
            return self.called(made, model, dynamic)

        return compile

    def called(self, compiled, plain, dynamic):  # type: ignore[no-untyped-def]
        """The compiled function as the script calls it. Where PyTorch cannot compile it, `plain` is called."""
        import torch

        def call(*values, **named):  # type: ignore[no-untyped-def]
            self.caller = self.line()
            if dynamic:
                return self.refuse("dynamic=True: words follow from sizes", plain, values, named)
            if torch.is_autocast_enabled("cuda"):
                return self.refuse(NO_AUTOCAST, plain, values, named)
            fake = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE)
            try:
                with without_modes(), fake:
                    return compiled(*values, **named)
            except MissingError:
                raise
            except Exception as error:
                return self.refuse(first_line(error), plain, values, named)

        return call

    def refuse(self, why, plain, values, named):  # type: ignore[no-untyped-def]
        """Note why a call is not compiled, and call the function as it is."""
        if (self.caller, why) not in self.found.refused:
            self.found.refused.append((self.caller, why))
        return plain(*values, **named)

    def backend(self, graph, inputs):  # type: ignore[no-untyped-def]
        """Inductor, which keeps its code in place of running it."""
        from torch._inductor.compile_fx import compile_fx

        rewrite(graph)
        with forms_in_place(), paused():
            return compile_fx(graph, inputs, inner_compile=self.keep)

    def keep(self, graph, inputs, **options):  # type: ignore[no-untyped-def]
        """Keep Inductor's code of a graph. The graph itself is returned as what runs."""
        names = [node.name for node in graph.graph.nodes if node.op == "placeholder"]
        kept = Graph("", bool(options.get("is_backward")), self.caller)
        try:
            with without_modes(), paused():
                kept.code = code_of(graph, inputs, options)
            self.found.graphs.append(kept)
        except Exception as error:
            self.found.refused.append((self.caller, f"{'backward: ' * kept.backward}{first_line(error)}"))

        def run(values):  # type: ignore[no-untyped-def]
            given = list(values)
            values.clear()
            if not kept.runs:
                kept.data = integers_of(names, given)
            kept.runs += 1
            return graph(*given)

        run._boxed_call = True  # type: ignore[attr-defined]
        return run


def integers_of(names: list[str], values: list[object]) -> dict[str, Elements]:
    """{name: the integers of a tensor} for the tensors whose values a script knows."""
    from ..read.arguments import as_tensor

    known = [(name, value) for name, value in zip(names, values, strict=True) if hasattr(value, VALUES)]
    tensors = {name: as_tensor(value, name) for name, value in known}
    return {name: tensor.data for name, tensor in tensors.items() if tensor is not None and tensor.data is not None}


def first_line(error: Exception) -> str:
    """The message of an error of PyTorch, without its pages of advice."""
    inner = getattr(error, "inner_exception", None) or error.__cause__
    if isinstance(error, IosimError):
        return str(getattr(error, "found", error))
    if isinstance(inner, Exception):
        return first_line(inner)
    if "not linked with support for cuda" in str(error):
        return "PyTorch asks for the GPU itself, which is not there"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


# ---------------------------------------------------------------- the graph on a GPU


def rewrite(graph) -> None:  # type: ignore[no-untyped-def]
    """Put the operators of a GPU into a graph. InputError if it has what is not known for a GPU."""
    forms = forms_of_gpu()
    for node in graph.graph.nodes:
        if node.op != "call_function":
            continue
        if getattr(node.target, "__name__", "") == "_enter_autocast":
            raise InputError("torch.compile", NO_AUTOCAST, "a graph without it")
        if node.target in forms:
            node.target = forms[node.target]
    graph.recompile()


def forms_of_gpu():  # type: ignore[no-untyped-def]
    """{function: the same function with the operators that PyTorch takes on a GPU}."""
    import torch
    from torch.nn import functional as F

    aten = torch.ops.aten

    def attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None, enable_gqa=False):  # type: ignore[no-untyped-def]
        half, d = query.dtype in (torch.float16, torch.bfloat16), query.shape[-1]
        flash = half and torch.cuda.get_device_capability() >= (8, 0)
        if attn_mask is not None or d > 256 or d % 8:
            found = "attention with a mask" if attn_mask is not None else f"attention with a head dimension of {d}"
            raise InputError("torch.compile", found, "no mask, and a multiple of 8 up to 256")
        if flash:
            return aten._scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal, scale=scale)[0]
        if query.shape[-3] != key.shape[-3]:
            raise InputError("torch.compile", "attention in fp32, or before sm_80, with fewer heads of K and V", "fp16")
        given = query, key, value, None, query.requires_grad, dropout_p, is_causal
        return aten._scaled_dot_product_efficient_attention(*given, scale=scale)[0]

    def rms_norm(input, normalized_shape, weight=None, eps=None):  # type: ignore[no-untyped-def]
        return aten._fused_rms_norm(input, list(normalized_shape), weight, eps)[0]

    def dropout(input, p=0.5, training=True, inplace=False):  # type: ignore[no-untyped-def]
        return aten.native_dropout(input, p, True)[0] if training and p else input

    return {
        F.scaled_dot_product_attention: attention,
        torch.rms_norm: rms_norm,
        F.rms_norm: rms_norm,
        F.dropout: dropout,
    }


@contextmanager
def forms_in_place() -> Iterator[None]:
    """A context in which functions that call others, as multi_head_attention_forward does, call those of a GPU."""
    from unittest import mock

    from torch.nn import functional as F

    with ExitStack() as stack:
        forms = forms_of_gpu()
        for name in ("scaled_dot_product_attention", "rms_norm", "dropout"):
            stack.enter_context(mock.patch.object(F, name, forms[getattr(F, name)]))
        yield


def code_of(graph, inputs, options) -> str:  # type: ignore[no-untyped-def]
    """The code that Inductor writes for a graph on a GPU."""
    from unittest import mock

    from torch._inductor.compile_fx import compile_fx_inner
    from torch._inductor.graph import GraphLowering

    written: list[str] = []

    def keep(lowered):  # type: ignore[no-untyped-def]
        written.append(lowered.codegen()[0].value)
        raise Written

    with pretended_gpu(), mock.patch.object(GraphLowering, "_compile_to_module", keep):
        moved, given = on_gpu(graph, inputs)
        try:
            compile_fx_inner(moved, given, **{**options, "cudagraphs": None})
        except Exception:  # Inductor wraps errors in its own
            if not written:
                raise
    return written[0]


class Written(Exception):
    """Inductor's code is written, and nothing more is needed."""


def on_gpu(graph, inputs):  # type: ignore[no-untyped-def]
    """(a copy of a graph whose tensors lie on a GPU, its inputs)."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.utils._pytree import tree_map

    known = [*inputs, *(node.meta.get("val") for node in graph.graph.nodes)]
    mode = next(each.fake_mode for each in known if isinstance(each, FakeTensor))
    gpu = torch.device("cuda", 0)

    def move(value):  # type: ignore[no-untyped-def]
        if isinstance(value, FakeTensor):
            with without_modes(), mode:
                return torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device=gpu)
        return gpu if isinstance(value, torch.device) else value

    copy, places = torch.fx.Graph(), dict[torch.fx.Node, torch.fx.Node]()
    copy.output(copy.graph_copy(graph.graph, places))
    for node in copy.nodes:
        node.meta = {key: tree_map(move, value) if key == "val" else value for key, value in node.meta.items()}
        node.kwargs = {key: move(value) for key, value in node.kwargs.items()}
        node.args = tuple(move(value) for value in node.args)
    last = next(iter(reversed(graph.graph.nodes)))
    next(iter(reversed(copy.nodes))).meta = dict(last.meta)
    return torch.fx.GraphModule(graph, copy), [move(value) for value in inputs]


# ---------------------------------------------------------------- PyTorch with a GPU that is not there


@contextmanager
def without_modes() -> Iterator[None]:
    """A context without the modes in which a script runs: they would be traced as well."""
    import torch
    from torch.utils._python_dispatch import _disable_current_modes

    taken = []
    while torch._C._len_torch_function_stack():
        taken.append(torch._C._pop_torch_function_stack())
    try:
        with _disable_current_modes():
            yield
    finally:
        for mode in reversed(taken):
            torch._C._push_on_torch_function_stack(mode)


@contextmanager
def on_the_cpu() -> Iterator[None]:
    """A context in which tensors that are asked for on a GPU are pretended on the CPU, as those of the script are."""
    from unittest import mock

    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    own = FakeTensorMode.dispatch

    def dispatch(mode, function, types, values=(), named=None):  # type: ignore[no-untyped-def]
        device = (named or {}).get("device")
        if isinstance(device, torch.device) and device.type == "cuda" and not PRETENDED:
            named = {**named, "device": torch.device("cpu")}
        return own(mode, function, types, values, named)

    state = {"get_rng_state": lambda *_: torch.zeros(16, dtype=torch.uint8), "set_rng_state": lambda *_: None}
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(FakeTensorMode, "dispatch", dispatch))
        for name, answer in state.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, answer))
        yield


PRETENDED: list[bool] = []  # not empty while Inductor lowers a graph for the GPU


@contextmanager
def pretended_gpu() -> Iterator[None]:
    """A context in which Inductor finds a GPU. It writes files into a folder that is removed."""
    import logging
    import os
    from tempfile import TemporaryDirectory
    from unittest import mock

    import torch
    from torch._dynamo.device_interface import CudaInterface
    from torch._inductor import config

    answers = {
        "current_device": lambda *_: 0, "set_device": lambda *_: None, "device_count": lambda *_: 1,
        "synchronize": lambda *_: None, "exchange_device": lambda *_: 0, "maybe_exchange_device": lambda *_: 0,
        "memory_allocated": lambda *_: 0, "is_bf16_supported": lambda *_, **__: True, "get_raw_stream": lambda *_: 0,
        "is_available": lambda *_: True, "get_device_properties": torch.cuda.get_device_properties,
        "get_compute_capability": capability, "current_stream": mock.MagicMock(), "is_triton_capable": lambda *_: True,
        "raise_if_triton_unavailable": lambda *_: None,
    }  # fmt: skip
    log = logging.getLogger("torch._inductor")
    level = log.level
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory(prefix="iosim-inductor-"))
        stack.enter_context(mock.patch.dict(os.environ, TORCHINDUCTOR_CACHE_DIR=folder))
        for name, answer in answers.items():
            stack.enter_context(mock.patch.object(CudaInterface, name, staticmethod(answer)))
        stack.enter_context(mock.patch.object(CudaInterface, "device", mock.MagicMock()))
        stack.enter_context(mock.patch.object(torch.version, "cuda", "12.8"))
        stack.enter_context(mock.patch.object(torch.cuda, "_lazy_init", lambda: None))
        stack.enter_context(config.patch(force_disable_caches=True, compile_threads=1))
        stack.enter_context(without_guards())
        log.setLevel(logging.CRITICAL)
        PRETENDED.append(True)
        try:
            yield
        finally:
            PRETENDED.pop()
            log.setLevel(level)


@contextmanager
def without_guards() -> Iterator[None]:
    """A context in which `~x`, `x[i]`, copies and `contiguous` are operators. Python's own forms of them ask a build
    with CUDA for its GPU."""
    from unittest import mock

    import torch

    aten = torch.ops.aten

    def item(tensor, index):  # type: ignore[no-untyped-def]
        parts, axis, places = index if isinstance(index, tuple) else (index,), 0, {}
        for number, part in enumerate(parts):
            if part is None:
                tensor, axis = tensor.unsqueeze(axis), axis + 1
            elif isinstance(part, slice):
                tensor = aten.slice.Tensor(tensor, axis, part.start, part.stop, part.step or 1)
                axis += 1
            elif isinstance(part, torch.Tensor):
                places[axis] = part
                axis += 1
            elif part is Ellipsis:
                axis = tensor.dim() - sum(each is not None for each in parts[number + 1 :])
            else:
                tensor = aten.select.int(tensor, axis, part)
        return aten.index.Tensor(tensor, [places.get(k) for k in range(max(places) + 1)]) if places else tensor

    def contiguous(tensor, memory_format=torch.contiguous_format):  # type: ignore[no-untyped-def]
        same = tensor.is_contiguous(memory_format=memory_format)
        return tensor if same else aten.clone.default(tensor, memory_format=memory_format)

    def on_gpu_only(form, own):  # type: ignore[no-untyped-def]
        def call(tensor, *values, **named):  # type: ignore[no-untyped-def]
            return (form if tensor.device.type == "cuda" else own)(tensor, *values, **named)

        return call

    forms = {
        "__getitem__": item,
        "contiguous": contiguous,
        "__invert__": aten.bitwise_not.default,
        "copy_": lambda tensor, source, non_blocking=False: aten.copy_.default(tensor, source),
    }
    with ExitStack() as stack:
        for name, form in forms.items():
            whole = on_gpu_only(form, getattr(torch.Tensor, name))
            stack.enter_context(mock.patch.object(torch.Tensor, name, whole))
        yield


def capability(*_: object) -> int:
    """The compute capability of the pretended GPU, as 90."""
    import torch

    major, minor = torch.cuda.get_device_capability()
    return 10 * major + minor
