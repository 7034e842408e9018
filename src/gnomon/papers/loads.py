"""Loads of papers on one replica, simulated as `gnomon.simulate_serving` does it, without the draws of its interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from gnomon.engines import Deployment, Engine
from gnomon.errors import DoesNotFitError
from gnomon.load import model as load_model
from gnomon.load import parse_pool
from gnomon.load.deployments import deploy
from gnomon.sim.serving import Curves, ServingRun, simulate
from gnomon.sim.serving.system import ReplicaModel
from gnomon.spec import Model, Requests, Strategy
from gnomon.spec.workload import Floats, Ints


@dataclass(frozen=True, kw_only=True)
class PaperReplica:
    """One replica of a model on chips."""

    model: str | Model
    on: str
    engine: str
    dtype: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    techniques: Sequence[str] = ()
    longest: int = 16384
    """Most tokens of a request."""
    weight: float = 1.0
    """How much faster it is than others, for routers."""

    @cached_property
    def deployed(self) -> tuple[Engine, Deployment]:
        pool = parse_pool(self.on)
        model = load_model(self.model) if isinstance(self.model, str) else self.model
        strategy = Strategy(tp=pool.count, techniques=tuple(self.techniques))
        found = deploy(model, pool, strategy=strategy, dtype=self.dtype, engine=self.engine, settings=self.settings)
        found[1].techniques.check_simulated(found[1])
        return found

    @cached_property
    def simulated(self) -> ReplicaModel:
        """What simulates it."""
        engine, deployment = self.deployed
        curves: Curves = {}
        cost, limits = engine.step_cost(deployment, self.longest), engine.limits(deployment)
        return ReplicaModel(cost=cost, limits=limits, curves=curves, weight=self.weight)

    @property
    def fits(self) -> bool:
        """Whether its memory holds the longest request."""
        try:
            return bool(self.simulated)
        except DoesNotFitError:
            return False

    def sent(self, requests: Requests) -> Requests:
        """What clients send with its techniques."""
        deployment = self.deployed[1]
        return deployment.techniques.requests(requests, deployment)

    def serve(self, requests: Requests) -> ServingRun:
        """The load, at the central estimate of every step."""
        one = self.simulated
        return simulate(self.sent(requests), one.cost, one.limits, curves=one.curves)


def poisson(rate: float, inputs: Ints | int, outputs: Ints | int, count: int, seed: int = 0) -> Requests:
    """Requests of a Poisson stream, of one length or of these."""
    gaps = np.random.Generator(np.random.PCG64(seed)).exponential(1.0, count)
    arrivals: Floats = np.cumsum(gaps) / (rate * gaps.mean())
    return Requests(arrivals, _lengths(inputs, count), _lengths(outputs, count))


def lognormal(mean: float, cv: float, count: int, seed: int, most: int) -> Ints:
    """Lengths of a mean and a coefficient of variation, from 1 token to the most."""
    sigma2 = np.log1p(cv * cv)
    normals = np.random.Generator(np.random.PCG64(seed)).standard_normal(count)
    drawn: Ints = np.rint(np.exp(np.log(mean) - sigma2 / 2 + np.sqrt(sigma2) * normals)).astype(np.int64)
    return drawn.clip(1, most)


def by_deciles(deciles: Sequence[float], count: int, seed: int) -> Ints:
    """Lengths of a distribution that is known by its eleven deciles, straight between two of them."""
    shares = np.random.Generator(np.random.PCG64(seed)).random(count)
    found: Ints = np.rint(np.interp(shares, np.linspace(0, 1, len(deciles)), deciles)).astype(np.int64)
    return found.clip(1)


def _lengths(given: Ints | int, count: int) -> Ints:
    return np.full(count, given, np.int64) if isinstance(given, int) else given
