"""Tables and curves of a step against the plain sum over its operators."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.cost.steps import CASES, cost_of, deployed, device_s, model_of

from gnomon.cost.step import Curve
from gnomon.cost.table import GRAIN
from gnomon.spec import Batch

KNOT_ERROR = 0.07
"""Between knots a decode step may be off by this where a cache is cut into other parts, or all sequences, equally
long, climb to another tile of keys together: 6.3% is the most seen, in fp8, and 0.3% the mean."""
TABLE_ERROR = 1e-3
"""Prompts of latents and states are read off a table; 0.02% is the most seen."""
GRAIN_ERROR = 0.03
"""Rounding a step's tokens up to the grain may add this; 1% is the most seen."""
PLAIN = ("8b", "8b in fp8", "70b on four", "experts", "windows", "chunks")
WINDOWED = ("windows", "chunks", "chosen")
"""A step's own chunks are told apart here, where a batch has their mean only: equal ones are compared."""
SEQUENCES = (1, 2, 7, 32, 100, 256, 500, 700, 1024)


def plain_decode_s(name: str, sequences: int, context: float, *, padded_to: int | None = None) -> float:
    model = model_of(name)
    if padded_to:
        sizes = (*model.host.captured, padded_to) if padded_to > model.host.largest else model.host.captured
        eager = replace(model.host, captured=sizes)
        priced = replace(model, host=eager).price(Batch.decode(sequences, context))
        device = sum(line.time_s.value for line in priced.operators)
        return max(device + model.host.gap(sequences), model.host.decode(sequences))
    return model.price(Batch.decode(sequences, context)).time_s.value


def grained(name: str, tokens: int) -> int:
    """Tokens a step is priced at: the next captured size, or the next multiple of the grain above them."""
    edge = cost_of(name).host.captured[-1]
    if tokens <= edge:
        return min(size for size in cost_of(name).host.captured if size >= tokens)
    return edge + -(-(tokens - edge) // GRAIN) * GRAIN


def at(curve: Curve, context: float) -> float:
    return float(np.interp(context, curve.context, curve.seconds))


@pytest.mark.battery(3)
@pytest.mark.parametrize("name", CASES)
def test_knots_are_exact(name: str) -> None:
    for sequences in SEQUENCES:
        curve = cost_of(name).decode_curve(sequences)
        assert curve.context[0] == 0
        assert np.all(np.diff(curve.context) > 0)
        assert curve.context[-1] >= 16383
        for knot in (0, 5, 20, -1):
            plain = plain_decode_s(name, sequences, curve.context[knot], padded_to=grained(name, sequences))
            assert curve.seconds[knot] == pytest.approx(plain, rel=1e-12 if name in PLAIN else TABLE_ERROR)


@pytest.mark.battery(5)
@pytest.mark.parametrize("name", CASES)
def test_between_knots(name: str) -> None:
    rng = np.random.default_rng(0)
    for sequences in SEQUENCES:
        curve = cost_of(name).decode_curve(sequences)
        for context in np.concatenate([rng.integers(0, 600, 8), rng.integers(0, 16384, 6)]):
            plain = plain_decode_s(name, sequences, context, padded_to=grained(name, sequences))
            assert at(curve, context) == pytest.approx(plain, rel=KNOT_ERROR)
            # And against the engine's own padding, without the grain.
            assert at(curve, context) == pytest.approx(plain_decode_s(name, sequences, context), rel=KNOT_ERROR + 0.01)


@pytest.mark.battery(6)
@pytest.mark.parametrize("name", CASES)
def test_mixed_steps(name: str) -> None:
    rng = np.random.default_rng(1)
    for _ in range(120):
        cached = rng.integers(1, 8000, rng.choice([0, 1, 5, 40, 300])).tolist()
        pieces = int(rng.choice([1, 2, 5]))
        chunks = [
            (int(rng.integers(1, (8192 - len(cached)) // pieces)), int(rng.choice([0, 0, 700, 5000])))
            for _ in range(pieces)
        ]
        if name in WINDOWED:
            chunks = chunks[:1] * pieces
        batch = Batch.step(cached, chunks)
        plain = device_s(name, batch) + model_of(name).host.gap(len(cached) + len(chunks))
        found = cost_of(name).mixed(len(cached), sum(cached), chunks)
        assert found == pytest.approx(plain, rel=GRAIN_ERROR)
        assert found >= plain * (1 - KNOT_ERROR)


@pytest.mark.parametrize("name", CASES)
def test_a_step_on_the_grid_is_exact(name: str) -> None:
    edge = cost_of(name).host.captured[-1]
    for tokens in (1, 8, 24, edge, edge + GRAIN, edge + 40 * GRAIN):
        batch = Batch.step([], [(tokens, 300)])
        plain = device_s(name, batch) + model_of(name).host.gap(1)
        assert cost_of(name).mixed(0, 0, [(tokens, 300)]) == pytest.approx(
            plain, rel=1e-12 if name in PLAIN else TABLE_ERROR
        )


def test_small_steps_are_padded_to_captured_sizes() -> None:
    cost = cost_of("8b")
    assert cost.dense_s(9) == cost.dense_s(16) < cost.dense_s(17) == cost.dense_s(24)
    assert cost.dense_s(3) == cost.dense_s(4)
    assert cost.dense_s(512) < cost.dense_s(513) == cost.dense_s(512 + GRAIN) < cost.dense_s(513 + GRAIN)


@pytest.mark.parametrize("name", CASES)
def test_the_whole_range_has_a_price(name: str) -> None:
    cost = cost_of(name)
    assert cost.dense_s(8192) > 0
    times = np.array([cost.dense_s(n) for n in range(1, 8193, 3)])
    assert np.all(times >= 0.96 * np.maximum.accumulate(times))  # what fits learnt may fall by 3% a doubling
    assert cost.mixed(1023, 1023 * 100, [(8192 - 1023, 0)]) > cost.decode_curve(1024).seconds[0]


def test_without_graphs_nothing_is_padded() -> None:
    engine, deployment = deployed("8b", enforce_eager=True)
    cost = engine.step_cost(deployment)
    assert getattr(cost, "host").captured == ()  # noqa: B009
    assert cost.mixed(0, 0, [(8192, 0)]) > cost.mixed(0, 0, [(100, 0)]) > 0
    assert cost.launch(8, 1) == cost.launch(4000, 1)


def test_launch_depends_on_whether_the_step_is_captured() -> None:
    cost = cost_of("8b")
    assert cost.launch(1, 1) == cost.launch(512, 1) == cost.host.captured_launch_s
    assert cost.launch(513, 1) == cost.launch(8192, 1) == cost.host.eager_launch_s
    assert 1e-3 < cost.host.captured_launch_s < cost.host.eager_launch_s < 0.1


def test_the_host_is_a_floor() -> None:
    cost = cost_of("8b")
    slow = cost.under(replace(cost.host, decode_base_s=1.0, decode_sequence_s=0.0))
    assert set(slow.decode_curve(4).seconds) == {1.0}
    assert max(cost.decode_curve(4).seconds) < 1.0
    waiting = cost.under(replace(cost.host, gap_base_s=cost.host.gap_base_s + 0.5))
    assert waiting.mixed(3, 300, [(10, 0)]) == pytest.approx(cost.mixed(3, 300, [(10, 0)]) + 0.5)
    assert waiting.decode_curve(4).seconds == pytest.approx(cost.decode_curve(4).seconds + 0.5)


def test_factors_multiply_operators() -> None:
    cost = cost_of("8b")
    doubled = replace(cost, factors={op.name: 2.0 for op in cost.model.graph.ops})
    gap = cost.host.gap(1)
    assert doubled.mixed(0, 0, [(1000, 50)]) - gap == pytest.approx(2 * (cost.mixed(0, 0, [(1000, 50)]) - gap))
    assert doubled.decode_curve(1).seconds[-1] - gap == pytest.approx(2 * (cost.decode_curve(1).seconds[-1] - gap))
    one = replace(cost, factors={"attention.decode": 2.0})
    alone = one.decode_curve(64).seconds - cost.decode_curve(64).seconds
    assert np.all(alone > 0)
    assert one.mixed(64, 64 * 500, [(10, 0)]) > cost.mixed(64, 64 * 500, [(10, 0)])
    assert one.mixed(0, 0, [(10, 0)]) == cost.mixed(0, 0, [(10, 0)])
