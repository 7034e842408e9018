"""On small random fleets and loads the search finds what running every plan finds: equal replicas, prefill and decode
replicas, and mixtures of chips."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from tests.planning import fake_engine

from gnomon.errors import NoPlanError
from gnomon.load import serving as load_serving
from gnomon.load.serving import plan_of
from gnomon.planning.serving import disaggregated, evaluator
from gnomon.planning.serving.mixed import MixedSearch, carrying_mixture, search_mixed
from gnomon.planning.serving.searched import Prepared
from gnomon.planning.serving.task import PlanTask
from gnomon.search import Candidate, Level, search
from gnomon.search.rate import FULL_TOLERANCE
from gnomon.spec.questions.serving import PlanServingQuestion

CHIPS = ("H100", "H200", "L40S", "L4")
SETTINGS = {"max_num_seqs": 256, "max_num_batched_tokens": 8192}


@pytest.fixture(autouse=True)
def made_up_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_serving, "bind_each", fake_engine.bind_each)
    for module in (evaluator, disaggregated):
        monkeypatch.setattr(module, "power_use", fake_engine.power_use)


def random_task(seed: int, pools: str, fleets: int, most: int) -> PlanTask:
    rng = np.random.default_rng([seed, 7])
    chips = rng.choice(CHIPS, fleets, replace=False)
    given: dict[str, Any] = {
        "model": str(rng.choice(["llama-3.1-8b", "llama-3.2-3b", "mistral-7b"])),
        "fleet": ",".join(f"{chip}:{rng.integers(2, most + 1)}" for chip in chips),
        "rate": float(np.exp(rng.uniform(np.log(2.0), np.log(60.0)))),
        "input": int(rng.integers(100, 3000)),
        "output": int(rng.integers(20, 300)),
        "slo": f"ttft_p90={rng.integers(200, 2000)}ms,tpot_p90={rng.integers(15, 80)}ms",
        "seed": seed,
        "requests": 400,
        "settings": {name: SETTINGS[name] for name in SETTINGS if pools != "aggregated" or rng.random() < 0.7},
    }
    return plan_of(PlanServingQuestion(**given, pools=pools))


@pytest.mark.heavy
@pytest.mark.battery(48)
@pytest.mark.parametrize("seed", range(24))
@pytest.mark.parametrize("pools", ["aggregated", "disaggregated"])
def test_the_cheapest_is_that_of_running_all(seed: int, pools: str) -> None:
    task = random_task(seed, pools, fleets=1 + seed % 2, most=4)
    made = Prepared.of(task)
    space, runs = made.space(), made.alike()
    found = search(space, runs, task.objective, task.job)
    every = [Candidate(family=family, replicas=n) for family in space for n in range(1, family.most + 1)]
    assert found.considered == len(every)
    rate = task.job.rate_per_s
    met = [
        plan.usd_h
        for plan in sorted(every, key=lambda plan: plan.usd_h)
        if runs.fits(plan.family) and runs.evaluate(plan, rate, Level.SURE).surely_meets(task.goals)
    ]
    assert (None if found.best is None else found.best.plan.usd_h) == pytest.approx(min(met, default=None))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(16))
def test_the_cheapest_mixture_is_that_of_trying_all(seed: int) -> None:
    """By what each kind of replica holds, found in small steps; the search knows that to a few percent. The answer
    costs no more."""
    task = random_task(seed, "mixed", fleets=2, most=3)
    looked = Prepared.of(task).mixed()
    try:
        found = carrying_mixture(looked).usd_h
        assert search_mixed(looked).usd_h <= found
    except NoPlanError:
        found = None
    held = {kind.name: max(_holds(looked, family) for family in looked.groups[kind.name]) for kind in looked.kinds}  # type: ignore[index]
    short = 1 / (1 + FULL_TOLERANCE) ** 3
    low, high = _of_all(looked, held, 1.0 + FULL_TOLERANCE), _of_all(looked, held, short)
    assert found is None or low <= found * (1 + 1e-9)
    assert high == np.inf or (found is not None and found <= high * (1 + 1e-9))


def _holds(looked: MixedSearch, family: Any) -> float:
    """The highest rate that one replica holds, up to the load's, by steps of one percent down from its bound."""
    most = min(looked.task.job.rate_per_s, looked.thinned.bounds(family).rate_per_s)
    rates = most * 1.01 ** -np.arange(0, 300)

    def holds(rate: float) -> bool:
        score = looked.thinned.evaluate(Candidate(family=family, replicas=1), float(rate), Level.SURE)
        return score.surely_meets(looked.task.goals)

    low, high = 0, len(rates)  # what holds a rate holds every lower one
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(rates[middle]) else (middle + 1, high)
    return float(rates[low]) if low < len(rates) else 0.0


def _of_all(looked: MixedSearch, held: dict[Any, float], times: float) -> float:
    chips = dict.fromkeys(kind.chip for kind in looked.kinds)
    own = [
        [(None, 0), *((kind, n) for kind in looked.kinds if kind.chip == chip for n in range(1, kind.most + 1))]
        for chip in chips
    ]
    load = looked.task.job.rate_per_s
    return min(
        (
            sum(kind.usd_h * n for kind, n in each if kind is not None)
            for each in itertools.product(*own)
            if sum(times * held[kind.name] * n for kind, n in each if kind is not None) >= load * (1 - 1e-9)
        ),
        default=np.inf,
    )
