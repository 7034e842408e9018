"""A load on one replica, simulated."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gnomon.load.serving import simulation_of
from gnomon.planning.serving.pools import PoolsInput
from gnomon.planning.serving.simulate import check_calls, simulate_replica
from gnomon.planning.serving.simulate_pools import refuse_steps, simulate_pools
from gnomon.sim.serving import Recorder
from gnomon.spec import Goal, Model, Pool
from gnomon.spec.answers import ServingReport
from gnomon.spec.questions.serving import SimulateServingQuestion


def simulate_serving(
    model: str | Path | Model,
    *,
    on: str | Pool | None = None,
    pools: Sequence[str] = (),
    router: str = "random",
    kv_transfer: str = "whole",
    dtype: str | None = None,
    kv_dtype: str | None = None,
    engine: str = "vllm",
    tp: int | None = None,
    pp: int = 1,
    ep: int = 1,
    cp: int = 1,
    dp: int = 1,
    trace: str | None = None,
    rate: float | None = None,
    concurrency: int | None = None,
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
    settings: Mapping[str, Any] | None = None,
    techniques: Sequence[str] = (),
    power_limit_w: float | None = None,
    slo: str | Sequence[Goal] | Mapping[str, str] | None = None,
    series: bool = False,
    record: Recorder | None = None,
    progress: Callable[[int], None] | None = None,
) -> ServingReport:
    """Serve a trace, or requests drawn at a rate, and report the latencies that clients see.

    Lengths are numbers of tokens or distributions (`lognormal:mean=1024,cv=1`); `arrivals`, `prefix`, `turns`, `think`,
    `adapters`, `priorities` and `images` describe the rest of a drawn load as the flags do. With `concurrency` instead
    of `rate`, so many clients each send their next request when they have the last answer.
    In place of `on`, `pools` are replicas of several kinds, each written as `prefill=H100:4,tp=2`: prefill and decode
    pools, between which the KV cache is sent `whole` after a prompt or `layerwise`, or pools that do both behind one
    `router`.
    Degrees that the engine does not run under a load are refused: docs/parallel.md lists them.
    `techniques` are named as in a plan: `int4-weights`. The chips' clock follows their power limit, or a lower one,
    `power_limit_w`. With goals (`slo`, such as `ttft_p90=1s,tpot_p90=40ms`) the answer has its goodput, with `series`
    also means over bins of time and distributions, which its page plots.
    """
    question = SimulateServingQuestion(
        model=model, on=on, dtype=dtype, kv_dtype=kv_dtype, engine=engine, tp=tp, pp=pp, ep=ep, cp=cp, dp=dp,
        trace=trace, rate=rate, concurrency=concurrency, input=input, output=output, requests=requests, seed=seed,
        arrivals=arrivals, prefix=prefix, turns=turns, think=think, adapters=adapters, priorities=priorities,
        images=images, settings=settings, techniques=techniques, power_limit_w=power_limit_w, pools=pools,
        router=router, kv_transfer=kv_transfer, slo=slo, series=series,
    )  # fmt: skip
    return answer(question, record=record, progress=progress)


def answer(
    question: SimulateServingQuestion,
    *,
    record: Recorder | None = None,
    progress: Callable[[int], None] | None = None,
) -> ServingReport:
    """The load of a question, served; `record` keeps every step, `progress` is called with the requests done."""
    check_calls(record, progress)
    given = simulation_of(question)
    if isinstance(given, PoolsInput):
        refuse_steps(record)
        return simulate_pools(given, progress)
    return simulate_replica(given, record, progress)
