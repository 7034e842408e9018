"""Joules of a run: a constant part while the device is up, and a part of every FLOP and byte."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gnomon.cost.profile import profile_for
from gnomon.engines import Deployment, Engine
from gnomon.sim.serving import ServingRun
from gnomon.spec import Batch, Chip, Estimate, Pool
from gnomon.spec.workload import Floats


def step_joules(power: Mapping[str, float], chip: Chip, seconds: float, flops: float, moved: float) -> float:
    """Energy of one rank's step; a chip never draws more than its limit."""
    free = power["active_w"] * seconds + power["j_per_flop"] * flops + power["j_per_byte"] * moved
    return min(free, chip.tdp_w * seconds)


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


def energy_j(engine: Engine, deployment: Deployment, run: ServingRun) -> float:
    """Joules of all chips of a replica over a run. FLOPs and bytes are those of the mean step, times the steps."""
    chip = deployment.pool.chip
    power = profile_for(chip).power
    graph, batch, steps = engine.graph(deployment), _mean_batch(run), run.totals.steps
    busy = step_joules(
        power, chip, run.busy_s, steps * float(graph.flops(batch)[0]), steps * float(graph.bytes(batch)[0])
    )
    idle = max(run.makespan_s - run.busy_s, 0.0) * power["idle_w"]
    return deployment.strategy.ranks * (busy + idle)
