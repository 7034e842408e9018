"""Backward passes in halves, beside whole ones."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed; run `make test-oracles`")
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

from gnomon.engines.torch.experts import LocalExperts, MixtureOfExperts
from gnomon.engines.torch.split import WeightGradients
from gnomon.spec import MoeFfn

pytestmark = pytest.mark.oracle


def drawn(module: nn.Module) -> nn.Module:
    for weight in module.parameters():
        nn.init.normal_(weight, std=0.1)
    return module


def test_weights_learn_when_their_graph_is_gone() -> None:
    """What hooks of saved tensors bring back is another tensor, which must not be what collects the gradient."""
    torch.manual_seed(0)
    module, x, store = drawn(nn.Sequential(nn.Linear(8, 4))), torch.randn(3, 8), WeightGradients()
    (whole,) = torch.autograd.grad(module(x).square().sum(), module[0].weight)
    store.defer(module)
    with saved_tensors_hooks(lambda saved: saved.detach().clone(), lambda saved: saved):
        result = module(x).square().sum()
    store.current = (0, 0)
    result.backward()
    del result
    assert module[0].weight.grad is None
    store.run((0, 0))
    torch.testing.assert_close(module[0].weight.grad, whole)


@pytest.mark.parametrize("halves", [False, True])
def test_experts_wait_too(halves: bool) -> None:
    torch.manual_seed(1)
    mixture = drawn(MixtureOfExperts(16, MoeFfn(experts=4, topk=2, inner=24)))
    x, grad = torch.randn(2, 8, 16, requires_grad=True), torch.randn(2, 8, 16)
    weights = list(mixture.parameters())
    by_x, *whole = torch.autograd.grad(mixture(x), [x, *weights], grad)
    store = WeightGradients()
    store.defer(mixture)
    store.current = (0, 0) if halves else None
    mixture(x).backward(grad)
    torch.testing.assert_close(x.grad, by_x)
    assert all((weight.grad is None) == halves for weight in weights)
    store.run((0, 0))
    for weight, expected in zip(weights, whole, strict=True):
        torch.testing.assert_close(weight.grad, expected)
    assert any(isinstance(module, LocalExperts) for module in mixture.modules())
