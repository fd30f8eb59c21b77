"""`train.py DEVICE (mlp|gpt) (foreach|fused)`: trains a small model; prints losses and weights' sum in hexadecimal."""

import sys

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

STEPS = 12


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    def __init__(self, tokens=256, width=64, heads=4, layers=2, length=32):
        super().__init__()
        self.embedding, self.position = nn.Embedding(tokens, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, tokens, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        x = self.embedding(tokens) + self.position(torch.arange(tokens.shape[1], device=tokens.device))
        return self.head(self.norm(self.blocks(x)))


def main(device, kind, optimizer):
    torch.manual_seed(0)
    if kind == "mlp":
        model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
        x, y = torch.randn(64, 64), torch.randint(0, 10, (64,))
    else:
        model = Gpt()
        x = torch.randint(0, 256, (4, 32))
        y = torch.roll(x, -1, 1)
    model, x, y = model.to(device), x.to(device), y.to(device)
    step = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=optimizer == "fused", foreach=optimizer == "foreach")
    for _ in range(STEPS):
        step.zero_grad()
        loss = F.cross_entropy(model(x).flatten(0, -2), y.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        step.step()
        print("loss", loss.item().hex())
    print("weights", sum(p.double().sum().item() for p in model.parameters()).hex())
    print("on", {p.device.type for p in model.parameters()})


if __name__ == "__main__":
    main(*sys.argv[1:])
