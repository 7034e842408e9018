"""Clusters as files: chips, how they sit in nodes, what joins them, what stands around them, and what they cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gnomon import catalog
from gnomon.errors import GnomonError, InputError, named_by
from gnomon.load.chips import RANGES, is_file_name
from gnomon.load.chips import chip as find_chip
from gnomon.load.fields import Fields, shown
from gnomon.load.files import read_yaml
from gnomon.spec import Chip, Cluster, Grid, Host, Link, Node, Pool

SCHEMA = "gnomon.cluster/1"
MOST_CHIPS = 10_000_000
MOST_OVERSUBSCRIBED = 1000.0
LINK = {"gb_s": (1e-3, 1e5), "latency_us": (1e-3, 1e6)}
HOST = ("memory_gib", "memory_gb_s", "adam_gparam_s", "nvme_tb", "nvme_read_gb_s", "nvme_write_gb_s")


def read_cluster(path: Path) -> Cluster:
    return cluster_from_dict(read_yaml(path), str(path))


def cluster_from_dict(data: Mapping[str, Any], where: str) -> Cluster:
    """The pools of a cluster file, which describes one itself or lists several."""
    fields = Fields(data, where)
    schema = fields.text("schema")
    if schema != SCHEMA:
        raise InputError(f"'{schema}' is not {SCHEMA}", where=fields.spot("schema"))
    fields.text("name", "")
    listed = fields.list("pools")
    if not listed:
        return Cluster(pools=(replace(_pool(fields, where), file=where),))
    fields.done()
    pools = tuple(_pool(Fields(item, where, f"pools[{index}]"), where) for index, item in enumerate(listed))
    names = [pool.chip.name for pool in pools]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated:
        raise InputError(f"names {repeated} twice", where=f"{where}, field pools", hint="Add the counts up.")
    return Cluster(pools=pools)


def _pool(fields: Fields, where: str) -> Pool:
    chip = _chip(fields, where)
    node = _node(fields, chip)
    pool = Pool.of(_priced(fields, chip, where), _count(fields, node.chips), node, _grid(fields))
    fields.done()
    return pool


def _chip(fields: Fields, where: str) -> Chip:
    """By name, or by a file beside the cluster's."""
    ref = fields.text("chip")
    if is_file_name(ref) and not Path(ref).expanduser().is_absolute():
        ref = str(Path(where).parent / ref)
    return find_chip(ref, fields.spot("chip"))


def _count(fields: Fields, per_node: int) -> int:
    """Chips, given as such or by the nodes that hold them."""
    if fields.raw("nodes", None) is None:
        return fields.whole("count", most=MOST_CHIPS)
    held = fields.whole("nodes", most=MOST_CHIPS) * per_node
    count = fields.whole("count", held)
    if count != held:
        hint = f"The nodes hold {held:,}; give one of the two."
        raise InputError(f"{count:,} is not what the nodes hold", where=fields.spot("count"), hint=hint)
    if count > MOST_CHIPS:
        raise InputError(f"{count:,} chips are more than {MOST_CHIPS:,}", where=fields.spot("nodes"))
    return count


def _node(fields: Fields, chip: Chip) -> Node:
    """The node that is named, else the chip's usual one, with what the file says in its place."""
    usual = catalog.node_of(chip)
    named = fields.text("node", "")
    if named:
        with named_by(fields.spot("node")):
            usual = catalog.node(named)
    size = fields.whole("per_node", usual.chips, most=MOST_CHIPS)
    scaled = max(1, round(usual.adapters * size / usual.chips))
    return replace(
        usual,
        chips=size,
        scaleup=_link(fields, "scaleup", usual.scaleup),
        adapter=_link(fields, "scaleout", usual.adapter),
        adapters=fields.whole("adapters", scaled, most=100_000),
        host=_host(fields, usual.host),
        bridged=_bridged(fields, chip, usual.bridged),
        oversubscription=_at_least_one(fields, "oversubscription", usual.oversubscription),
        pod_nodes=fields.whole("pod_nodes", usual.pod_nodes, most=MOST_CHIPS),
    )


def _link(fields: Fields, name: str, usual: Link) -> Link:
    """By name, or by its figures: `{name: my fabric, gb_s: 25, latency_us: 6}`."""
    given = fields.raw(name, None)
    if given is None:
        return usual
    if isinstance(given, str):
        with named_by(fields.spot(name)):
            return catalog.link(fields.text(name))
    inner = fields.inner(name)
    found = Link(
        name=inner.text("name"),
        bandwidth_bytes_s=_within(inner, "gb_s") * 1e9,
        latency_s=_within(inner, "latency_us") * 1e-6,
        direct=inner.flag("direct", True),
        mesh=inner.flag("mesh", False),
    )
    inner.done()
    return found


def _within(fields: Fields, name: str) -> float:
    low, high = LINK[name]
    value = fields.number(name)
    if not low <= value <= high:
        raise InputError(f"{shown(value)} is not between {low:g} and {high:g}", where=fields.spot(name))
    return value


def _host(fields: Fields, usual: Host | None) -> Host | None:
    """By name, or by its figures."""
    given = fields.raw("host", None)
    if given is None:
        return usual
    if isinstance(given, str):
        with named_by(fields.spot("host")):
            return catalog.host(fields.text("host"))
    inner = fields.inner("host")
    entry: dict[str, Any] = {"name": inner.text("name", "own host"), "source": fields.spot("host"), "date": "as read"}
    entry |= {name: inner.number(name) for name in HOST}
    entry["cores"] = inner.whole("cores", most=1_000_000)
    entry["link_sharing"] = inner.whole("link_sharing", 1, most=100_000)
    link = _link(inner, "link", catalog.link("PCIe 5.0 x16"))
    inner.done()
    return catalog.host_from_entry(entry, link)


def _bridged(fields: Fields, chip: Chip, usual: bool) -> bool:
    bridged = fields.flag("bridged", usual)
    if bridged and chip.bridge is None:
        raise InputError(f"{chip.name} has no bridge", where=fields.spot("bridged"), hint="Leave it out.")
    return bridged


def _at_least_one(fields: Fields, name: str, usual: float) -> float:
    value = fields.number(name, usual, most=MOST_OVERSUBSCRIBED)
    if value < 1:
        raise InputError(f"{shown(value)} is below 1, which is full bandwidth", where=fields.spot(name))
    return value


def _priced(fields: Fields, chip: Chip, where: str) -> Chip:
    """The chip at the cluster's own price, or at a cloud's."""
    cloud, region = fields.text("cloud", ""), fields.text("region", "")
    spot, own = fields.flag("spot", False), fields.raw("price_usd_h", None)
    if own is not None and cloud:
        raise InputError("both a price and a cloud are given", where=fields.spot("cloud"), hint="Give one of them.")
    if own is not None:
        usd_h, source = fields.number("price_usd_h"), where
        if usd_h > RANGES["price_usd_h"][1]:
            told = f"{shown(usd_h)} is more than {RANGES['price_usd_h'][1]:,.0f}, for one chip an hour"
            raise InputError(told, where=fields.spot("price_usd_h"))
    elif cloud:
        try:
            price = catalog.price_at(chip.name, cloud, region, spot=spot)
        except GnomonError as error:
            error.where = error.where or fields.spot("cloud")
            raise
        usd_h, source = (
            price.usd_h,
            f"{price.cloud}, region {price.region}, {price.kind}: {price.source} ({price.date})",
        )
    else:
        return chip
    return replace(chip, price_usd_h=usd_h, sources={**chip.sources, "price_usd_h": source})


def _grid(fields: Fields) -> Grid | None:
    """The grid that is named, else the one of the region where it is known."""
    if fields.has("grid"):
        with named_by(fields.spot("grid")):
            return catalog.grid(fields.text("grid"))
    fields.raw("grid", None)
    region = fields.text("region", "")
    try:
        return catalog.grid(region) if region else None
    except GnomonError:
        return None
