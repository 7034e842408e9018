"""The network as plain eager modules: every operator is one the predictor lists, and nothing is fused.

Tensors are not bound to names beyond their use, so that the allocator holds only what autograd saves.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.nn import functional as F

from gnomon.engines.torch import context, recompute
from gnomon.engines.torch.experts import Ffn, MixtureOfExperts
from gnomon.spec import AttentionMixer, Block, Model, MoeFfn, Recipe

NORM_EPS = 1e-5
ROPE_BASE = 1e4
"""Neither changes which kernels run."""

Tensor = Any
Rope = tuple[Tensor, Tensor]

_ATEN = torch.ops.aten
MATRICES = frozenset({_ATEN.mm.default, _ATEN.addmm.default, _ATEN._grouped_mm.default})
"""GEMMs with weights, and those of experts."""
SAVED = MATRICES | frozenset(
    {
        _ATEN.bmm.default,  # attention without a fused kernel
        _ATEN._scaled_dot_product_flash_attention.default,
        _ATEN._scaled_dot_product_flash_attention_for_cpu.default,
        _ATEN._scaled_dot_product_efficient_attention.default,
        _ATEN._scaled_dot_product_cudnn_attention.default,
        _ATEN._scaled_dot_product_fused_attention_overrideable.default,
    }
)
"""Operators whose results selective recomputation saves: GEMMs and attention."""
_C10D = torch.ops._c10d_functional
EXCHANGED = frozenset({_C10D.reduce_scatter_tensor.default, _C10D.all_to_all_single.default})
"""Collectives whose results are saved where operators are chosen one by one."""


class NormModule(nn.Module):  # type: ignore[misc]
    """RMS norm, or layer norm where it has a bias."""

    def __init__(self, width: int, bias: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))
        self.bias = nn.Parameter(torch.empty(width)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        if self.bias is None:
            return F.rms_norm(x, self.weight.shape, self.weight, NORM_EPS)
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, NORM_EPS)


class SelfAttention(nn.Module):  # type: ignore[misc]
    """Causal attention with separate projections. Under tensor parallelism a rank has its local heads only."""

    def __init__(self, hidden: int, spec: AttentionMixer) -> None:
        super().__init__()
        self.head_dim = spec.head_dim
        self.mix = context.plain
        self.q = nn.Linear(hidden, spec.q_width, bias=spec.qkv_bias)
        self.k = nn.Linear(hidden, spec.kv_width, bias=spec.qkv_bias)
        self.v = nn.Linear(hidden, spec.kv_width, bias=spec.qkv_bias)
        self.out = nn.Linear(spec.q_width, hidden, bias=spec.out_bias)
        self.q_norm = NormModule(spec.head_dim) if spec.qk_norm else None
        self.k_norm = NormModule(spec.head_dim) if spec.qk_norm else None

    def forward(self, x: Tensor, rope: Rope | None) -> Tensor:
        return self.out(self.attend(x, rope))

    def attend(self, x: Tensor, rope: Rope | None) -> Tensor:
        mixed = self.mix(
            self.rotated(self.q, self.q_norm, x, rope).transpose(1, 2),
            self.rotated(self.k, self.k_norm, x, rope).transpose(1, 2),
            self.heads(self.v, x).transpose(1, 2),
        )
        return mixed.transpose(1, 2).flatten(2)

    def heads(self, linear: nn.Linear, x: Tensor) -> Tensor:
        return linear(x).unflatten(-1, (-1, self.head_dim))

    def rotated(self, linear: nn.Linear, norm: NormModule | None, x: Tensor, rope: Rope | None) -> Tensor:
        x = self.heads(linear, x)
        if norm is not None:
            x = norm(x)
        return x if rope is None else rotate(x, *rope)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def rope_table(seq: int, head_dim: int, dtype: Any, device: Any) -> Rope:
    """Cosines and sines of every position, to be broadcast over (batch, position, head, half a head)."""
    turns = ROPE_BASE ** (-torch.arange(0, head_dim, 2, device=device) / head_dim)
    angles = torch.outer(torch.arange(seq, device=device), turns).unsqueeze(1)
    return angles.cos().to(dtype), angles.sin().to(dtype)


class LayerModule(nn.Module):  # type: ignore[misc]
    """One transformer block, which activation checkpointing recomputes as a unit. `number` is its own in the network,
    `layers` are those of its part."""

    def __init__(self, model: Model, spec: Block, recipe: Recipe, number: int, layers: range) -> None:
        super().__init__()
        ffn = spec.feed_forward
        self.attn_norm = NormModule(model.hidden, model.norm_bias)
        self.attn = SelfAttention(model.hidden, spec.attention)
        self.ffn_norm = NormModule(model.hidden, model.norm_bias)
        self.ffn = MixtureOfExperts(model.hidden, ffn) if isinstance(ffn, MoeFfn) else Ffn(model.hidden, ffn)
        self.run = recompute.forward_of(self, number, layers, recipe)

    def forward(self, x: Tensor, rope: Rope | None) -> Tensor:
        return self.run(x, rope)

    def body(self, x: Tensor, rope: Rope | None) -> Tensor:
        x = x + self.attn(self.attn_norm(x), rope)
        return x + self.ffn(self.ffn_norm(x))


class Embed(nn.Module):  # type: ignore[misc]
    """Token embeddings, and learned position embeddings where the model has them."""

    def __init__(self, model: Model, seq: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(model.vocab, model.hidden)
        learned = model.learned_positions
        self.positions = nn.Parameter(torch.empty(learned, model.hidden)) if learned else None
        self.rows: Any = slice(0, seq)
        """Positions of this rank's tokens, a slice or a tensor."""

    def cut(self, ranks: int, rank: int) -> None:
        """Keep one of equal parts of the tokens."""
        if not isinstance(self.rows, slice):
            self.rows = self.rows.chunk(ranks)[rank]
            return
        each = self.rows.stop // ranks
        self.rows = slice(rank * each, (rank + 1) * each)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens)
        return x if self.positions is None else x + self.positions[self.rows]


class Part(nn.Module):  # type: ignore[misc]
    """Consecutive layers, with the embedding before the first and the head and loss after the last layer of the model;
    `ends` says which of them, where a part may have no layers.

    Takes tokens or the previous part's output, returns its output or the scaled mean loss. Layers are named by their
    number in the full network, so that a weight has the same name on any rank.
    """

    def __init__(
        self, model: Model, layers: range, seq: int, recipe: Recipe, ends: tuple[bool, bool] | None = None
    ) -> None:
        super().__init__()
        first, last = ends or (layers.start == 0, layers.stop == model.layers)
        blocks = [block for block in model.blocks for _ in range(block.count)]
        self.embed = Embed(model, seq) if first else None
        self.layers = nn.ModuleDict({str(i): LayerModule(model, blocks[i], recipe, i, layers) for i in layers})
        self.norm = NormModule(model.hidden, model.norm_bias) if last else None
        self.head = nn.Linear(model.hidden, model.vocab, bias=False) if last else None
        self.rope: Rope | None = None
        self.loss_scale = 1.0

    def forward(self, x: Tensor, targets: Tensor = None) -> Tensor:
        if self.embed is not None:
            x = self.embed(x)
        for layer in self.layers.values():
            x = layer(x, self.rope)
        return x if self.head is None else self.loss(x, targets)

    def loss(self, x: Tensor, targets: Tensor) -> Tensor:
        assert self.head is not None and self.norm is not None
        loss = F.cross_entropy(self.head(self.norm(x)).float().flatten(0, 1), targets.flatten())
        return (loss.to_local() if isinstance(loss, DTensor) else loss) * self.loss_scale
