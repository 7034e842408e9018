"""`plan_serving`: the best way to serve a load on a fleet within goals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gnomon.load.serving import plan_of
from gnomon.planning.serving.plan import plan_on
from gnomon.search.best_first import Progress
from gnomon.spec import Cluster, EngineChoice, Goal, Model
from gnomon.spec.answers import PlanReport
from gnomon.spec.questions.serving import PlanServingQuestion


def plan_serving(
    model: str | Model,
    *,
    fleet: str | Cluster,
    trace: str | Path | None = None,
    rate: float | str | None = None,
    input: int | str | None = None,
    output: int | str | None = None,
    requests: int | None = None,
    seed: int = 0,
    arrivals: str | None = None,
    prefix: str | None = None,
    turns: int | None = None,
    think: float | str | None = None,
    adapters: int | str | None = None,
    priorities: str | None = None,
    images: int | str | None = None,
    slo: str | Sequence[Goal] | Mapping[str, str] | None = "",
    objective: str | None = None,
    router: str = "random",
    pools: str = "aggregated",
    kv_transfer: str = "whole",
    engine: str | EngineChoice = "vllm",
    dtypes: Sequence[str] | None = None,
    kv_dtype: str = "bf16",
    settings: Mapping[str, Any] | None = None,
    techniques: Sequence[str] = (),
    power_limit_w: float | None = None,
    by_rate: bool = False,
    sensitivity: bool = False,
    progress: Progress | None = None,
) -> PlanReport:
    """The best plan of a fleet for a load within goals, and what it was weighed against.

    A plan is a chip, a tensor parallel degree, a number of equal replicas, a number format and two step budgets
    of the engine; the pools of a fleet are alternatives. Requests are assigned to replicas at random, as a Kubernetes
    Service does it, or by `router`: `round-robin`, `least-requests`, … With `pools` plans are `disaggregated`, with
    prefill and decode replicas between which the KV cache is sent (`kv_transfer`), `mixed`, with replicas of several
    kinds of chip behind one router, or all of them (`auto`). By cost (the default) the cheapest plan that
    meets the goals wins, which may leave chips unused; at equal price one that uses at most 90% of every limit, then
    the earlier of `dtypes`, then the most headroom, then the faster. `throughput` is the highest rate held within the
    goals on a whole pool (`rate` is then the least it has to be), `latency` the least mean time of a request (to a
    percent, and cheapest), `energy` the fewest watt-hours per token. A load without a rate is planned for throughput.

    The winner is judged on at least `requests` requests of a replica (5,000, or a whole trace up to 20,000), the
    search on 2,000, or 4,000 of a trace from its calm and its busy stretches; a run goes on until it has settled, a
    trace that is too short for that with blocks of itself, and only the steady part counts. A goal is met where it is
    with 95% confidence, for which a winner's run is doubled, up to 80,000 requests. Money and energy are for a million
    output tokens. `techniques`, named as in a plan, go into every plan, and so does a `power_limit_w` of each chip.
    With `by_rate` the best plan is also simulated at other rates, with `sensitivity` it is found how far each input may
    be off before another is best; `auto` among `techniques` weighs them all. `progress` gets plans decided and all.
    """
    question = PlanServingQuestion(
        model=model, fleet=fleet, trace=trace, rate=rate, input=input, output=output, requests=requests, seed=seed,
        arrivals=arrivals, prefix=prefix, turns=turns, think=think, adapters=adapters, priorities=priorities,
        images=images, slo=slo, objective=objective, router=router, pools=pools, kv_transfer=kv_transfer,
        engine=engine, dtypes=dtypes, kv_dtype=kv_dtype, settings=settings, techniques=techniques,
        power_limit_w=power_limit_w, by_rate=by_rate, sensitivity=sensitivity,
    )  # fmt: skip
    return answer(question, progress=progress)


def answer(question: PlanServingQuestion, *, progress: Progress | None = None) -> PlanReport:
    """The plan that a question asks for; `progress` is called with the plans decided and the plans there are."""
    return plan_on(plan_of(question), progress)
