"""Ten published kernels (validation/kernels/asked.csv): their words by hand, and kernels that move the same words."""

import csv
import random
import re

import numpy as np
import pytest
from paths import ROOT, VALIDATION

import iosim
from iosim import tensor

pytest.importorskip("triton")
import asked_kernels

pytestmark = pytest.mark.needs("triton")
WORDS = ("reads", "writes", "atomics", "distinct_reads")
with open(VALIDATION / "kernels" / "asked.csv") as file:
    KEPT = {}
    for row in csv.DictReader(file):
        words = tuple(int(row[name]) for name in WORDS)
        KEPT.setdefault((row["project"], row["kernel"]), {})[row["argument"]] = words


def read(words, distinct=None):
    return words, 0, 0, words if distinct is None else distinct


def written(words):
    return 0, words, 0, 0


def cdiv(a, b):
    return -(-a // b)


def ints(values, dtype="int32"):
    return np.array(values, dtype)


def attention_of_gpt_oss():
    """1,000 tokens are padded to 1,024. A tile of 64 queries sees its own keys and two tiles before."""
    n, heads, d, tile, window = 1024, 64, 64, 64, 128
    tiles = sum(min(i + 1, window // tile + 1) for i in range(n // tile))
    whole, programs = heads * n * d, n // tile * heads
    cache = read(heads * tiles * tile * d, whole)
    words = {"Q": read(whole), "K": cache, "V": cache, "Sinks": read(programs, heads), "Start_q": read(programs, 1)}
    q = tensor("bf16", (heads, n, d))
    given = {"Q": q, "K": q, "V": q, "Sinks": tensor("bf16", (heads,)), "M": tensor("fp32", (heads, n)), "Out": q}
    given |= {"Start_q": ints([0]), "N": n, "H": heads, "D": d, "BM": tile, "BN": tile, "W": window}
    return (n // tile, heads), given, words | {"M": written(heads * n), "Out": written(whole)}


def attention_of_sage():
    """Causal: a tile of 128 queries sees all keys up to its last; scales of K for whole tiles of 64."""
    n, heads, kv, d, rows, cols = 2000, 32, 8, 128, 128, 64
    tiles = range(cdiv(n, rows))
    seen = sum(min((i + 1) * rows, n) for i in tiles)
    cache, scales = read(heads * seen * d, kv * n * d), heads * sum((i + 1) * rows // cols for i in tiles)
    words = {"Q": read(heads * n * d), "K": cache, "V": cache, "Q_scale": read(heads * len(tiles)),
             "K_scale": read(scales, kv * cdiv(n, cols)), "Out": written(heads * n * d)}  # fmt: skip
    given = {"Q": tensor("int8", (heads, n, d)), "K": tensor("int8", (kv, n, d)), "V": tensor("fp16", (kv, n, d))}
    given |= {"Q_scale": tensor("fp32", (heads, len(tiles))), "K_scale": tensor("fp32", (kv, cdiv(n, cols)))}
    given |= {"Out": tensor("fp16", (heads, n, d)), "n": n, "GROUP": heads // kv, "D": d, "BM": rows, "BN": cols}
    return (len(tiles), heads), given, words


def weights_of_bitsandbytes():
    """Two weights a byte; each of them asks for the scale of its block of 64."""
    n, block, split = 4_096_000 // 2, 64, 256
    words = {"a_ptr": read(n), "c_ptr": written(2 * n), "absmax_ptr": read(n, 2 * n // block)}
    given = {"a_ptr": tensor("uint8", (n,)), "c_ptr": tensor("fp16", (2 * n,)), "n": n, "BLOCK": block}
    return (cdiv(n, split),), given | {"absmax_ptr": tensor("fp32", (2 * n // block,)), "SPLIT": split}, words


def step_of_mamba():
    """14 of 16 requests have a state. Programs of 4 rows ask for B and C whole, and for one word of each number of a head."""
    places = [3, 5, 7, -1, 1, 2, 8, 9, 10, 11, 12, -1, 13, 14, 15, 16]
    batch, heads, p, n, rows = len(places), 64, 64, 128, 4
    some = sum(place >= 0 for place in places)
    programs, each = some * heads * p // rows, read(some * heads * p)
    state = some * heads * p * n
    words = {"state_ptr": (state, state, 0, state), "x_ptr": each, "z_ptr": each, "out_ptr": written(batch * heads * p)}
    words |= {"dt_ptr": read(programs, some * heads), "D_ptr": read(each[0], heads)}
    words |= {name: read(programs, heads) for name in ("dt_bias_ptr", "A_ptr")}
    words |= {name: read(programs * n, some * n) for name in ("B_ptr", "C_ptr")}
    words["state_batch_indices_ptr"] = read(batch * heads * p // rows, batch)
    row, of_head = tensor("bf16", (batch, heads, p)), tensor("fp32", (heads,))
    given = {name: row for name in ("x_ptr", "z_ptr", "out_ptr")} | {"state_ptr": tensor("fp32", (32, heads, p, n))}
    given |= {name: of_head for name in ("dt_bias_ptr", "A_ptr", "D_ptr")} | {"dt_ptr": tensor("bf16", (batch, heads))}
    given |= {name: tensor("bf16", (batch, n)) for name in ("B_ptr", "C_ptr")} | {
        "H": heads,
        "P": p,
        "N": n,
        "BM": rows,
    }
    return (p // rows, batch, heads), given | {"state_batch_indices_ptr": ints(places)}, words


def starts(lengths):
    return ints([sum(lengths[:k]) for k in range(len(lengths) + 1)])


def decoding_of_sglang():
    """Shares are multiples of 32 keys, so short requests have fewer than 8. All heads are one program, so each word once."""
    lengths, heads, dv, rope, splits, least = [4096, 1000, 300, 17], 16, 512, 64, 8, 32
    parts = sum(cdiv(n, cdiv(cdiv(n, splits), least) * least) for n in lengths)
    keys, batch = sum(lengths), len(lengths)
    words = {"Q": read(parts * heads * (dv + rope), batch * heads * (dv + rope))}
    words |= {"K_Buffer": read(keys * (dv + rope)), "V_Buffer": read(keys * dv), "kv_indices": read(keys)}
    words |= {"kv_indptr": read(2 * batch * splits, batch + 1), "num_kv_splits": read(batch * splits, batch)}
    words |= {"Att_Out": written(parts * heads * dv), "Att_Lse": written(parts * heads)}
    cache, partial = tensor("bf16", (8192, dv + rope)), tensor("fp32", (batch, heads, splits, dv))
    given = {"Q": tensor("bf16", (batch, heads, dv + rope)), "K_Buffer": cache, "V_Buffer": cache, "Att_Out": partial}
    given |= {
        "kv_indptr": starts(lengths),
        "kv_indices": np.random.default_rng(0).permutation(8192)[:keys].astype("int32"),
    }
    given |= {"num_kv_splits": ints([splits] * batch), "Att_Lse": tensor("fp32", (batch, heads, splits))}
    return (batch, 1, splits), given | {"H": heads, "DV": dv, "DPE": rope, "BN": 32, "LEAST": least}, words


def prefill_of_sglang():
    """A tile of 64 cached keys is loaded if a query of the tile sees one of its keys, and new ones up to its last query."""
    cached, new, heads, kv, d, rows, cols, window = [1000, 0, 300], [200, 129, 64], 32, 8, 128, 128, 64, 512
    seen, all_seen, own = 0, 0, 0
    for old, n in zip(cached, new, strict=True):
        tiles = [range(at, min(at + cols, old)) for at in range(0, old, cols)]
        reached = set()
        for first in range(0, n, rows):
            some = [t for t in tiles if any(old + first - key < window for key in t)]
            seen, own = seen + sum(map(len, some)), own + min(n, first + rows)
            reached |= {key for t in some for key in t}
        all_seen += len(reached)
    q, programs = sum(new) * heads * d, len(new) * heads * cdiv(max(new), rows)
    cache, fresh = read(seen * heads * d, all_seen * kv * d), read(own * heads * d, sum(new) * kv * d)
    loaded = read(2 * programs, len(new) + 1)
    words = {"Q_Extend": read(q), "O_Extend": written(q), "K_Extend": fresh, "V_Extend": fresh, "K_Buffer": cache}
    words |= {"V_Buffer": cache, "qo_indptr": loaded, "kv_indptr": loaded, "kv_indices": read(seen * heads, all_seen)}
    given = {name: tensor("bf16", (sum(new), heads, d)) for name in ("Q_Extend", "O_Extend")}
    given |= {name: tensor("bf16", (sum(new), kv, d)) for name in ("K_Extend", "V_Extend")}
    given |= {name: tensor("bf16", (4096, kv, d)) for name in ("K_Buffer", "V_Buffer")}
    given |= {"qo_indptr": starts(new), "kv_indptr": starts(cached), "H": heads, "GROUP": heads // kv, "D": d}
    given["kv_indices"] = np.random.default_rng(0).permutation(4096)[: sum(cached)]
    return (len(new), heads, cdiv(max(new), rows)), given | {"BM": rows, "BN": cols, "W": window}, words


def experts_of_sglang():
    """The weights of an expert are loaded once for each 16 of its tokens, and rows of padding are not."""
    tokens, experts, top, k, n, rows, cols = 64, 8, 2, 4096, 3584, 16, 128
    random.seed(0)
    chosen = [random.sample(range(experts), top) for _ in range(tokens)]
    own = [[t * top + j for t in range(tokens) for j in range(top) if chosen[t][j] == e] for e in range(experts)]
    order = [t for each in own for t in each + [tokens * top] * (-len(each) % rows)]
    of = [e for e, each in enumerate(own) for _ in range(cdiv(len(each), rows))]
    columns, tiles = n // cols, len(of)
    words = {"a_ptr": read(tokens * top * k * columns, tokens * k), "b_ptr": read(tiles * n * k, len(set(of)) * n * k)}
    words |= {"c_ptr": written(tokens * top * n), "sorted_token_ids_ptr": read(len(order) * columns, len(order))}
    words |= {"expert_ids_ptr": read(tiles * columns, tiles), "num_tokens_post_padded_ptr": read(tiles * columns, 1)}
    given = {"a_ptr": tensor("bf16", (tokens, k)), "b_ptr": tensor("bf16", (experts, n, k)), "N": n, "K": k, "TOP": top}
    given |= {
        "c_ptr": tensor("bf16", (tokens * top, n)),
        "sorted_token_ids_ptr": ints(order),
        "expert_ids_ptr": ints(of),
    }
    given |= {
        "num_tokens_post_padded_ptr": ints([len(order)]),
        "tokens": tokens * top,
        "BM": rows,
        "BN": cols,
        "BK": 128,
    }
    return (tiles * columns,), given, words


def blocks_of_nsa():
    """The last four blocks of 32 keys, for each token and KV head; near the start there are fewer."""
    n, kv, each, d, some, block = 512, 2, 16, 64, 4, 32
    blocks = [[t // block - s if t // block >= s else n for s in range(some)] for t in range(n)]
    cache = read(kv * sum(min(t // block + 1, some) for t in range(n)) * block * d, kv * n * d)
    words = {"q": read(n * kv * each * d), "k": cache, "v": cache, "o": written(n * kv * each * d)}
    words |= {"lse": written(n * kv * each), "block_indices": read(n * kv * some)}
    q, k = tensor("fp16", (n, kv * each, d)), tensor("fp16", (n, kv, d))
    given = {"q": q, "k": k, "v": k, "o": q, "lse": tensor("fp32", (n, kv * each)), "T": n, "H": kv, "G": each, "D": d}
    given["block_indices"] = np.repeat(ints(blocks, "int64")[:, None], kv, 1)
    return (n, 1, kv), given | {"S": some, "BS": block}, words


def scales_of_torchao():
    """A tile of 128 x 128 finds 128 scales, so each is changed by 12 tiles of 1,500 columns."""
    experts, k, n, tile = 8, 2048, 1500, 128
    columns = cdiv(n, tile)
    words = {"input_ptr": read(experts * k * n), "scales_ptr": (0, 0, experts * k * columns, 0)}
    given = {"input_ptr": tensor("bf16", (experts, k, n)), "scales_ptr": tensor("fp32", (experts, k)), "N": n, "K": k}
    return (experts, k // tile, columns), given | {"BN": tile, "BK": tile}, words


def parts_of_aiter():
    """Shares begin 448 columns apart and take 512. The last two are masked off: columns from 6,336 on are in none."""
    m, n, k, tile, block, parts = 64, 256, 7168, 64, 128, 16
    size = k // parts
    columns = [
        part * size + b * block + c
        for part in range(parts)
        for b in range(cdiv(size, block))
        for c in range(block)
        if c < k - (part * cdiv(size, block) + b) * block
    ]
    each, distinct = len(columns), len(set(columns))
    words = {"a_ptr": read(n // tile * m * each, m * distinct), "b_ptr": read(n * each, n * distinct)}
    words["c_ptr"] = 0, 0, parts * m * n, 0
    given = {"a_ptr": tensor("bf16", (m, k)), "b_ptr": tensor("bf16", (n, k)), "c_ptr": tensor("fp32", (m, n))}
    given |= {"N": n, "K": k, "BM": m, "BN": tile, "BK": block, "PARTS": parts, "SIZE": size}
    return (n // tile * parts,), given, words


ASKED = {  # {(project, kernel): (the kernel that moves the same, its launch and its words by hand)}
    ("gpt-oss", "_attn_fwd"): ("banded", attention_of_gpt_oss),
    ("SageAttention", "_attn_fwd"): ("with_scales", attention_of_sage),
    ("bitsandbytes", "dequant_nf4_kernel"): ("unpacked", weights_of_bitsandbytes),
    ("mamba", "_selective_scan_update_kernel"): ("state_step", step_of_mamba),
    ("sglang", "_fwd_grouped_kernel_stage1"): ("latent_split", decoding_of_sglang),
    ("sglang", "_fwd_kernel"): ("behind_a_cache", prefill_of_sglang),
    ("sglang", "fused_moe_kernel"): ("of_experts", experts_of_sglang),
    ("native-sparse-attention", "parallel_nsa_fwd_kernel"): ("of_blocks", blocks_of_nsa),
    ("ao", "_triton_fp8_rowwise_3d_transpose_scales_rhs_kernel"): ("least_scales", scales_of_torchao),
    ("aiter", "_gemm_a16_w16_atomic_kernel"): ("in_parts", parts_of_aiter),
}


@pytest.mark.parametrize("asked", ASKED, ids="-".join)
def test_words_are_those_by_hand(asked):
    """Four numbers of every argument: kept of the published kernel, by hand, and of a kernel that moves the same."""
    name, case = ASKED[asked]
    grid, given, by_hand = case()
    answer = iosim.explain(getattr(asked_kernels, name), grid, **given, resources=False)
    found = {argument: tuple(int(row[word] or 0) for word in WORDS) for argument, row in answer.tensors.items()}
    assert {argument: words for argument, words in found.items() if any(words)} == by_hand
    assert KEPT[asked] == by_hand


def test_every_kept_row_has_its_words_by_hand_and_the_page_shows_them():
    assert set(KEPT) == set(ASKED)
    page = (ROOT / "docs" / "explain.md").read_text()
    (section,) = re.findall(r"### Ten more kernels\n(.*?)\n### ", page, re.S)
    shown = re.findall(r"^\| ([\w-]+)[^|]*\| `(\w+)` \| .*? \| (`\w+`) ([\d,]+) of ([\d,]+) \|$", section, re.M)
    assert len(shown) == 10
    for (project, kernel), (name, _, argument, words, distinct) in zip(KEPT, shown, strict=True):
        kept = KEPT[project, kernel][argument.strip("`")]
        assert name == project and (kept[0] or kept[2], kept[3]) == tuple(
            int(n.replace(",", "")) for n in (words, distinct)
        )
