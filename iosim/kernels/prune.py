"""`iosim.prune`: drops the configurations of `triton.autotune` that do not fit a GPU, before they are timed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import perf_counter
from typing import Protocol

from ..answer import numbered
from ..errors import InputError, IosimError
from ..hardware import Hardware, load
from .read.compile import WARP_SIZE, Compilation, Resources, is_amd
from .read.kernel import Configuration, Kernel, KernelLaunch
from .walk.launch import Value

ALLOCATED = 8  # registers of a thread are given in multiples of this
WHERE = "iosim.prune"
OPTIONS = ("num_ctas", "maxnreg", "enable_fp_fusion")  # of a configuration or of a launch, beside warps and stages


class Config(Protocol):
    """A configuration, as `triton.Config` has it."""

    def all_kwargs(self) -> dict[str, Value]: ...


Prune = Callable[..., list[Config]]  # type: ignore[explicit-any]  # of Triton, with the names of a kernel


def prune(hardware: str, *, spills: bool = True) -> Prune:
    """A function for `triton.autotune(..., prune_configs_by={"early_config_prune": iosim.prune("h100")})`.

    It drops the configurations whose shared memory or registers do not fit a program on the GPU: a preset as `h100`, or
    a FILE.toml. Without `spills` it also drops those whose registers spill to memory. Each configuration is compiled
    for that GPU, and stays in Triton's cache, so that Triton does not compile it again. A line on stderr says how many
    were dropped and how long that took. Configurations that do not compile are kept: Triton has its own message.
    Raises InputError for an unknown GPU, and if no configuration fits.
    """
    gpu = load(hardware)
    target = gpu.target
    if target is None or is_amd(target):
        raise InputError(WHERE, gpu.name, "a GPU of NVIDIA whose file names its target")

    def early_config_prune(configs: Sequence[Config], named_args: Mapping[str, Value], **named: Value) -> list[Config]:
        kernel = kernel_of(sys._getframe(1).f_locals.get("self"))
        given = {**named_args, **named}
        begun = perf_counter()
        why = {number: unfit(kernel, config, given, gpu, target, spills) for number, config in enumerate(configs)}
        kept = [config for number, config in enumerate(configs) if not why[number]]
        report(kernel, gpu, [reason for reason in why.values() if reason], len(configs), perf_counter() - begun)
        if not kept:
            raise InputError(
                f"{WHERE}: {kernel.name}", numbered(len(configs), "configuration"), f"one that fits {gpu.name}"
            )
        return kept

    return early_config_prune


def kernel_of(tuner: object) -> Kernel:
    """The kernel below an autotuner, which calls the function of `prune` without saying for which kernel."""
    from triton.runtime.autotuner import Autotuner

    if not isinstance(tuner, Autotuner):
        allowed = 'prune_configs_by={"early_config_prune": iosim.prune("h100")} of triton.autotune'
        raise InputError(WHERE, "a call by something else", allowed)
    return Kernel(tuner.fn)


def unfit(kernel: Kernel, config: Config, given: Mapping[str, Value], gpu: Hardware, target: str, spills: bool) -> str:
    """Why a configuration does not fit: `shared memory`, `registers` or `spilled registers`. Empty if it does, or if it
    does not compile."""
    options = {**{name: given[name] for name in given if name not in kernel.parameters}, **config.all_kwargs()}
    values = {name: value for name, value in {**given, **config.all_kwargs()}.items() if name in kernel.parameters}
    warps, stages = KernelLaunch(kernel, None, values, None, None).options(Configuration(), options)
    more = {name: n for name in OPTIONS if (n := options.get(name)) is not None}
    try:
        values = kernel.completed(values, Configuration())
        found = Compilation(kernel, values, target, warps, stages, more).resources
    except IosimError:
        return ""
    return next(over(found, gpu, spills), "")


def over(found: Resources, gpu: Hardware, spills: bool) -> Iterator[str]:
    """The resources that a program needs more of than there are."""
    registers = -(-found.registers // ALLOCATED) * ALLOCATED * WARP_SIZE * found.num_warps
    if found.smem_bytes > gpu.shared_memory_per_block_bytes:
        yield "shared memory"
    if registers > gpu.register_bytes // 4:
        yield "registers"
    if not spills and found.stack_bytes:
        yield "spilled registers"


def report(kernel: Kernel, gpu: Hardware, reasons: list[str], configs: int, seconds: float) -> None:
    """Say on stderr how many configurations were dropped, why, and how long it took."""
    causes = ", ".join(f"{reasons.count(why)} by {why}" for why in dict.fromkeys(reasons))
    line = f"iosim.prune: {kernel.name}: {len(reasons)} of {numbered(configs, 'configuration')} dropped for {gpu.name}"
    print(f"{line}{f' ({causes})' * bool(causes)}; compiled in {seconds:.1f} s, which Triton keeps", file=sys.stderr)
