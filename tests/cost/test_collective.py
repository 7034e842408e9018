"""Collectives: the fastest algorithm, rising with bytes, as counted by nccl-tests."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.cost.machines import machine

from gnomon.cost.collective import PASSES
from gnomon.cost.collective import one_level as seconds
from gnomon.spec import Link

LINK = Link(name="test", bandwidth_bytes_s=4e11, latency_s=1e-6)
SIZES = np.unique(np.geomspace(1, 2**34, 300).round())


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("op", PASSES)
def test_more_bytes_are_never_quicker(op: str, ranks: int) -> None:
    times = seconds(op, SIZES, ranks, LINK)
    assert np.all(np.diff(times) >= 0)
    assert np.all(np.isfinite(times))
    assert times[0] >= LINK.latency_s


@pytest.mark.parametrize("op", PASSES)
def test_better_links_are_never_slower(op: str) -> None:
    slow = seconds(op, SIZES, 8, LINK)
    assert np.all(seconds(op, SIZES, 8, replace(LINK, bandwidth_bytes_s=8e11)) <= slow)
    assert np.all(seconds(op, SIZES, 8, replace(LINK, latency_s=5e-7)) <= slow)


def test_more_ranks_are_never_quicker() -> None:
    times = np.array([seconds("all_reduce", SIZES, ranks, LINK) for ranks in (2, 4, 8)])
    assert np.all(np.diff(times, axis=0) >= 0)


@pytest.mark.parametrize("ranks", [2, 8])
@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"])
def test_large_messages_reach_the_bus_bandwidth(op: str, ranks: int) -> None:
    """Bus bandwidth as nccl-tests defines it: below the link's own, and most of it."""
    size = 2.0**34
    factor = (2 if op == "all_reduce" else 1) * (ranks - 1) / ranks
    bus = factor * size / seconds(op, np.array([size]), ranks, LINK)[0]
    assert 0.6 < bus / LINK.bandwidth_bytes_s <= 1


@pytest.mark.parametrize("ranks", [2, 8])
def test_a_send_crosses_the_link_whole(ranks: int) -> None:
    """In nccl-tests each rank of sendrecv sends all its bytes to one other: the factor is 1."""
    size = 2.0**34
    bus = size / seconds("send_recv", np.array([size]), ranks, LINK)[0]
    assert 0.6 < bus / LINK.bandwidth_bytes_s <= 1


def test_small_all_reduces_take_few_hops() -> None:
    """One shot costs one latency; a ring of eight would cost fourteen."""
    tiny = seconds("all_reduce", np.array([1024.0]), 8, LINK)[0]
    ring = seconds("all_gather", np.array([1024.0]), 8, LINK)[0]
    assert tiny < ring < 7 * LINK.latency_s + 1e-5
    slow = replace(LINK, latency_s=1e-4)
    assert seconds("all_reduce", np.array([1024.0]), 8, slow)[0] < 2.1e-4


def test_alone_or_empty_is_free() -> None:
    assert seconds("all_reduce", SIZES, 1, LINK).sum() == 0
    assert seconds("all_reduce", np.zeros(3), 8, LINK).sum() == 0


def test_a_group_within_a_node_uses_its_own_link() -> None:
    def one(count: int, ranks: int) -> float:
        shape = {"bytes": np.array([2.0**28]), "ranks": np.array([float(ranks)])}
        return float(machine("H100", count).seconds("all_reduce", "bf16", shape)[0])

    inside, across = one(8, 8), one(16, 16)
    # Each of the eight chips takes an eighth of the node's part over its own adapter.
    assert across - inside == pytest.approx(2**28 / 8 / (5e10 * 0.76), rel=0.05)
    assert one(16, 8) == inside
