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

PLANS, SEED = 54, 5
POLICIES = {
    "vllm": ("random", "round-robin", "prefix-aware"),
    "sglang": ("random", "round-robin", "prefix-aware"),
    "trtllm": ("round-robin", "least-requests", "prefix-aware"),
}
"""What the engines' own routers have; for others the nearest is started, and comes back."""
ALWAYS = {("trtllm", "prefill"): {"disable_overlap_scheduler": True}}
"""What servers of a role have whatever the plan says, which the export then lists as not expressed."""


@pytest.fixture(scope="module")
def plans() -> list[Plan]:
    return pooled_plans(SEED, PLANS)


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
                "settings": {
                    **made.settings(settings, model, plan_pool(one, pool.ranks)),
                    **ALWAYS.get((pool.engine.name, pool.role), {}),
                },
            }
        )
    return found


@pytest.mark.battery(6)
@pytest.mark.parametrize("to", ["script", "kubernetes", "dynamo"])
@pytest.mark.parametrize("place", range(PLANS))
def test_files_come_back_as_their_pools(place: int, to: str, plans: list[Plan], tmp_path: Path) -> None:
    plan = plans[place]
    to = plan.engine.name if to == "script" else to
    name, text = next(iter(gnomon.export(plan, to).files.items()))
    file = tmp_path / name
    file.write_text(text)
    found = gnomon.import_plan(file)
    assert canonical(found.plan) == canonical(plan)
    assert not [one for one in found.ignored if one.affects and "image" not in one.option]
    if to == "dynamo" or plan.router in POLICIES[plan.engine.name] or not plan.disaggregated:
        assert found.plan.router == plan.router
    again = gnomon.export(found.plan, to)
    assert _started(again.files[name]) == _started(text)


def _started(text: str) -> list[str]:
    """Without comments, which name chips as the plan spells them and what the plan wants beside."""
    return [line for line in text.splitlines() if not line.startswith("#")]


@pytest.mark.battery(6)
@pytest.mark.parametrize("place", range(PLANS))
def test_the_router_that_is_started_counts_and_not_the_comment(place: int, plans: list[Plan], tmp_path: Path) -> None:
    plan = replace(plans[place], router="prefix-aware")
    text = gnomon.export(plan).files["launch.sh"]
    named = [word for word in ("cache_aware", "kv_cache_aware") if f" {word}\n" in text.replace(" --host", "\n")]
    if not named:
        assert (plan.engine.name, plan.disaggregated) == ("trtllm", False)  # nginx, which only the comment names
        return
    file = tmp_path / "launch.sh"
    file.write_text(text.replace(f" {named[0]}", " round_robin"))
    assert gnomon.import_plan(file).plan.router == "round-robin"
