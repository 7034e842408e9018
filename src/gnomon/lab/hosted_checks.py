"""Checks of training with states outside the GPU, on a small stack whose kernels repeat their bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

from gnomon.lab import blocks
from gnomon.lab.base import Check
from gnomon.lab.bench import SEED, Bench
from gnomon.lab.hosted import AFTER, DELAYED, HostedTraining, HostStates, Resident, States
from gnomon.lab.offload import BETA1, BETA2, DECAY, EPS, LR

SMALL = {"width": 64, "heads": 4, "sequences": 2, "tokens": 16}
BLOCKS, STEPS = 4, 4
Make = Callable[[Bench, list[Any]], States]


def exactly(torch: Any) -> AbstractContextManager[Any]:
    """Attention by kernels whose backward has a fixed order of sums."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    found: AbstractContextManager[Any] = sdpa_kernel(SDPBackend.MATH)
    return found


def checked(bench: Bench, make: Make, modes: tuple[str, ...]) -> Iterator[Check]:
    """Weights and states after several steps, in each mode against updates after the backward."""
    yield blocks.against_definition(bench)
    yield _adam(bench)
    weights = blocks.drawn(bench, BLOCKS, SMALL["width"])
    with exactly(bench.torch):
        plain = _trained(bench, HostStates(bench, weights), weights, AFTER)
        resident = Resident(bench, SMALL, weights)
        gradients = _first_gradients(bench, HostedTraining(bench, SMALL, HostStates(bench, weights), weights, AFTER))
        there = _first_gradients(bench, resident.training)
        differing = sum(float((a != b).sum()) for a, b in zip(gradients, there, strict=True))
        yield Check(what="first gradients that differ from those of resident states", difference=differing, bound=0.0)
        for mode in modes:
            wanted = _delayed(bench, weights) if mode == DELAYED else plain
            found = _trained(bench, make(bench, weights), weights, mode)
            apart = sum(float((a != b).sum()) for a, b in zip(found, wanted, strict=True))
            against = "a delayed update by definition" if mode == DELAYED else "updates after the backward"
            yield Check(what=f"{mode}: values that differ from {against}", difference=apart, bound=0.0)


def _first_gradients(bench: Bench, training: HostedTraining) -> list[Any]:
    training.forward_backward()
    found = [flat.grad.cpu().clone() for flat in training.weights]
    for flat in training.weights:
        flat.grad = None
    return found


def _trained(bench: Bench, states: States, weights: list[Any], mode: str) -> list[Any]:
    """Weights on the device and states after some steps."""
    training = HostedTraining(bench, SMALL, states, weights, mode)
    for _ in range(STEPS):
        training.step()
    training.close()
    kept: Any = states
    return [*(flat.detach().cpu() for flat in training.weights), *(each.clone() for row in kept.states for each in row)]


def _delayed(bench: Bench, weights: list[Any]) -> list[Any]:
    """A step's gradient is of the weights before the last update: one thing after the other."""
    states = HostStates(bench, weights)
    training = HostedTraining(bench, SMALL, states, weights, AFTER)
    before: list[Any] = []
    for step in range(STEPS):
        now = _first_gradients(bench, training)
        for block, gradient in enumerate(before):
            states.update(block, gradient, step - 1)
            training.weights[block].data.copy_(states.weights16[block])
        before = now
    return [*(flat.detach().cpu() for flat in training.weights), *(each for row in states.states for each in row)]


def _adam(bench: Bench) -> Check:
    """The CPU's update against AdamW by definition in fp64."""
    torch, size = bench.torch, 1000
    generator = torch.Generator().manual_seed(SEED)
    first = torch.randn(size, generator=generator).to(torch.bfloat16)
    states = HostStates(bench, [first])
    weights, momentum, variance = first.double(), torch.zeros(size).double(), torch.zeros(size).double()
    for step in range(3):
        gradient = torch.randn(size, generator=generator).to(torch.bfloat16)
        states.update(0, gradient, step)
        weights *= 1 - LR * DECAY
        momentum = BETA1 * momentum + (1 - BETA1) * gradient.double()
        variance = BETA2 * variance + (1 - BETA2) * gradient.double().square()
        scale = (variance / (1 - BETA2 ** (step + 1))).sqrt() + EPS
        weights -= LR * momentum / (1 - BETA1 ** (step + 1)) / scale
    apart = float((states.states[0][0].double() - weights).abs().max())
    return Check(what="the CPU's AdamW against its definition in fp64", difference=apart, bound=2e-6)


def shape_of(sizes: Mapping[str, int]) -> dict[str, int]:
    return {name: sizes[name] for name in ("blocks", "width", "heads", "sequences", "tokens")}
