"""Experts placed by popularity: bounds, every placement of a few experts, and steps."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

import gnomon
from gnomon.errors import InputError
from gnomon.graph.popularity import _packed_share, _random_share, placed, visit_shares

LOAD = {"model": "qwen1.5-moe-a2.7b", "on": "H200:16", "seq": 4096, "global_batch": 64, "micro_batch": 4, "ep": 4}
"""Large enough not to wait for launches."""


def step_s(*words: str, imbalance: float = 1.6) -> float:
    return float(gnomon.simulate_training(**LOAD, imbalance=imbalance, techniques=words).step_time_s.value)


@pytest.mark.parametrize(("experts", "topk", "ranks"), [(64, 6, 8), (128, 8, 16), (60, 4, 4), (8, 2, 8)])
def test_placement_leaves_between_even_and_what_there_was(experts: int, topk: int, ranks: int) -> None:
    for imbalance in (1.0, 1.05, 1.3, 2.0, float(ranks)):
        assert 1.0 <= placed(experts, topk, ranks, imbalance) <= imbalance
    assert placed(experts, topk, 1, 3.0) == 1.0
    assert placed(8, 2, 8, 1.7) == pytest.approx(1.7), "one expert per rank stands where it stands"


@pytest.mark.parametrize(("experts", "ranks"), [(6, 2), (6, 3), (8, 2)])
def test_packing_is_near_the_best_of_every_placement(experts: int, ranks: int) -> None:
    """No worse than a random one, and within 4/3 of the best, as fullest-first packing is known to be."""
    for skew in (0.4, 0.9, 1.5):
        shares, each = np.array(visit_shares(experts, 2, skew)), experts // ranks
        best = min(shares[list(order)].reshape(ranks, each).sum(axis=1).max() for order in permutations(range(experts)))
        found = _packed_share(experts, 2, ranks, skew, 0)
        assert best - 1e-12 <= found <= best * 4 / 3
        assert found <= _random_share(experts, 2, ranks, skew) + 1e-12


def test_a_step_is_shorter_where_ranks_are_uneven_and_the_same_where_they_are_even() -> None:
    assert step_s("expert-placement") < step_s()
    assert step_s("expert-placement", imbalance=1.0) == step_s(imbalance=1.0)
    assert step_s("expert-placement:local=0.6") < step_s("expert-placement")
    assert step_s("expert-placement:local=0.1") == step_s("expert-placement"), "a quarter is local by chance"


def test_without_ranks_there_is_nothing_to_place() -> None:
    with pytest.raises(InputError, match="nothing to place"):
        gnomon.simulate_training(**(LOAD | {"ep": 1}), techniques=["expert-placement"])
