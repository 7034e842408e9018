"""Loads of published benchmarks on one replica: a fixed number of clients who each wait for their answer before they
ask again, or one batch that begins at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gnomon.cost.step import StepCost
from gnomon.sim.serving import ServingRun, simulate
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Requests

ROUNDS, DRAWN_ROUNDS = 10, 4
"""Requests each client makes: as many as InferenceX's, and fewer where only a ratio is wanted."""
PASSES = 6
"""Simulations of a round at most. Light networks whose steps take the same with more requests may not settle by then:
their means still do, to a few hundredths."""
SETTLED = 0.003
"""Of a request's time: arrivals that move less between two passes stay."""
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
    """The run whose arrivals are its own completions, found round by round.

    What comes later changes nothing of what came before, so a round of arrivals is guessed from the completions of
    the rounds before it, and moved half way to what a simulation makes of it until it stays: full steps swing.
    """
    given, made = load.lengths(rounds)
    arrivals = np.zeros(load.clients)
    run = simulate(Requests(arrivals, given[: load.clients], made[: load.clients]), cost, limits)
    for asked in range(2, rounds + 1):
        count = asked * load.clients
        arrivals = np.concatenate([arrivals, np.sort(run.finish_s)[-load.clients :]])
        for _ in range(PASSES):
            arrivals = np.maximum.accumulate(arrivals)
            run = simulate(Requests(arrivals, given[:count], made[:count]), cost, limits)
            found = np.concatenate([np.zeros(load.clients), np.sort(run.finish_s)[: -load.clients]])
            if np.abs(found - arrivals).max() <= SETTLED * run.e2e_s.mean():
                break
            arrivals = (arrivals + found) / 2
        else:
            arrivals = np.asarray(run.requests.arrival_s)
    return run


def batch(size: int, input_tokens: int, output_tokens: int, cost: StepCost, limits: ServingLimits) -> ServingRun:
    """Equal requests, all there at the start."""
    requests = Requests(np.zeros(size), np.full(size, input_tokens), np.full(size, output_tokens))
    return simulate(requests, cost, limits)
