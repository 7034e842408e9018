"""Clusters as files: chips, how they sit in nodes, what joins them, what stands around them, and what they cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

from gnomon import catalog
from gnomon.errors import GnomonError, InputError, named_by
from gnomon.load.chips import RANGES, is_file_name
from gnomon.load.chips import chip as find_chip
from gnomon.load.fields import Fields, shown
from gnomon.load.files import read_yaml
from gnomon.load.plausible import check_domain, check_known
from gnomon.spec import Chip, Cluster, Host, Link, Node, NotModelled, Pool, PowerGrid

SCHEMA = "gnomon.cluster/1"
MOST_CHIPS = 10_000_000
MOST_OVERSUBSCRIBED = 1000.0
MOST_SOCKETS = 64
FABRIC = ("oversubscription", "pod_nodes")
LINK = {"gb_s": (1e-3, 1e5), "latency_us": (1e-3, 1e6)}
HOST = {
    "memory_gib": ("memory_bytes", 2.0**30),
    "memory_gb_s": ("memory_bandwidth_bytes_s", 1e9),
    "adam_gparam_s": ("adam_parameters_s", 1e9),
    "nvme_tb": ("nvme_bytes", 1e12),
    "nvme_read_gb_s": ("nvme_read_bytes_s", 1e9),
    "nvme_write_gb_s": ("nvme_write_bytes_s", 1e9),
}
"""Figures of a host: what they are of one that is known, and the unit."""
SMALLER, LARGER = 32.0, 8.0
"""How far a host may be from known ones: a desktop computer is smaller, a rack is counted as one."""
UNREAD = {
    "cores": "updates on the host take as long as adam_gparam_s says",
    "nvme_tb": "nothing is kept on the host's disks",
    "nvme_read_gb_s": "nothing is read from the host's disks",
    "link.latency_us": "copies between a chip and its host are long, and take what the bandwidth says",
}
"""Fields of a host that no answer depends on, and why."""
LIKE = "PCIe server"
"""Whose figures stand for those that are left out, where a chip's node has no host."""
NEARER = 8.0
"""A latency may be so much below that of any known link."""


def read_cluster(path: Path) -> Cluster:
    return cluster_from_dict(read_yaml(path), str(path))


def cluster_from_dict(data: Mapping[str, Any], where: str) -> Cluster:
    """The pools of a cluster file, which describes one itself or lists several."""
    fields = Fields(data, where)
    fields.check_schema(SCHEMA)
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
    fabric = tuple(fields.spot(name) for name in FABRIC if fields.raw(name, None) is not None)
    return replace(pool, not_modelled=_unread(fields), fabric_fields=fabric)


def _chip(fields: Fields, where: str) -> Chip:
    """The chip by name, or by a file whose path is relative to the cluster's."""
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
    oversubscription = _at_least_one(fields, "oversubscription", usual.oversubscription)
    scaleup = _link(fields, "scaleup", usual.scaleup)
    check_domain(size, scaleup.name, fields.spot("per_node"))
    scaled = max(1, round(usual.adapters * size / usual.chips))
    return replace(
        usual,
        chips=size,
        scaleup=scaleup,
        adapter=_link(fields, "scaleout", usual.adapter),
        adapters=_adapters(fields, scaled, size),
        host=_host(fields, usual.host),
        bridged=_bridged(fields, chip, usual.bridged),
        sockets=_sockets(fields, scaleup, usual.sockets),
        oversubscription=oversubscription,
        pod_nodes=_pod_nodes(fields, usual.pod_nodes, oversubscription),
    )


def _pod_nodes(fields: Fields, usual: int, oversubscription: float) -> int:
    pods = fields.whole("pod_nodes", usual, most=MOST_CHIPS)
    if pods > 1 and oversubscription == 1:
        hint = "Give oversubscription too, or leave it out."
        raise InputError("says nothing where the network has full bandwidth", where=fields.spot("pod_nodes"), hint=hint)
    return pods


def _link(fields: Fields, name: str, usual: Link) -> Link:
    """A link by name, or by its figures: `{name: my fabric, gb_s: 25, latency_us: 6}`."""
    given = fields.raw(name, None)
    if given is None:
        return usual
    if isinstance(given, str):
        with named_by(fields.spot(name)):
            return catalog.link(fields.text(name))
    inner = fields.inner(name)
    unread = name == "link" and not inner.has("latency_us")
    found = Link(
        name=inner.text("name"),
        bandwidth_bytes_s=_within(inner, "gb_s", name) * 1e9,
        latency_s=usual.latency_s if unread else _within(inner, "latency_us", name) * 1e-6,
        **({"direct": inner.flag("direct", True), "mesh": inner.flag("mesh", False)} if name == "scaleup" else {}),
    )
    inner.done()
    return found


def _within(fields: Fields, name: str, role: str) -> float:
    """A figure of a link, beside those of known links in the same place."""
    low, high = LINK[name]
    value = fields.number(name)
    if not low <= value <= high:
        raise InputError(f"{shown(value)} is not between {low:g} and {high:g}", where=fields.spot(name))
    known = _links(role)
    if name == "gb_s":
        check_known(value, {link.name: link.bandwidth_bytes_s / 1e9 for link in known}, fields.spot(name), below=inf)
    else:
        rates = {link.name: link.latency_s * 1e6 for link in known}
        check_known(value, rates, fields.spot(name), below=NEARER, above=inf)
    return value


def _links(role: str) -> list[Link]:
    """Links that known machines have there."""
    if role == "link":
        return [catalog.host(name).link for name in catalog.host_names()]
    nodes = [catalog.bare_node(name) for name in catalog.node_names()]
    return [node.scaleup if role == "scaleup" else node.adapter for node in nodes]


def _adapters(fields: Fields, usual: int, chips: int) -> int:
    """Adapters of a node, which have no more than a few ports for each chip."""
    adapters = fields.whole("adapters", usual, most=100_000)
    nodes = [catalog.bare_node(name) for name in catalog.node_names()]
    if adapters != usual:
        known = {node.name: node.adapters / node.chips for node in nodes}
        most, of = max((each, name) for name, each in known.items())
        if adapters > LARGER * most * chips:
            message = f"{adapters:,} adapters for {chips:,} chips; known nodes have at most {most:g} a chip ({of})"
            raise InputError(message, where=fields.spot("adapters"))
    return adapters


def _host(fields: Fields, usual: Host | None) -> Host | None:
    """A host by name, or by its figures."""
    given = fields.raw("host", None)
    if given is None:
        return usual
    if isinstance(given, str):
        with named_by(fields.spot("host")):
            return catalog.host(fields.text("host"))
    inner = fields.inner("host")
    entry: dict[str, Any] = {"name": inner.text("name", "own host"), "source": fields.spot("host"), "date": "as read"}
    like = usual or catalog.host(LIKE)
    entry |= {name: _host_figure(inner, name, like) for name in HOST}
    entry["cores"] = inner.whole("cores", like.cores, most=1_000_000)
    entry["link_sharing"] = inner.whole("link_sharing", 1, most=100_000)
    link = _link(inner, "link", catalog.link("PCIe 5.0 x16"))
    inner.done()
    return catalog.host_from_entry(entry, link)


def _host_figure(fields: Fields, name: str, like: Host) -> float:
    """A figure beside those of known hosts; what no answer depends on may be left out."""
    attribute, unit = HOST[name]
    value = fields.number(name, getattr(like, attribute) / unit) if name in UNREAD else fields.number(name)
    hosts = [catalog.host(each) for each in catalog.host_names()]
    known = {host.name: getattr(host, attribute) / unit for host in hosts}
    check_known(value, known, fields.spot(name), below=SMALLER, above=LARGER)
    return value


def _unread(fields: Fields) -> tuple[NotModelled, ...]:
    """What the file says and nothing depends on."""
    host = fields.raw("host", None)
    said = dict(host) if isinstance(host, Mapping) else {}
    link = said.get("link")
    said |= {f"link.{name}": value for name, value in link.items()} if isinstance(link, Mapping) else {}
    given = [name for name in UNREAD if said.get(name) is not None]
    return tuple(NotModelled(option=f"{fields.spot('host')}.{name}", why=UNREAD[name]) for name in given)


def _sockets(fields: Fields, scaleup: Link, usual: int) -> int:
    sockets = fields.whole("sockets", usual, most=MOST_SOCKETS)
    if scaleup.direct and fields.raw("sockets", None) is not None:
        message = f"says nothing where {scaleup.name} joins the chips, past their processors"
        raise InputError(message, where=fields.spot("sockets"), hint="Leave it out.")
    return sockets


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
    if spot and not cloud:
        said = "price_usd_h is the price" if own is not None else "no cloud is named"
        hint = "Name the cloud whose spot price it is, as in cloud: aws, or leave it out."
        raise InputError(f"true says nothing where {said}", where=fields.spot("spot"), hint=hint)
    if own is not None:
        usd_h, source = fields.number("price_usd_h"), where
        low, high = RANGES["price_usd_h"]
        if not low <= usd_h <= high:
            told = f"{shown(usd_h)} is not between {low:g} and {high:g}, for one chip an hour"
            raise InputError(told, where=fields.spot("price_usd_h"))
    elif cloud:
        try:
            price = catalog.price_at(chip.name, cloud, region, spot=spot)
        except GnomonError as error:
            error.where = error.where or fields.spot("region" if region and cloud in catalog.cloud_names() else "cloud")
            raise
        usd_h, source = (
            price.usd_h,
            f"{price.cloud}, region {price.region}, {price.kind}: {price.source} ({price.date})",
        )
    else:
        return chip
    return replace(chip, price_usd_h=usd_h, sources={**chip.sources, "price_usd_h": source})


def _grid(fields: Fields) -> PowerGrid | None:
    """The grid that is named, else the one of the region; a region that is not priced says nothing but that."""
    named, region = fields.text("grid", ""), fields.text("region", "")
    priced = bool(fields.text("cloud", ""))
    if named and region and not priced:
        hint = "Name the cloud whose region it is, or leave it out."
        raise InputError(
            f"'{region}' says nothing beside a grid, without a cloud", where=fields.spot("region"), hint=hint
        )
    if named:
        with named_by(fields.spot("grid")):
            return catalog.grid(named)
    if not region:
        return None
    try:
        return catalog.grid(region)
    except GnomonError as error:
        if priced:  # the region was found among the cloud's prices
            return None
        error.where = fields.spot("region")
        raise
