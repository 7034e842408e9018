"""Exchanges with experts in chunks: ends against a plain simulation, bounds, and what masks add."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gnomon
from gnomon.cost.tapes import _chunks_s, _end_of_chunks
from gnomon.errors import InputError
from gnomon.graph.ops import TOKENS, Collective, Elementwise
from gnomon.graph.tape import ChunkedExchange, ChunkStage

LOAD = {"model": "mixtral-8x7b", "on": "H200:16", "seq": 4096, "global_batch": 16, "ep": 8}


def step(*words: str, **more: Any) -> Any:
    return gnomon.simulate_training(**(LOAD | more), techniques=words)


def plain_end(seconds: list[tuple[str, float]], degree: int) -> float:
    """Every lane takes the next task in the order of stages, then chunks, once what it waits for has ended."""
    done: dict[tuple[int, int], float] = {}
    lanes: dict[str, float] = {}
    for stage, (lane, each) in enumerate(seconds):
        for chunk in range(degree):
            start = max(lanes.get(lane, 0.0), done.get((stage - 1, chunk), 0.0))
            done[stage, chunk] = lanes[lane] = start + each
    return done[len(seconds) - 1, degree - 1]


@pytest.mark.parametrize("seed", range(20))
def test_chunks_end_when_a_plain_simulation_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lanes = [str(lane) for lane in rng.choice(["network", "chip", "node"], size=5)]
    ops = [Elementwise(name=f"{i}", rows=TOKENS, read_per_row=1, written_per_row=1) for i in range(5)]
    seconds = rng.uniform(0, 1, 5)
    stages = tuple(ChunkStage(lane, (op,)) for lane, op in zip(lanes, ops, strict=True))
    times = {op: np.array([each]) for op, each in zip(ops, seconds, strict=True)}
    for degree in (1, 2, 5):
        expected = plain_end(list(zip(lanes, seconds.tolist(), strict=True)), degree)
        assert _end_of_chunks(degree, stages, times)[0] == pytest.approx(expected)


def test_no_more_is_hidden_than_is_exchanged_and_nothing_where_chunks_are_slower() -> None:
    sent = Collective(name="a", op="all_to_all", rows=TOKENS, bytes_per_row=1.0, ranks=8)
    run, part, piece = (
        Elementwise(name=name, rows=TOKENS, read_per_row=1, written_per_row=1) for name in ("run", "part", "piece")
    )
    stages = (ChunkStage("network", (part,)), ChunkStage("chip", (piece,)))
    one = ChunkedExchange(nodes=("a",), backward=False, whole=(sent, run), ways=((2, stages),))
    for slower, low, high in ((0.5, 0.9, 1.0), (0.55, 0.0, 1.0), (2.0, 0.0, 0.0)):
        times = {sent: np.array([2.0]), run: np.array([2.0]), part: np.array([1.0]), piece: np.array([2 * slower])}
        assert low <= _chunks_s([one], times)[0] <= high


def test_exchanges_are_hidden_and_a_second_network_hides_no_less() -> None:
    plain, one, two = step(), step("expert-overlap"), step("expert-overlap:networks=2")
    assert two.step_time_s.value <= one.step_time_s.value < plain.step_time_s.value
    assert one.step.figures.model_flops[0] == plain.step.figures.model_flops[0]
    each = [step(f"expert-overlap:degree={degree}").step_parts["pipeline_s"] for degree in (2, 4, 8)]
    assert one.step_parts["pipeline_s"] <= min(each) * (1 + 1e-9)


def test_what_overlaps_already_is_refused() -> None:
    with pytest.raises(InputError, match="ep_overlap"):
        step("expert-overlap", ep_overlap=True)
    with pytest.raises(InputError, match="one expert-parallel rank has all experts"):
        step("expert-overlap", ep=1)


def test_masks_take_flops_and_memory_by_the_square_of_a_sequence() -> None:
    def more(seq: int) -> tuple[float, float]:
        plain, masked = (step(*words, seq=seq, recompute="none") for words in ((), ("einsum-dispatch",)))
        held = [one.memory_parts[0]["activations"] for one in (plain, masked)]
        return masked.step_parts["pipeline_s"] - plain.step_parts["pipeline_s"], held[1] - held[0]

    short, long = more(2048), more(8192)
    assert 10 < long[0] / short[0] < 20
    each = 32 * 2 * 9  # layers, two choices of each token for all slots, 9 bytes each; the rest grows with the tokens
    assert long[1] - 4 * short[1] == pytest.approx(each * (8192**2 - 4 * 2048**2), rel=1e-6)
    with pytest.raises(InputError, match="several ranks share"):
        step("einsum-dispatch", tp=2)
