"""A vocabulary over all stages, by hand: its barriers, and what its collectives cost."""

from __future__ import annotations

import pytest

import gnomon
from gnomon.spec.answers import TrainingReport


def step(*applied: str, on: str = "A100-80GB:8") -> TrainingReport:
    return gnomon.simulate_training("llama-2-7b", on=on, seq=2048, global_batch=32, pp=8, techniques=applied)


@pytest.mark.parametrize("barriers", [1, 2])
def test_each_barrier_is_one_more_turn(barriers: int) -> None:
    found = step(f"vocabulary-parallel:barriers={barriers}")
    figures = found.step.figures
    turn = float((figures.forward_s + figures.backward_s)[0])
    assert found.step_parts["waits_s"] == pytest.approx(barriers * turn, rel=1e-9)
    line = 32 + 8 - 1 + barriers
    assert found.step_parts["pipeline_s"] + found.step_parts["waits_s"] == pytest.approx(line * turn, rel=0.02)


def test_stages_are_alike_and_hold_the_same() -> None:
    found = step("vocabulary-parallel")
    figures = found.step.figures
    assert not figures.first_forward_s.any() and not figures.last_backward_s.any()
    weights = {round(parts["weights"]) for parts in found.memory_parts}
    assert len(weights) == 1


def test_collectives_of_one_node_hide_and_cost_little() -> None:
    """Layers and ends of the plain pipeline, shared out, are what a stage takes, but for a few percent."""
    plain, found = step().step.figures, step("vocabulary-parallel").step.figures
    ends = plain.first_forward_s + plain.first_backward_s + plain.last_forward_s + plain.last_backward_s
    shared = float((plain.forward_s + plain.backward_s + ends / 8)[0])
    assert shared < float((found.forward_s + found.backward_s)[0]) < shared * 1.03
