"""Answers opened down to operators, formulas and sources."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from tests.report import answers

from gnomon.api.explain import explain
from gnomon.cli.output import finite
from gnomon.errors import InputError, UnknownNameError
from gnomon.report.opened import Node, opened
from gnomon.store import save

KINDS = {
    "predict": answers.prediction(),
    "fit": answers.fit(),
    "simulate.serve": answers.served(),
    "plan.serve": answers.planned(),
    "verify": answers.verified(),
}


def payload(kind: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(json.dumps(finite(KINDS[kind].to_dict())))
    return read


class Step:
    """Stands in for the prediction of a typical step and notes what was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[Mapping[str, Any], int, int]] = []

    def __call__(self, inputs: Mapping[str, Any], batch: int, context: int) -> dict[str, Any]:
        self.asked.append((inputs, batch, context))
        return payload("predict")


def flat(nodes: tuple[Node, ...]) -> list[Node]:
    return [inner for node in nodes for inner in (node, *flat(node.parts))]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_opens_into_metrics(kind: str) -> None:
    nodes = opened(kind, payload(kind), Step())
    assert nodes
    assert all(node.level == "metric" and node.shown for node in nodes)


def test_operators_are_set_against_the_data_sheet() -> None:
    nodes = flat(opened("predict", payload("predict"), Step()))
    operators = [node for node in nodes if node.level == "operator"]
    assert [node.name for node in operators] == ["mlp gate and up", "qkv", "scheduler and launches"]
    memory, arithmetic = operators[0].parts
    assert memory.formula == "833 us at the data sheet's 4.8 TB/s; 28% of that rate is reached"
    assert (memory.name, arithmetic.name) == ("memory", "arithmetic")
    assert "NVIDIA H200 data sheet" in memory.source
    assert operators[2].parts == ()


def test_a_served_token_leads_to_a_typical_step() -> None:
    step = Step()
    nodes = flat(opened("simulate.serve", payload("simulate.serve"), step))
    assert any(node.level == "operator" for node in nodes)
    inputs, batch, context = step.asked[0]
    assert inputs["model"] == "llama-3.1-8b"
    assert batch == round(2041 * 0.011)
    assert context == int((10200 - 2041 / 2) * 0.125)


def test_a_plan_leads_to_a_typical_step_of_one_replica() -> None:
    step = Step()
    nodes = flat(opened("plan.serve", payload("plan.serve"), step))
    inputs, batch, context = step.asked[0]
    assert (inputs["on"], inputs["tp"], inputs["engine"]) == ("H100-SXM-80GB:4", 4, "vllm@0.24.0")
    assert (batch, context) == (round(1024 * 0.025), 1152)
    shown = {node.name: node for node in nodes}
    assert shown["runner-up"].formula == "misses TPOT p90 by 6 ms"
    assert shown["ttft_p90"].shown == "29% of the goal to spare"


def test_a_step_that_cannot_be_predicted_is_left_out() -> None:
    nodes = flat(opened("simulate.serve", payload("simulate.serve"), lambda *_: None))
    assert not any(node.level == "operator" for node in nodes)


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_answers_are_errors(kind: str) -> None:
    with pytest.raises(InputError, match="damaged"):
        opened(kind, {"schema": f"gnomon.{kind}/1", "parts": 3}, Step())


def test_other_answers_cannot_be_opened() -> None:
    with pytest.raises(InputError, match="no answer that can be opened"):
        opened("chips", {}, Step())


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
