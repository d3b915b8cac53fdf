"""Ten kernels of eight projects, asked as by a stranger: what `iosim explain --script` says of each of their arguments.

    PYTHONPATH=. python validation/kernels/asked.py FOLDER > validation/kernels/asked.csv

FOLDER has a folder for each project, with its files as published; its folder `site` may have packages that they need
(sglang: dill). The scripts stand in scripts/. Rows are made with PyTorch 2.13 (its CPU build) and Triton 3.6, as two of
the projects do not compile with Triton 3.9. tests/kernels/test_kernels_asked.py has the same numbers by hand, and of
kernels of this repository that read and write in the same way.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from published import HERE, explained

PROJECTS = {  # {project: (version, file with the kernel, script, its kernels)}
    "gpt-oss": ("7b583341", "gpt_oss/triton/attention.py", "asked_gpt_oss", ["_attn_fwd"]),
    "SageAttention": ("d1a57a54", "sageattention/triton/attn_qk_int8_per_block_causal.py", "asked_sage", ["_attn_fwd"]),
    "bitsandbytes": ("95f9af30", "bitsandbytes/backends/triton/kernels_4bit.py", "asked_bitsandbytes",
                     ["dequant_nf4_kernel"]),
    "mamba": ("e9594ce1", "mamba_ssm/ops/triton/selective_state_update.py", "asked_mamba",
              ["_selective_scan_update_kernel"]),
    "sglang": ("0.5.23", "sglang/kernels/ops", "asked_sglang",
               ["_fwd_grouped_kernel_stage1", "_fwd_kernel", "fused_moe_kernel"]),
    "native-sparse-attention": ("bd67af59", "native_sparse_attention/ops/parallel.py", "asked_nsa",
                                ["parallel_nsa_fwd_kernel"]),
    "ao": ("36027d82", "torchao/prototype/moe_training/kernels/float8_rowwise.py", "asked_torchao",
           ["_triton_fp8_rowwise_3d_transpose_scales_rhs_kernel"]),
    "aiter": ("e4048607", "aiter/ops/triton/_triton_kernels/gemm/basic/gemm_a16w16_atomic.py", "asked_aiter",
              ["_gemm_a16_w16_atomic_kernel"]),
}  # fmt: skip
WORDS = ("reads", "writes", "atomics", "distinct_reads")
COLUMNS = ("project", "version", "file", "kernel", "argument", *WORDS)


def main() -> None:
    """Print a row for each argument that a kernel reads, writes or changes."""
    root = Path(sys.argv[1]).resolve()
    writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for project, (version, file, script, kernels) in PROJECTS.items():
        found = explained(HERE / "scripts" / f"{script}.py", root / project, [])
        answers = {one["kernel"]: one for one in found["answers"]}
        for kernel in kernels:
            label = {"project": project, "version": version, "file": file, "kernel": kernel}
            for argument, each in answers[kernel]["tensors"].items():
                words = {name: each[name] for name in WORDS}
                if any(words.values()):
                    writer.writerow({**label, "argument": argument, **words})


if __name__ == "__main__":
    main()
