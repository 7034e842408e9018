"""Links, hosts and nodes by name: what joins chips, and what stands around them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from gnomon.catalog.book import Book
from gnomon.catalog.figures import GIB, SheetFigures
from gnomon.errors import near_names, unknown_name
from gnomon.spec import Host, Link, Node


def link_names() -> tuple[str, ...]:
    return _links().names


def host_names() -> tuple[str, ...]:
    return _hosts().names


def node_names() -> tuple[str, ...]:
    return _nodes().names


def link(name: str) -> Link:
    """A link between chips, nodes or a chip and its host (`NVLink4`, `InfiniBand NDR`, `pcie 4`)."""
    return _link(_found(_links(), name, "link"))[0]


def link_figures(name: str) -> SheetFigures:
    """A link's sources, under `bandwidth_bytes_s` and `latency_s`."""
    return _link(_found(_links(), name, "link"))[1]


def host(name: str) -> Host:
    return _host(_found(_hosts(), name, "host"))


def node(name: str) -> Node:
    """A machine that chips are bought in (`DGX-H100`, `GB200-NVL72`, `PCIe box of 8`)."""
    found, around = _node(_found(_nodes(), name, "node"))
    return replace(found, host=host(around)) if around else found


def bare_node(name: str) -> Node:
    """A node without its host, which takes longer to read than the rest."""
    return _node(_found(_nodes(), name, "node"))[0]


def link_from_entry(entry: Mapping[str, Any]) -> tuple[Link, SheetFigures]:
    """A link from the fields of a file."""
    figures = SheetFigures(entry)
    found = Link(
        name=entry["name"],
        bandwidth_bytes_s=figures.take("gb_s", "bandwidth_bytes_s", 9),
        latency_s=figures.take("latency_us", "latency_s", -6),
        direct=entry.get("direct", True),
        mesh=entry.get("mesh", False),
    )
    return found, figures


def host_from_entry(entry: Mapping[str, Any], joined: Link) -> Host:
    """A host from the fields of a file, and the link to its chips."""
    figures = SheetFigures(entry)
    figures.note("link", "link")
    return Host(
        name=entry["name"],
        aliases=tuple(entry.get("aliases", ())),
        cores=figures.whole("cores", "cores"),
        memory_bytes=figures.binary("memory_gib", "memory_bytes", GIB),
        memory_bandwidth_bytes_s=figures.take("memory_gb_s", "memory_bandwidth_bytes_s", 9),
        adam_parameters_s=figures.take("adam_gparam_s", "adam_parameters_s", 9),
        nvme_bytes=figures.take("nvme_tb", "nvme_bytes", 12),
        nvme_read_bytes_s=figures.take("nvme_read_gb_s", "nvme_read_bytes_s", 9),
        nvme_write_bytes_s=figures.take("nvme_write_gb_s", "nvme_write_bytes_s", 9),
        link=joined,
        link_sharing=figures.whole("link_sharing", "link_sharing"),
        machines=int(entry.get("machines", 1)),
        sources=figures.sources,
        confidence=figures.confidence,
    )


def _found(entries: Book, name: str, kind: str) -> str:
    found = entries.find(name)
    if found is None:
        near = dict.fromkeys(entries.spellings[hit] for hit in near_names(name, entries.spellings))
        raise unknown_name(kind, name, entries.names, near=tuple(near))
    return found


@cache
def _links() -> Book:
    return Book("links")


@cache
def _hosts() -> Book:
    return Book("hosts")


@cache
def _nodes() -> Book:
    return Book("nodes")


@cache
def _link(name: str) -> tuple[Link, SheetFigures]:
    return link_from_entry(_links().entry(name))


@cache
def _host(name: str) -> Host:
    entry = _hosts().entry(name)
    return host_from_entry(entry, link(entry["link"]))


@cache
def _node(name: str) -> tuple[Node, str]:
    """A node without its host, and the host's name."""
    entry = _nodes().entry(name)
    figures = SheetFigures(entry)
    figures.note("scaleup", "scaleup")
    figures.note("adapter", "adapter")
    found = Node(
        name=name,
        aliases=tuple(entry.get("aliases", ())),
        chips=figures.whole("chips", "chips"),
        scaleup=link(entry["scaleup"]),
        adapter=link(entry["adapter"]),
        adapters=figures.whole("adapters", "adapters"),
        bridged=entry.get("bridged", False),
        sockets=figures.whole("sockets", "sockets") if "sockets" in entry else 1,
        sources=figures.sources,
        confidence=figures.confidence,
    )
    return found, entry.get("host", "")
