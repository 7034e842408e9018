"""A job on two kinds of chips as an answer: the step of the slower kind, with energy and utilisation of both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gnomon.graph.gemm_recipes import multiplied_in
from gnomon.planning.training.axes import searched_axes
from gnomon.planning.training.mixed import Mixture
from gnomon.planning.training.report import report_step
from gnomon.planning.training.search import Search, label
from gnomon.planning.training.step import TrainingStep
from gnomon.search.quickest import Quickest
from gnomon.spec import Estimate
from gnomon.spec.answers import Resolved, TrainingPlanReport, TrainingReport

EQUAL = 5e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedPart:
    """The replicas of one kind."""

    search: Search
    step: TrainingStep
    """As if all replicas were of this kind, at what all of them cost on average."""
    replicas: int
    micros: int

    @property
    def share(self) -> float:
        """Of the replicas."""
        return self.replicas / self.step.job.strategy.dp

    @property
    def gpus(self) -> int:
        return self.step.job.strategy.ranks * self.replicas // self.step.job.strategy.dp

    @property
    def peak_flops(self) -> float:
        return self.gpus * self.step.pool.chip.rate(multiplied_in(self.step.job.dtype))

    def joules(self, lasting_s: float) -> float:
        """Over a step that may last longer than its own: its chips wait for the others."""
        waiting = self.gpus * self.search.bound.profile.power["active_w"] * (lasting_s - self.step.step_s.value)
        return self.step.energy_j.value * self.share + max(waiting, 0.0)

    @property
    def told(self) -> dict[str, Any]:
        return {
            "cluster": f"{self.search.pool.chip.reference}:{self.gpus}",
            "replicas": self.replicas,
            "micro_batches": self.micros,
            "sequences_per_replica": self.micros * self.step.job.recipe.micro_batch,
            "step_time_s": self.step.step_s.value,
            "peak_memory_bytes": max(self.step.peaks),
            "usable_memory_bytes": self.step.usable_bytes,
        }


def mixed_report(mixture: Mixture, found: Quickest, alone: TrainingPlanReport, asked: str) -> TrainingPlanReport:
    """The best mixture; `alone` is the answer for either kind alone, whose clusters it is compared with."""
    parts = _parts(mixture, found.best)
    slowest = max(parts, key=lambda part: part.step.step_s.value)
    best = _best(parts, slowest, mixture, asked)
    fit = int(np.isfinite(mixture.bounds_s).sum())
    second = {}
    if found.second is not None and found.second_value is not None and np.isfinite(found.second_value):
        more = found.second_value / found.value - 1
        why = "equal in time" if more < EQUAL else f"{more:.2%} slower"
        second = {"label": label(mixture.grid, found.second), "step_time_s": found.second_value, "why": why}
    return replace(
        alone,
        title=best.title,
        objective={**alone.objective, "value": best.run["days"] * 86400 if best.run else best.step_time_s.value},
        mixture={"by": "replica", "parts": [part.told for part in parts]},
        plans_considered=mixture.grid.size,
        plans_fit=fit,
        plans_timed=found.evaluated,
        axes=searched_axes([replace(mixture.searches[0], grid=mixture.grid)]),
        best=best,
        label=label(mixture.grid, found.best),
        bound_s=min(found.bound, best.step_time_s.value),
        runner_up=second,
        rejected={
            "does not fit in memory": mixture.grid.size - fit,
            "cannot be faster": fit - found.evaluated,
            "timed and slower": found.evaluated - 1,
        },
        shortage_bytes=(0.0, 0.0),
        resolved=Resolved.of(slowest.search.model, slowest.step.pool),
        inputs={**alone.inputs, "cluster": asked},
    )


def _parts(mixture: Mixture, row: int) -> list[MixedPart]:
    """Both kinds of the best plan."""
    grid, counts, micros = mixture.grid, mixture.replicas(row), mixture.share(row)
    each = int(grid.ranks[row] // grid.dp[row])
    ranks = [each * count for count in counts]
    prices = [one.pool.chip.price_usd_h for one in mixture.searches]
    price = sum(n * usd for n, usd in zip(ranks, prices, strict=True)) / sum(ranks)
    found = []
    for one, count, own in zip(mixture.searches, counts, micros, strict=True):
        strategy, recipe = grid.strategy(row), grid.recipe(row, one.optimizer)
        sequences = own * recipe.micro_batch * strategy.dp
        tokens = one.load.tokens
        load = replace(one.load, global_batch=sequences, tokens=tokens and tokens * sequences / one.load.global_batch)
        pool = replace(one.pool, count=strategy.ranks, chip=replace(one.pool.chip, price_usd_h=price))
        job = replace(one.bound.job(strategy, recipe, load, one.dtype), pool=pool)
        step = TrainingStep(one.engine, job, one.bound.profile)
        found.append(MixedPart(search=one, step=step, replicas=count, micros=own))
    return found


def _best(parts: list[MixedPart], slowest: MixedPart, mixture: Mixture, asked: str) -> TrainingReport:
    """The step of the slowest kind, whose seconds are those of the job, with figures of all chips."""
    plain, seconds = report_step(slowest.step), slowest.step.step_s.value
    load, job = mixture.searches[0].load, slowest.step.job
    gpus = sum(part.gpus for part in parts)
    work = load.global_batch / job.load.global_batch
    busy = work * gpus * slowest.peak_flops / slowest.gpus / sum(part.peak_flops for part in parts)
    power = sum(part.joules(seconds) for part in parts) / plain.energy_j
    factors = {"mfu": busy, "hfu": busy, "tokens_per_s_per_gpu": work, "energy_j": power}
    run = {**plain.run, "energy_kwh": plain.run["energy_kwh"] * power} if plain.run else plain.run
    plain_bands = {name: edges for name, edges in plain.bands.items() if name != "run"}
    bands: dict[str, Any] = {name: _scaled(edges, factors.get(name, 1.0)) for name, edges in plain_bands.items()}
    if plain.run:
        own = plain.bands.get("run", {})
        bands["run"] = {name: _scaled(edges, power if name == "energy_kwh" else 1.0) for name, edges in own.items()}
    kinds = " + ".join(f"{part.gpus:,} x {part.search.pool.chip.name}" for part in parts)
    one = f"{gpus:,} x {slowest.search.pool.chip.name}"
    sequences = f"{job.load.global_batch:,} sequences", f"{load.global_batch:,} sequences"
    title = plain.title.replace(one, kinds).replace(*sequences)
    fullest = max(max(part.step.peaks) for part in parts)
    return replace(
        plain,
        title=title,
        **{name: getattr(plain, name) * factor for name, factor in factors.items()},
        peak_memory_bytes=Estimate.exact(fullest, plain.peak_memory_bytes.source),
        run=run,
        bands=bands,
        co2_g=None if plain.co2_g is None else plain.co2_g * power,
        inputs={**plain.inputs, "on": asked, "global_batch": load.global_batch, "tokens": load.tokens},
        targets=(),
    )


def _scaled(edges: Any, factor: float) -> tuple[float, float]:
    low, high = edges
    return low * factor, high * factor


def with_mixture(alone: TrainingPlanReport, asked: str, why: str, value: float | None = None) -> TrainingPlanReport:
    """The answer of one kind alone, where no mixture is faster."""
    row: Mapping[str, Any] = {"cluster": asked, "why": why} if value is None else {
        "cluster": asked, "why": f"{why} ({value:.4g} s per step)"
    }  # fmt: skip
    return replace(alone, objective={**alone.objective, "compared": [*alone.objective["compared"], row]})
