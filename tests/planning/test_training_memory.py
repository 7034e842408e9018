"""Memory over a step: the walk reaches the peak that the answer gives, and never more."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any

import pytest

from gnomon.api.simulate_training import simulate_training
from gnomon.planning.training.memory import MOST_ROWS, Moment, memory_over_time
from gnomon.planning.training.step import TrainingStep, in_flight

CUTS: dict[str, dict[str, Any]] = {
    "one rank": {"on": "H100:2"},
    "tensor parallel": {"on": "H100:4", "tp": 2, "micro_batch": 2},
    "whole sequences": {"on": "H100:4", "tp": 2, "sequence_parallel": False},
    "1f1b": {"on": "H100:8", "pp": 4, "micro_batch": 2},
    "few micro-batches": {"on": "H100:4", "pp": 4, "global_batch": 2},
    "interleaved": {"on": "H100:8", "tp": 2, "pp": 4, "vp": 2},
    "gpipe": {"on": "H100:8", "tp": 2, "pp": 4, "schedule": "gpipe"},
}
RUNS = [(cut, engine) for cut in CUTS for engine in ("megatron", "megatron@3.0", "torch")]
RUNS.remove(("few micro-batches", "torch"))  # its 1f1b takes at least one micro-batch a stage


@cache
def step(cut: str, engine: str = "megatron", recompute: str = "none", zero: int = 0, seq: int = 1024) -> TrainingStep:
    words = {"seq": seq, "global_batch": 32, "engine": engine, "recompute": recompute, "zero": zero} | CUTS[cut]
    found: TrainingStep = simulate_training("llama-3.1-8b", **words).step
    return found


def moments(found: TrainingStep, rank: int, most: int = MOST_ROWS) -> list[Moment]:
    return list(memory_over_time(found, rank, most))


def highest(walked: list[Moment]) -> float:
    return max(moment.bytes for moment in walked)


@pytest.mark.battery(12)
@pytest.mark.parametrize("zero", [0, 3])
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize(("cut", "engine"), RUNS)
def test_the_highest_moment_is_the_rank_s_peak(cut: str, engine: str, recompute: str, zero: int) -> None:
    if (engine, zero) == ("megatron@3.0", 3):
        zero = 1  # all it has
    found = step(cut, engine, recompute, zero)
    ranks = range(len(found.peaks) - (cut == "gpipe"))  # the last of gpipe is a test of its own
    for rank in ranks:
        assert highest(moments(found, rank)) == pytest.approx(found.peaks[rank], rel=1e-6)


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_the_last_rank_of_gpipe(recompute: str) -> None:
    found = step("gpipe", recompute=recompute)
    assert highest(moments(found, 3)) == pytest.approx(found.peaks[3], rel=1e-6)


def test_a_last_rank_whose_layers_need_more_than_its_head() -> None:
    found = step("interleaved", "megatron@3.0", "full", seq=8192)
    assert "layer" in max(moments(found, 3), key=lambda moment: moment.bytes).what
    assert highest(moments(found, 3)) == pytest.approx(found.peaks[3], rel=1e-6)


@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize("engine", ["megatron", "megatron@3.0"])
@pytest.mark.parametrize("cut", CUTS)
def test_the_last_rank_in_closed_form(cut: str, engine: str, recompute: str) -> None:
    """All passes in flight hold their layers, all but one their head, and one more runs a layer or a head."""
    found = step(cut, engine, recompute, seq=8192)
    last = len(found.peaks) - 1
    figures, memory = found.figures, found.memory(last)
    held = float(in_flight(figures.grid, figures.micros, last)[0])
    head, layer = float(figures.head_saved_activation_bytes[0]), float(figures.chunks.peak_bytes(last)[0])
    heads = int(figures.micros[0]) if cut == "gpipe" else 1
    states = float((memory.total - memory.activations - memory.working)[0])
    stays = held * float(figures.layers[0] * figures.saved_activation_bytes[0]) + (heads - 1) * head
    runs = max(layer, head + float(figures.head_peak_bytes[0]))
    assert highest(moments(found, last)) == pytest.approx(states + stays + runs, rel=1e-6)


@pytest.mark.battery(6)
@pytest.mark.parametrize("most", [1, 50, 1000, MOST_ROWS])
@pytest.mark.parametrize("cut", CUTS)
def test_time_goes_on_and_the_peak_stays_however_few_moments(cut: str, most: int) -> None:
    found = step(cut)
    for rank in range(len(found.peaks)):
        walked = moments(found, rank, most)
        assert walked[0].time_s == 0.0
        assert all(one.time_s <= next_.time_s for one, next_ in pairwise(walked))
        assert walked[-1].time_s == pytest.approx(found.timeline.step_s)
        assert highest(walked) == highest(moments(found, rank))
        assert len(walked) <= len(moments(found, rank))


def test_few_moments_are_few() -> None:
    found = step("1f1b")
    tasks = len(found.timeline.orders[0])
    operators = moments(found, 0)
    assert len(operators) > 50 * tasks
    assert len(moments(found, 0, 2 * tasks)) < len(operators) / 2
    assert len(moments(found, 0, 10)) <= 10 + 3, "beside what follows the pipeline"


def test_states_are_there_before_and_after() -> None:
    found = step("1f1b")
    memory = found.memory(2)
    states = float((memory.weights + memory.gradients + memory.optimizer + memory.buffers)[0])
    walked = moments(found, 2)
    assert walked[0] == (0.0, states, "waiting")
    after = [moment for moment in walked if moment.time_s >= found.timeline.optimizer_start_s]
    assert [moment.what for moment in after] == ["optimizer", "end"]
    assert all(moment.bytes == states for moment in after)
    assert min(moment.bytes for moment in walked) == states


def test_a_forward_leaves_layer_after_layer_and_a_backward_takes_them_away() -> None:
    found = step("one rank")
    layers, kept = int(found.figures.layers[0]), float(found.figures.saved_activation_bytes[0])
    walked = moments(found, 0)
    for kind, sign in (("F", 1), ("B", -1)):
        first = [
            moment for moment in walked if moment.what.endswith(" ffn.up") and moment.what.startswith(f"{kind} 0 ")
        ]
        names = [moment.what for moment in first]
        numbers = range(layers)[::sign]
        assert names == [f"{kind} 0 layer {number} ffn.up" for number in numbers]
        for one, next_ in pairwise(first):
            assert next_.bytes - one.bytes == pytest.approx(sign * kept)


def test_operators_have_their_part_of_the_time() -> None:
    found = step("one rank")
    walked = moments(found, 0)
    start, end = found.timeline.start_s[0][0], found.timeline.end_s[0][0]
    inside = [moment for moment in walked if start <= moment.time_s < end]
    assert inside[0].what == "F 0 embedding"
    assert inside[-1].what == "F 0 head.loss"
    lasts = {one.what: next_.time_s - one.time_s for one, next_ in pairwise(inside)}
    assert lasts["F 0 layer 0 ffn.up"] > 5 * lasts["F 0 layer 0 ffn.norm"]
    assert sum(value for name, value in lasts.items() if " layer " in name) == pytest.approx(
        float(found.figures.forward_s[0])
    )


def test_layers_are_numbered_through_the_network() -> None:
    found = step("interleaved")
    seen = {moment.what.split()[3] for moment in moments(found, 1) if " layer " in moment.what}
    each = int(found.figures.layers[0])
    stages = (1, 5)
    assert seen == {str(layer) for stage in stages for layer in range(stage * each, (stage + 1) * each)}
