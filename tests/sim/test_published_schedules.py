"""Bubbles and activation memory that papers claim for their schedules, by the simulator.

Zero Bubble Pipeline Parallelism (Qi et al. 2024, arXiv:2401.10241), table 2: bubbles of (p-1)(F+B+W), (p-1)(F+B-W) and
(p-1)(F+B-2W) and peaks of p, p and 2p-1 activations for 1F1B, ZB-H1 and ZB-H2, B being what is I here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sim.training_plain import most_in_flight

from gnomon.sim.training import Timeline, regular, schedule, timeline

SIZES = [(2, 8), (4, 12), (8, 32), (8, 20), (16, 64)]
TIMES = [(1.0, 1.0, 1.0), (1.0, 1.2, 0.8), (1.0, 1.5, 0.5), (1.2, 1.0, 1.0)]
"""F, I and W; the last three are near those of transformers of the paper's table 1."""
Claim = Callable[[int, float, float, float], float]
CLAIMED: dict[str, tuple[Claim, Callable[[int], int]]] = {
    "1f1b": (lambda p, f, i, w: (p - 1) * (f + i + w), lambda p: p),
    "zb-h1": (lambda p, f, i, w: (p - 1) * (f + i - w), lambda p: p),
    "zb-h2": (lambda p, f, i, w: (p - 1) * (f + i - 2 * w), lambda p: 2 * p - 1),
}


def line(name: str, pp: int, micros: int, f: float, i: float, w: float) -> Timeline:
    chosen = schedule(name)
    chunks = chosen.placement.stages(pp, chosen.chunks[0]).shape[1]
    orders = chosen.tasks(pp, chosen.chunks[0], micros)
    return timeline(orders, regular(pp, chunks, f, i + w, weight_s=w), chosen.placement)


def longest_s(run: Timeline) -> float:
    """From the first task of a rank to its last, of the rank that takes longest: the paper's optimizers wait for no
    other rank, so that a rank may begin its next step before others do."""
    return max(ends[-1] - starts[0] for starts, ends in zip(run.start_s, run.end_s, strict=True))


@pytest.mark.parametrize("name", CLAIMED)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("times", TIMES)
def test_the_zero_bubble_papers_table(name: str, size: tuple[int, int], times: tuple[float, float, float]) -> None:
    (pp, micros), (bubble, most), run = size, CLAIMED[name], line(name, *size, *times)
    assert longest_s(run) - micros * sum(times) == pytest.approx(bubble(pp, *times), abs=1e-9)
    assert max(most_in_flight(list(tasks)) for tasks in run.orders) == most(pp)
    assert np.max(schedule(name).in_flight(pp, 1, micros, np.arange(pp))) == most(pp)


@pytest.mark.parametrize("size", SIZES)
def test_zb_v_has_no_bubble_where_all_passes_are_equal(size: tuple[int, int]) -> None:
    """Section 6 of the same paper: with two chunks per rank, in the activation memory of 1F1B: 2p halves."""
    (pp, micros), run = size, line("zb-v", *size, 1.0, 1.0, 1.0)
    assert longest_s(run) == pytest.approx(2 * micros * 3)
    assert max(most_in_flight(list(tasks)) for tasks in run.orders) == 2 * pp


@pytest.mark.parametrize("size", [(2, 8), (4, 8), (4, 12), (8, 32), (8, 20), (16, 64)])
@pytest.mark.parametrize("times", [(1.0, 1.0, 1.0), (1.0, 1.0, 0.9), (2.0, 2.0, 1.8)])
@pytest.mark.parametrize("hidden", [0.0, 0.25, 0.5])
def test_the_table_of_dualpipe(size: tuple[int, int], times: tuple[float, float, float], hidden: float) -> None:
    """DeepSeek-V3's report (arXiv:2412.19437), table 2: the bubble (p/2-1)(F&B+B-3W) beside (p-1)(F+B) of 1F1B and
    (p-1)(F+B-2W) of ZB1P, which is ZB-H1, B being both halves; parameters twice, activations p + 1. It is the bubble of
    the rank that waits most, and exact where a forward takes as long as a backward by input."""
    (pp, micros), (f, i, w), chosen = size, times, schedule("dualpipe")
    equal = replace(regular(pp, 2, f, i + w, weight_s=w), overlap_s=hidden)
    run = timeline(chosen.tasks(pp, 1, micros), equal, chosen.placement)
    both = f + i + w - hidden
    assert run.pipeline_s - run.busy_s.min() == pytest.approx((pp / 2 - 1) * (both + (i + w) - 3 * w), abs=1e-9)
    assert {most_in_flight(list(tasks)) for tasks in run.orders} == {pp + 1}
    assert chosen.placement.copies == 2


@pytest.mark.parametrize("hidden", [0.0, 0.5])
def test_dualpipe_v_is_dualpipe_of_twice_the_ranks(hidden: float) -> None:
    """The repository's own account of it: folded, each rank does what two did, and holds one copy of the network."""
    folded, whole = schedule("dualpipe-v"), schedule("dualpipe")
    for pp, micros in ((2, 8), (4, 12), (8, 32)):
        runs = [
            timeline(one.tasks(ranks, vp, count), replace(regular(ranks, 2, 1.0, 2.0, weight_s=1.0), overlap_s=hidden),
                     one.placement)
            for one, ranks, vp, count in ((folded, pp, 2, micros), (whole, 2 * pp, 1, 2 * micros))
        ]  # fmt: skip
        assert runs[0].pipeline_s == pytest.approx(runs[1].pipeline_s)
        assert runs[0].busy_s.tolist() == pytest.approx(runs[1].busy_s[:pp].tolist())
        assert {most_in_flight(list(tasks)) for tasks in runs[0].orders} == {2 * pp + 1}
    assert folded.placement.copies == 1


seconds = st.floats(0.05, 20)
ZERO_BUBBLE = ("zb-h1", "zb-h2", "zb-v")


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(ZERO_BUBBLE), st.integers(1, 9), st.integers(1, 30), seconds, seconds, seconds)
def test_zero_bubble_is_never_slower_than_one_f_one_b(
    name: str, pp: int, micros: int, f: float, i: float, w: float
) -> None:
    """Of equal ranks with free sends, whatever the times; two chunks take half of them each."""
    chunks = schedule(name).chunks[0]
    pp = max(pp, chunks)
    plain = line("1f1b", pp, micros, f, i, w).pipeline_s
    assert line(name, pp, micros, f / chunks, i / chunks, w / chunks).pipeline_s <= plain * (1 + 1e-9)
