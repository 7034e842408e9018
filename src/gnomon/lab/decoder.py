"""A decoder trained on random tokens, for experiments around training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnomon.lab.bench import SEED, Bench
from gnomon.lab.checkpoint import state_of

VOCABULARY = 16384


class DecodeLoop:
    """A decoder of plain PyTorch layers, weights and states in fp32, GEMMs in bf16."""

    def __init__(self, bench: Bench, sizes: Mapping[str, int]) -> None:
        torch, width = bench.torch, sizes["width"]
        nn = torch.nn
        torch.manual_seed(SEED)
        self.bench, self.torch = bench, torch
        layer = [
            nn.TransformerEncoderLayer(
                width, sizes["heads"], 4 * width, dropout=0.0, batch_first=True, norm_first=True, device=bench.device
            )
            for _ in range(sizes["layers"])
        ]
        self.table = nn.Embedding(VOCABULARY if bench.timed else 64, width, device=bench.device)
        nn.init.normal_(self.table.weight, std=0.02)
        self.layers = nn.ModuleList(layer)
        self.model = nn.ModuleList([self.table, self.layers])
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)
        shape = (sizes["batch"], sizes["sequence"] + 1)
        generator = bench.generator(SEED + 7)
        self.tokens = torch.randint(0, self.table.num_embeddings, shape, device=bench.device, generator=generator)
        self.mask = nn.Transformer.generate_square_subsequent_mask(sizes["sequence"], device=bench.device)

    @property
    def parameters(self) -> int:
        return sum(weight.numel() for weight in self.model.parameters())

    def state(self) -> list[Any]:
        return list(state_of(self.model, self.optimizer))

    def forward_backward(self) -> Any:
        torch = self.torch
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.bench.device, dtype=torch.bfloat16):
            x = self.table(self.tokens[:, :-1])
            for layer in self.layers:
                x = layer(x, src_mask=self.mask, is_causal=True)
            logits = x @ self.table.weight.T
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), self.tokens[:, 1:].flatten())
        loss.backward()
        return loss.detach()

    def update(self) -> None:
        self.optimizer.step()
