"""Days, money and energy of a run whose job fails now and then, with the share of its time that counts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gnomon.errors import InfeasibleError, InputError
from gnomon.planning.run.checkpoints import CheckpointTimes, checkpoint_times
from gnomon.planning.training.step import TrainingStep
from gnomon.sim.run import (
    Goodput,
    Interruptions,
    Outcomes,
    best_interval_s,
    goodput,
    sampled,
    waiting,
    young_interval_s,
)
from gnomon.spec import Estimate, NotModelled
from gnomon.spec.answers import TrainingReport
from gnomon.spec.answers.run import RunReliability
from gnomon.spec.cluster import KWH_J
from gnomon.spec.estimate import DRAWS
from gnomon.spec.reliability import ENOUGH, MOST_SPARES, SHARED, CheckpointStorage, FaultTolerance
from gnomon.spec.workload import Floats
from gnomon.techniques import canonical
from gnomon.techniques.async_checkpointing import AsyncCheckpointing
from gnomon.units import DAY_S, HOUR_S, format_duration

LEAST = 1e-3
"""Goodput below which a run is called hopeless."""
RUNS = 16
"""Runs that are drawn for each draw of the step time."""
NO_WAIT = 1e-12
"""A share that no figure shows."""
ABOVE = 1.645
"""Standard deviations of the 95% quantile."""
TOO = AsyncCheckpointing.name
"""The technique that counts checkpoints into the step time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """A run in numbers: its failures, the interval between checkpoints, and where its time goes."""

    step: TrainingStep
    asked: FaultTolerance
    times: CheckpointTimes
    case: Interruptions
    steps: int
    every: int
    """Steps from one checkpoint to the next."""
    best: int
    found: Goodput

    @property
    def step_s(self) -> float:
        return self.step.step_s.value

    @property
    def wall_s(self) -> float:
        """On average."""
        return self.steps * self.step_s / self.found.share

    @property
    def trained_share(self) -> float:
        return self.found.share + self.found.lost_work


def with_failures(report: TrainingReport, asked: FaultTolerance | None, given: Mapping[str, Any]) -> TrainingReport:
    """The answer with its run's failures; `given` is what was asked about the run, by field."""
    if asked is None:
        return replace(report, inputs={**report.inputs, **given}) if given else report
    run = planned_run(report.step, asked)
    drawn = outcomes(run)
    figures = _figures(run, drawn)
    edges = {name: (one.low, one.high) for name, one in figures.items() if one.draws.size}
    return replace(
        report,
        run={name: one.value for name, one in figures.items()},
        bands={**report.bands, "run": edges},
        reliability=_reliability(run, drawn, figures["days"]),
        assumed=(*report.assumed, *_assumed(run, given)),
        not_modelled=(*report.not_modelled, *_idle(run, given)),
        inputs={**report.inputs, **given},
    )


def _idle(run: PlannedRun, given: Mapping[str, Any]) -> Iterator[NotModelled]:
    """A repair time that no figure depends on."""
    if "repair_time_s" in given and run.asked.spares is not None and run.found.repairs < NO_WAIT:
        why = f"no run waits for a repair with {run.case.spares:,} spare nodes"
        yield NotModelled(option=f"--repair-time {given['repair_time_s']:g}s", why=why)


def planned_run(step: TrainingStep, asked: FaultTolerance, steps: int | None = None) -> PlannedRun:
    """The run of so many steps, or else of the job's own tokens. Raises where it cannot be finished, or checkpoints
    cannot be taken."""
    if any(canonical(text) == TOO for text in step.job.strategy.techniques):
        hint = "Leave the technique out: --checkpoint-mode says how checkpoints are taken."
        raise InputError(f"{TOO} counts checkpoints in the step time, and --failures again", where="--with", hint=hint)
    steps = step.job.load.steps if steps is None else steps
    assert steps is not None  # the question asks for tokens
    times, step_s = checkpoint_times(step, asked), step.step_s.value
    case = _interruptions(step, asked, times)
    best, every = _intervals(case, asked, step_s, steps)
    found = _without_repairs(case, every * step_s)
    if found.share < LEAST:
        raise _hopeless(step, asked, times, case, every, steps)
    work_s = steps * step_s
    case = replace(case, spares=spares_of(asked, case, work_s / found.share))
    found = goodput(case, every * step_s, work_s)
    return PlannedRun(step=step, asked=asked, times=times, case=case, steps=steps, every=every, best=best, found=found)


def _interruptions(step: TrainingStep, asked: FaultTolerance, times: CheckpointTimes) -> Interruptions:
    return Interruptions(
        failures_per_s=asked.failures.per_gpu_hour * step.job.strategy.ranks / HOUR_S,
        hardware=asked.failures.hardware,
        stall_s=times.stall_s,
        soft_lag_s=times.soft_lag_s,
        hard_lag_s=times.hard_lag_s,
        busy_s=times.hard_lag_s,
        soft_restart_s=asked.detection_s + asked.restart_s + times.soft_load_s,
        hard_restart_s=asked.detection_s + asked.restart_s + times.hard_load_s,
        repair_s=asked.repair_s,
    )


def _intervals(case: Interruptions, asked: FaultTolerance, step_s: float, steps: int) -> tuple[int, int]:
    """Steps from one checkpoint to the next: the best, and those that the run has."""
    best = min(max(1, round(best_interval_s(case, step_s) / step_s)), steps)
    return best, _every(asked, step_s, steps) or best


def _without_repairs(case: Interruptions, interval_s: float) -> Goodput:
    return goodput(replace(case, repair_s=0.0), interval_s)


def _every(asked: FaultTolerance, step_s: float, steps: int) -> int:
    """Steps between checkpoints as asked for; 0 where nothing was."""
    every = asked.every_steps or (max(1, round(asked.every_s / step_s)) if asked.every_s else 0)
    if every > steps:
        long = f"{every:,} steps are more than the {steps:,} of the run"
        raise InputError(long, where="--checkpoint-every", hint="Use fewer, or auto.")
    return every


def spares_of(asked: FaultTolerance, case: Interruptions, active_s: float) -> int:
    """As asked for, or the fewest that leave hardly any wait, at the highest rate of the interval."""
    if asked.spares is not None:
        return asked.spares
    often = case.at(case.failures_per_s * math.exp(ABOVE * asked.failures.spread))

    def enough(spares: int) -> bool:
        return waiting(replace(often, spares=spares), active_s) <= ENOUGH

    high = 0
    while not enough(high) and high < MOST_SPARES:
        high = 2 * high + 1
    low = high // 2  # too few, unless none are needed
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return low if low == 0 and enough(0) else high


def _hopeless(
    step: TrainingStep, asked: FaultTolerance, times: CheckpointTimes, case: Interruptions, every: int, steps: int
) -> InfeasibleError:
    """Names the storage where the run would move with faster one."""
    between = format_duration(1 / case.failures_per_s)
    interval_s = every * step.step_s.value
    if _moves_with_fast_storage(step, asked, steps):
        load = format_duration(max(times.soft_load_s, times.hard_load_s))
        return InfeasibleError(
            f"the run would hardly move: a failure every {between}, and checkpoints that take {load} to load",
            where="--checkpoint-to",
            hint="Use faster storage, such as shared:100GB/s.",
        )
    restart = format_duration(case.hard_restart_s)
    what = f"a failure every {between}, restarts of {restart} and checkpoints every {format_duration(interval_s)}"
    return InfeasibleError(
        f"the run would hardly move: {what}",
        where="--failures",
        hint="Lower the rate, restart faster, or save more often.",
    )


def _moves_with_fast_storage(step: TrainingStep, asked: FaultTolerance, steps: int) -> bool:
    """Whether the run would get on with storage as fast as the hosts' adapters."""
    step_s = step.step_s.value
    fast = replace(asked, storage=CheckpointStorage(place=SHARED, bytes_s=math.inf))
    case = _interruptions(step, fast, checkpoint_times(step, fast))
    _, every = _intervals(case, asked, step_s, steps)
    return _without_repairs(case, every * step_s).share >= LEAST


def outcomes(run: PlannedRun) -> tuple[Floats, Outcomes]:
    """Step times, and runs drawn with them: at rates of failures as far off as another cluster's."""
    each = run.step.mean_step_s.draws
    steps = np.repeat(each, RUNS) if each.size else np.full(DRAWS * RUNS, run.step_s)
    away = np.random.default_rng(DRAWS).normal(size=steps.size).clip(-3, 3)
    rates = run.case.failures_per_s * np.exp(run.asked.failures.spread * away)
    return steps, sampled(run.case, run.every * steps, rates, run.steps / run.every)


def _figures(run: PlannedRun, drawn: tuple[Floats, Outcomes]) -> dict[str, Estimate]:
    """Of the whole run, with the spread of its outcomes."""
    _, found = drawn
    time = run.step.step_s
    wall = Estimate(run.wall_s, found.wall_s, time.provenance, time.source)
    chip, pool, ranks = run.step.pool.chip, run.step.pool, run.step.job.strategy.ranks
    paid = ranks + run.case.spares * pool.per_node
    energy = Estimate(
        _joules(run, run.wall_s, run.wall_s * run.trained_share, run.step.energy_j.value / run.step_s),
        np.asarray(_joules(run, found.wall_s, found.trained_s, _watts(run))),
        time.provenance,
        time.source,
    )
    figures = {
        "steps": Estimate.exact(run.steps),
        "days": wall.map(lambda lasting: lasting / DAY_S),
        "cost_usd": wall.map(lambda lasting: paid * chip.price_usd_h * lasting / HOUR_S),
        "energy_kwh": energy.map(lambda joules: joules / KWH_J),
    }
    grid = pool.grid
    return figures | ({"co2_kg": energy.map(lambda joules: grid.co2_g(joules) / 1e3)} if grid else {})


def _watts(run: PlannedRun) -> Floats:
    """Of all chips in steps, for every run that was drawn."""
    energy, time = run.step.energy_j, run.step.step_s
    if not time.draws.size or energy.draws.size != time.draws.size:
        return np.full(DRAWS * RUNS, energy.value / time.value)
    return np.repeat(energy.draws / time.draws, RUNS)


def _joules(run: PlannedRun, wall_s: Any, trained_s: Any, watts: Any) -> Any:
    """Steps at their power; stalls, restarts and waits at that of chips that are up; spares idle."""
    pool, ranks = run.step.pool, run.step.job.strategy.ranks
    waiting = ranks * run.step.machine.profile.power["active_w"]
    spare = run.case.spares * pool.per_node * pool.chip.idle_w
    return trained_s * watts + (wall_s - trained_s) * waiting + wall_s * spare


def _reliability(run: PlannedRun, drawn: tuple[Floats, Outcomes], days: Estimate) -> RunReliability:
    steps, found = drawn
    time, share = run.step.step_s, run.found
    return RunReliability(
        goodput=Estimate(share.share, run.steps * steps / found.wall_s, time.provenance, time.source),
        days=days,
        days_without_failures=run.steps * run.step_s / DAY_S,
        failures={
            "name": run.asked.failures.name,
            "per_gpu_hour": run.asked.failures.per_gpu_hour,
            "hardware_share": run.case.hardware,
            "mtbf_s": 1 / run.case.failures_per_s,
            "count": share.failures_per_s * run.wall_s,
            "source": run.asked.failures.source,
        },
        checkpoints=_checkpoints(run),
        lost=_lost(run),
        spares=run.case.spares,
    )


def _checkpoints(run: PlannedRun) -> dict[str, Any]:
    times, asked = run.times, run.asked
    return {
        "bytes": times.bytes,
        "mode": asked.mode,
        "to": asked.storage.words,
        "stall_s": times.stall_s,
        "write_s": times.hard_lag_s,
        "load_s": times.hard_load_s,
        "every_steps": run.every,
        "interval_s": run.every * run.step_s,
        "best_every_steps": run.best,
        "best_interval_s": run.best * run.step_s,
        "young_interval_s": young_interval_s(times.stall_s, run.case.failures_per_s),
        "goodput_at_best": goodput(run.case, run.best * run.step_s, run.steps * run.step_s).share,
    }


def _lost(run: PlannedRun) -> dict[str, float]:
    """Restarts by their parts, each as long as it takes on average."""
    found, asked, case = run.found, run.asked, run.case
    loading = (1 - case.hardware) * run.times.soft_load_s + case.hardware * run.times.hard_load_s
    parts = {"detection": asked.detection_s, "restarts": asked.restart_s, "loading": loading}
    total = math.fsum(parts.values())
    split = {name: found.restarts * seconds / total if total else 0.0 for name, seconds in parts.items()}
    return {"checkpoint_stalls": found.stalls, "lost_work": found.lost_work, **split, "repairs": found.repairs}


def _assumed(run: PlannedRun, given: Mapping[str, Any]) -> Iterator[str]:
    """What the question did not give."""
    asked = run.asked
    if asked.failures.spread:
        apart = f"within a factor of {math.exp(asked.failures.spread):.2g}"
        yield f"failures as often per GPU as in {asked.failures.source}, {apart}"
    if "detection_time_s" not in given:
        yield "10 minutes to detect a failure (MegaScale's average, arXiv:2402.15627)"
    if "restart_time_s" not in given:
        yield "5 minutes to restart beside loading (Meta's clusters take 5 to 20 in all, arXiv:2410.21680)"
    if run.case.hardware:
        share = f"{run.case.hardware:.0%} of failures take a node out (Llama 3's share, arXiv:2407.21783)"
        yield share if "repair_time_s" in given else f"{share}, for a day"
    yield from run.times.assumed
