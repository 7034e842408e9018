"""A layer of a mixture beside PyTorch's own count of FLOPs and of the tensors that autograd keeps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from gnomon.engines.megatron.style import fused
from gnomon.graph.layers import Cut, layer
from gnomon.graph.ops import Attention
from gnomon.spec import AttentionMixer as Mixer
from gnomon.spec import Batch, Block, Model, MoeFfn

HIDDEN, INNER, EXPERTS, TOPK, TOKENS = 64, 96, 8, 2, 128
MODEL = Model(
    name="mixture",
    family="mixture",
    hidden=HIDDEN,
    vocab=256,
    max_context=TOKENS,
    blocks=(
        Block(
            mixer=Mixer(heads=4, kv_heads=4, head_dim=16),
            ffn=MoeFfn(experts=EXPERTS, topk=TOPK, inner=INNER, shared_inner=32),
            count=1,
        ),
    ),
)
NODES = ("ffn.router", "ffn.experts.up", "ffn.experts.down", "ffn.shared_up", "ffn.shared_down")


class Experts(torch.nn.Module):
    """A router, experts of equal shares, and a shared one, each product a plain matrix product of PyTorch's."""

    def __init__(self) -> None:
        super().__init__()
        self.router = torch.nn.Parameter(torch.randn(HIDDEN, EXPERTS, dtype=torch.bfloat16))
        self.up = torch.nn.Parameter(torch.randn(EXPERTS, HIDDEN, 2 * INNER, dtype=torch.bfloat16))
        self.down = torch.nn.Parameter(torch.randn(EXPERTS, INNER, HIDDEN, dtype=torch.bfloat16))
        self.shared_up = torch.nn.Parameter(torch.randn(HIDDEN, 64, dtype=torch.bfloat16))
        self.shared_down = torch.nn.Parameter(torch.randn(32, HIDDEN, dtype=torch.bfloat16))

    def forward(self, x: Any) -> Any:
        scores = x @ self.router
        rows = x.repeat_interleave(TOPK, 0).view(EXPERTS, TOKENS * TOPK // EXPERTS, HIDDEN)
        gate, up = torch.bmm(rows, self.up).chunk(2, dim=-1)
        given = torch.bmm(F.silu(gate) * up, self.down)
        summed = given.view(TOKENS, TOPK, HIDDEN).sum(1)
        gate, up = (x @ self.shared_up).chunk(2, dim=-1)
        return summed + (F.silu(gate) * up) @ self.shared_down + scores.sum() * 0


def tape() -> Any:
    return layer(MODEL, MODEL.blocks[0], Cut(seq=TOKENS), fused())


def flops(ops: Any) -> float:
    batch = Batch.prefill([1], TOKENS)
    return float(sum(op.count * op.flops(batch)[0] for op in ops if not isinstance(op, Attention)))


def test_flops() -> None:
    nodes = [node for node in tape().nodes if node.name in NODES]
    x = torch.randn(TOKENS, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
    with FlopCounterMode(display=False) as counted:
        result = Experts()(x)
        there = counted.get_total_flops()
        result.sum().backward()
        back = counted.get_total_flops() - there
    assert there == flops(op for node in nodes for op in node.forward)
    assert back == flops(op for node in nodes for op in node.dgrad + node.wgrad)


def test_kept_bytes_of_the_products() -> None:
    """What matrix products hold for their gradients: the stream once, the rows sent to experts, both gates' results."""
    network, kept = Experts(), {}
    weights = {parameter.untyped_storage().data_ptr() for parameter in network.parameters()}

    def pack(tensor: Any) -> Any:
        # Products keep their inputs as they are; what elementwise kernels keep is counted by the tape apart.
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    x = torch.randn(TOKENS, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        network(x)
    sizes, taped = tape().sizes, tape()
    names = {name for node in taped.nodes if node.name.startswith("ffn.") for name in node.keeps}
    # The norm's input is not the module's, and neither is the router's choice; PyTorch also keeps the bent gates,
    # which a fused activation makes again.
    names -= {"between", "ffn.shares", "ffn.map"}
    bent = 2 * (TOPK * INNER + 32) * TOKENS
    found = sum(size for place, size in kept.items() if place not in weights)
    assert found == pytest.approx(sum(sizes[name] for name in names) * TOKENS + bent, rel=1e-12)


def test_kept_bytes_of_the_built_in_runners_mixture() -> None:
    """Every tensor that its autograd keeps, once, but the weights and what is a number per row or per expert."""
    from gnomon.engines.torch.experts import MixtureOfExperts
    from gnomon.engines.torch.style import style

    model = replace(MODEL, blocks=(replace(MODEL.blocks[0], ffn=replace(MODEL.blocks[0].ffn, shared_inner=0)),))
    network = MixtureOfExperts(HIDDEN, model.blocks[0].ffn).bfloat16()
    for weight in network.parameters():
        torch.nn.init.normal_(weight, 0.0, 0.05)
    kept, weights = {}, {weight.untyped_storage().data_ptr() for weight in network.parameters()}

    def pack(tensor: Any) -> Any:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    x = torch.randn(1, TOKENS, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        given = network(x)
    given.backward(torch.randn_like(given))
    taped = layer(model, model.blocks[0], Cut(seq=TOKENS), style(model))
    names = {name for node in taped.nodes if node.name.startswith("ffn.") for name in node.keeps} - {"between"}
    found = sum(size for place, size in kept.items() if place not in weights)
    assert found == pytest.approx(sum(taped.sizes[name] for name in names) * TOKENS, rel=0.003)
