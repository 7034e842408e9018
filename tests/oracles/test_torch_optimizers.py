"""Optimizers of the built-in runner beside PyTorch's own and plain references, on a CPU."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed; run `make test-oracles`")
import torch

from gnomon.engines.torch import eight_bits, orthogonal

pytestmark = pytest.mark.oracle

RATE = 1e-3
SHAPES = {
    "layers.0.attn.q.weight": (96, 64),
    "layers.1.attn.q.weight": (96, 64),
    "layers.0.ffn.up.weight": (160, 64),
    "layers.0.ffn.down.weight": (64, 160),
    "layers.0.attn_norm.weight": (64,),
    "embed.tokens.weight": (256, 64),
    "head.weight": (256, 64),
}


def weights(seed: int = 0) -> dict[str, Any]:
    torch.manual_seed(seed)
    return {name: torch.nn.Parameter(torch.randn(shape) * 0.02) for name, shape in SHAPES.items()}


def with_gradients(named: dict[str, Any], seed: int) -> dict[str, Any]:
    torch.manual_seed(seed)
    for one in named.values():
        one.grad = torch.randn_like(one)
    return named


def test_muon_is_pytorchs() -> None:
    """Three steps; matrices that are multiplied together differ by the rounding of bf16."""
    ours, theirs = weights(), weights()
    chosen = [name for name, shape in SHAPES.items() if name.startswith("layers.") and len(shape) == 2]
    one = orthogonal.MuonUpdate(ours, None, RATE)
    two = torch.optim.Muon(
        [theirs[name] for name in chosen], lr=RATE, weight_decay=orthogonal.WEIGHT_DECAY, momentum=orthogonal.MOMENTUM,
        adjust_lr_fn="match_rms_adamw",
    )  # fmt: skip
    three = torch.optim.AdamW([theirs[name] for name in SHAPES if name not in chosen], lr=RATE)
    before = weights()
    for number in range(3):
        with_gradients(ours, number), with_gradients(theirs, number)
        one.step(), two.step(), three.step()
    for name, weight in ours.items():
        moved, same = weight - before[name], theirs[name] - before[name]
        tolerance = 0.03 if name in chosen else 1e-6
        assert (moved - same).norm() <= tolerance * same.norm(), name
        assert moved.norm() > 0


def test_momenta_become_orthogonal() -> None:
    """Singular values near 1 for wide matrices and tall ones, several at a time as one alone."""
    torch.manual_seed(0)
    for shape in ((3, 48, 80), (3, 80, 48)):
        momenta = torch.randn(shape)
        made = orthogonal.orthogonal(momenta, torch.float32)
        values = torch.linalg.svdvals(made)
        assert values.min() > 0.6 and values.max() < 1.3
        for several, one in zip(made, momenta, strict=True):
            alone = orthogonal.orthogonal(one[None], torch.float32)[0]
            torch.testing.assert_close(several, alone, rtol=1e-4, atol=1e-5)
        u, _, v = torch.linalg.svd(momenta, full_matrices=False)
        assert ((u @ v) * made).sum() > 0.9 * made.norm() * (u @ v).norm()


def test_the_numbers_of_a_byte() -> None:
    for signed in (True, False):
        table = eight_bits.numbers(signed)
        assert table.numel() == table.unique().numel() == 256
        assert table[-1] == 1 and (table == 0).sum() == 1
        assert (table[0] < 0) == signed
        # Relative steps are small over four decades: a moment does not vanish beside its block's largest.
        values = torch.logspace(-4, 0, 2000)
        between = (table[1:] + table[:-1]) / 2
        near = table[torch.bucketize(values, between)]
        assert ((near - values).abs() / values).max() < 0.4
        assert ((near - values).abs() / values)[values > 0.11].max() < 0.07


@pytest.mark.parametrize("count", [1000, 4096])
def test_moments_are_read_as_they_were_written(count: int) -> None:
    torch.manual_seed(0)
    packed = eight_bits.ByteMoment.zeros(count, "cpu", True)
    whole = packed.codes.numel()
    assert not packed.read(0, whole).any()
    values = torch.randn(whole) * 1e-3
    packed.write(0, values)
    largest = values.view(-1, eight_bits.BLOCK).abs().amax(1)
    off = (packed.read(0, whole) - values).view(-1, eight_bits.BLOCK).abs().amax(1)
    assert (off <= 0.02 * largest).all()
    bits = packed.codes.numel() * 8 + packed.scales.numel() * 32
    assert bits / whole == pytest.approx(8.125)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_one_step_of_eight_bits_is_adamws(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A first step has exact moments; later ones are as far off as bytes are. Values are taken some at a time."""
    monkeypatch.setattr(eight_bits, "MOST_VALUES", 2**15)
    torch.manual_seed(0)
    start = torch.randn(70_000) * 0.02
    ours, theirs = (torch.nn.Parameter(start.clone().to(dtype)) for _ in range(2))
    one, two = eight_bits.BlockwiseAdamW([ours], RATE), torch.optim.AdamW([theirs], lr=RATE)
    for number in range(6):
        torch.manual_seed(number)
        ours.grad = torch.randn_like(ours)
        theirs.grad = ours.grad.clone()
        one.step(), two.step()
        if not number:
            tolerance = 1e-7 if dtype is torch.float32 else 1e-3
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=tolerance)
    moved, same = (ours - start.to(dtype)).float(), (theirs - start.to(dtype)).float()
    assert (moved - same).norm() < 0.1 * same.norm()
