"""Stages of a pipeline with given numbers of layers: time, memory, the exported layout, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gnomon
from gnomon.engines.megatron.launch import options
from gnomon.errors import InputError
from gnomon.planning.training.memory import memory_over_time
from gnomon.planning.training.step import step_bound_s
from gnomon.spec.answers import TrainingReport


def step(layers: str | None, **given: Any) -> TrainingReport:
    asked: dict[str, Any] = {"on": "H100:8", "seq": 4096, "global_batch": 64, "tp": 2, "pp": 4} | given
    return gnomon.simulate_training("llama-3.1-8b", layers_per_stage=layers, **asked)


def test_equal_stages_are_what_is_taken_where_none_are_given() -> None:
    plain, given = step(None), step("8,8,8,8")
    assert given.step_time_s.value == plain.step_time_s.value
    assert given.memory_parts == plain.memory_parts
    assert "layers_per_stage" not in plain.inputs and given.inputs["layers_per_stage"] == "8,8,8,8"


def test_fewer_layers_beside_the_head_are_faster() -> None:
    """The head of Llama 3.1 8B takes as long as about three layers."""
    plain, given = step(None), step("9,9,9,5")
    assert given.step_time_s.value < 0.95 * plain.step_time_s.value
    assert given.bubble_fraction < plain.bubble_fraction
    assert dict(given.step.flops) == dict(plain.step.flops)
    forward = given.step.timeline.times.forward_s[:, 0]
    assert forward[1] == pytest.approx(forward[2]) and forward[1] > plain.step.timeline.times.forward_s[1, 0]
    weights = [[part["weights"] for part in found.memory_parts] for found in (plain, given)]
    assert sum(weights[0]) == pytest.approx(sum(weights[1]))
    assert weights[1][1] == pytest.approx(weights[0][1] * 9 / 8)
    assert weights[1][3] < weights[0][3]


@pytest.mark.parametrize("layers", ["9,9,9,5", "0,16,16,0", "0,11,11,10", "12,12,8,0", "1,29,1,1"])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_memory_over_time_ends_at_the_peak_and_bounds_hold(layers: str, recompute: str) -> None:
    found = step(layers, recompute=recompute, zero=1)
    for rank in range(4):
        highest = max(moment.bytes for moment in memory_over_time(found.step, rank))
        assert highest == pytest.approx(found.step.peaks[rank], rel=1e-9)
    bounds = step_bound_s(found.step.figures, found.step.traits)
    assert bounds[0] <= found.step.timeline.step_s * (1 + 1e-12)
    assert np.isfinite(found.step_time_s.draws).all()


def test_an_embedding_alone_holds_no_layer() -> None:
    found = step("0,12,12,8")
    embedding = 128256 * 4096 / 2 * 2  # half of the vocabulary on each tensor-parallel rank, in two bytes
    assert found.memory_parts[0]["weights"] == pytest.approx(embedding)
    assert found.memory_parts[0]["activations"] == 0


def test_chunks_of_interleaved_stages() -> None:
    found = step("5,4,4,4,4,4,4,3", vp=2)
    counts = found.step.figures.chunks.stages.counts(found.step.figures.chunks.shape_of(0)).sum(axis=2)
    assert counts.tolist() == [[5, 4], [4, 4], [4, 4], [4, 3]]
    assert options(found.step.job)["--pipeline-model-parallel-layout"] == (
        "E" + "|".join("t" * n for n in (5, 4, 4, 4, 4, 4, 4, 3)) + "L"
    )


@pytest.mark.parametrize(
    ("layers", "given", "message"),
    [
        ("9,9,9,4", {}, r"--layers-per-stage: 9,9,9,4 sums to 31 layers of 32"),
        ("16,16", {}, r"2 stages are given, and pp x vp is 4. Give 4 counts"),
        ("9,x,9,5", {}, r"is not a list of counts"),
        ("16,0,8,8", {}, r"a stage of 16,0,8,8 has no layer"),
        ("9,9,9,5", {"engine": "megatron@3.0"}, r"equal numbers of layers"),
        ("9,9,9,5", {"engine": "deepspeed", "sequence_parallel": False}, r"equal numbers of layers"),
        ("9,9,9,5", {"techniques": ("vocabulary-parallel",)}, r"vocabulary-parallel is not priced"),
    ],
)
def test_what_cannot_be_is_refused(layers: str, given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        step(layers, **given)


def test_without_a_pipeline_it_has_no_effect_and_is_listed() -> None:
    found = step("32", pp=1, tp=8, on="H100:8")
    assert any("--layers-per-stage" in one.option for one in found.not_modelled)
