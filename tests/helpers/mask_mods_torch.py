"""Masks that call PyTorch, as scripts with FlexAttention have them."""

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import and_masks, or_masks

LENGTHS = torch.tensor([10, 7, 23, 8], device="cuda", dtype=torch.int32)
DOCUMENT = torch.repeat_interleave(torch.arange(len(LENGTHS), device="cuda"), LENGTHS)
SIDE = 8


def causal(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
    return q_idx >= kv_idx


def document(b, h, q_idx, kv_idx):
    return DOCUMENT[q_idx] == DOCUMENT[kv_idx]


def window(size: int):
    return lambda b, h, q_idx, kv_idx: torch.abs(q_idx - kv_idx) <= size


both = and_masks(causal, document)
either = or_masks(document, window(3))


def noop(b, h, q_idx, kv_idx):
    return b.new_ones((), dtype=torch.bool)


def neighborhood(b, h, q_idx, kv_idx):
    row = (q_idx // SIDE).clamp(1, SIDE - 2) - kv_idx // SIDE
    column = (q_idx % SIDE).clamp(1, SIDE - 2) - kv_idx % SIDE
    return (row.abs() <= 1) & (column.abs() <= 1)


def of_head(b, h, q_idx, kv_idx):
    return torch.arange(8)[h] <= q_idx - kv_idx
