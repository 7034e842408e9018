"""Export, then import, gives the same plan: from launch.sh, from the manifest and from the command alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.export.random_plans import serving_plans

import gnomon
from gnomon.engines import engine as engine_of
from gnomon.engines.trtllm.launch import OPTIONS_FILE, options_yaml
from gnomon.errors import InputError
from gnomon.load import model as load_model
from gnomon.load.chips import chip as find_chip
from gnomon.load.plan import plan_pool
from gnomon.spec import Plan

SEED, SERVED = 2026, 36
ENGINES = ("vllm", "sglang", "trtllm")
PLANS = [(engine, place) for engine in ENGINES for place in range(SERVED)]


def without_idle(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings without those that mean nothing beside another."""
    if settings.get("enforce_eager"):
        settings.pop("max_cudagraph_capture_size")
    if settings.get("cuda_graph_max_batch_size") == 0:
        settings.pop("cuda_graph_enable_padding")
    return settings


def canonical(plan: Plan) -> dict[str, Any]:
    """What a launch command says of a plan, with all defaults filled in."""
    name = plan.checkpoint or plan.model
    model, made = load_model(name), engine_of(plan.engine.name)
    strategy, settings = made.arranged(plan.strategy, plan.engine.settings)
    filled = made.settings(settings, model, plan_pool(plan, plan.ranks))
    return {
        "model": (model.name, model.parameters),
        "chip": find_chip(plan.chip).name,
        "replicas": plan.replicas,
        "strategy": replace(strategy, techniques=()),
        "dtype": plan.dtype,
        "kv_dtype": plan.kv_dtype if plan.kv_dtype == "fp8" else "",
        "settings": without_idle(filled),
    }


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], Plan]:
    @cache
    def of(engine: str) -> list[Plan]:
        return serving_plans(SEED, SERVED, tmp_path_factory.mktemp(engine), engine)

    return lambda engine, place: of(engine)[place]


@pytest.mark.heavy
@pytest.mark.battery(20)
@pytest.mark.parametrize(("engine", "place"), PLANS)
def test_a_script_comes_back_as_its_plan(
    engine: str, place: int, plans: Callable[[str, int], Plan], tmp_path: Path
) -> None:
    plan = plans(engine, place)
    written = gnomon.export(plan, engine)
    file = tmp_path / "launch.sh"
    file.write_text(written.files["launch.sh"])
    found = gnomon.import_plan(file)
    assert canonical(found.plan) == canonical(plan)
    assert not [one for one in found.ignored if one.affects]
    assert gnomon.export(found.plan, engine).command == written.command
    again = gnomon.import_plan(file, on=f"{plan.chip}:{plan.chips}")
    assert again.plan == found.plan


@pytest.mark.battery(8)
@pytest.mark.parametrize(("engine", "place"), PLANS)
def test_a_manifest_comes_back_as_its_plan(
    engine: str, place: int, plans: Callable[[str, int], Plan], tmp_path: Path
) -> None:
    plan = plans(engine, place)
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


@pytest.mark.battery(8)
@pytest.mark.parametrize(("engine", "place"), PLANS)
def test_a_command_comes_back_as_one_replica(
    engine: str, place: int, plans: Callable[[str, int], Plan], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = replace(plans(engine, place), replicas=1)
    command = gnomon.export(plan, engine).command
    monkeypatch.chdir(tmp_path)
    if engine == "trtllm":
        (tmp_path / OPTIONS_FILE).write_text(options_yaml(plan))
    assert canonical(gnomon.import_plan(command, on=plan.chip).plan) == canonical(plan)
