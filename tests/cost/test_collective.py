"""Collectives: the fastest algorithm, rising with bytes, as counted by nccl-tests."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.cost.machines import machine

from gnomon.cost.collective import PASSES, nccl_level
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


def price(size: float, ranks: int, count: int = 16, op: str = "all_reduce", stride: int = 1) -> float:
    """Among chips of a cluster of H100, in nodes of eight."""
    shape = {"bytes": np.array([size]), "ranks": np.array([float(ranks)]), "stride": np.array([float(stride)])}
    return float(machine("H100", count).seconds(op, "bf16", shape)[0])


def test_a_group_within_a_node_uses_its_own_link() -> None:
    assert price(2.0**28, 8) == price(2.0**28, 8, count=8)
    assert price(2.0**28, 4, stride=2) == price(2.0**28, 4)


H100 = machine("H100").chip


@pytest.mark.parametrize("ranks", [16, 32, 128])
def test_across_nodes_the_slower_level_decides(ranks: int) -> None:
    """Each of a node's eight chips takes an eighth of its part over its own adapter, while the node's own links sum
    the next piece: in few nodes the links inside are slower, in many the adapters."""
    size, nodes = 2.0**30, ranks // 8
    inside = 2 * 7 / 8 * size / (H100.scaleup.bandwidth_bytes_s * 0.76)
    across = 2 * (nodes - 1) / nodes * size / 8 / (H100.scaleout.bandwidth_bytes_s * 0.76)
    found = price(size, ranks, count=ranks)
    assert found == pytest.approx(max(inside, across), rel=0.05)
    assert found >= max(inside, across)
    assert (across > inside) == (nodes > 4)


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "reduce_scatter"])
def test_small_messages_pay_both_levels_latency(op: str) -> None:
    hops = {"all_reduce": 1}.get(op, 7)  # one shot within a node, else a ring of eight
    assert price(8.0, 16, op=op) >= H100.scaleout.latency_s + hops * H100.scaleup.latency_s


@pytest.mark.parametrize("op", ["all_reduce", "all_gather"])
def test_both_levels_at_once_are_no_slower_than_one_after_the_other(op: str) -> None:
    for size in (8.0, 1e4, 1e6, 1e9):
        assert price(size, 16, op=op) <= price(size, 8, op=op) + price(size / 8, 2, op=op, stride=8)


def test_more_nodes_are_never_quicker() -> None:
    for op in ("all_reduce", "all_gather", "reduce_scatter"):
        for size in (1e3, 1e6, 1e9):
            times = [price(size, ranks, count=64, op=op) for ranks in (2, 4, 8, 16, 32, 64)]
            assert times == sorted(times), (op, size)


def test_ranks_far_apart_cross_nodes() -> None:
    """Data-parallel ranks, one a node, have nothing but their adapters."""
    size = 2.0**30
    wire = 2 * 7 / 8 * size / (H100.scaleout.bandwidth_bytes_s * 0.76)
    assert price(size, 8, count=64, stride=8) == pytest.approx(wire, rel=0.01)
    # Two to a node: half of it goes over each one's adapter, and the two sum it up between them meanwhile.
    assert price(size, 16, count=64, stride=4) == pytest.approx(wire / 2, rel=0.01)


NVLINK = replace(LINK, name="NVLink4", bandwidth_bytes_s=4.5e11)


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "reduce_scatter"])
def test_nccl_on_a_measured_link(op: str) -> None:
    """Rises with bytes and ranks, never above the link, near what nccl-tests shows of eight H100 without NVLS."""
    times = np.array([nccl_level(op, SIZES, ranks, NVLINK) for ranks in (2, 4, 8)])
    assert np.all(np.diff(times, axis=1) >= 0)
    assert np.all(np.diff(times[:, SIZES > 1e8], axis=0) >= 0)
    large = np.array([2.0**30])
    bus = (2 if op == "all_reduce" else 1) * 7 / 8 * large / nccl_level(op, large, 8, NVLINK)
    assert 0.7 < bus[0] / NVLINK.bandwidth_bytes_s < 0.9
    assert nccl_level(op, SIZES, 1, NVLINK).sum() == 0
    assert nccl_level(op, np.zeros(2), 8, NVLINK).sum() == 0


def test_nccl_on_a_link_nobody_measured_is_the_data_sheets() -> None:
    for op in PASSES:
        np.testing.assert_array_equal(nccl_level(op, SIZES, 8, LINK), seconds(op, SIZES, 8, LINK, shots=False))


def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather() -> None:
    """Ring by ring the same bytes; only the launch and the filling of the pipeline differ."""
    size = np.array([2.0**32])
    for level in (nccl_level, seconds):
        both = level("all_gather", size, 8, NVLINK) + level("reduce_scatter", size, 8, NVLINK)
        assert level("all_reduce", size, 8, NVLINK)[0] == pytest.approx(both[0], rel=0.05)
