"""`iosim profile`."""

from __future__ import annotations

import click

from ..commands.answer import Output, answer_all, say
from ..commands.command import Need, named_command
from ..commands.options import flag_option, outputs, problem_options, text_option
from ..counting.given import problem


@named_command(
    "profile",
    needs=(Need("N", ("from_ncu",)), Need("d", ("from_ncu",))),
    gpu=True,
    first="heads kv_heads causal mask from_ncu keep no_lse",
)
@click.argument("kernel", required=False)
@problem_options
@text_option(
    "--from-ncu",
    "Explain a kept profile of any attention kernel. Without --N, explain each call, with its shape from the file.",
    metavar="FILE",
)
@text_option("--keep", "Keep the profiler's CSV here.", metavar="FILE")
@flag_option("--no-lse", "The kernel stores no log-sum-exp.")
@outputs
def command(
    kernel: str | None,
    from_ncu: str | None,
    keep: str | None,
    no_lse: bool,
    output: Output,
    **given: str | bool | None,
) -> None:
    """The schedule and tiles that explain an attention kernel which somebody else wrote.

    KERNEL is torch-flash, torch-cudnn, torch-efficient, torch-math or torch-flex (FlexAttention); with --from-ncu it is
    any name. A schedule explains a kernel if it predicts the bytes that the kernel loads within 0.05 %. The kernel may
    store 0.75 to 3 times the predicted bytes. A call of many kernels has a row for each pass of attention (two products
    and the softmax), and one for all other kernels. dram_ratio is what was read from DRAM over what each launch cannot
    but read: 1 if the L2 served all that was read again. spilled_bytes is the traffic of registers that were spilled
    (empty where bulk stores hide it).

    Example: iosim profile torch-flash --N 4096 --d 128 --heads 32 --causal
    """
    from ..progress import under_way
    from .profile.run import Explanations, explain_kernel

    own = from_ncu is not None and not any(given.values())
    p = None if own else problem(given, acc_dtype="fp32", lse=not no_lse)
    with under_way() as tell:
        rows, notes = explain_kernel(kernel, p, from_ncu, keep, tell)
    explained = {str(row["kernel"]) for row in rows if row["explains"]}
    say(notes)
    others = dict.fromkeys(str(row["kernel"]) for row in rows if row["kernel"] not in explained)
    say(f"nothing explains {name}: are N, d, heads and mask those of the profile?" for name in others)
    answer_all([({}, Explanations(rows))], output)
