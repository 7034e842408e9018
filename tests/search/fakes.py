"""An evaluator of made-up queues: fast, lawful, and known for every plan, so that a search can be checked by hand."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from gnomon.search import Bounds, Candidate, Level, Objective, PlanFamily, Score, SearchJob
from gnomon.spec import Goal


@dataclass
class Queue:
    """One family: times of an empty replica, the load that fills it, and how loose its bounds are."""

    first_s: float
    token_s: float
    capacity: float
    watts: float
    looseness: float
    full_factor: float
    """Times on the full load, as a share of those on the sample."""
    fits: bool


@dataclass
class FakeEvaluator:
    queues: dict[PlanFamily, Queue]
    calls: list[tuple[Candidate, float, Level]] = field(default_factory=list)

    def fits(self, family: PlanFamily) -> bool:
        return self.queues[family].fits

    def bounds(self, family: PlanFamily) -> Bounds:
        queue = self.queues[family]
        low = 1 / queue.looseness
        least = min(1.0, queue.full_factor) * low
        return Bounds(
            floors_s={"ttft_p90": queue.first_s * least, "tpot_p90": queue.token_s * least},
            e2e_s=(queue.first_s + 100 * queue.token_s) * least,
            rate_per_s=queue.capacity * queue.looseness,
            watts=queue.watts * low,
        )

    def evaluate(self, plan: Candidate, rate_per_s: float, level: Level) -> Score:
        self.calls.append((plan, rate_per_s, level))
        queue = self.queues[plan.family]
        used = rate_per_s / plan.replicas / queue.capacity
        slower = (1 / (1 - used) if used < 1 else 1e6) * (
            queue.full_factor if level in (Level.FULL, Level.SURE) else 1.0
        )
        first, token = queue.first_s * slower, queue.token_s * (1 + used) * min(slower, 3.0)
        return Score(
            plan=plan,
            rate_per_s=rate_per_s,
            values_s={"ttft_p90": first, "tpot_p90": token},
            grows=used >= 1,
            load_share=plan.load_share(rate_per_s, self.bounds(plan.family)),
            e2e_s=first + 100 * token,
            wh_per_mtok=plan.replicas * queue.watts / (rate_per_s * 100) * 1e6 / 3600 * (1 + used),
        )


def random_space(rng: np.random.Generator, families: int = 12, most: int = 6) -> FakeEvaluator:
    queues: dict[PlanFamily, Queue] = {}
    for order in range(families):
        tp = int(2 ** rng.integers(0, 3))
        family = PlanFamily(
            chip=f"chip{rng.integers(0, 2)}",
            tp=tp,
            dtype=("bf16", "fp8")[order % 2],
            dtype_rank=order % 2,
            settings=(("budget", order),),
            usd_h=tp * float(rng.choice([1.0, 2.5])),
            most=int(rng.integers(1, most + 1)),
            order=order,
        )
        queues[family] = Queue(
            first_s=float(rng.uniform(0.1, 1.2)) / tp,
            token_s=float(rng.uniform(0.01, 0.06)) / tp**0.5,
            capacity=float(rng.uniform(0.5, 4.0)) * tp**0.8,
            watts=300.0 * tp * float(rng.uniform(0.8, 1.2)),
            looseness=float(rng.uniform(1.0, 2.0)),
            full_factor=float(rng.choice([1.0, 0.97, 1.05])),
            fits=bool(rng.random() > 0.2),
        )
    return FakeEvaluator(queues)


def random_job(rng: np.random.Generator) -> SearchJob:
    goals = (
        Goal("ttft", "p90", float(rng.uniform(0.2, 2.0))),
        Goal("tpot", "p90", float(rng.uniform(0.02, 0.1))),
    )
    return SearchJob(goals=goals, rate_per_s=float(rng.uniform(0.5, 12.0)), output_tokens=100.0)


def every_plan(evaluator: FakeEvaluator) -> list[Candidate]:
    return [
        Candidate(family=family, replicas=replicas)
        for family, queue in evaluator.queues.items()
        if queue.fits
        for replicas in range(1, family.most + 1)
    ]


def exhaustive(
    evaluator: FakeEvaluator, objective: Objective, job: SearchJob, but: Candidate | None = None
) -> Candidate | None:
    """The best plan, but for one, by running all of them: it must meet the goals on the sample and on the full load."""
    lawful = []
    for plan in every_plan(evaluator):
        if plan == but:
            continue
        sample = evaluator.evaluate(plan, job.rate_per_s, Level.SEARCH)
        full = evaluator.evaluate(plan, job.rate_per_s, Level.FULL)
        if sample.meets(job.goals) and full.meets(job.goals):
            lawful.append(sample if objective.as_promised(full, sample, job) else full)
    best = min(lawful, key=lambda score: objective.key(score, job), default=None)
    return best.plan if best else None
