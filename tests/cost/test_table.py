"""A step model's table, which the simulator runs on, against its prices."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.cost.steps import CASES, LONGEST, WINDOWED, decode_s, deployed, model_of, plain_s, table_of

from gnomon.cost.step import Curve
from gnomon.graph.phases import part_of, rows_of
from gnomon.spec import Batch

EXACT, BETWEEN = 1e-12, 0.003
PLAIN = "softmax, dense, tp 1"
SEQUENCES = (1, 2, 3, 7, 17, 61, 100, 256, 500, 700, 1000)
"""17 sequences are those whose cache may be cut into parts for two waves of thread blocks or one."""


def at(curve: Curve, context: float) -> float:
    return float(np.interp(context, curve.context, curve.seconds))


@pytest.mark.parametrize("case", CASES)
def test_decodes_equal_their_price_at_the_knots(case: str) -> None:
    for sequences in (1, 17, 256, 704):
        curve = table_of(case).decode_curve(sequences)
        assert curve.context[0] == 0
        assert np.all(np.diff(curve.context) > 0)
        assert curve.context[-1] == LONGEST - 1
        assert curve.seconds == pytest.approx(decode_s(case, sequences, curve.context.tolist()), rel=EXACT)


@pytest.mark.parametrize("case", CASES)
def test_decodes_are_within_their_bound_between_knots(case: str) -> None:
    rng = np.random.default_rng(0)
    for sequences in SEQUENCES:
        curve = table_of(case).decode_curve(sequences)
        contexts = np.concatenate([rng.integers(0, 1200, 40), rng.integers(0, LONGEST, 80)]).tolist()
        found = np.interp(contexts, curve.context, curve.seconds)
        assert found == pytest.approx(decode_s(case, sequences, contexts), rel=BETWEEN)


@pytest.mark.parametrize("case", CASES[::5])
def test_a_mean_between_two_whole_contexts_lies_between_their_prices(case: str) -> None:
    """A batch's sequences reach another tile of keys one after the other; the price of their mean does at once."""
    for sequences in (17, 300):
        curve = table_of(case).decode_curve(sequences)
        for context in (127, 128, 1023, 2047, 4095):
            prices = decode_s(case, sequences, [context, context + 1])
            assert min(prices) * (1 - BETWEEN) <= at(curve, context + 0.5) <= max(prices) * (1 + BETWEEN)


@pytest.mark.parametrize("case", CASES)
def test_steps_with_prompts_are_within_their_bound(case: str) -> None:
    rng = np.random.default_rng(1)
    found, steps = [], []
    for _ in range(60):
        cached = [int(rng.integers(1, 8000))] * int(rng.choice([0, 1, 5, 40, 300]))
        pieces = int(rng.choice([1, 2, 5]))
        new = rng.integers(1, (8192 - len(cached)) // pieces, pieces).tolist()
        chunks = [(tokens, int(rng.choice([0, 0, 700, 5000]))) for tokens in new]
        if case.startswith(WINDOWED):
            chunks = chunks[:1] * pieces
        found.append(table_of(case).mixed(len(cached), sum(cached), chunks))
        steps.append(Batch.step(cached, chunks))
    assert found == pytest.approx(plain_s(case, Batch.stack(steps)), rel=BETWEEN)


@pytest.mark.parametrize("case", CASES)
def test_steps_with_prompts_equal_their_price_on_the_grid(case: str) -> None:
    """At captured sizes, and at the ends of tiles of 16 rows; prompts over cached tokens where none are unfolded."""
    unfolds = any(part_of(op) == "prefill" and rows_of(op) for op in model_of(case).graph.ops)
    chunks = [(tokens, 0 if unfolds else 300) for tokens in (1, 16, 32, 512, 513, 528, 4097, 8192)]
    found = [table_of(case).mixed(0, 0, [chunk]) for chunk in chunks]
    assert found == pytest.approx(plain_s(case, Batch.stack([Batch.step([], [one]) for one in chunks])), rel=EXACT)


def test_a_table_for_shorter_requests_is_the_same_table() -> None:
    engine, deployment = deployed(PLAIN)
    short = engine.step_cost(deployment, 2000)
    for sequences in (1, 17, 300):
        whole, curve = table_of(PLAIN).decode_curve(sequences), short.decode_curve(sequences)
        assert curve.context[-1] == 1999
        for context in (0, 333, 1024, 1999):
            assert at(curve, context) == pytest.approx(at(whole, context), rel=BETWEEN)
    assert engine.step_cost(deployment, 10 * LONGEST).decode_curve(1).context[-1] == LONGEST - 1


def test_small_steps_are_padded_to_captured_sizes() -> None:
    cost = table_of(PLAIN)
    assert cost.dense_s(9) == cost.dense_s(16) < cost.dense_s(17) == cost.dense_s(24)
    assert cost.dense_s(3) == cost.dense_s(4)
    assert cost.dense_s(512) < cost.dense_s(513) < cost.dense_s(600)


@pytest.mark.parametrize("case", CASES[::3])
def test_the_whole_range_has_a_price(case: str) -> None:
    cost = table_of(case)
    times = np.array([cost.dense_s(n) for n in range(1, 8193, 3)])
    assert np.all(times >= 0.96 * np.maximum.accumulate(times))  # what fits learnt may fall by 3% a doubling
    mixed = max(cost.mixed(1023, 1023 * 100, [(8192 - 1023, 0)]), cost.launch(8192, 1024, 1))
    assert mixed > cost.decode_curve(1024).seconds[0]


def test_without_graphs_nothing_is_padded() -> None:
    for case in (PLAIN, "softmax, experts, tp 1"):
        engine, deployment = deployed(case, enforce_eager=True)
        cost, model = engine.step_cost(deployment), engine.step_model(deployment)
        assert model.host.captured == ()
        for tokens in (1, 3, 17, 100, 300, 5000):
            price = model.price(Batch.step([], [(tokens, 0)]))
            device = sum(line.time_s.value for line in price.operators)
            assert cost.mixed(0, 0, [(tokens, 0)]) == pytest.approx(device + model.host.gap(1), rel=BETWEEN)
        assert cost.launch(8, 1) == cost.launch(4000, 1)


def test_launch_depends_on_whether_the_step_is_captured() -> None:
    cost = table_of(PLAIN)
    assert cost.launch(1, 0, 0) == cost.launch(512, 0, 0) == cost.host.captured_launch_s
    assert cost.launch(513, 0, 0) == cost.launch(8192, 0, 0) == cost.host.eager_launch_s
    more = cost.launch(513, 9, 4) - cost.launch(513, 2, 1)
    assert more == pytest.approx(7 * cost.host.launch_sequence_s + 3 * cost.host.launch_prompt_s)
    assert cost.launch(600, 9, 4) == pytest.approx(cost.host.launch(600, 9, 4), rel=1e-12)
    assert 1e-3 < cost.host.captured_launch_s < cost.host.eager_launch_s < 0.1


def test_the_host_is_a_floor() -> None:
    cost = table_of(PLAIN)
    slow = cost.under(replace(cost.host, decode_base_s=1.0, decode_sequence_s=0.0))
    assert set(slow.decode_curve(4).seconds) == {1.0}
    assert max(cost.decode_curve(4).seconds) < 1.0
    waiting = cost.under(replace(cost.host, gap_base_s=cost.host.gap_base_s + 0.5))
    assert waiting.mixed(3, 300, [(10, 0)]) == pytest.approx(cost.mixed(3, 300, [(10, 0)]) + 0.5)
    assert waiting.decode_curve(4).seconds == pytest.approx(cost.decode_curve(4).seconds + 0.5)


def test_factors_multiply_operators() -> None:
    cost = table_of(PLAIN)
    doubled = replace(cost, factors={op.name: 2.0 for op in cost.model.graph.ops})
    gap = cost.host.gap(1)
    assert doubled.mixed(0, 0, [(1000, 50)]) - gap == pytest.approx(2 * (cost.mixed(0, 0, [(1000, 50)]) - gap))
    assert doubled.decode_curve(1).seconds[-1] - gap == pytest.approx(2 * (cost.decode_curve(1).seconds[-1] - gap))
    one = replace(cost, factors={"attention.decode": 2.0})
    alone = one.decode_curve(64).seconds - cost.decode_curve(64).seconds
    assert np.all(alone > 0)
    assert one.mixed(64, 64 * 500, [(10, 0)]) > cost.mixed(64, 64 * 500, [(10, 0)])
    assert one.mixed(0, 0, [(10, 0)]) == cost.mixed(0, 0, [(10, 0)])


@pytest.mark.battery(8)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("slowdown", [1.0, 1.37])
def test_decodes_at_any_clock_equal_their_price_at_the_knots(case: str, slowdown: float) -> None:
    for sequences in (1, 64, 256):
        curve = table_of(case).decode_curve(sequences, slowdown)
        for place in (0, curve.context.size // 2, -1):
            price = model_of(case).price(Batch.decode(sequences, [int(curve.context[place])]))
            assert curve.joules is not None
            assert curve.joules[place] == pytest.approx(price.dynamic_j, rel=EXACT)
            assert curve.seconds[place] == pytest.approx(price.at(slowdown).time_s.value, rel=EXACT)


@pytest.mark.parametrize("case", CASES)
def test_steps_with_prompts_at_any_clock_are_within_their_bound(case: str) -> None:
    """Seconds at full clock, what a lower one adds, and joules, against the price of the same step."""
    for cached, chunks in (([], [(512, 0)]), ([700] * 40, [(1000, 300)]), ([3000] * 200, [(3008, 0), (3008, 0)])):
        price = model_of(case).price(Batch.step(cached, chunks))
        device = sum(line.time_s.value for line in price.operators)
        gap = model_of(case).host.gap(len(cached) + len(chunks))
        seconds, clocked, joules = table_of(case).mixed_work(len(cached), sum(cached), chunks)
        slowed = sum(line.time_s.value for line in price.at(1.37).operators)
        assert seconds == pytest.approx(device + gap, rel=BETWEEN)
        assert seconds + 0.37 * clocked == pytest.approx(slowed + gap, rel=BETWEEN)
        assert joules == pytest.approx(price.dynamic_j, rel=BETWEEN)
        assert 0 < clocked < seconds
