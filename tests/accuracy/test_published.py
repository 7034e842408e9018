"""Figures of papers become seconds and bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnomon.accuracy.published import counted_flops, training_steps
from gnomon.api.simulate_training import simulate_training
from gnomon.load import model as load_model
from gnomon.spec import TrainingLoad


def test_flops_as_the_paper_counts_them() -> None:
    """Narayanan et al. 2021, Table 2: 530B on 560 A100 at 171 TFLOP/s learns from 300 billion tokens in 156 days."""
    flops = counted_flops(load_model("gpt-529.6b"), TrainingLoad(seq=2048, global_batch=2240))
    steps = 300e9 / (2048 * 2240)
    assert steps * flops / (560 * 171e12) / 86400 == pytest.approx(156, rel=0.005)


@pytest.mark.parametrize("name", ["gpt-1.7b", "gpt-1008b"])
def test_flops_agree_with_those_of_the_operators(name: str) -> None:
    """The paper's formula runs the head only once; with all scores counted, ours is the same but for that."""
    model, load = load_model(name), TrainingLoad(seq=2048, global_batch=8)
    found = simulate_training(name, on="A100:8", seq=2048, global_batch=8, recompute="full", engine="megatron@2.4")
    ours = sum(found.step.flops.values())
    assert ours == pytest.approx(counted_flops(model, load), rel=1e-3)


@pytest.mark.heavy
def test_without_measurements(tmp_path: Path) -> None:
    found = training_steps(tmp_path)
    assert found["measured"] == []
    assert found["published"]
    assert [source.partition(" ")[0] for source in found["profiles"]] == ["A100-SXM-80GB"]
