"""Timelines of a training step that a reader can draw."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gnomon.errors import InputError
from gnomon.sim.training import Span, StepTimes, Task, regular, schedule, timeline, without_communication

TWO = schedule("1f1b").tasks(2, 1, 2)


def test_two_ranks_and_two_micro_batches() -> None:
    line = timeline(TWO, regular(2, 1, 1.0, 2.0, 0.5, 0.25))
    # Rank 0: F0 F1 B0 B1; rank 1: F0 B0 F1 B1.
    assert line.start_s == [[0.0, 1.0, 4.75, 7.75], [1.5, 2.5, 4.5, 5.5]]
    assert line.end_s == [[1.0, 2.0, 6.75, 9.75], [2.5, 4.5, 5.5, 7.5]]
    assert (line.pipeline_s, line.step_s) == (9.75, 9.75)
    assert line.busy_s.tolist() == [6.0, 6.0]
    assert line.bubble_fraction == pytest.approx(1 - 6 / 9.75)


def test_a_blocking_send_holds_its_rank() -> None:
    line = timeline(TWO, regular(2, 1, 1.0, 2.0, 0.5, 0.25, blocking=True))
    assert line.start_s == [[0.0, 1.5, 4.75, 7.75 + 0.25], [1.5, 2.5, 4.75, 5.75]]


def test_transfers_of_a_direction_wait_for_each_other() -> None:
    line = timeline(schedule("gpipe").tasks(2, 1, 3), regular(2, 1, 1.0, 1.0, 3.0, 0.5))
    sends = [span for span in line.spans() if span.name == "send F"]
    assert [(span.start_s, span.end_s) for span in sends] == [(1.0, 4.0), (4.0, 7.0), (7.0, 10.0)]
    assert all(span.rank == 0 for span in sends)


def test_chunks_of_one_rank_hand_over_at_once() -> None:
    orders = [[Task("F", 0, 0), Task("F", 1, 0), Task("B", 1, 0), Task("B", 0, 0)]]
    assert timeline(orders, regular(1, 2, 1.0, 2.0, 9.0, 9.0, blocking=True)).pipeline_s == 6.0


def ending(overlap: bool, blocking: bool = False) -> StepTimes:
    return StepTimes(
        forward_s=np.array([[1.0], [1.0]]),
        backward_s=np.array([[2.0], [2.0]]),
        backward_send_s=0.25,
        blocking=blocking,
        reduce_s=np.array([[3.0], [8.0]]),
        reduce_parts=np.array([[2], [4]]),
        overlap=overlap,
        optimizer_s=np.array([0.5, 1.0]),
        gather_s=np.array([4.0, 0.25]),
    )


def buckets(times: StepTimes) -> list[list[tuple[float, float]]]:
    return [[(span.start_s, span.end_s) for span in spans] for spans in timeline(TWO, times).reductions]


def test_reductions_run_beside_the_last_backward_or_after_it() -> None:
    # The last backwards run from 7.25 to 9.25 on rank 0 and from 5 to 7 on rank 1.
    beside, after = buckets(ending(overlap=True)), buckets(ending(overlap=False))
    assert beside[0] == [(8.25, 9.75), (9.75, 11.25)]
    assert beside[1] == [(5.5, 7.5), (7.5, 9.5), (9.5, 11.5), (11.5, 13.5)]
    assert after[0] == [(9.25, 10.75), (10.75, 12.25)]
    assert after[1] == [(7.0, 9.0), (9.0, 11.0), (11.0, 13.0), (13.0, 15.0)]
    assert buckets(ending(overlap=False, blocking=True))[1][0][0] == 7.25 + 0.25


def test_the_optimizer_waits_for_all_gradients() -> None:
    line = timeline(TWO, ending(overlap=True))
    assert line.optimizer_start_s == 13.5
    assert line.step_s == 13.5 + 0.5 + 4.0
    last = [span for span in line.spans() if span.name in ("optimizer", "gather")]
    assert last[-2:] == [Span("optimizer", 1, 13.5, 14.5), Span("gather", 1, 14.5, 14.75)]
    assert timeline(TWO, without_communication(ending(overlap=False))).step_s == 9.0 + 1.0


def test_gradients_of_chunks_are_reduced_in_the_order_they_get_ready() -> None:
    times = replace(regular(2, 2, 1.0, 1.0), reduce_s=1.0, overlap=True)
    line = timeline(schedule("interleaved").tasks(2, 2, 2), times)
    assert [[span.chunk for span in spans] for spans in line.reductions] == [[1, 0], [1, 0]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"forward_s": np.ones(2)}, r"forward_s: it has shape \(2,\)"),
        ({"backward_s": np.ones((2, 3))}, r"backward_s: it has shape \(2, 3\). It must match forward_s: \(2, 1\)"),
        ({"optimizer_s": np.ones(3)}, "optimizer_s: it has shape"),
        ({"reduce_s": -1.0}, "reduce_s: -1.0 is out of range. It is 0 or more"),
        ({"gather_s": float("nan")}, "gather_s: nan"),
        ({"reduce_parts": 0}, "reduce_parts: 0.0 is out of range. It is 1 or more"),
    ],
)
def test_impossible_times_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        timeline(TWO, replace(regular(2, 1, 1.0, 1.0), **change))  # type: ignore[arg-type]


def test_lists_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="lists of 4 tasks for 2 ranks do not fit 3 ranks of 1 chunks"):
        timeline(TWO, regular(3, 1, 1.0, 1.0))
    with pytest.raises(InputError, match="deadlock"):
        timeline([TWO[1], TWO[0]], regular(2, 1, 1.0, 1.0))
