"""Where techniques come from, and what a pass of one does to a step."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest

import gnomon
from gnomon.engines.training.case import TrainingCase
from gnomon.errors import InputError
from gnomon.graph.layers import NodePass
from gnomon.graph.layers.writer import Writer
from gnomon.graph.tape import TapeNode
from gnomon.techniques import TRAINING, Technique, Trial

registry = import_module("gnomon.techniques")
"""`gnomon.techniques` is a function of the public face."""


class FrozenEmbedding(Technique[TrainingCase]):
    """Without the gradient of the embedding's table."""

    name = "frozen-embedding"
    work = (TRAINING,)
    title = idea = "The embedding is not trained"
    trials = (Trial(paper="gpipe", words="frozen-embedding"),)

    def program(self, case: TrainingCase, values: Any) -> NodePass:
        def freeze(part: str, nodes: list[TapeNode], writer: Writer) -> list[TapeNode]:
            if part != "embedding":
                return nodes
            return [replace(node, wgrad=()) for node in nodes]

        return freeze


def simulate(**more: Any) -> Any:
    return gnomon.simulate_training("llama-3.2-1b", on="H100", seq=2048, global_batch=2, **more)


def test_a_technique_of_another_package_is_used_by_name(outside: dict[str, Any]) -> None:
    outside["frozen-embedding"] = FrozenEmbedding()
    plain, frozen = simulate(), simulate(techniques=["frozen-embedding"])
    assert frozen.step_time_s.value < plain.step_time_s.value
    assert frozen.plan.strategy.techniques == ("frozen-embedding",)


def test_a_pass_is_seen_by_search_and_simulation_alike(outside: dict[str, Any]) -> None:
    outside["frozen-embedding"] = FrozenEmbedding()
    found = gnomon.plan_training(
        "llama-3.2-1b", cluster="H100", seq=2048, global_batch=2, techniques=["frozen-embedding"]
    )
    again = simulate(techniques=["frozen-embedding"], recompute=found.best.plan.engine.settings["recompute"],
                     micro_batch=found.best.plan.engine.settings["micro_batch"])  # fmt: skip
    assert again.step_time_s.value == pytest.approx(found.best.step_time_s.value, rel=1e-12)


@pytest.mark.parametrize("given", [RuntimeError("broken"), object()], ids=["raises", "is something else"])
def test_a_package_that_is_broken_is_named(outside: dict[str, Any], given: Any) -> None:
    outside["other"] = given
    with pytest.raises(InputError, match="other"):
        simulate(techniques=["other"])


def test_every_file_is_found() -> None:
    assert {"offload-optimizer", "gpipe", "interleaved", "kv-swap", "int4-weights"} <= set(registry.techniques())
