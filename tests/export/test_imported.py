"""Export, then import, gives the same plan: from launch.sh, from the manifest and from the command alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.export.random_plans import serving_plans

import gnomon
from gnomon.engines import engine
from gnomon.errors import InputError
from gnomon.load import model as load_model
from gnomon.load.chips import chip as find_chip
from gnomon.load.plan import plan_pool
from gnomon.spec import Plan

SEED, SERVED = 2026, 36


def canonical(plan: Plan) -> dict[str, Any]:
    """What a launch command says of a plan, with all defaults filled in."""
    name = plan.checkpoint or plan.model
    model, made = load_model(name), engine(plan.engine.name)
    strategy, settings = made.arranged(plan.strategy, plan.engine.settings)
    filled = made.settings(settings, model, plan_pool(plan, plan.ranks))
    if filled["enforce_eager"]:
        filled.pop("max_cudagraph_capture_size")
    return {
        "model": (model.name, model.parameters),
        "chip": find_chip(plan.chip).name,
        "replicas": plan.replicas,
        "strategy": replace(strategy, techniques=()),
        "dtype": plan.dtype,
        "kv_dtype": plan.kv_dtype if plan.kv_dtype == "fp8" else "",
        "settings": filled,
    }


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> list[Plan]:
    return serving_plans(SEED, SERVED, tmp_path_factory.mktemp("named"))


@pytest.mark.battery(4)
@pytest.mark.parametrize("place", range(SERVED))
def test_a_script_comes_back_as_its_plan(place: int, plans: list[Plan], tmp_path: Path) -> None:
    plan = plans[place]
    written = gnomon.export(plan, "vllm")
    file = tmp_path / "launch.sh"
    file.write_text(written.files["launch.sh"])
    found = gnomon.import_plan(file)
    assert canonical(found.plan) == canonical(plan)
    assert not [one for one in found.ignored if one.affects]
    assert gnomon.export(found.plan, "vllm").command == written.command
    again = gnomon.import_plan(file, on=f"{plan.chip}:{plan.chips}")
    assert again.plan == found.plan


@pytest.mark.battery(4)
@pytest.mark.parametrize("place", range(SERVED))
def test_a_manifest_comes_back_as_its_plan(place: int, plans: list[Plan], tmp_path: Path) -> None:
    plan = plans[place]
    try:
        text = gnomon.export(plan, "kubernetes").files["deployment.yaml"]
    except InputError:
        pytest.skip("no manifest can say it")
    file = tmp_path / "deployment.yaml"
    file.write_text(text)
    found = gnomon.import_plan(file)
    assert canonical(found.plan) == canonical(plan)
    assert not [one for one in found.ignored if one.affects]
    bare = tmp_path / "bare.yaml"
    bare.write_text("\n".join(line for line in text.splitlines() if not line.startswith("#")))
    assert gnomon.import_plan(bare, on=plan.chip).plan == found.plan


@pytest.mark.battery(4)
@pytest.mark.parametrize("place", range(SERVED))
def test_a_command_comes_back_as_one_replica(place: int, plans: list[Plan]) -> None:
    plan = replace(plans[place], replicas=1)
    command = gnomon.export(plan, "vllm").command
    assert canonical(gnomon.import_plan(command, on=plan.chip).plan) == canonical(plan)
