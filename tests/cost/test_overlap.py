"""Lanes of operators that run at the same time: what they hide, against plain versions of both ways to share."""

from __future__ import annotations

from functools import cache
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from gnomon.cost.overlap import Overlap, hidden
from gnomon.cost.step import StepModel
from gnomon.cost.table import TableStepCost
from gnomon.load import model as load_model
from gnomon.load import parse_pool
from gnomon.load.deployments import deploy
from gnomon.spec import Batch, Strategy
from gnomon.techniques.ladder_residual import Ladder
from gnomon.techniques.nano_batches import MEMORY_SPEED, NETWORK_SPEED, Shared

LONGEST, MOST = 4096, 2048
KINDS: tuple[Overlap, ...] = (Ladder(), Shared())
NAMES = ("ladder-residual", "nano-batches")
BETWEEN = 0.01
"""Tiles of nano-batches begin between the sizes that a table has."""
SECONDS = st.floats(0.0, 1.0)


@st.composite
def lanes_of(draw: st.DrawFn, overlap: Overlap) -> NDArray[np.float64]:
    return np.array([[draw(SECONDS)] for _ in range(overlap.lanes)])


@pytest.mark.parametrize("overlap", KINDS)
@given(data=st.data())
def test_a_step_lies_between_its_longest_lane_and_all_of_them(overlap: Overlap, data: st.DataObject) -> None:
    lanes = data.draw(lanes_of(overlap))
    left = overlap.exposed(lanes)
    assert np.all(left >= 0) and np.all(left <= lanes + 1e-12)
    step = left.sum()
    assert lanes.max() - 1e-9 <= step <= lanes.sum() + 1e-9
    assert hidden(overlap, lanes)[0] == pytest.approx(lanes.sum() - step)
    assert overlap.exposed(3 * lanes) == pytest.approx(3 * left)


@pytest.mark.parametrize("overlap", KINDS)
@given(data=st.data())
def test_a_longer_lane_makes_no_shorter_step(overlap: Overlap, data: st.DataObject) -> None:
    lanes, more = data.draw(lanes_of(overlap)), data.draw(lanes_of(overlap))
    assert overlap.exposed(lanes + more).sum() >= overlap.exposed(lanes).sum() - 1e-9


def test_a_ladder_hides_what_the_next_block_takes() -> None:
    """One layer after the other, by hand: three layers of a mixer (2), a feed-forward (5) and their sums (3 and 4)."""
    mixer, feed_forward, first, second = 2.0, 5.0, 3.0, 4.0
    clock, mixer_done, ffn_done = 0.0, 0.0, 0.0
    for _ in range(3):
        clock = max(clock, mixer_done) + mixer
        mixer_done = clock + first
        clock = max(clock, ffn_done) + feed_forward
        ffn_done = clock + second
    lanes = 3 * np.array([[mixer], [feed_forward], [first], [second]])
    found = Ladder().exposed(lanes).sum()
    # The first mixer waits for nothing, the last sum hides behind nothing.
    assert found == pytest.approx(clock + (second - mixer), rel=1e-9)


@pytest.mark.heavy
@given(lanes=lanes_of(Shared()))
def test_shares_of_sms_are_the_shortest_mixture(lanes: NDArray[np.float64]) -> None:
    """Against every mixture of three ways to share, by its durations."""
    assert Shared().exposed(lanes).sum() == pytest.approx(_shortest(lanes[:, 0]), rel=1e-6, abs=1e-9)


@cache
def _ways() -> NDArray[np.float64]:
    found = []
    for one in range(11):
        for two in range(11 - one):
            speeds = np.interp(two / 10, *MEMORY_SPEED), np.interp((10 - one - two) / 10, *NETWORK_SPEED)
            found.append((one / 10, *speeds))
    return np.array(found)


def _shortest(wanted: NDArray[np.float64]) -> float:
    """Each lane gets at least what it wants; a way that gives more than that counts too."""
    ways = np.vstack([_ways(), np.zeros((3, 3))])
    columns = np.array(list(combinations(range(len(ways)), 3)))
    square = ways[columns].transpose(0, 2, 1).copy()
    spare = len(_ways())
    costs = (columns < spare).astype(float)
    for place in range(3):  # a column of a lane's surplus
        rows, where = np.nonzero(columns == spare + place)
        square[rows, :, where] = -np.eye(3)[place]
    solvable = np.abs(np.linalg.det(square)) > 1e-9
    target = np.repeat(wanted[None, :, None], int(solvable.sum()), axis=0)
    durations = np.linalg.solve(square[solvable], target)[:, :, 0]
    fits = (durations >= -1e-9).all(axis=1)
    return float((durations * costs[solvable]).sum(axis=1)[fits].min())


@cache
def _model(name: str) -> StepModel:
    strategy = Strategy(tp=4, techniques=(name,))
    engine, deployment = deploy(load_model("llama-3.1-8b"), parse_pool("H100:4"), strategy=strategy)
    return engine.step_model(deployment)


@cache
def _table(name: str) -> TableStepCost:
    return _model(name).table(max_context=LONGEST, max_tokens=MOST, max_sequences=512)


def _device_s(name: str, steps: Batch) -> float:
    price = _model(name).price(steps)
    return float(sum(line.time_s.value for line in price.operators) + price.gap_s.value)


@pytest.mark.parametrize("name", NAMES)
def test_tables_of_decodes_equal_their_price(name: str) -> None:
    for sequences in (1, 17, 256):
        curve = _table(name).decode_curve(sequences)
        price = [_device_s(name, Batch.decode(sequences, c)) for c in curve.context[::40]]
        least = _model(name).host.decode(sequences)
        assert curve.seconds[::40] == pytest.approx(np.maximum(price, least), rel=1e-9)
        work = _table(name).decode_work(sequences, 100 * sequences)[0]
        assert work == pytest.approx(_device_s(name, Batch.decode(sequences, 100)), rel=0.003)


@pytest.mark.parametrize("name", NAMES)
def test_tables_of_steps_with_prompts_equal_their_price(name: str) -> None:
    for cached, chunks in (([], [(512, 0)]), ([300] * 32, [(480, 0)]), ([1000] * 200, [(1024, 512)])):
        price = _device_s(name, Batch.step(cached, chunks))
        assert _table(name).mixed(len(cached), sum(cached), chunks) == pytest.approx(price, rel=BETWEEN)


@pytest.mark.parametrize("name", NAMES)
def test_lines_add_up_and_say_what_is_exposed(name: str) -> None:
    price = _model(name).price(Batch.decode(64, 1000))
    assert any(line.op.endswith(", exposed") for line in price.operators) or name == "ladder-residual"
    device_s = sum(line.time_s.value for line in price.operators)
    drawn = np.sum([line.time_s.draws for line in price.operators], axis=0)
    assert np.all(drawn > 0) and np.median(drawn) == pytest.approx(device_s, rel=0.2)
    assert sum(price.clocked.values()) <= price.time_s.value
