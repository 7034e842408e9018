"""Which techniques help a plan: gains agree with plans searched anew, and every row is explained."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gnomon import plan_serving, plan_training
from gnomon.api.apply_techniques import apply
from gnomon.errors import InputError
from gnomon.load.plan import read_plan
from gnomon.spec import Plan, Strategy
from gnomon.spec.applied import HelpfulTechniques, TechniqueRow
from gnomon.techniques import SERVING, TRAINING, technique

EXAMPLE = Path(__file__).parents[2] / "examples" / "plan.yaml"
GOALS = "ttft_p90=2s,tpot_p90=60ms"
TRAINED: list[dict[str, Any]] = [
    {"model": "llama-3.1-8b", "cluster": "H100:8", "seq": 8192, "global_batch": 64},
    {"model": "qwen3-8b", "cluster": "H200:2", "seq": 4096, "global_batch": 16},
    {"model": "gpt3-175b", "cluster": "A100-SXM-80GB:128", "seq": 2048, "global_batch": 256},
    {"model": "llama-2-13b", "cluster": "A100-SXM-80GB:4", "seq": 4096, "global_batch": 32},
    {"model": "llama-2-7b", "cluster": "V100-SXM2-32GB:8", "seq": 4096, "global_batch": 32},
]
SERVED: list[dict[str, Any]] = [
    {"model": "llama-3.1-8b", "fleet": "L40S:4", "rate": 2, "input": 1024, "output": 256, "slo": GOALS},
    {"model": "qwen3-8b", "fleet": "H100:1", "rate": 2, "input": 512, "output": 512, "slo": GOALS},
    {"model": "llama-3.1-70b", "fleet": "H100:8", "rate": 2, "input": 1024, "output": 256, "slo": GOALS},
    {"model": "qwen3-30b-a3b", "fleet": "H100:2", "rate": 2, "input": 1024, "output": 256, "slo": GOALS},
    {"model": "llama-2-13b", "fleet": "A100-SXM-80GB:1", "rate": 1, "input": 512, "output": 128, "slo": GOALS},
]


def best_row(answer: HelpfulTechniques) -> TechniqueRow | None:
    rows = [row for row in (*answer.techniques, *answer.pairs) if row.techniques == answer.best]
    return rows[0] if answer.best else None


@pytest.mark.battery(5)
@pytest.mark.parametrize("asked", TRAINED, ids=lambda asked: f"{asked['model']} on {asked['cluster']}")
def test_gains_of_training_agree_with_a_search(asked: dict[str, Any]) -> None:
    plain = plan_training(**asked)
    answer = apply(plain.best.plan)
    check_rows(answer, TRAINING)
    for row in (*answer.techniques, *answer.pairs):
        if row.gain is not None and (row.helps or row.techniques == answer.techniques[0].techniques):
            again = plan_training(**asked, techniques=row.techniques).best.step_time_s
            assert row.gain.value == pytest.approx(plain.best.step_time_s.value / again.value, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("asked", SERVED, ids=lambda asked: f"{asked['model']} on {asked['fleet']}")
def test_gains_of_serving_agree_with_a_search(asked: dict[str, Any]) -> None:
    plan: Plan = plan_serving(**asked).best.plan
    answer = apply(plan)
    check_rows(answer, SERVING)
    row = best_row(answer)
    if row is not None and row.gain is not None:
        fleet = f"{plan.chip}:{plan.chips}"
        kept = [plan.dtype] if row.lossless else None
        load = {name: asked[name] for name in ("model", "input", "output", "rate", "slo")}
        pair = [
            plan_serving(**load, fleet=fleet, objective="throughput", dtypes=dtypes, techniques=more).best
            for dtypes, more in (([plan.dtype], ()), (kept, row.techniques))
        ]
        rates = [score.max_rate_per_s for score in pair]
        assert row.gain.value == pytest.approx(rates[1] / rates[0], rel=0.05)


def check_rows(answer: HelpfulTechniques, work: str) -> None:
    """Every technique of the kind of work is there, in order, with a reason where it has no plan."""
    rows = answer.techniques
    known = {row.techniques[0].partition(":")[0] for row in rows}
    assert answer.work == work
    assert all(work in technique(name).work for name in known)
    helpful = [row.helps for row in rows]
    assert helpful == sorted(helpful, reverse=True)
    gains = [row.gain.value for row in rows if row.gain]
    assert gains == sorted(gains, reverse=True)
    assert all(row.label or row.why for row in rows)
    helping = {text for row in rows if row.helps for text in row.techniques}
    assert all(set(pair.techniques) <= helping and len(pair.techniques) == 2 for pair in answer.pairs)
    assert bool(answer.best) == any(row.helps for row in (*rows, *answer.pairs))


def test_techniques_that_a_plan_has_are_not_tried_again() -> None:
    asked: dict[str, Any] = {**TRAINED[1], "techniques": ("offload-optimizer",)}
    answer = apply(plan_training(**asked).best.plan)
    assert "offload-optimizer" in answer.without
    assert not any(row.name.startswith("offload-optimizer") for row in answer.techniques)


def test_what_makes_a_plan_run_helps_most() -> None:
    """13B with its optimizer states on one chip of 80 GB."""
    asked: dict[str, Any] = {"model": "llama-2-13b", "cluster": "A100-SXM-80GB:1", "seq": 2048, "global_batch": 8}
    with_it = plan_training(**asked, techniques=("offload-optimizer",)).best.plan
    answer = apply(replace(with_it, strategy=Strategy()))
    assert not answer.without
    assert answer.best
    row = best_row(answer)
    assert row is not None
    assert row.gain is None
    assert row.label


def test_a_replica_that_is_not_simulated_is_refused() -> None:
    plan = replace(read_plan(EXAMPLE), strategy=Strategy(tp=4, cp=2))
    with pytest.raises(InputError, match="not simulated under a load"):
        apply(plan)


def test_a_plan_of_one_step_is_refused() -> None:
    """A prediction keeps a plan that has no load."""
    with pytest.raises(InputError, match=r"load: holds a step and no load.*`gnomon try` compares one step"):
        apply(replace(read_plan(EXAMPLE), load=None))
