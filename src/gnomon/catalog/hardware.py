"""Chips by name, as their data sheets and drivers describe them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from itertools import takewhile
from typing import Any

from gnomon.catalog import machines
from gnomon.catalog.book import Book, squash
from gnomon.catalog.figures import MIB, SheetFigures
from gnomon.errors import UnknownNameError, near_names, unknown_name
from gnomon.spec import Chip, Link, Node


def chips() -> tuple[Chip, ...]:
    """Every chip that ships with Gnomon, in the order of the files. Parses them all; `chip` parses one."""
    return tuple(map(_chip, chip_names()))


def chip_names() -> tuple[str, ...]:
    return _book().names


def chip_spellings() -> Mapping[str, str]:
    """Every name and alias as written, with the name of the chip it stands for."""
    return _book().spellings


def find_chip(name: str) -> str | None:
    """The name of the chip that a spelling stands for, where it is known."""
    return _book().find(name)


def chip(name: str) -> Chip:
    """The chip of a name or an alias (`H100`, `nvidia h200`, ...)."""
    found = find_chip(name)
    if found is None:
        raise unknown_chip(name, chip_spellings())
    return _chip(found)


def unknown_chip(name: str, spellings: Mapping[str, str]) -> UnknownNameError:
    """An error that names the chips whose spellings are nearest."""
    hits = near_names(name, spellings, most=24)
    hits.sort(key=lambda hit: _shared(squash(hit), squash(name)), reverse=True)
    near = tuple(dict.fromkeys(spellings[hit] for hit in hits))
    names = tuple(dict.fromkeys(spellings.values()))
    hint = f"`gnomon chips` lists {len(names)}; `gnomon chips new` describes your own."
    return unknown_name("chip", name, names, near=near[:3], hint=hint)


def _shared(left: str, right: str) -> int:
    """How many letters two names begin with in common."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=False)))


def chip_from_entry(entry: Mapping[str, Any], file: str = "") -> Chip:
    """A chip from the fields of a file; its links are those of the node it names."""
    figures = SheetFigures(entry)
    node = machines.bare_node(entry["node"])
    scaleup, size = _scaleup(entry, node, figures), _size(entry, node, figures)
    bridge, bridge_size = _bridge(entry, figures)
    return Chip(
        name=entry["name"],
        vendor=entry["vendor"],
        architecture=entry["architecture"],
        year=int(entry.get("year", 0)),
        rates_flops=figures.table("rates_tflops", "rates_flops", 12),
        sparse_flops=figures.table("sparse_tflops", "sparse_flops", 12),
        memory=entry.get("memory", ""),
        memory_bytes=figures.binary("memory_mib", "memory_bytes", MIB),
        memory_bandwidth_bytes_s=figures.take("memory_gb_s", "memory_bandwidth_bytes_s", 9),
        l2_bytes=figures.binary("l2_mib", "l2_bytes", MIB),
        sm_count=figures.whole("processors", "sm_count"),
        boost_hz=figures.take("boost_mhz", "boost_hz", 6),
        tdp_w=figures.take("tdp_w", "tdp_w"),
        idle_w=figures.take("idle_w", "idle_w"),
        scaleup=scaleup,
        scaleup_size=size,
        scaleout=_scaleout(replace(node, chips=size, adapters=_adapters(node, size)), figures),
        bridge=bridge,
        bridge_size=bridge_size,
        node=node.name,
        price_usd_h=figures.take("price_usd_h", "price_usd_h"),
        aliases=tuple(map(str, entry.get("aliases", ()))),
        note=entry.get("note", ""),
        unified=entry.get("unified", False),
        sources=figures.sources,
        confidence=figures.confidence,
        file=file,
    )


def node_of(chip: Chip) -> Node:
    """The node a chip is usually bought in, with the chip's own links."""
    usual = machines.node(chip.node)
    size = chip.scaleup_size
    return replace(usual, chips=size, adapters=_adapters(usual, size), scaleup=chip.scaleup)


def _adapters(node: Node, size: int) -> int:
    """As many a chip as the node has, where a chip comes in smaller or larger ones."""
    return max(1, round(node.adapters * size / node.chips))


def _scaleup(entry: Mapping[str, Any], node: Node, figures: SheetFigures) -> Link:
    _noted(figures, "scaleup", machines.link_figures(node.scaleup.name))
    if "scaleup_gb_s" not in entry:
        return node.scaleup
    return replace(node.scaleup, bandwidth_bytes_s=figures.take("scaleup_gb_s", "scaleup.bandwidth_bytes_s", 9))


def _size(entry: Mapping[str, Any], node: Node, figures: SheetFigures) -> int:
    if "scaleup_size" in entry:
        return figures.whole("scaleup_size", "scaleup_size")
    _copied(figures, "scaleup_size", node, "chips")
    return node.chips


def _scaleout(node: Node, figures: SheetFigures) -> Link:
    _noted(figures, "scaleout", machines.link_figures(node.adapter.name))
    _copied(figures, "scaleout.bandwidth_bytes_s", node, "adapters")
    return node.scaleout


def _bridge(entry: Mapping[str, Any], figures: SheetFigures) -> tuple[Link | None, int]:
    given = entry.get("bridge")
    if not given:
        return None, 1
    figures.note("bridge", "bridge.bandwidth_bytes_s")
    usual = machines.link(given["link"])
    bandwidth = float(given["gb_s"]) * 1e9 if "gb_s" in given else usual.bandwidth_bytes_s
    return replace(usual, bandwidth_bytes_s=bandwidth), int(given["size"])


def _noted(figures: SheetFigures, under: str, link: SheetFigures) -> None:
    figures.sources |= {f"{under}.{key}": source for key, source in link.sources.items()}
    figures.confidence |= {f"{under}.{key}": known for key, known in link.confidence.items()}


def _copied(figures: SheetFigures, name: str, node: Node, key: str) -> None:
    figures.sources[name] = node.sources[key]
    figures.confidence.pop(name, None)
    if key in node.confidence:
        figures.confidence[name] = node.confidence[key]


@cache
def _book() -> Book:
    return Book("chips")


@cache
def _chip(name: str) -> Chip:
    return chip_from_entry(_book().entry(name))
