"""Loads of published benchmarks on one replica: a fixed number of clients who each wait for their answer before they
ask again, or one batch that begins at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gnomon.cost.step import StepCost
from gnomon.sim.serving import ServingRun, simulate
from gnomon.sim.serving.closed import simulate_closed
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Requests

ROUNDS, DRAWN_ROUNDS = 10, 4
"""Requests each client makes: as many as InferenceX's, and fewer where only a ratio is wanted. Its averages are over
all of them, so ours are too: the first ones, which come at once, are much of what first tokens wait for."""
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
    """The run of clients who each ask again when their answer is there."""
    given, made = load.lengths(rounds)
    return simulate_closed(Requests(np.zeros(given.size), given, made), load.clients, cost, limits)


def batch(size: int, input_tokens: int, output_tokens: int, cost: StepCost, limits: ServingLimits) -> ServingRun:
    """Equal requests, all there at the start."""
    requests = Requests(np.zeros(size), np.full(size, input_tokens), np.full(size, output_tokens))
    return simulate(requests, cost, limits)
