"""Joules of a run: a constant part while the device is up, and a part of every FLOP and byte."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gnomon.engines import Deployment, Engine
from gnomon.spec import Batch, Estimate, Pool
from gnomon.spec.workload import Floats

if TYPE_CHECKING:  # one step imports no simulator
    from gnomon.sim.serving import ServingRun


def carbon_g(pool: Pool, energy_j: Estimate) -> Estimate | None:
    """Grams of CO2 equivalent of a step's energy, where the grid is known."""
    grid = pool.grid
    if grid is None:
        return None
    return Estimate(
        grid.co2_g(energy_j.value),
        grid.co2_g(1.0) * energy_j.draws,
        energy_j.provenance,
        f"{grid.g_co2_kwh:g} g/kWh in {grid.place}: {grid.source}",
    )


def _mean_batch(run: ServingRun) -> Batch:
    """The mean step of a run: what all steps did, divided by their number."""
    totals = run.totals
    figures = (
        totals.decodes,
        totals.decode_context,
        totals.prefills,
        totals.prefill_tokens,
        totals.prefill_pairs,
        totals.prefill_context,
        totals.logit_rows,
    )
    means: list[Floats] = [np.array([figure / totals.steps]) for figure in figures]
    return Batch(*means)


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerUse:
    """What the chips of a replica take: joules of all its steps, which last `busy_s` together, and watts in between."""

    busy_j: float
    busy_s: float
    idle_w: float

    def mean_w(self, busy_share: float) -> float:
        """Watts of a replica that computes for a share of the time."""
        share = min(busy_share, 1.0)
        return share * self.busy_j / self.busy_s + (1 - share) * self.idle_w


def power_use(engine: Engine, deployment: Deployment, run: ServingRun) -> PowerUse:
    """FLOPs and bytes are those of the mean step of a run, times its steps."""
    model, batch, steps = engine.step_model(deployment), _mean_batch(run), run.totals.steps
    flops, moved = (steps * float(figure(batch)[0]) for figure in (model.graph.flops, model.graph.bytes))
    busy, ranks = float(model.machine.joules(run.busy_s, flops, moved)), deployment.strategy.ranks
    return PowerUse(busy_j=ranks * busy, busy_s=run.busy_s, idle_w=ranks * deployment.profile.power["idle_w"])


def energy_j(engine: Engine, deployment: Deployment, run: ServingRun) -> float:
    """Joules of all chips of a replica over a run."""
    use = power_use(engine, deployment, run)
    return use.busy_j + max(run.makespan_s - run.busy_s, 0.0) * use.idle_w
