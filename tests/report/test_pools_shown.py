"""Plans of pools: what starts them, what their times are made of, and two of them side by side."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.report import answers

import gnomon
from gnomon.report import render
from gnomon.report.compare import different
from gnomon.report.html import page_of
from gnomon.report.opened_plan import planned
from gnomon.spec import EngineChoice, Plan, PlanPool, Strategy
from gnomon.spec.answers import PlanReport


def pool(role: str, replicas: int, tp: int, **more: Any) -> PlanPool:
    settings = {"max_num_seqs": 100 * tp}
    return PlanPool(
        role=role, chip="H100", replicas=replicas, strategy=Strategy(tp=tp), dtype="fp8",
        engine=EngineChoice(name="vllm", version="0.24.0", settings=settings), **more,
    )  # fmt: skip


def of_pools(*pools: PlanPool) -> PlanReport:
    plain = answers.planned()
    plan = Plan.of_pools(pools, model="llama-3.1-70b", load=plain.best.plan.load)
    best = replace(plain.best, plan=plan, output_tokens_per_s=1200.0, tpot_s={"mean": 0.05, "p90": 0.06})
    return replace(plain, best=best, command="", left_to_you=())


APART = of_pools(pool("prefill", 3, 2), pool("decode", 2, 4))
MIXED = of_pools(pool("both", 2, 4, weight=2.0), pool("both", 2, 2))


def nodes(answer: PlanReport) -> dict[str, Any]:
    return {node.name: node for node in planned(answer)}


def test_decode_replicas_are_what_a_token_is_explained_by() -> None:
    """Not the prefill replicas, which stand first."""
    found = nodes(APART)
    (step,) = (part for part in found["TPOT"].parts if part.name == "one step")
    assert step.shown.startswith("30 sequences in flight on a decode replica")  # 1200 x 0.05 s over two replicas
    assert "H100:4" in step.formula and "max_num_seqs=400" in step.formula
    assert "KV transfer" in found["TTFT"].formula and "prefills in the same step" not in found["TPOT"].formula


def test_replicas_of_a_mixture_have_their_share() -> None:
    (step,) = (part for part in nodes(MIXED)["TPOT"].parts if part.name == "one step")
    assert step.shown.startswith("20 sequences in flight on a replica")  # 2 of 2 x 2 + 2 x 1
    assert "prefills in the same step" in nodes(MIXED)["TPOT"].formula


@pytest.mark.parametrize("answer", [APART, MIXED], ids=["apart", "mixed"])
def test_pools_have_a_line_that_runs_them(answer: PlanReport) -> None:
    (line,) = (line for line in render(answer).splitlines() if "run it:" in line)
    assert "gnomon export last --to vllm --out deploy-" in line and line.endswith("/launch.sh")
    assert "launch.sh" in str(page_of(answer))
    assert ("with KV connectors" in render(answer)) == (answer is APART)


@pytest.mark.heavy
def test_fields_of_a_pool_share_a_row_behind_the_figures() -> None:
    load: dict[str, Any] = {"rate": 1, "input": 400, "output": 30, "requests": 60}
    one, other = (
        Plan.of_pools((replace(pool("prefill", 1, tp), dtype="bf16"), replace(pool("decode", 1, 1), dtype="bf16")),
                      model="llama-3.1-8b")
        for tp in (1, 2)
    )  # fmt: skip
    found = gnomon.compare(one, other, **load)
    assert len(found.differs) > 1 and all(row["field"].startswith("pools.1.") for row in found.differs)
    assert different(found) == [("pool 1", "tp 1, max num seqs 100", "tp 2, max num seqs 200")]
    text = str(found)
    assert text.index("TPOT") < text.index("what differs") and "pools." not in text
