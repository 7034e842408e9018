"""Answers opened down to operators, formulas and sources."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

import pytest
from tests.report import answers

import gnomon
from gnomon.api.explain import explain
from gnomon.cli.run import run
from gnomon.errors import InputError, UnknownNameError
from gnomon.load.answers import answer_from_dict
from gnomon.report.opened import opened
from gnomon.spec.answers import AnswerNode, JsonAnswer, Prediction, Result
from gnomon.store import save

KINDS = {
    "predict": answers.prediction(),
    "fit": answers.fit(),
    "simulate.serve": answers.served(),
    "plan.serve": answers.planned(),
    "verify": answers.verified(),
    "simulate.train": answers.trained(),
    "plan.train": answers.trained_plan(),
}


def payload(kind: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(json.dumps(KINDS[kind].to_dict()))
    return read


def answer(kind: str) -> Result:
    """The answer as it comes back from a file."""
    return answer_from_dict(payload(kind))


class Step:
    """Stands in for the prediction of a typical step and notes what was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[Mapping[str, Any], int, int]] = []

    def __call__(self, inputs: Mapping[str, Any], batch: int, context: int) -> Prediction:
        self.asked.append((inputs, batch, context))
        return answers.prediction()


def flat(nodes: tuple[AnswerNode, ...]) -> list[AnswerNode]:
    return [inner for node in nodes for inner in (node, *flat(node.parts))]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_opens_into_metrics(kind: str) -> None:
    nodes = opened(answer(kind), Step())
    assert nodes
    assert all(node.level == "metric" and node.shown for node in nodes)


def test_operators_are_set_against_the_data_sheet() -> None:
    nodes = flat(opened(answer("predict"), Step()))
    operators = [node for node in nodes if node.level == "operator"]
    assert [node.name for node in operators] == ["mlp gate and up", "qkv", "scheduler and launches"]
    memory, arithmetic = operators[0].parts
    assert memory.formula == "833 us at the data sheet's 4.8 TB/s; 28% of that rate is reached"
    assert (memory.name, arithmetic.name) == ("memory", "arithmetic")
    assert "NVIDIA H200 data sheet" in memory.source
    assert operators[2].parts == ()


def test_a_served_token_leads_to_a_typical_step() -> None:
    step = Step()
    nodes = flat(opened(answer("simulate.serve"), step))
    assert any(node.level == "operator" for node in nodes)
    inputs, batch, context = step.asked[0]
    assert inputs["model"] == "llama-3.1-8b"
    assert batch == round(2041 * 0.011)
    assert context == int((10200 - 2041 / 2) * 0.125)


def test_a_plan_opens_its_own_numbers_and_names_the_step_behind_them() -> None:
    step = Step()
    nodes = {node.name: node for node in opened(answer("plan.serve"), step)}
    assert step.asked == [], "no other step is priced in their place"
    tpot = nodes["TPOT"]
    assert (tpot.shown, tpot.provenance, tpot.source) == ("mean 25 ms, p90 37.5 ms", "fitted", "H200 2026-11")
    assert [part.name for part in tpot.parts] == ["mean", "p50", "p90", "p95", "p99", "one step"]
    assert tpot.parts[2].shown == "37.5 ms (35.8 ms to 39.2 ms, 90%)"
    command = tpot.parts[-1].formula
    assert "--on H100-SXM-80GB:4 --dtype fp8 --kv-dtype fp8 --set max_num_batched_tokens=2048" in command
    assert command.endswith("--engine vllm@0.24.0 --phase decode --batch 26 --context 1152")
    assert nodes["cost"].formula == "$26.32/h over 2,048 output tokens/s"
    assert "list price" in nodes["cost"].parts[0].source
    shown = {part.name: part for part in nodes["plan"].parts}
    assert shown["runner-up"].formula == "15% lower TTFT"
    assert shown["next cheaper"].formula == "misses tpot_p90 by 6 ms"
    assert shown["ttft_p90"].shown == "29% of the goal to spare"


@pytest.mark.heavy
def test_the_step_that_a_plan_names_can_be_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    plan = gnomon.plan_serving("llama-3.2-1b", fleet="H100:2", slo="ttft_p90=1s", rate=4, input=64, output=8)
    command = flat(opened(plan, Step()))
    step = next(node.formula.removeprefix("opened by ") for node in command if node.name == "one step")
    save("plan.serve", plan.to_dict())
    assert f"next: {step}" in str(explain("last"))
    assert run([*shlex.split(step)[1:], "--json"]) == 0
    asked = json.loads(capsys.readouterr().out)["inputs"]
    assert (asked["context"], asked["engine"]) == (68, plan.best.plan.engine.label)
    assert asked["settings"] == dict(plan.best.plan.engine.settings)


def test_a_step_that_cannot_be_predicted_is_left_out() -> None:
    nodes = flat(opened(answer("simulate.serve"), lambda *_: None))
    assert not any(node.level == "operator" for node in nodes)


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_answers_are_errors(kind: str) -> None:
    with pytest.raises(InputError, match="damaged"):
        answer_from_dict({"schema": f"gnomon.{kind}/1", "parts": 3})


def test_other_answers_cannot_be_opened() -> None:
    with pytest.raises(InputError, match="not an answer that can be explained"):
        opened(JsonAnswer(content={"schema": "gnomon.chips/1"}), Step())


def test_explaining_by_id_and_by_operator() -> None:
    saved = save("predict", payload("predict"))
    assert explain(saved).id == explain("last").id == saved
    assert [node.name for node in explain("last", op="QKV").nodes] == ["qkv"]
    assert [node.name for node in explain("last", op="mlp").nodes] == ["mlp gate and up"]
    with pytest.raises(UnknownNameError, match="scheduler and launches"):
        explain("last", op="nonsense")


def test_an_answer_without_operators() -> None:
    save("fit", payload("fit"))
    with pytest.raises(InputError, match="no operators"):
        explain("last", op="ffn")


def test_a_training_step_opens_into_its_parts() -> None:
    nodes = opened(answer("simulate.train"), Step())
    step, use, memory, binds, *spent = nodes
    assert [part.name for part in step.parts] == ["pipeline", "gradient reduction after the last pass", "optimizer"]
    assert [part.shown for part in step.parts[0].parts] == ["27 s", "3 s"]
    assert (step.provenance, step.source) == ("fitted", "H200 2026-11")
    assert use.shown == "51.2%, 52.4% with recomputation"
    assert "of 32 x 312 TFLOP/s" in use.formula
    assert "A100" in use.source
    assert [part.shown for part in memory.parts] == ["68.0 GiB, 8.9 to spare", "61.0 GiB, 15.9 to spare"]
    assert binds.shown.startswith("kernels: they run below the data sheet's rate")
    assert [(part.name, part.shown) for part in binds.parts] == [
        ("arithmetic", "52.4%"),
        ("communication", "6.8%"),
        ("the bubble", "9.7%"),
        ("the optimizer", "1.3%"),
        ("kernels", "29.8%"),
    ]
    assert [node.name for node in spent] == ["energy", "cost", "the full run"]
    assert spent[0].formula == "350 W per chip on 32 chips"


def test_what_binds_a_training_step() -> None:
    def binding(**changes: Any) -> str:
        nodes = opened(answers.trained(**changes), Step())
        return next(node.shown for node in nodes if node.name == "what binds")

    parts = {"pipeline_s": 30.0, "gradient_reduction_s": 0.0, "optimizer_s": 0.1, "weight_gather_s": 0.0}
    assert binding(exposed_communication_s=9.0).startswith("communication: less tensor parallelism")
    assert binding(step_parts=parts | {"optimizer_s": 5.0}).startswith("the optimizer")
    compute_only = {"bubble_fraction": 0.0, "exposed_communication_s": 0.0, "step_parts": parts}
    assert binding(**compute_only).startswith("kernels")
    assert binding(**compute_only, hfu=0.99) == "the forward and backward passes themselves"
    assert binding(**compute_only, fits=False).startswith("memory, which is short")


def test_a_training_plan_opens_into_the_choice_and_its_step() -> None:
    nodes = opened(answer("plan.train"), Step())
    plan = nodes[0]
    assert plan.formula.endswith("every plan that was not timed takes at least 30.9 s")
    assert [part.name for part in plan.parts] == ["runner-up", "not chosen", "not chosen", "not chosen"]
    assert [node.name for node in nodes[1:]] == [node.name for node in opened(answer("simulate.train"), Step())]


def test_measured_bytes_are_shown_in_gib() -> None:
    assert [node.shown for node in opened(answers.verified_training(), Step())] == [
        "811 ms predicted, 840 ms measured",
        "38.9 GiB predicted, 39.0 GiB measured",
    ]


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce_scatter", "send_recv", "moe_dispatch"])
def test_what_goes_over_links_is_not_measured_against_memory(kind: str) -> None:
    found = payload("predict")
    row = found["breakdown"][0]
    found["breakdown"] = [row | {"op": "x.sent", "kind": kind, "bytes": 1e6, "flops": 0}, row | {"op": "x.own"}]
    save("predict", found)
    assert explain("last", op="x.sent").nodes[0].parts == ()
    assert explain("last", op="x.own").nodes[0].parts


@pytest.mark.parametrize("broken", [{}, {"schema": "gnomon.lab/1"}, {"schema": "gnomon.predict/1"}])
def test_the_history_proposes_only_what_can_be_opened(
    broken: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    save("predict", broken)
    assert run(["history"]) == 0
    assert "gnomon explain" not in capsys.readouterr().out
    whole = save("predict", payload("predict"))
    save("predict", broken | {"title": "newer"})
    assert run(["history"]) == 0
    assert f"next: gnomon explain {whole}" in capsys.readouterr().out
    assert run(["explain", whole]) == 0
