"""Masks as functions mask_mod(b, h, q_idx, kv_idx), of the kinds that are published for FlexAttention."""

import numpy as np

LENGTHS = (10, 7, 23, 8)  # 48 tokens
DOCUMENT = np.repeat(np.arange(len(LENGTHS)), LENGTHS)
SIDE = 8  # of an image, for neighborhoods
HEADS = 4


def noop(b, h, q_idx, kv_idx):
    return True


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def sliding_window(size):
    def mask_mod(b, h, q_idx, kv_idx):
        return causal(b, h, q_idx, kv_idx) & (q_idx - kv_idx <= size)

    return mask_mod


def prefix_lm(length):
    return lambda b, h, q_idx, kv_idx: (kv_idx < length) | causal(b, h, q_idx, kv_idx)


def sinks(size, *, first):
    window = sliding_window(size)
    return lambda b, h, q_idx, kv_idx: window(b, h, q_idx, kv_idx) | (causal(b, h, q_idx, kv_idx) & (kv_idx < first))


def dilated_window(size, step):
    def mask_mod(b, h, q_idx, kv_idx):
        distance = abs(q_idx - kv_idx)
        return (distance <= size * step) & (distance % step == 0)

    return mask_mod


def document(b, h, q_idx, kv_idx):
    return DOCUMENT[q_idx] == DOCUMENT[kv_idx]


def in_documents(inner):
    """A mask inside of each document, whose positions begin at 0 there."""
    starts = np.cumsum((0, *LENGTHS))

    def mask_mod(b, h, q_idx, kv_idx):
        own = DOCUMENT[q_idx] == DOCUMENT[kv_idx]
        return own & inner(b, h, q_idx - starts[DOCUMENT[q_idx]], kv_idx - starts[DOCUMENT[kv_idx]])

    return mask_mod


def chunks(size):
    return lambda b, h, q_idx, kv_idx: q_idx // size == kv_idx // size


def global_tokens(count):
    return lambda b, h, q_idx, kv_idx: (q_idx < count) | (kv_idx < count)


def neighborhood(size, step=1):
    """The keys around a query of a SIDE x SIDE image, as many at its edges as elsewhere."""

    def mask_mod(b, h, q_idx, kv_idx):
        half = size // 2
        seen = True
        for q, k in ((q_idx // SIDE, kv_idx // SIDE), (q_idx % SIDE, kv_idx % SIDE)):
            seen = seen & (abs(np.clip(q, half * step, SIDE - 1 - half * step) - k) <= half * step)
            seen = seen & (q % step == k % step)
        return seen

    return mask_mod


def head_window(b, h, q_idx, kv_idx):
    return q_idx - kv_idx <= h * 4


def table_of_heads(b, h, q_idx, kv_idx):
    return np.ones((HEADS, 1, 1), bool)[h] & (q_idx >= kv_idx)


def two_batches(b, h, q_idx, kv_idx):
    return np.array([5, 6])[b] >= kv_idx


def distance(b, h, q_idx, kv_idx):
    return q_idx - kv_idx


def broken(b, h, q_idx, kv_idx):
    return DOCUMENT[q_idx + 48] == 0


def alibi(score, b, h, q_idx, kv_idx):
    return score - (q_idx - kv_idx) / 2
