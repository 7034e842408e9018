"""Loads of published benchmarks on one replica: a fixed number of clients who each wait for their answer before they
ask again, or one batch that begins at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gnomon.cost.step import StepCost
from gnomon.sim.serving import ServingRun, simulate
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Floats, Requests

ROUNDS, DRAWN_ROUNDS = 10, 4
"""Requests each client makes: as many as InferenceX's, and fewer where only a ratio is wanted."""
MOST_PASSES = 24
SETTLED = 0.003
"""Of the whole run: arrivals that move less between two passes stay."""
SEED = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedLoad:
    """`clients` requests are under way at any time. Lengths are even between `least` times the nominal one and it."""

    clients: int
    input_tokens: int
    output_tokens: int
    least: float = 1.0

    def lengths(self, rounds: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        draw, count = np.random.default_rng(SEED), self.clients * rounds
        given, made = (
            draw.integers(max(1, round(nominal * self.least)), nominal + 1, count)
            for nominal in (self.input_tokens, self.output_tokens)
        )
        return given, made


def serve(load: ClosedLoad, cost: StepCost, limits: ServingLimits, rounds: int = ROUNDS) -> ServingRun:
    """The run whose arrivals are its own completions: simulated again and again until they are.

    Each pass moves arrivals half way to the completions of the one before, which settles where whole steps swing.
    """
    given, made = load.lengths(rounds)
    arrivals = _first_guess(load, cost, limits, rounds)
    for _ in range(MOST_PASSES):
        run = simulate(Requests(arrivals, given, made), cost, limits)
        found = np.concatenate([np.zeros(load.clients), np.sort(run.finish_s)[: given.size - load.clients]])
        if np.abs(found - arrivals).max() <= SETTLED * run.makespan_s:
            break
        arrivals = (arrivals + found) / 2
    return run


def _first_guess(load: ClosedLoad, cost: StepCost, limits: ServingLimits, rounds: int) -> Floats:
    """Every round as the first, which nobody disturbs."""
    given, made = (lengths[: load.clients] for lengths in load.lengths(rounds))
    alone = simulate(Requests(np.zeros(load.clients), given, made), cost, limits).finish_s
    later = [alone + step * alone.mean() for step in range(rounds - 1)]
    return np.sort(np.concatenate([np.zeros(load.clients), *later]))


def batch(size: int, input_tokens: int, output_tokens: int, cost: StepCost, limits: ServingLimits) -> ServingRun:
    """Equal requests, all there at the start."""
    requests = Requests(np.zeros(size), np.full(size, input_tokens), np.full(size, output_tokens))
    return simulate(requests, cost, limits)
