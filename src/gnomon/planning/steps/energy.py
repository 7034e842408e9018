"""Joules of a run: a constant part while the device is up, and what its work takes at the clock it had."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gnomon.engines import Deployment
from gnomon.spec import Estimate, Pool

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


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerUse:
    """What the chips of a replica take: joules of all its steps, which last `busy_s` together, and watts in between."""

    busy_j: float
    busy_s: float
    waiting_w: float

    def mean_w(self, busy_share: float) -> float:
        """Watts of a replica that computes for a share of the time."""
        share = min(busy_share, 1.0)
        return share * self.busy_j / self.busy_s + (1 - share) * self.waiting_w


def power_use(deployment: Deployment, run: ServingRun) -> PowerUse:
    """By the joules that the run's steps took at their clocks. A chip that waits for requests keeps its clock up: an
    H200 under a vLLM that waits drew 121 to 132 W, not the 81 W of one without work (2026-11-18)."""
    ranks, active_w = deployment.strategy.ranks, deployment.profile.power["active_w"]
    busy_j = ranks * (run.dynamic_j + active_w * run.busy_s)
    return PowerUse(busy_j=busy_j, busy_s=run.busy_s, waiting_w=ranks * active_w)


def energy_j(deployment: Deployment, run: ServingRun) -> float:
    """Joules of all chips of a replica over a run."""
    use = power_use(deployment, run)
    return use.busy_j + max(run.makespan_s - run.busy_s, 0.0) * use.waiting_w
