"""Collectives: the fastest algorithm, rising with bytes, as counted by nccl-tests."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
from tests.cost.machines import machine

from gnomon import catalog
from gnomon.cost import nccl
from gnomon.cost.collective import one_node as seconds
from gnomon.cost.collective import seconds as over
from gnomon.cost.nccl import PASSES, measured
from gnomon.cost.nccl import level as nccl_level
from gnomon.load import parse_pool
from gnomon.spec import Link, Pool
from gnomon.spec.cluster import ACROSS_SOCKETS, BETWEEN_BRIDGES

NCCL = ("NVLink3", "NVLink4", "NVLink5")
LINK = Link(name="test", bandwidth_bytes_s=4e11, latency_s=1e-6)
SIZES = np.unique(np.geomspace(1, 2**34, 300).round())


def figures(link: str) -> nccl.Nccl:
    found = measured(link)
    assert found
    return found


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


def price(
    size: float, ranks: int, count: int = 16, op: str = "all_reduce", stride: int = 1, chip: str = "H100"
) -> float:
    """By NCCL among chips of a cluster, in nodes of eight."""
    shape = {"bytes": np.array([size]), "ranks": np.array([float(ranks)]), "stride": np.array([float(stride)])}
    return float(replace(machine(chip, count), framework="nccl").seconds(op, "bf16", shape)[0])


def test_a_group_within_a_node_uses_its_own_link() -> None:
    assert price(2.0**28, 8) == price(2.0**28, 8, count=8)
    assert price(2.0**28, 4, stride=2) == price(2.0**28, 4)


H100 = machine("H100").chip


@pytest.mark.parametrize("ranks", [16, 32, 128])
@pytest.mark.parametrize("op", ["all_gather", "reduce_scatter"])
def test_across_nodes_one_ring_goes_through_all_ranks(op: str, ranks: int) -> None:
    """Nearly all bytes cross between nodes, however few there are, an eighth of them over each of eight adapters, while
    the node's own links carry the next piece."""
    size = 2.0**30
    inside = nccl_level(op, np.array([size]), 8, H100.scaleup)[0]
    across = (ranks - 1) / ranks * size / 8 / (H100.scaleout.bandwidth_bytes_s * nccl.EFFICIENCY)
    found = price(size, ranks, count=ranks, op=op)
    assert across > inside
    assert across <= found <= 1.05 * across


@pytest.mark.parametrize(("ranks", "within"), [(4, 2), (8, 4)])
def test_sums_of_two_nodes_take_as_long_as_published(ranks: int, within: int) -> None:
    """Against two ranks in two nodes, with as many adapters as ranks: 1.48 and 1.83 times in vidur's tables of A100."""
    chip = machine("A100").chip
    size, wire = 2.0**26, chip.scaleout.bandwidth_bytes_s * nccl.EFFICIENCY
    pool = Pool(chip=chip, count=ranks, per_node=within)
    found = over("all_reduce", np.array([size]), ranks, pool, library="nccl")[0]
    published = {4: 1.48, 8: 1.83}[ranks]
    assert found == pytest.approx(published * size / within / wire, rel=0.1)


def test_a_switch_that_adds_up_makes_sums_of_sums() -> None:
    """Only half of the bytes of two nodes cross between them, each way; of an A100's, 15/16 do."""
    size = np.array([2.0**30])
    found = {}
    for name in ("A100", "H100"):
        chip = machine(name).chip
        pool = Pool(chip=chip, count=16, per_node=8)
        seconds = over("all_reduce", size, 16, pool, library="nccl")[0]
        found[name] = seconds * chip.scaleout.bandwidth_bytes_s * nccl.EFFICIENCY / (size[0] / 8)
    assert found["A100"] == pytest.approx(2 * 15 / 16, rel=0.05)
    assert found["H100"] < 1.5


def test_what_goes_to_other_nodes_is_shared_out_except_from_all_to_all() -> None:
    """Neighbours carry parts of what all of them need; what only one of them needs crosses its own adapter."""
    size, wire = 2.0**30, H100.scaleout.bandwidth_bytes_s * nccl.EFFICIENCY
    assert price(size, 64, count=64, op="all_to_all") == pytest.approx(7 / 8 * size / wire, rel=0.01)
    assert price(size, 64, count=64, op="broadcast") == pytest.approx(size / 8 / wire, rel=0.6)
    assert price(size, 64, count=64, op="send_recv") == pytest.approx(size / wire, rel=0.01)


@pytest.mark.parametrize("size", [1.0, 1e5])
def test_over_many_nodes_small_sums_climb_a_tree(size: float) -> None:
    """Two steps for each doubling of the nodes, where a ring would take two for each node."""
    ranks = [8 * nodes for nodes in (2, 16, 128)]
    few, some, many = (price(size, n, count=1024) for n in ranks)
    floor = 2 * 3 * H100.scaleout.latency_s
    assert some - few == pytest.approx(floor, rel=0.3)
    assert many - some == pytest.approx(floor, rel=0.3)


def test_large_sums_of_a_whole_node_are_made_in_the_switch() -> None:
    """Published for 512 MiB by NCCL 2.27: 2.11 ms on 8 H100 and 2.31 ms on 4, 1.34 ms on 8 B200 and 4.23 on 8 A100."""
    size = np.array([2.0**29])
    for name, ranks, published in (("H100", 8, 2.11), ("H100", 4, 2.31), ("B200", 8, 1.34), ("A100", 8, 4.23)):
        link = machine(name).chip.scaleup
        assert nccl_level("all_reduce", size, ranks, link)[0] * 1e3 == pytest.approx(published, rel=0.06), (name, ranks)


def test_a_group_spread_over_nodes() -> None:
    """`nodes` says how many; ranks of one node share their adapters no more than their part."""
    on, size = replace(machine("H100", 8), framework="nccl"), 2.0**30

    def spread(nodes: int, op: str = "all_gather") -> float:
        shape = {"bytes": np.array([size]), "ranks": np.array([8.0]), "nodes": np.array([float(nodes)])}
        return float(on.seconds(op, "bf16", shape)[0])

    assert spread(1) == price(size, 8, count=8, op="all_gather")
    assert spread(8) == price(size, 8, count=64, op="all_gather", stride=8)
    assert spread(1) < spread(2) < spread(4) < spread(8)


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "reduce_scatter"])
def test_small_messages_pay_both_levels_latency(op: str) -> None:
    ring = (2 if op == "all_reduce" else 1) * 7 * figures("NVLink4").hop_s
    assert price(8.0, 16, op=op) >= H100.scaleout.latency_s + ring


def test_sums_of_sums_at_both_levels_at_once_are_no_slower_than_one_after_the_other() -> None:
    for size in (8.0, 1e4, 1e6, 1e9):
        assert price(size, 16) <= price(size, 8) + price(size / 8, 2, stride=8)


@pytest.mark.parametrize("chip", ["H100", "A100", "MI300X"])
def test_more_nodes_are_never_quicker(chip: str) -> None:
    for op in PASSES:
        for size in (1e3, 1e6, 1e9):
            times = [price(size, ranks, count=64, op=op, chip=chip) for ranks in (8, 16, 32, 64)]
            assert times == sorted(times), (op, size)


def test_ranks_far_apart_cross_nodes() -> None:
    """Data-parallel ranks, one a node, have nothing but their adapters."""
    size = 2.0**30
    wire = 2 * 7 / 8 * size / (H100.scaleout.bandwidth_bytes_s * 0.76)
    assert price(size, 8, count=64, stride=8) == pytest.approx(wire, rel=0.01)
    # Two to a node: half of it goes over each one's adapter, and the two sum it up between them meanwhile.
    assert price(size, 16, count=64, stride=4) == pytest.approx(wire / 2, rel=0.01)


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "reduce_scatter"])
@pytest.mark.parametrize("name", NCCL)
def test_nccl_on_a_measured_link(name: str, op: str) -> None:
    """Rises with bytes, and with ranks where no switch adds up; never above what the wires can carry."""
    link = catalog.link(name)
    times = np.array([nccl_level(op, SIZES, ranks, link) for ranks in (2, 4, 8)])
    assert np.all(np.diff(times, axis=1) >= 0)
    if op != "all_reduce" or not figures(name).switch:
        assert np.all(np.diff(times[:, SIZES > 1e8], axis=0) >= 0)
    large = np.array([2.0**30])
    sent = 9 / 8 if op == "all_reduce" and figures(name).switch else (2 if op == "all_reduce" else 1) * 7 / 8
    bus = sent * large / nccl_level(op, large, 8, link)
    assert 0.5 < bus[0] / link.bandwidth_bytes_s < 0.9
    assert nccl_level(op, SIZES, 1, link).sum() == 0
    assert nccl_level(op, np.zeros(2), 8, link).sum() == 0


@pytest.mark.parametrize("op", PASSES)
def test_a_link_nobody_measured_is_priced_by_its_data_sheet(op: str) -> None:
    """Bandwidth and latency of the link, and nothing else that could be taken for a measurement."""
    large, factor = 2.0**40, {"all_reduce": 7 / 4, "broadcast": 1, "send_recv": 1}.get(op, 7 / 8)
    time = nccl_level(op, np.array([large]), 8, LINK)[0]
    assert time == pytest.approx(factor * large / (LINK.bandwidth_bytes_s * nccl.EFFICIENCY), rel=1e-4)
    steps = {"all_reduce": 14, "all_to_all": 3, "send_recv": 1}.get(op, 7)
    assert nccl_level(op, np.ones(1), 8, LINK)[0] == pytest.approx(nccl.LAUNCH_S + steps * LINK.latency_s, rel=1e-4)


def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather() -> None:
    """Ring by ring the same bytes; only the launch and the filling of the pipeline differ."""
    size = np.array([2.0**32])
    for link in (LINK, replace(LINK, name="NVLink3")):
        both = nccl_level("all_gather", size, 8, link) + nccl_level("reduce_scatter", size, 8, link)
        assert nccl_level("all_reduce", size, 8, link)[0] == pytest.approx(both[0], rel=0.1)


def test_an_engines_own_kernels_are_only_for_small_sums() -> None:
    for name in (*NCCL, "test"):
        link = replace(LINK, name=name)
        own, left = (seconds("all_reduce", SIZES, 8, link, library) for library in ("", "nccl"))
        assert np.all(own <= left)
        assert np.all(own[SIZES < 1e5] < left[SIZES < 1e5])
        assert np.array_equal(own[SIZES > 2**25], left[SIZES > 2**25])
        assert np.all(np.diff(own) >= 0), name
    detour = replace(LINK, direct=False)
    assert np.array_equal(seconds("all_reduce", SIZES, 8, detour), nccl_level("all_reduce", SIZES, 8, detour))


def test_a_pair_of_a_mesh_has_its_own_wires_and_no_others() -> None:
    """Of seven links a chip, two MI300X use one, four use three; behind a switch two may use all."""
    size = 2.0**34
    pair, four, eight = (price(size, ranks, count=8, op="all_gather", chip="MI300X") for ranks in (2, 4, 8))
    wire = machine("MI300X").chip.scaleup.bandwidth_bytes_s / 7 * nccl.EFFICIENCY
    for time, ranks in ((pair, 2), (four, 4), (eight, 8)):
        assert time == pytest.approx((ranks - 1) / ranks * size / wire / (ranks - 1), rel=0.01)
    assert price(size, 8, count=8, op="send_recv", chip="MI300X") == pytest.approx(size / wire, rel=0.01)
    assert price(size, 2, count=8, op="all_gather") < price(size, 8, count=8, op="all_gather")


def test_groups_stay_whole_in_racks_that_are_not_filled() -> None:
    """256 chips in racks of 72 are rented as four times 64."""
    rack = parse_pool("GB200:256")
    assert rack.per_node == 72
    for ranks in (16, 32, 64):
        near, far = (over("all_to_all", np.array([2.0**24]), ranks, pool) for pool in (rack, rack.resized(288)))
        assert near[0] < 0.5 * far[0]


@pytest.mark.parametrize("name", nccl.LIKE)
def test_a_link_like_a_measured_one_has_its_shares(name: str) -> None:
    """At its own bandwidth; a bridge has no switch that adds up."""
    link, like = replace(LINK, name=name), figures(nccl.LIKE[name])
    assert np.array_equal(nccl_level("all_gather", SIZES, 8, link), nccl.by(like, "all_gather", SIZES, 8, LINK))
    assert np.all(nccl_level("all_reduce", SIZES, 8, link) >= nccl.by(like, "all_reduce", SIZES, 8, LINK))
    usual = SIZES[(SIZES > 1e5) & (SIZES < 1e8)]
    assert np.all(nccl_level("all_gather", usual, 8, link) > nccl_level("all_gather", usual, 8, LINK))


PCIE = ("PCIe 3.0 x16", "PCIe 4.0 x16", "PCIe 5.0 x8", "PCIe 5.0 x16", "PCIe 6.0 x16")


@pytest.mark.parametrize("way", ["", ACROSS_SOCKETS, BETWEEN_BRIDGES])
@pytest.mark.parametrize("op", PASSES)
def test_cards_without_nvlink(op: str, way: str) -> None:
    """More bytes or ranks, an older slot, or a second processor in between is never quicker."""
    times = {}
    for name, ranks in product(PCIE, (2, 4, 8)):
        link = catalog.link(name)
        times[name, ranks] = nccl_level(op, SIZES, ranks, replace(link, name=name + way))
        assert np.all(np.diff(times[name, ranks]) >= 0), name
        if way == ACROSS_SOCKETS:
            assert np.all(times[name, ranks] >= nccl_level(op, SIZES, ranks, link)), name
        if name != PCIE[0]:
            assert np.all(
                times[name, ranks]
                <= nccl_level(
                    op, SIZES, ranks, replace(link, name=name + way, bandwidth_bytes_s=link.bandwidth_bytes_s / 2)
                )
            )
    large = SIZES > 1e7
    for older, newer in pairwise(PCIE):
        assert np.all(times[newer, 4][large] <= times[older, 4][large]), (older, newer)
    if op not in ("broadcast", "send_recv"):
        assert np.all(times["PCIe 4.0 x16", 8][large] >= times["PCIe 4.0 x16", 4][large])


def test_a_group_of_two_sockets_crosses_between_them() -> None:
    """Four of eight cards stand at one processor, eight at two; a workstation has one."""
    server, station = parse_pool("L40S:8"), parse_pool("RTX-4090:4")
    assert server.inside(4).name == "PCIe 4.0 x16"
    assert server.inside(8).name == "PCIe 4.0 x16" + ACROSS_SOCKETS
    assert station.inside(4).name == "PCIe 4.0 x16"
    size = np.array([2.0**26])
    assert over("all_reduce", size, 8, server)[0] > 1.2 * over("all_reduce", size, 4, server)[0]
    assert machine("L40S", 8).evidence("all_reduce", "bf16").spread >= nccl.MACHINES_SPREAD


def test_superchips_of_a_quad_have_a_third_of_their_links_for_each_other() -> None:
    quad, alone = parse_pool("GH200:4"), parse_pool("GH200:1")
    assert (quad.per_node, quad.scaleup.name, quad.scaleup.mesh) == (4, "NVLink4 mesh", True)
    assert quad.between(2, quad.scaleup).bandwidth_bytes_s == pytest.approx(150e9)
    assert quad.machine and alone.machine and quad.machine.memory_bytes == alone.machine.memory_bytes
    assert over("all_reduce", np.array([1e6]), 4, quad)[0] < 60e-6


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "send_recv"])
def test_small_messages_over_two_nodes_are_latency(op: str) -> None:
    """A few KiB take what the network adds to every message and its hops; twice the adapters would not help."""
    pool, size = parse_pool("H100:16"), np.array([4096.0])
    assert pool.node
    wide = replace(pool, node=replace(pool.node, adapters=2 * pool.node.adapters))
    ranks = 2 if op == "send_recv" else 16
    one, two = (float(over(op, size, ranks, on, library="nccl", nodes=2)[0]) for on in (pool, wide))
    assert nccl.network_s(op) + pool.scaleout.latency_s < one < 100e-6
    assert 0.97 * one < two <= one
