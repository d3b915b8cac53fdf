"""The options of every problem: a row each. Options that only some schedules read are declared in their files."""

from ..options import (
    CACHE_TYPE,
    COUNT,
    COUNT_OR_0,
    FLAG,
    HEADS_SHARE,
    MASK,
    MEMORY,
    PROBLEM,
    REGISTERS,
    SCALES,
    STAGES,
    TYPE,
    Option,
    all_declared,
    declared,
    flag_of,
)

SIZES = (
    Option(
        "N",
        COUNT,
        "Queries: the sequence length, as 4096 or 4K.",
        metavar="COUNT",
        heading=PROBLEM,
        also=(
            *("seqlen", "seqlens", "seq", "length", "len", "sequence", "sequence-length", "max-seqlen", "queries", "l"),
            *("seqlen-q", "seq-q", "seq-len-q", "q-len", "nq", "ctx", "ctx-len", "n-ctx", "context", "context-length"),
        ),
    ),
    Option(
        "Nk",
        COUNT,
        "Keys (default: N).",
        metavar="COUNT",
        heading=PROBLEM,
        also=("keys", "kv-len", "seqlen-k", "seq-k", "seq-len-k", "seqlen-kv", "seq-kv", "k-len", "kv-seqlen"),
    ),
    Option(
        "d",
        COUNT,
        "Head dimension: words of a query and of a key.",
        metavar="COUNT",
        heading=PROBLEM,
        also=("head-dim", "hdim", "dim", "dk", "head-size", "dim-head"),
    ),
    Option(
        "batch",
        COUNT,
        "Sequences (default: 1).",
        1,
        metavar="COUNT",
        heading=PROBLEM,
        also=("batch-size", "bs", "b"),
    ),
    Option(
        "heads",
        COUNT,
        "Query heads (default: 1).",
        1,
        metavar="COUNT",
        heading=PROBLEM,
        also=("head", "nheads", "num-heads", "num-attention-heads", "q-heads", "num-q-heads", "nh", "hq", "h"),
    ),
    Option(
        "kv_heads",
        COUNT,
        "Key and value heads (default: heads).",
        metavar="COUNT",
        heading=PROBLEM,
        also=(
            "nkv",
            "num-kv-heads",
            "n-kv-heads",
            "kv-head",
            "num-key-value-heads",
            "heads-kv",
            "heads-k",
            "hkv",
            "hk",
        ),
    ),
    Option(
        "dv",
        COUNT,
        "Words of a value (default: d).",
        metavar="COUNT",
        heading=PROBLEM,
        also=("head-dim-v", "v-head-dim", "head-size-v", "dim-v"),
    ),
)
NUMBERS = tuple(option.name for option in SIZES)
"""The names of the sizes."""
TYPES = (
    Option(
        "dtype",
        TYPE,
        "Type of Q, K, V, O, S, P in HBM: fp16 (default), bf16, fp32, fp64, fp8, int8.",
        "fp16",
        metavar="TYPE",
        heading=PROBLEM,
        also=("type", "precision", "data-type"),
    ),
    Option(
        "acc_dtype",
        TYPE,
        "Type of accumulators on chip and of l, m, LSE (default: that of --dtype, as in the papers; real kernels "
        "accumulate in fp32).",
        metavar="TYPE",
        heading=PROBLEM,
        also=("accumulator", "acc", "acc-type", "accum-dtype"),
    ),
)
CACHE = (
    Option("latent", FLAG, "V is the first --dv words of each row of K, as in MLA.", False, heading=PROBLEM),
    Option(
        "kv_dtype",
        CACHE_TYPE,
        "Type of K and V in HBM (default: that of --dtype). int4 as well: two words share a byte.",
        metavar="TYPE",
        heading=PROBLEM,
        also=("kv-cache-dtype", "cache-dtype", "kv-type"),
    ),
    Option(
        "kv_scales",
        SCALES,
        "Scales of K and V: none (default), tensor (one for all), or a number: so many words of a row share a scale.",
        "none",
        metavar="HOW",
        heading=PROBLEM,
        also=("group-size", "kv-group-size", "q-group-size", "residual-group-size"),
    ),
    Option(
        "scale_dtype",
        TYPE,
        "Type of these scales in HBM (default: fp32).",
        "fp32",
        metavar="TYPE",
        heading=PROBLEM,
        also=("scale-type", "scales-dtype", "kv-scale-dtype"),
    ),
)
MASKS = (
    Option(
        "mask",
        MASK,
        "The keys that each query sees.",
        metavar="MASK",
        heading=PROBLEM,
    ),
)
VARIANTS = (
    Option("lse", FLAG, "Also store the log-sum-exp of each row (queries outside).", False),
    Option("keep_p", FLAG, "Also store P in HBM.", False),
    Option("visit_all", FLAG, "Also visit the tiles that a mask hides (flash1, flash2, their backward passes).", False),
    Option("count_init", FLAG, "Count the writes that fill O, l, m before Algorithm 1.", False),
    Option(
        "gqa",
        HEADS_SHARE,
        "repeat (default): each query head loads K and V; pack: the query heads of a KV head share tiles.",
        "repeat",
        metavar="HOW",
    ),
)
CHIP = (
    Option(
        "register_bytes",
        REGISTERS,
        "Registers of a thread block that tiles may live in, as 64K (of 4 bytes) or 256KB (default: none).",
        0,
        metavar="COUNT",
        heading=MEMORY,
        word="registers",
    ),
    Option(
        "stages",
        STAGES,
        "Tiles of the innermost loop that are in flight at a time (default: 1).",
        1,
        metavar="COUNT",
        heading=MEMORY,
    ),
)
OF_STATE = "rule"
"""The name of the option whose problems have a state in place of keys and values (schedules/state.py)."""
_STATE_ENDS = ("initial_state", "final_state", "state_dtype")
READ_BY_STATES = (OF_STATE, "key_heads", *_STATE_ENDS, "normalise", "features", "padding", "chunk")
"""The names of the declared options that say what a problem with a state is, whatever its schedule."""
KEY_HEADS = Option(
    "key_heads",
    COUNT_OR_0,
    "Heads of q and k, each shared by several of --heads, for a state (default: heads).",
    0,
    metavar="COUNT",
    also=("num-k-heads", "linear-num-key-heads", "ngroups"),
)
"""Declared by the schedules of attention with a state, and read by `Attention.packed`."""
OF_EVERY_PROBLEM = {option.name: option for option in (*SIZES, *TYPES, *MASKS, *VARIANTS, *CHIP, *CACHE)}
"""All of them by name, in the order of columns."""


def option_names() -> tuple[str, ...]:
    """The names of all options: those of every problem, and those that schedules declare."""
    return (*OF_EVERY_PROBLEM, *(option.name for option in all_declared()))


def find_option(name: str) -> Option | None:
    """The option of this name; None if there is none."""
    return OF_EVERY_PROBLEM.get(name) or declared(name)


def flag(name: str) -> str:
    """The option of the command line, as `--registers` for register_bytes. Other names keep their words."""
    option = find_option(name)
    return flag_of(name) if option is None else option.flag
