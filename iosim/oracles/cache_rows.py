"""New rows of a KV cache, and the cache that holds them, in float64."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from ..core.problem import Attention
    from ..core.typing import Array, Arrays, Bools

LARGEST = 448.0  # of FP8 (E4M3); a scale brings the largest word of its block here


def new_rows(rng: np.random.Generator, p: Attention, visible: Bools | None) -> Arrays:
    """Random new rows and their slots. Every word fits each type exactly once it is divided by its scale, so that
    rounding changes nothing: scales are powers of 2, and in each block one word is as large as can be."""
    import numpy as np

    shapes = {"K": p.k_words, "V": p.dv, "Krope": p.rope_words}
    found: Arrays = {"slots": rng.permutation(p.Nk)[: p.N]}  # type: ignore[dict-item]  # whole numbers
    for name, width in shapes.items():
        if not width or (name == "V" and p.latent):
            continue
        rows = rng.integers(-15, 16, size=(p.N, width)).astype(float)
        if p.kv_scales == "tensor" and name != "Krope":
            found[name + "scale"] = 2.0 ** rng.integers(-2, 3, size=(1, 1))
            rows = rows * found[name + "scale"]
        elif p.scale_words and name != "Krope":
            rows[:, :: p.scale_words] = LARGEST * rng.choice([-1, 1], size=rows[:, :: p.scale_words].shape)
            factors = 2.0 ** rng.integers(-2, 1, size=(p.N, -(-width // p.scale_words)))
            rows = rows * np.repeat(factors, p.scale_words, axis=1)[:, :width]
        found[name + "new"] = rows
    return found


def cache_with_new_rows(hbm: Arrays, p: Attention, visible: Bools | None) -> Arrays:
    """The cache, which was 0 before: each row divided by its scales in its slot, and scales of blocks beside it."""
    import numpy as np

    slots = [int(slot) for slot in hbm["slots"]]
    found: Arrays = {}
    for name in ("K", "V", "Krope"):
        if name + "new" not in hbm:
            continue
        rows = np.asarray(hbm[name + "new"], np.float64)
        if p.scale_words and name != "Krope":
            scales = np.stack([scales_of_row(row, p.scale_words) for row in rows])
            rows = rows / np.repeat(scales, p.scale_words, axis=1)[:, : rows.shape[1]]
            found[name + "scale"] = in_slots(scales, slots, p.Nk)
        elif p.kv_scales == "tensor":
            rows = rows / float(np.asarray(hbm[name + "scale"])[0, 0])
        found[name] = in_slots(rows, slots, p.Nk)
    return found


def scales_of_row(row: Array, words: int) -> Array:
    """The scale of each block of words of a row; 1 for a block of zeros."""
    import numpy as np

    largest = np.array([abs(row[x : x + words]).max() for x in range(0, len(row), words)])
    return np.where(largest > 0, largest / LARGEST, 1.0)  # type: ignore[no-any-return]


def in_slots(rows: Array, slots: list[int], length: int) -> Array:
    """An array of `length` rows: `rows` in their slots, and zeros."""
    import numpy as np

    found = np.zeros((length, rows.shape[1]))
    found[slots] = rows
    return found
