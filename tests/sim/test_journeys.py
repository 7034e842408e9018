"""Micro-batches with paths of their own, against times worked out by hand and laws of any order."""

from __future__ import annotations

import numpy as np
import pytest

from gnomon.sim.training.journeys import Journey, Nodes, walk

SEND = 5.0


def nodes(count: int, room: int = 3, gap_s: float = 0.0) -> Nodes:
    send = [[0.0 if one == other else SEND for other in range(count)] for one in range(count)]
    return Nodes(forward_s=[1.0] * count, send_s=send, room=room, gap_s=gap_s, backward=2.0, loss=0.5)


def test_one_alone_by_hand() -> None:
    """Two forwards, the loss on the first node, two backwards; sends there, back for the loss, there, and back."""
    (end,) = walk(nodes(2), [Journey(path=(0, 1))])
    assert end == pytest.approx(1 + SEND + 1 + SEND + 0.5 + SEND + 2 + SEND + 2)


def test_two_on_one_node_wait_for_each_other() -> None:
    first, second = walk(nodes(2), [Journey(path=(0, 1)), Journey(path=(0, 1))])
    alone = walk(nodes(2), [Journey(path=(0, 1))])[0]
    assert first == pytest.approx(alone)
    assert second == pytest.approx(alone + 2), "the backward is what takes longest"


def test_paths_that_do_not_meet_take_as_long_as_one() -> None:
    apart = [Journey(path=(0, 1)), Journey(path=(2, 3))]
    alone = walk(nodes(4), apart[:1])
    assert walk(nodes(4), apart) == pytest.approx(alone * 2)


def test_a_forward_waits_for_room() -> None:
    """With room for one, the second begins where the first is back."""
    both = [Journey(path=(0, 1))] * 2
    alone = walk(nodes(2), both[:1])[0]
    assert walk(nodes(2, room=1), both)[1] == pytest.approx(2 * alone)


def test_one_after_another_begins_when_that_is_back() -> None:
    alone = walk(nodes(3), [Journey(path=(0, 1))])[0]
    first, second = walk(nodes(3), [Journey(path=(0, 1)), Journey(path=(0, 2), after=0)])
    assert (first, second) == (pytest.approx(alone), pytest.approx(2 * alone))


@pytest.mark.parametrize("seed", range(6))
def test_a_shorter_path_or_less_to_do_is_no_slower(seed: int) -> None:
    rng = np.random.default_rng(seed)
    paths = [tuple(int(node) for node in rng.permutation(6)[:4]) for _ in range(5)]
    full = walk(nodes(6), [Journey(path=path) for path in paths])
    assert min(full) >= walk(nodes(6), [Journey(path=paths[0])])[0] - 1e-9
    assert max(full) >= max(walk(nodes(6), [Journey(path=path) for path in paths[:1]]))
    assert max(walk(nodes(6, gap_s=0.5), [Journey(path=path) for path in paths])) > max(full)
