"""Prices of steps: lines, host, totals and joules, and what predictions and pipelines make of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.cost.steps import CASES, deployed, model_of, plain_s

import gnomon
from gnomon.cost.draws import normals
from gnomon.cost.host import HostModel
from gnomon.cost.step import StepModel
from gnomon.engines import Deployment, Engine
from gnomon.graph.phases import is_padded
from gnomon.load import model as load_model
from gnomon.load import parse_pool
from gnomon.load.deployments import deploy
from gnomon.spec import Batch, Estimate, Strategy
from gnomon.spec.estimate import DRAWS
from gnomon.units import format_duration

PLAIN = "softmax, dense, tp 1"
STEPS = (Batch.decode(3, 700), Batch.decode(700, 100), Batch.step([100, 2000], [(500, 300)]), Batch.prefill(2, 3000))
STAGED = ("llama-3.1-70b", "deepseek-v3", "qwen3-next-80b-a3b", "nemotron-nano-9b-v2", "jamba-52b", "gpt-oss-20b")


@pytest.mark.parametrize("case", CASES)
def test_lines_are_the_operators(case: str) -> None:
    model = model_of(case)
    for steps in STEPS:
        price = model.price(steps)
        run = model.host.steps(steps)
        device = sum(line.time_s.value for line in price.operators)
        assert device + run.gap_s == pytest.approx(plain_s(case, steps).sum(), rel=1e-12)
        assert price.time_s.value == pytest.approx(max(device + run.gap_s, run.host_s), rel=1e-12)
        assert price.flops == pytest.approx(model.graph.flops(steps).sum(), rel=1e-12)
        assert price.bytes == pytest.approx(model.graph.bytes(steps).sum(), rel=1e-12)


def test_several_steps_are_priced_as_one_after_the_other() -> None:
    model = model_of(PLAIN)
    together, alone = model.price(Batch.stack(STEPS)), [model.price(steps) for steps in STEPS]
    for figure in ("flops", "bytes"):
        assert getattr(together, figure) == pytest.approx(sum(getattr(one, figure) for one in alone))
    assert together.host_s.value == pytest.approx(sum(one.host_s.value for one in alone))
    assert together.gap_s.value == pytest.approx(sum(one.gap_s.value for one in alone))
    lines = sum(line.time_s.value for one in alone for line in one.operators)
    assert sum(line.time_s.value for line in together.operators) == pytest.approx(lines)


def test_totals_are_the_sums_of_lines_draw_by_draw() -> None:
    price = model_of(PLAIN).price(STEPS[0])
    total = Estimate.total([line.time_s for line in price.lines])
    assert price.time_s.value == pytest.approx(total.value, rel=1e-12)
    assert price.time_s.draws == pytest.approx(total.draws, rel=1e-12)
    assert [line.time_s.value for line in price.lines] == sorted((x.time_s.value for x in price.lines), reverse=True)


def test_the_host_shows_where_it_needs_more_than_the_device() -> None:
    model, steps = model_of(PLAIN), Batch.decode(8, 500)
    quick = replace(model, host=HostModel(eager_launch_s=1e-9, gap_base_s=2e-9))
    slow = replace(model, host=HostModel(eager_launch_s=1.0, spread=0.1, source="a slow host"))
    device = sum(line.time_s.value for line in quick.price(steps).operators)
    assert quick.price(steps).time_s.value == pytest.approx(device + 2e-9, rel=1e-12)
    assert quick.price(steps).bound[0] == "memory"
    price = slow.price(steps)
    assert price.time_s.value == pytest.approx(1.0, rel=1e-12)
    assert price.bound == ("host", 1.0)
    assert price.time_s.draws == pytest.approx(np.exp(0.1 * normals("a slow host")), rel=1e-12)
    assert price.lines[0].op == "engine"


def test_one_host_launches_what_is_added() -> None:
    """It runs ahead of the first part, so that only what all parts leave over of its time is seen."""
    model, steps = model_of(PLAIN), Batch.decode(8, 500)
    device = sum(line.time_s.value for line in model.price(steps).operators)
    idle, busy = (replace(model, host=HostModel(eager_launch_s=share * device)) for share in (0.1, 1.5))
    both = idle.price(steps) + busy.price(steps)
    assert both.time_s.value == pytest.approx(2 * device, rel=1e-12)
    assert busy.price(steps).time_s.value == pytest.approx(1.5 * device, rel=1e-12)
    assert both.flops == pytest.approx(2 * model.graph.flops(steps).sum())


def test_joules_are_those_of_time_and_work_below_the_limit() -> None:
    model, steps = model_of(PLAIN), Batch.decode(8, 500)
    price, power, chip = model.price(steps), model.machine.profile.power, model.machine.chip
    free = power["active_w"] * price.time_s.value
    for op in model.graph.ops:
        run = model.host.steps(steps).padded if is_padded(op) else steps
        free += float(model.machine.op_power(op, run, model.machine.op_seconds(op, run)).joules.sum())
    assert power["active_w"] * price.time_s.value < free
    assert price.joules.value == pytest.approx(min(free, chip.tdp_w * price.time_s.value), rel=1e-12)
    least = replace(chip, tdp_w=1.0)
    cool = replace(model, machine=replace(model.machine, pool=replace(model.machine.pool, chip=least))).price(steps)
    assert cool.joules.value == pytest.approx(cool.time_s.value, rel=1e-12)


def pipeline(name: str) -> tuple[Engine, Deployment]:
    strategy, settings = Strategy(tp=8, pp=2), {"max_model_len": 8192}
    return deploy(load_model(name), parse_pool("H200:16"), strategy=strategy, settings=settings)


@pytest.mark.parametrize("name", STAGED)
def test_stages_of_a_pipeline_sum_to_the_step(name: str) -> None:
    for steps in (Batch.decode(3, 2000), Batch.decode(30, 2000), Batch.prefill(1, 3000)):
        engine, deployment = pipeline(name)
        whole = engine.step_model(deployment).price(steps)
        stages = [engine.step_model(deployment, stage).price(steps) for stage in engine.stages(deployment)]
        assert len(stages) == 2
        for figure in ("flops", "bytes"):
            assert sum(getattr(one, figure) for one in stages) == pytest.approx(getattr(whole, figure), rel=1e-12)
        lines = sum(line.time_s.value for one in stages for line in one.operators)
        assert lines == pytest.approx(sum(line.time_s.value for line in whole.operators), rel=1e-12)


ANSWERS = (
    {"model": "llama-3.1-8b", "on": "H200", "phase": "decode", "batch": 32, "context": 1024},
    {"model": "qwen3-30b-a3b", "on": "H200:4", "phase": "prefill", "batch": 3, "tokens": 5000, "ep": 4},
    {"model": "deepseek-v3", "on": "H200:16", "phase": "decode", "batch": 30, "context": 4000, "tp": 8, "pp": 2},
    {"model": "qwen2.5-vl-7b", "on": "H200", "phase": "prefill", "tokens": 100, "images": 2},
    {"model": "bert-base", "on": "H100", "phase": "prefill", "tokens": 256, "batch": 8},
    {"model": "dit-xl-2-256", "on": "A100", "steps": 20, "batch": 4},
)


@pytest.mark.parametrize("words", ANSWERS, ids=lambda words: str(words["model"]))
def test_predict_and_explain_are_the_same_sums(words: dict[str, object], tmp_path: Path) -> None:
    answer = gnomon.predict(**words)  # type: ignore[arg-type]
    lines = Estimate.total([line.time_s for line in answer.breakdown])
    assert answer.time_s.value == pytest.approx(lines.value, rel=1e-12)
    assert answer.time_s.draws == pytest.approx(lines.draws, rel=1e-12)
    file = tmp_path / "answer.json"
    file.write_text(json.dumps(answer.to_dict()))
    (phase,) = gnomon.explain(file).nodes[0].parts
    assert [part.name for part in phase.parts] == [line.op for line in answer.breakdown]
    assert phase.shown == format_duration(lines.value)


@pytest.mark.parametrize("case", [PLAIN, "latent, experts, tp 2", "mamba-2, dense, tp 1"])
def test_a_draw_of_the_table_is_that_draw_of_the_price(case: str) -> None:
    engine, deployment = deployed(case)
    assert_draws_agree(engine, deployment, model_of(case))


@pytest.mark.parametrize("chip", ["L4", "MI300X", "RTX-4090", "B200"])
def test_no_draw_of_the_table_is_faster_than_the_chip(chip: str) -> None:
    """Wide draws of a chip without tables of its own stop at its data sheet's peaks, in tables as in prices."""
    engine, deployment = deploy(load_model("llama-3.1-8b"), parse_pool(chip), settings={"max_model_len": 4096})
    assert_draws_agree(engine, deployment, engine.step_model(deployment))


def assert_draws_agree(engine: Engine, deployment: Deployment, model: StepModel) -> None:
    """Decodes and a step with a prompt, under every draw."""
    (cost, _), *drawn = engine.drawn(deployment, DRAWS)
    last = int(cost.decode_curve(64).context[-1])
    decodes = [one.decode_curve(64).seconds[-1] for one, _ in drawn]
    assert decodes == pytest.approx(model.price(Batch.decode(64, last)).time_s.draws, rel=1e-9)
    mixed = [one.mixed(0, 0, [(512, 0)]) for one, _ in drawn]
    price = model.price(Batch.prefill(1, 512))
    shown = sum(line.time_s.draws for line in price.operators) + price.gap_s.draws
    assert mixed == pytest.approx(shown, rel=3e-3)
