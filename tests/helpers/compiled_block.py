"""Two training steps of a compiled transformer block."""

import torch
from torch.nn import functional as F

HALF = {"device": "cuda", "dtype": torch.bfloat16}


class Block(torch.nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = torch.nn.RMSNorm(d, **HALF), torch.nn.LayerNorm(d, **HALF)
        self.qkv, self.proj = torch.nn.Linear(d, 3 * d, **HALF), torch.nn.Linear(d, d, **HALF)
        self.up, self.down = torch.nn.Linear(d, 4 * d, **HALF), torch.nn.Linear(4 * d, d, **HALF)

    def forward(self, x):
        B, T, D = x.shape
        q, k, v = (part.view(B, T, self.heads, -1).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        turned = torch.cos(torch.arange(T, device=x.device).float())[:, None]
        seen = F.scaled_dot_product_attention((q * turned).to(q.dtype), k, v, is_causal=True)
        x = x + self.proj(seen.transpose(1, 2).reshape(B, T, D))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


model = Block(512, 8)
step = torch.compile(model)
for _ in range(2):
    loss = step(torch.randn(2, 1024, 512, **HALF)).float().pow(2).mean()
    loss.backward()
