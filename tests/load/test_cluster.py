"""Clusters as files: what they say goes before what the chip's usual node says, and reaches the prices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import gnomon
from gnomon import catalog, load
from gnomon.cost import collective
from gnomon.errors import InputError
from gnomon.load.chip_file import template
from gnomon.load.plan import plan_from_dict
from gnomon.spec import Pool
from gnomon.spec.plan_dict import plan_to_dict


def write(folder: Path, file: str = "cluster.yaml", **fields: Any) -> str:
    path = folder / file
    path.write_text(yaml.safe_dump({"schema": "gnomon.cluster/1"} | fields))
    return str(path)


FULL = {
    "name": "the basement",
    "chip": "H100",
    "count": 64,
    "per_node": 4,
    "scaleup": "PCIe 5.0 x16",
    "scaleout": "RoCE 200",
    "adapters": 2,
    "oversubscription": 2,
    "pod_nodes": 4,
    "host": "PCIe server",
    "price_usd_h": 1.5,
    "grid": "FR",
}


def test_every_field(tmp_path: Path) -> None:
    pool = load.parse_pool(write(tmp_path, **FULL))
    assert (pool.chip.name, pool.count, pool.per_node, pool.chip.price_usd_h) == ("H100-SXM-80GB", 64, 4, 1.5)
    assert pool.scaleup.name == "PCIe 5.0 x16"
    assert (pool.scaleout.name, pool.scaleout.bandwidth_bytes_s) == ("RoCE 200", 25e9 * 2 / 4)
    assert pool.host is not None
    assert pool.host.name == "PCIe server"
    assert pool.grid is not None
    assert pool.grid.g_co2_kwh == 56
    assert pool.chip.sources["price_usd_h"].endswith("cluster.yaml")
    assert pool.unusual_node_size == 4


def test_what_is_left_out_is_the_chips_usual(tmp_path: Path) -> None:
    pool = load.parse_pool(write(tmp_path, chip="H100", count=16))
    usual = load.parse_pool("H100:16")
    assert (pool.node, pool.chip, pool.per_node, pool.count) == (usual.node, usual.chip, usual.per_node, usual.count)


def test_by_nodes_and_by_a_named_node(tmp_path: Path) -> None:
    pool = load.parse_pool(write(tmp_path, chip="H100", nodes=3, node="AWS p5"))
    assert (pool.count, pool.per_node, pool.scaleout.name) == (24, 8, "EFA")
    assert pool.scaleout.bandwidth_bytes_s == 12.5e9 * 32 / 8
    half = load.parse_pool(write(tmp_path, chip="H100", nodes=3, per_node=4))
    assert half.scaleout == load.parse_pool("H100:16").scaleout  # adapters go with the chips
    with pytest.raises(InputError, match=r"field count: 20 is not what the nodes hold. The nodes hold 24"):
        load.parse_pool(write(tmp_path, chip="H100", nodes=3, count=20))


def test_a_part_of_it(tmp_path: Path) -> None:
    path = write(tmp_path, **FULL)
    assert load.parse_pool(f"{path}:8").count == 8
    assert load.parse_pool(f"{path}:2").per_node == 2
    with pytest.raises(InputError, match=r"65 chips are asked for and .* has 64"):
        load.parse_pool(f"{path}:65")


def test_links_and_hosts_of_ones_own(tmp_path: Path) -> None:
    host = {"cores": 32, "memory_gib": 256, "memory_gb_s": 200, "adam_gparam_s": 3, "nvme_tb": 1,
            "nvme_read_gb_s": 5, "nvme_write_gb_s": 3, "link": "PCIe 3.0 x16", "link_sharing": 4}  # fmt: skip
    fabric = {"name": "our fabric", "gb_s": 20, "latency_us": 3}
    pool = load.parse_pool(write(tmp_path, chip="A40", count=8, scaleout=fabric, adapters=4, host=host))
    assert (pool.scaleout.bandwidth_bytes_s, pool.scaleout.latency_s) == (20e9 * 4 / 8, 3e-6)
    assert pool.host is not None
    assert pool.host.copy_bytes_s(4) == 15.75e9 / 4


def test_a_chip_of_ones_own_beside_it(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(template("mine", catalog.chip("L4")))
    pool = load.parse_pool(write(tmp_path, chip="mine.yaml", count=2))
    assert (pool.chip.name, pool.chip.reference) == ("mine", str(tmp_path / "mine.yaml"))


def test_a_clouds_price_and_its_grid(tmp_path: Path) -> None:
    pool = load.parse_pool(write(tmp_path, chip="H100", count=8, cloud="aws", region="us-east-1"))
    assert pool.chip.price_usd_h == 6.88
    assert pool.grid is not None
    assert pool.grid.name == "us-virginia"
    spot = load.parse_pool(write(tmp_path, chip="H100", count=8, cloud="aws", spot=True))
    assert spot.chip.price_usd_h < 2


def test_several_pools_are_a_fleet(tmp_path: Path) -> None:
    pools = [{"chip": "H100", "count": 16}, {"chip": "L4", "count": 32, "price_usd_h": 0.5}]
    path = write(tmp_path, pools=pools)
    fleet = load.parse_fleet(path)
    assert [(pool.chip.short, pool.count) for pool in fleet.pools] == [("H100", 16), ("L4", 32)]
    assert load.parse_fleet(f"{path},A100:4").count == 52
    with pytest.raises(InputError, match="holds more than one kind of chip"):
        load.parse_pool(path)
    with pytest.raises(InputError, match="names H100-SXM-80GB twice"):
        load.parse_fleet(f"{path},H100:4")
    twice = write(tmp_path, "twice.yaml", pools=[*pools, dict(pools[0])])
    with pytest.raises(InputError, match=r"twice.yaml, field pools: names H100-SXM-80GB twice"):
        load.parse_fleet(twice)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no chip": ({"count": 3}, "field chip: is missing"),
    "chip": ({"chip": "H1000", "count": 3}, "field chip: unknown chip 'H1000'"),
    "no count": ({"chip": "H100"}, "field count: is missing"),
    "count": ({"chip": "H100", "count": 0}, "field count: 0 is not a positive whole number"),
    "many": ({"chip": "H100", "count": 10**8}, "field count: 100000000 is more than 10000000"),
    "link": ({"chip": "H100", "count": 8, "scaleout": "NDRR"}, "field scaleout: unknown link 'NDRR'"),
    "link unit": (
        {"chip": "H100", "count": 8, "scaleout": {"name": "x", "gb_s": 5e10, "latency_us": 1}},
        "field scaleout.gb_s: 50000000000.0 is not between",
    ),
    "over": ({"chip": "H100", "count": 8, "oversubscription": 0.5}, "field oversubscription: 0.5 is below 1"),
    "bridge": ({"chip": "H100", "count": 8, "bridged": True}, "field bridged: H100-SXM-80GB has no bridge"),
    "sockets": (
        {"chip": "H100", "count": 8, "sockets": 2},
        "field sockets: says nothing where NVLink4 joins the chips",
    ),
    "host": ({"chip": "H100", "count": 8, "host": "DGX-H1000"}, "field host: unknown host 'DGX-H1000'"),
    "cloud": ({"chip": "H100", "count": 8, "cloud": "moon"}, "field cloud: unknown cloud 'moon'"),
    "offer": ({"chip": "MI100", "count": 8, "cloud": "aws"}, "field cloud: no on-demand price of MI100 at aws"),
    "price": ({"chip": "H100", "count": 8, "price_usd_h": 1e-300}, "field price_usd_h: 1e-300 is not between 0.0001"),
    "large price": ({"chip": "H100", "count": 8, "price_usd_h": 1e9}, "field price_usd_h: 1000000000.0 is not between"),
    "two prices": (
        {"chip": "H100", "count": 8, "cloud": "aws", "price_usd_h": 2},
        "field cloud: both a price and a cloud",
    ),
    "grid": ({"chip": "H100", "count": 8, "grid": "Atlantis"}, "field grid: unknown grid 'Atlantis'"),
    "unknown": ({"chip": "H100", "count": 8, "adapter": 3}, "field adapter: unknown field. Did you mean 'adapters'?"),
    "pool": ({"pools": [{"chip": "H100"}]}, "field pools[0].count: is missing"),
    "beside pools": ({"pools": [{"chip": "H100", "count": 1}], "chip": "A100"}, "field chip: unknown field"),
    "schema": ({"schema": "gnomon.fleet/1"}, "field schema: 'gnomon.fleet/1' is neither gnomon.chip/1 nor"),
    "no schema": ({"schema": None}, "field schema: is missing: it is either gnomon.chip/1 or gnomon.cluster/1"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_told_with_its_place(case: str, tmp_path: Path) -> None:
    fields, message = WRONG[case]
    path = write(tmp_path, **fields)
    with pytest.raises(InputError) as caught:
        load.parse_pool(path)
    assert f"{path}, {message}" in str(caught.value)
    assert "cluster.yaml" in str(caught.value)


def seconds(pool: Pool, ranks: int, payload: float = 2.0**28, stride: int = 1) -> float:
    return float(collective.seconds("all_reduce", np.array([payload]), ranks, pool, stride)[0])


def test_a_faster_network_is_quicker_and_oversubscription_slower(tmp_path: Path) -> None:
    plain, fast, over = (
        load.parse_pool(write(tmp_path, chip="H100", count=64, **more))
        for more in ({"scaleout": "RoCE 100"}, {"scaleout": "InfiniBand XDR"}, {"scaleout": "RoCE 100", **OVER})
    )
    assert seconds(fast, 64) < seconds(plain, 64) < seconds(over, 64)
    assert seconds(plain, 8) == seconds(over, 8) == seconds(fast, 8)
    assert seconds(plain, 16) == seconds(over, 16)  # two nodes stand under one switch


OVER = {"oversubscription": 4, "pod_nodes": 2}


def test_bridges_join_pairs_where_they_are_fitted(tmp_path: Path) -> None:
    plain, bridged = (
        load.parse_pool(write(tmp_path, chip="A100-PCIe", count=8, **more)) for more in ({}, {"bridged": True})
    )
    assert seconds(bridged, 2) < 0.3 * seconds(plain, 2)
    assert 3 * seconds(bridged, 2) < seconds(bridged, 4) <= seconds(plain, 4)
    assert seconds(load.parse_pool("H100-NVL:2"), 2) < 0.3 * seconds(load.parse_pool("H100-PCIe:2"), 2)


def test_pcie_has_no_kernels_of_the_engine_beyond_a_pair() -> None:
    pool = load.parse_pool("L40S:8")
    link = pool.scaleup
    ring = collective.one_node("all_reduce", np.array([4096.0]), 4, link, "nccl")
    assert seconds(pool, 4, 4096.0) == ring[0]
    assert seconds(pool, 2, 4096.0) < collective.one_node("all_reduce", np.array([4096.0]), 2, link, "nccl")[0]


def test_a_prediction_on_a_cluster(tmp_path: Path) -> None:
    path = write(tmp_path, chip="H100", count=8, per_node=4, scaleup="PCIe 5.0 x16", price_usd_h=2.0)
    own, usual = (gnomon.predict("llama-3.1-8b", on=on, batch=64) for on in (path, "H100:8"))
    assert own.time_s.value > usual.time_s.value
    assert own.cost_usd.value == pytest.approx(own.time_s.value * 8 * 2.0 / 3600)
    again = gnomon.predict(**own.inputs)
    assert again.time_s.value == own.time_s.value


@pytest.mark.heavy
def test_a_plan_on_a_cluster_keeps_its_nodes(tmp_path: Path) -> None:
    path = write(tmp_path, chip="H100", count=8, per_node=4)
    found = gnomon.plan_serving("llama-3.1-8b", fleet=path, rate=2, input=256, output=64, requests=200)
    plan = found.best.plan
    assert (plan.chip, plan.per_node) == ("H100-SXM-80GB", 4)
    assert plan_from_dict(plan_to_dict(plan)) == plan


def test_the_example_is_read() -> None:
    pool = load.parse_pool(str(Path(__file__).parents[2] / "examples" / "cluster.yaml"))
    assert (pool.count, pool.per_node, pool.scaleout.name) == (64, 4, "RoCE 400")
