"""The lab's vision networks against PyTorch's own modules, its count of FLOPs, and published parameters."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; run `make test-oracles`")

from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from gnomon.lab.bench import Bench  # noqa: E402
from gnomon.lab.experiments.shvit import NETWORKS, SMALL, _timed  # noqa: E402
from gnomon.lab.launches import Tally  # noqa: E402
from gnomon.lab.priced import torch_machine  # noqa: E402
from gnomon.lab.vision import KEYS, OneHead, Transformer  # noqa: E402
from gnomon.load.chips import chip  # noqa: E402

pytestmark = pytest.mark.oracle

PUBLISHED = {
    "SHViT-S1": (6.3e6, 241e6),
    "SHViT-S4": (16.5e6, 986e6),
    "DeiT-T": (5_717_416, 0),
    "DeiT-S": (22_050_664, 0),
}
"""Parameters and multiplications: SHViT's README, timm's models."""


def bench() -> Bench:
    return Bench(torch, "cpu", lambda _: None)


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_are_those_published(name: str) -> None:
    network, (parameters, multiplied) = NETWORKS[name], PUBLISHED[name]
    tally = network.tally(Tally(torch_machine(chip("H200"))), 1, fused=False)
    assert network.parameters == pytest.approx(parameters, rel=0.005)
    assert not multiplied or tally.flops / 2 == pytest.approx(multiplied, rel=0.005)


@pytest.mark.parametrize("name", NETWORKS)
def test_flops_that_are_predicted_are_those_that_run(name: str) -> None:
    for network in (NETWORKS[name], SMALL[name]):
        tally = network.tally(Tally(torch_machine(chip("H200"))), 2, fused=True)
        shapes = [shape for layer in network.layers for shape in layer.shapes()]
        weights = [torch.empty(shape, device="meta") for shape in shapes]
        x = torch.empty(2, 3, network.pixels, network.pixels, device="meta")
        with FlopCounterMode(display=False) as counted, torch.no_grad():
            assert network(torch, x, weights).shape == (2, 1000)
        assert tally.flops == counted.get_total_flops()


def test_a_single_head_is_softmax_attention() -> None:
    head, generator = OneHead(width=20, part=12), torch.Generator().manual_seed(1)
    weights = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in head.shapes()]
    x = torch.randn(2, 20, 3, 5, generator=generator, dtype=torch.float64)
    gain, shift, project, bias, out, last = weights
    normed = torch.nn.functional.group_norm(x[:, :12], 1, gain, shift)
    made = torch.nn.functional.conv2d(normed, project, bias).flatten(2).transpose(1, 2)
    query, key, value = made[..., :KEYS], made[..., KEYS : 2 * KEYS], made[..., 2 * KEYS :]
    mixed = torch.nn.functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).reshape(2, 12, 3, 5)
    whole = torch.cat([mixed, x[:, 12:]], 1).relu()
    assert torch.allclose(head.run(torch, x, iter(weights)), torch.nn.functional.conv2d(whole, out, last))


def test_blocks_are_those_of_an_encoder() -> None:
    made = Transformer(width=24, heads=3, blocks=1, tokens=6)
    generator = torch.Generator().manual_seed(2)
    weights: list[Any] = [torch.randn(shape, generator=generator, dtype=torch.float64) / 4 for shape in made.shapes()]
    layer = torch.nn.TransformerEncoderLayer(
        24, 3, 96, 0.0, "gelu", norm_first=True, batch_first=True, dtype=torch.float64
    )
    attention = layer.self_attn
    own = (
        layer.norm1.weight, layer.norm1.bias, attention.in_proj_weight, attention.in_proj_bias,
        attention.out_proj.weight, attention.out_proj.bias, layer.norm2.weight, layer.norm2.bias,
        layer.linear1.weight, layer.linear1.bias, layer.linear2.weight, layer.linear2.bias,
    )  # fmt: skip
    x = torch.randn(2, 24, 2, 3, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        for mine, given in zip(own, weights[2:14], strict=True):
            mine.copy_(given)
        tokens = torch.cat([weights[0].expand(2, 1, 24), x.flatten(2).transpose(1, 2)], 1) + weights[1]
        normed = torch.nn.functional.layer_norm(layer(tokens)[:, 0], (24,), *weights[14:16])
        assert torch.allclose(made.run(torch, x, iter(weights)), torch.nn.functional.linear(normed, *weights[16:]))


def test_a_layer_that_is_wrong_is_seen_and_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    network, whole = SMALL["SHViT-S4"], OneHead.run
    assert all(check.ok for check in _timed(bench(), network, 2, ["eager"]).checks)

    def without_attention(self: OneHead, torch: Any, x: Any, weights: Any) -> Any:
        if x.dtype != torch.bfloat16:
            return whole(self, torch, x, weights)
        for _ in self.shapes():
            next(weights)
        return x

    monkeypatch.setattr(OneHead, "run", without_attention)
    ways = _timed(bench(), network, 2, ["eager"])
    assert not any(check.ok for check in ways.checks) and not ways.runs
