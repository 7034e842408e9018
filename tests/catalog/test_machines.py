"""Links, hosts and nodes: sane, sourced, and those that were asked for are there."""

from __future__ import annotations

import pytest

from gnomon import catalog
from gnomon.errors import UnknownNameError
from gnomon.spec import Chip, Pool


@pytest.mark.parametrize("name", catalog.link_names())
def test_links_are_sane(name: str) -> None:
    link = catalog.link(name)
    assert 1e8 < link.bandwidth_bytes_s < 1e13
    assert 1e-7 < link.latency_s < 1e-3


@pytest.mark.parametrize("name", catalog.host_names())
def test_hosts_are_sane(name: str) -> None:
    host = catalog.host(name)
    assert 8 <= host.cores < 10_000
    assert 64e9 < host.memory_bytes < 1e14
    assert 5e10 < host.memory_bandwidth_bytes_s < 1e14
    # An optimizer moves about 30 bytes a parameter: it cannot outrun the memory.
    assert 0.3 < host.adam_parameters_s * 30 / host.memory_bandwidth_bytes_s < 1
    assert host.nvme_write_bytes_s <= host.nvme_read_bytes_s < host.memory_bandwidth_bytes_s
    assert all("(20" in source for source in host.sources.values())
    assert host.copy_bytes_s(1) == host.link.bandwidth_bytes_s
    assert host.copy_bytes_s(8) == host.link.bandwidth_bytes_s / host.link_sharing


@pytest.mark.parametrize("name", catalog.node_names())
def test_nodes_are_sane(name: str) -> None:
    node = catalog.node(name)
    assert node.chips >= 1
    assert node.adapters >= 1
    assert node.oversubscription == 1
    assert node.scaleout.bandwidth_bytes_s == node.adapter.bandwidth_bytes_s * node.adapters / node.chips
    assert all("(20" in source for source in node.sources.values())


def test_networks_there_must_be() -> None:
    for name in (
        "NVLink4", "NVLink5", "PCIe 4.0 x16", "InfiniBand HDR", "InfiniBand NDR", "InfiniBand XDR", "RoCE 100",
        "RoCE 200", "RoCE 400", "Slingshot 11", "Ethernet 100", "Ethernet 400", "EFA",
    ):  # fmt: skip
        assert catalog.link(name.lower()).name == name
    for name in ("DGX-A100", "HGX-H100", "DGX-H200", "DGX-B200", "GB200 NVL72", "PCIe box of 4", "PCIe box of 8"):
        catalog.node(name)
    with pytest.raises(UnknownNameError, match=r"unknown link 'NVLink44'. Near: NVLink4"):
        catalog.link("NVLink44")
    with pytest.raises(UnknownNameError, match=r"unknown node 'p5.48xlarg'. Near: AWS p5"):
        catalog.node("p5.48xlarg")


@pytest.mark.parametrize(
    ("chip", "chips", "adapter", "host"),
    [
        ("H100", 8, "InfiniBand NDR", "DGX-H100"),
        ("GB200", 72, "InfiniBand NDR", "GB200 NVL72"),
        ("L4", 8, "RoCE 200", "PCIe 4.0 server"),
        ("V100-SXM3-32GB", 16, "InfiniBand EDR", "DGX-2"),
    ],
)
def test_the_node_a_chip_is_bought_in(chip: str, chips: int, adapter: str, host: str) -> None:
    node = catalog.node_of(catalog.chip(chip))
    assert (node.chips, node.adapter.name, node.host.name if node.host else "") == (chips, adapter, host)


@pytest.mark.parametrize("chip", catalog.chips(), ids=lambda chip: chip.name)
def test_the_usual_node_has_the_chips_own_links(chip: Chip) -> None:
    pool = Pool.of(chip, 4 * chip.scaleup_size, catalog.node_of(chip))
    assert (pool.scaleup, pool.per_node) == (chip.scaleup, chip.scaleup_size)
    assert pool.scaleout == chip.scaleout
    assert pool.unusual_node_size == 0
