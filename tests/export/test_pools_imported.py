"""Export, then import, gives the same pools: their roles, replicas, chips, weights and settings, and the router."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.export.pooled import pooled_plans

import gnomon
from gnomon.engines import engine
from gnomon.load import model as load_model
from gnomon.load.chips import chip as find_chip
from gnomon.load.plan import plan_pool
from gnomon.spec import Plan

PLANS, SEED = 18, 5
POLICIES = ("random", "round-robin", "prefix-aware")


@pytest.fixture(scope="module")
def plans() -> list[Plan]:
    """Plans of vLLM, whose commands are read back."""
    return [plan for plan in pooled_plans(SEED, 3 * PLANS) if plan.engine.name == "vllm"]


def canonical(plan: Plan) -> list[dict[str, Any]]:
    """What launch commands say of every pool, with all defaults filled in."""
    model, found = load_model(plan.model), []
    for pool in plan.each_pool:
        one, made = plan.of_pool(pool), engine(pool.engine.name)
        strategy, settings = made.arranged(pool.strategy, pool.engine.settings)
        found.append(
            {
                "role": pool.role,
                "model": (model.name, model.parameters),
                "chip": find_chip(pool.chip).name,
                "replicas": pool.replicas,
                "weight": pool.weight,
                "strategy": replace(strategy, techniques=()),
                "dtype": pool.dtype,
                "settings": made.settings(settings, model, plan_pool(one, pool.ranks)),
            }
        )
    return found


@pytest.mark.battery(3)
@pytest.mark.parametrize("to", ["vllm", "kubernetes", "dynamo"])
@pytest.mark.parametrize("place", range(PLANS))
def test_files_come_back_as_their_pools(place: int, to: str, plans: list[Plan], tmp_path: Path) -> None:
    plan = plans[place]
    name, text = next(iter(gnomon.export(plan, to).files.items()))
    file = tmp_path / name
    file.write_text(text)
    found = gnomon.import_plan(file)
    assert canonical(found.plan) == canonical(plan)
    assert not [one for one in found.ignored if one.affects and "image" not in one.option]
    if plan.router in POLICIES or not plan.disaggregated:
        assert found.plan.router == plan.router
    again = gnomon.export(found.plan, to)
    assert _started(again.files[name]) == _started(text)


def _started(text: str) -> list[str]:
    """Without comments, which name chips as the plan spells them and what the plan wants beside."""
    return [line for line in text.splitlines() if not line.startswith("#")]


@pytest.mark.battery(3)
@pytest.mark.parametrize("place", range(PLANS))
def test_the_router_that_is_started_counts_and_not_the_comment(place: int, plans: list[Plan], tmp_path: Path) -> None:
    plan = replace(plans[place], router="random")
    text = gnomon.export(plan).files["launch.sh"]
    assert "--policy random" in text
    file = tmp_path / "launch.sh"
    file.write_text(text.replace("--policy random", "--policy round_robin"))
    assert gnomon.import_plan(file).plan.router == "round-robin"
