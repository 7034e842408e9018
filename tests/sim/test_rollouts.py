"""Rollout rounds against a loop that steps token by token, and what no early stop may change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from gnomon.cost.step import Curve
from gnomon.sim.serving.rollouts import Groups, rollout

PROMPT = 10


@dataclass
class Cost:
    """A step takes a second for each sequence and a thousandth for each cached token of the mean one."""

    governor: None = None

    def decode_curve(self, sequences: int, slowdown: float = 1.0) -> Curve:
        ends = np.array([0, 100_000])
        return Curve(ends, sequences + 1e-3 * ends)

    def mixed(self, decodes: int, decode_context: int, chunks: Sequence[tuple[int, int]]) -> float:
        return float(sum(new for new, _ in chunks)) / 100


def stepped(groups: Groups, enough: int) -> tuple[float, int]:
    """One replica, one token per step of every sample that is not done."""
    left = (groups.lengths - groups.made).astype(float)
    clock = float((PROMPT + groups.made[left > 0]).sum()) / 100
    base, made = groups.made.astype(float), np.zeros_like(left)
    done = (made >= left).all(axis=1)
    while done.sum() < enough:
        running = made < left
        context = PROMPT + base[running].mean() + made.max()
        clock += running.sum() + 1e-3 * context
        made[running] += 1
        done = (made >= left).all(axis=1)
    return clock, int(made.sum())


def drawn(seed: int, groups: int = 6) -> Groups:
    return Groups.of(np.random.default_rng(seed).integers(1, 60, (groups, 4)), PROMPT)


@pytest.mark.parametrize("enough", [1, 3, 6])
@pytest.mark.parametrize("seed", range(4))
def test_a_round_is_its_steps_one_after_the_other(seed: int, enough: int) -> None:
    groups = drawn(seed)
    found = rollout(Cost(), groups, replicas=1, enough=enough)  # type: ignore[arg-type]
    assert (found.seconds, found.tokens) == (pytest.approx(stepped(groups, enough)[0]), stepped(groups, enough)[1])
    assert len(found.finished.lengths) >= enough
    assert found.finished.done.all() and not found.carried.done.any()


def test_what_is_carried_over_is_made_once() -> None:
    """Until nothing is left, all tokens are made, and stale ones are those of rounds before."""
    groups, made, stale = drawn(9, 8), 0, 0
    wanted = int(groups.lengths.sum())
    while len(groups.lengths):
        found = rollout(Cost(), groups, replicas=2, enough=3)  # type: ignore[arg-type]
        made, stale = made + found.tokens, stale + found.stale
        groups = found.carried
    assert made == wanted and 0 < stale < wanted


def test_waiting_for_all_makes_everything_and_nothing_stale() -> None:
    groups = drawn(3)
    found = rollout(Cost(), groups, replicas=2, enough=len(groups.lengths))  # type: ignore[arg-type]
    assert found.tokens == groups.lengths.sum() and found.stale == 0 and not len(found.carried.lengths)
