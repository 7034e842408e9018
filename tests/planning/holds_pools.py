"""Random workloads whose plan has pools, comes of a published trace or shares beginnings of prompts, simulated again:
ten times as long, by other draws, and with one replica less.

`python -m tests.planning.holds_pools --cases 12` plans them all and prints a line for each.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gnomon.api.plan import plan_serving
from gnomon.calibrate.truth import folder as truth_folder
from gnomon.errors import InfeasibleError
from gnomon.load import model as load_model
from gnomon.load import parse_pool
from gnomon.load.deployments import deploy
from gnomon.load.serving import plan_of
from gnomon.planning.serving.kv_transfer import KvTransfer, kv_transfer
from gnomon.search.bounds import Demand, KnownSteps
from gnomon.search.judge import statistic
from gnomon.sim.serving.routers.plain import RandomRouter, WeightedRouter
from gnomon.sim.serving.system import ReplicaModel, ServingStage, simulate_system
from gnomon.spec import Plan, PlanPool, Requests
from gnomon.spec.answers import PlanReport
from gnomon.spec.drawing import draw
from gnomon.spec.plan import PREFILL
from gnomon.spec.questions.serving import PlanServingQuestion

KINDS = ("disaggregated", "mixed", "trace", "prefix")
MODELS = ("llama-3.1-8b", "llama-3.2-3b", "mistral-7b", "qwen3-30b-a3b")
CHIPS = ("H100", "A100-80GB", "L40S", "H200")
TRACES = ("azure_llm_2023_conv.csv.gz", "azure_llm_2023_code.csv.gz", "sharegpt-llama-31-8b-300-sps10.csv.gz")
TIMES_AS_LONG = 10
MOST_REQUESTS = 120_000
WARM_UP = 0.05


def traces() -> tuple[str, ...]:
    """Published traces, where they are at hand."""
    found = truth_folder()
    return () if found is None else tuple(str(found / "traces" / name) for name in TRACES)


def questions(seed: int, kinds: tuple[str, ...] = KINDS) -> Iterator[tuple[str, dict[str, Any]]]:
    """One kind after the other: chips, lengths, rates and goals at random."""
    rng = np.random.default_rng(seed)
    while True:
        for kind in kinds:
            yield kind, _question(kind, rng)


def _question(kind: str, rng: np.random.Generator) -> dict[str, Any]:
    chips = [str(chip) for chip in rng.choice(CHIPS, 2, replace=False)]
    prompt, output = (int(np.exp(rng.uniform(np.log(low), np.log(high)))) for low, high in ((200, 3000), (40, 400)))
    rate = float(np.exp(rng.uniform(np.log(4.0), np.log(60.0))))
    asked: dict[str, Any] = {"model": str(rng.choice(MODELS)), "seed": int(rng.integers(1000)), "rate": rate}
    asked["slo"] = (
        f"ttft_p{rng.choice((50, 90, 95))}={int(rng.uniform(300, 2000))}ms,tpot_p90={int(rng.uniform(20, 80))}ms"
    )
    lengths = {"input": prompt, "output": output}
    if kind == "disaggregated":
        return asked | lengths | {"fleet": f"{chips[0]}:8", "pools": kind}
    if kind == "mixed":
        return asked | lengths | {"fleet": f"{chips[0]}:8,{chips[1]}:8", "pools": kind}
    if kind == "prefix":
        shared = f"groups={int(rng.integers(4, 40))},tokens={int(rng.integers(256, 2048))},zipf=1"
        return asked | lengths | {"fleet": f"{chips[0]}:16", "prefix": shared}
    return asked | {"fleet": f"{chips[0]}:16", "trace": str(rng.choice(traces()))}


def stream_of(question: dict[str, Any], rate_per_s: float, count: int, seed: int) -> Requests:
    """The load by other draws: drawn with another seed, or a trace in blocks of a tenth from random places."""
    arrivals = plan_of(PlanServingQuestion(**question)).arrivals
    if not arrivals.load.trace:
        return draw(replace(arrivals.load, seed=seed, rate_per_s=rate_per_s, requests=count))
    rng, whole = np.random.default_rng(seed), arrivals.whole
    size = len(whole)
    block = max(1, size // 10)
    gaps = np.diff(whole.arrival_s, prepend=whole.arrival_s[0] - 1 / whole.rate_per_s)
    at = ((rng.integers(0, size, -(-count // block))[:, None] + np.arange(block)) % size).ravel()[:count]
    return replace(whole.take(at), arrival_s=np.cumsum(gaps[at]) * whole.rate_per_s / rate_per_s)


def pools_of(plan: Plan) -> tuple[PlanPool, ...]:
    """The pools of a plan; a plan of one kind of replica is one."""
    if plan.pools:
        return plan.pools
    return (
        PlanPool(
            role="both", chip=plan.chip, replicas=plan.replicas, strategy=plan.strategy, dtype=plan.dtype,
            kv_dtype=plan.kv_dtype, engine=plan.engine,
        ),
    )  # fmt: skip


def worst_share(plan: Plan, pools: tuple[PlanPool, ...], load: Requests, seed: int) -> float:
    """The largest share of a goal that the pools use under a load, every request sent by lot."""
    model, made = load_model(plan.model), []
    for pool in pools:
        chips = parse_pool(f"{pool.chip}:{pool.strategy.ranks}")
        engine, deployment = deploy(
            model, chips, strategy=pool.strategy, dtype=pool.dtype, kv_dtype=pool.kv_dtype,
            settings=pool.engine.settings,
        )  # fmt: skip
        made.append((engine, deployment, engine.step_cost(deployment), engine.limits(deployment)))
    replicas = [
        [ReplicaModel(cost=cost, limits=limits, weight=pool.weight)] * pool.replicas
        for pool, (_, _, cost, limits) in zip(pools, made, strict=True)
    ]
    if pools[0].role == PREFILL:
        chips_used = sum(pool.replicas * pool.strategy.ranks for pool in pools)
        way = _transfer(made, load, chips_used, plan.kv_transfer)
        stages = [
            ServingStage(replicas=replicas[0], router=RandomRouter(seed)),
            ServingStage(replicas=replicas[1], router=RandomRouter(seed + 1), transfer_s=way),
        ]
    else:
        stages = [ServingStage(replicas=[one for each in replicas for one in each], router=WeightedRouter(seed))]
    run = simulate_system(load, stages)
    after = slice(int(WARM_UP * len(load)), None)
    arrival, first, finish = (each[after] for each in (run.requests.arrival_s, run.first_token_s, run.finish_s))
    later = load.output_tokens[after] - 1
    times = {
        "ttft": first - arrival,
        "tpot": np.where(later > 0, (finish - first) / np.maximum(later, 1), np.nan),
        "e2e": finish - arrival,
    }
    return max(statistic(times[goal.metric], goal.statistic) / goal.limit_s for goal in plan.goals)


def _transfer(made: list[Any], load: Requests, chips: int, how: str) -> KvTransfer:
    (engine, ahead, cost, limits), (_, behind, _, _) = made
    steps = KnownSteps(cost, Demand.of(load))
    return kv_transfer(engine, ahead, behind, chips, how, lambda tokens: steps.prompt_s(tokens, limits.max_step_tokens))


def one_less(pools: tuple[PlanPool, ...]) -> Iterator[tuple[PlanPool, ...]]:
    """The pools with one replica less of each that can spare one: every such plan is cheaper, and was not chosen."""
    for place, pool in enumerate(pools):
        left = [*pools[:place], *([replace(pool, replicas=pool.replicas - 1)] if pool.replicas > 1 else [])]
        left += pools[place + 1 :]
        if left and {each.role for each in left} == {each.role for each in pools}:
            yield tuple(left)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A plan of two replicas or more, and what share of its worst goal it uses as it is, and with one replica less of a
    pool, at the least."""

    kind: str
    report: PlanReport
    whole: float
    one_less: float


def verdicts(seed: int, cases: int, kinds: tuple[str, ...] = KINDS, requests: int | None = None) -> Iterator[Verdict]:
    """Plans of two to ten replicas."""
    found = 0
    for kind, question in questions(seed, kinds):
        try:
            report = plan_serving(**question)
        except InfeasibleError:
            continue
        plan = report.best.plan
        pools = pools_of(plan)
        fewer = list(one_less(pools))
        if not fewer or sum(pool.replicas for pool in pools) > 10:
            continue
        rate = float(plan.predicted["rate_per_s"])
        count = min(requests or TIMES_AS_LONG * int(plan.predicted["requests"]), MOST_REQUESTS)
        load = stream_of(question, rate, count, seed=10_000 + found)
        whole = worst_share(plan, pools, load, seed=77 + found)
        less = min(worst_share(plan, each, load, seed=77 + found) for each in fewer)
        yield Verdict(kind=kind, report=report, whole=whole, one_less=less)
        found += 1
        if found == cases:
            return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", default=",".join(KINDS))
    words = parser.parse_args()
    counts: dict[str, list[tuple[bool, bool]]] = {}
    for index, each in enumerate(verdicts(words.seed, words.cases, tuple(words.kinds.split(",")))):
        counts.setdefault(each.kind, []).append((each.whole <= 1, each.one_less > 1))
        print(
            f"{index:3}  {each.kind:13}  {each.whole:6.2f}  {each.one_less:8.2f}  {each.report.best.label}", flush=True
        )
        print(f"     {Path(each.report.title).name}", flush=True)
    for kind, found in counts.items():
        held, missed = (sum(column) for column in zip(*found, strict=True))
        print(f"{kind}: {held} of {len(found)} meet their goals; {missed} of {len(found)} fail with one replica less")


if __name__ == "__main__":
    main()
