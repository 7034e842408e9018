"""Random serving workloads whose plan is simulated again, ten times as long and with other draws.

`python -m tests.planning.holds --cases 30` plans them all and prints a line for each.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from gnomon.api.plan import plan_serving
from gnomon.errors import InfeasibleError
from gnomon.load import model as load_model
from gnomon.load import parse_goals, parse_pool
from gnomon.load.deployments import deploy
from gnomon.search.judge import statistic
from gnomon.sim.serving import simulate
from gnomon.spec import Goal, Plan, Requests
from gnomon.spec.answers import PlanReport

MODELS = ("llama-3.1-8b", "llama-3.2-3b", "qwen3-30b-a3b", "mistral-7b", "llama-3.1-70b", "gemma-2-9b")
CHIPS = ("H100:64", "A100-80GB:64", "L40S:64", "H200:64", "A10G:64", "L4:64", "RTX-4090:64")
TIMES_AS_LONG = 10
LONGEST = 4000
"""Tokens of a prompt or of an output: every model has room for both."""
WARM_UP = 0.05


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What is asked of `plan_serving`, and the requests that it stands for."""

    question: dict[str, Any]
    trace: Requests | None

    def stream(self, rate_per_s: float, count: int, rng: np.random.Generator) -> Requests:
        """An endless load of this kind by other draws: Poisson arrivals, or the trace in blocks of a tenth."""
        if self.trace is None:
            lengths = (np.full(count, self.question[name]) for name in ("input", "output"))
            return Requests(np.cumsum(rng.exponential(1 / rate_per_s, count)), *lengths)
        size = len(self.trace)
        block = max(1, size // 10)
        gaps = np.diff(self.trace.arrival_s, prepend=self.trace.arrival_s[0] - 1 / self.trace.rate_per_s)
        starts = rng.integers(0, size, -(-count // block))
        at = ((starts[:, None] + np.arange(block)) % size).ravel()[:count]
        arrival = np.cumsum(gaps[at]) * self.trace.rate_per_s / rate_per_s
        return Requests(arrival, self.trace.input_tokens[at], self.trace.output_tokens[at])


def workloads(seed: int, folder: Path) -> Iterator[Workload]:
    """Models, chips, lengths, loads and goals; every third load is a trace of 50 to 5,000 requests with its times."""
    rng = np.random.default_rng(seed)
    while True:
        chip, model = str(rng.choice(CHIPS)), str(rng.choice(MODELS))
        rate = float(np.exp(rng.uniform(np.log(1.0), np.log(120.0))))
        question: dict[str, Any] = {"model": model, "fleet": chip, "slo": _goals(rng), "seed": int(rng.integers(1000))}
        prompt, output = (int(np.exp(rng.uniform(np.log(low), np.log(high)))) for low, high in ((60, 3000), (20, 500)))
        if rng.random() > 1 / 3:
            yield Workload(question=question | {"rate": rate, "input": prompt, "output": output}, trace=None)
            continue
        count = int(np.exp(rng.uniform(np.log(50), np.log(5000))))
        lengths = (
            np.clip(rng.lognormal(np.log(mean), 0.8, count), 1, min(8 * mean, LONGEST)) for mean in (prompt, output)
        )
        arrival = np.cumsum(rng.exponential(1 / rate, count))
        trace = Requests(arrival, *(column.astype(np.int64) for column in lengths))
        file = folder / f"trace-{rng.integers(2**40)}.csv"
        rows = np.column_stack([trace.arrival_s, trace.input_tokens, trace.output_tokens])
        head = "arrival_s,input_tokens,output_tokens"
        np.savetxt(file, rows, fmt=("%.6f", "%d", "%d"), delimiter=",", header=head, comments="")
        yield Workload(question=question | {"trace": str(file)}, trace=trace)


def _goals(rng: np.random.Generator) -> str:
    statistics = ("p50", "p90", "p95", "p99")
    first, token = int(rng.uniform(300, 3000)), int(rng.uniform(20, 120))
    goals = [f"ttft_{rng.choice(statistics)}={first}ms", f"tpot_{rng.choice(statistics)}={token}ms"]
    return ",".join(goals[: 1 + (rng.random() > 0.3)])


def met(workload: Workload, plan: Plan, replicas: int, rate_per_s: float, seed: int) -> dict[Goal, float]:
    """What share of each goal the plan uses with so many replicas, each request sent to one of them by lot."""
    rng = np.random.default_rng(seed)
    count = TIMES_AS_LONG * int(plan.predicted["requests"])
    load = workload.stream(rate_per_s, count, rng)
    lots = rng.integers(0, replicas, count)
    pool = parse_pool(f"{plan.chip}:{plan.strategy.ranks}")
    model = load_model(plan.model)
    engine, deployment = deploy(
        model, pool, strategy=plan.strategy, dtype=plan.dtype, kv_dtype=plan.kv_dtype, settings=plan.engine.settings
    )
    cost, limits = engine.step_cost(deployment), engine.limits(deployment)
    times: dict[str, list[np.ndarray[Any, Any]]] = {"ttft": [], "tpot": [], "e2e": []}
    for replica in range(replicas):
        at = np.flatnonzero(lots == replica)
        share = Requests(load.arrival_s[at], load.input_tokens[at], load.output_tokens[at])
        run = simulate(share, cost, limits)
        for metric, values in times.items():
            values.append(getattr(run, f"{metric}_s")[int(WARM_UP * at.size) :])
    return {goal: statistic(np.concatenate(times[goal.metric]), goal.statistic) / goal.limit_s for goal in plan.goals}


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A plan of two to eight replicas, and what share of its worst goal it uses as it is, and with one replica less."""

    report: PlanReport
    whole: float
    one_less: float


def verdicts(seed: int, cases: int, folder: Path) -> Iterator[Verdict]:
    found = 0
    for workload in workloads(seed, folder):
        try:
            report = plan_serving(**workload.question)
        except InfeasibleError:
            continue
        plan = report.best.plan
        if not 2 <= plan.replicas <= 8 or not parse_goals(workload.question["slo"]):
            continue
        rate = float(plan.predicted["rate_per_s"])
        whole, less = (
            max(met(workload, plan, replicas, rate, seed=10_000 + found).values())
            for replicas in (plan.replicas, plan.replicas - 1)
        )
        yield Verdict(report=report, whole=whole, one_less=less)
        found += 1
        if found == cases:
            return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    words = parser.parse_args()
    with TemporaryDirectory() as folder:
        held = failed = 0
        for index, verdict in enumerate(verdicts(words.seed, words.cases, Path(folder))):
            held += verdict.whole <= 1
            failed += verdict.one_less > 1
            print(f"{index:3}  {verdict.whole:6.2f}  {verdict.one_less:8.2f}  {verdict.report.best.label}", flush=True)
            print(f"     {verdict.report.title}", flush=True)
    print(f"{held} of {words.cases} meet their goals; {failed} of {words.cases} fail with one replica less")


if __name__ == "__main__":
    main()
