"""Writes docs/hardware.md from the catalog: `python -m tests.golden.hardware`. The test beside it keeps it true."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

from gnomon import catalog
from gnomon.api.known import chips as listed
from gnomon.spec import Chip

PAGE = Path(__file__).parents[2] / "docs" / "hardware.md"

INTRO = (
    "# Hardware",
    "What Gnomon knows by name, written by `make hardware` from `src/gnomon/catalog/data`. `gnomon chips` lists the "
    "chips, `gnomon chips show NAME` opens one up with the source, date and confidence of every figure, "
    "`gnomon chips new NAME` begins a file for your own (see [formats](formats.md)).",
    "- Rates are dense, in TFLOP/s, of tensor cores with fp32 accumulation where there are any; 16 bit is bf16 unless "
    "it says fp16. Sparse rates are kept apart and price nothing.\n"
    "- Memory is what the driver reports where that is known.\n"
    '- Links are one direction, one chip. "in a node" is the link and how many chips it joins, "between nodes" a '
    "chip's share of the network adapters.\n"
    '- "known" counts the figures read in a data sheet or off the chip, of all; the others are recalled, estimated or '
    "announced, and say so in `gnomon chips show`.\n"
    "- Prices are medians over clouds, or orders of magnitude; `prices.csv` beside the chips' files has them by cloud, "
    "`grids.yaml` the carbon of their electricity.\n",
)


def page() -> str:
    names = [str(chip["name"]) for chip in listed().chips]
    shipped = [catalog.chip(name) for name in names]
    parts = ["\n\n".join(INTRO), f"## Chips ({len(shipped)})\n"]
    for vendor, members in groupby(shipped, key=lambda chip: chip.vendor):
        parts += [f"### {vendor}\n", _table(CHIP_HEAD, map(_chip, members))]
    parts += ["## Nodes\n", NODES, _table(NODE_HEAD, map(_node, catalog.node_names()))]
    parts += ["## Links\n", _table(LINK_HEAD, map(_link, catalog.link_names()))]
    parts += ["## Hosts\n", HOSTS, _table(HOST_HEAD, map(_host, catalog.host_names()))]
    return "\n".join(parts)


CHIP_HEAD = (
    "chip", "architecture", "memory", "GB/s", "16 bit", "fp8", "fp4", "int8", "W", "in a node", "between nodes", "$/h",
    "known",
)  # fmt: skip


def _chip(chip: Chip) -> Sequence[str]:
    rates = chip.rates_flops
    read = len(chip.sources) - len(chip.confidence)
    return (
        chip.name,
        f"{chip.architecture} {chip.year}",
        f"{chip.memory_bytes / 2**30:.1f} GiB {chip.memory}",
        f"{chip.memory_bandwidth_bytes_s / 1e9:,.0f}",
        ("" if "bf16" in rates else "fp16 ") + _rate(rates[chip.half]),
        *(_rate(rates.get(dtype, 0.0)) for dtype in ("fp8", "fp4", "int8")),
        f"{chip.tdp_w:,.0f}",
        f"{chip.scaleup_size} x {chip.scaleup.name}, {_gb_s(chip.scaleup.bandwidth_bytes_s)}",
        f"{chip.scaleout.name}, {_gb_s(chip.scaleout.bandwidth_bytes_s)}",
        f"{chip.price_usd_h:.2f}",
        f"{read} of {len(chip.sources)}",
    )


NODES = "`node:` of a chip's or a cluster's file names one of these.\n"
NODE_HEAD = ("node", "also", "chips", "joined by", "adapters", "host")


def _node(name: str) -> Sequence[str]:
    node = catalog.node(name)
    bridged = ", bridges fitted" if node.bridged else ""
    adapters = f"{node.adapters:,} x {node.adapter.name}"
    host = node.host.name if node.host else ""
    return name, ", ".join(node.aliases), f"{node.chips:,}", f"{node.scaleup.name}{bridged}", adapters, host


LINK_HEAD = ("link", "GB/s", "latency")


def _link(name: str) -> Sequence[str]:
    link = catalog.link(name)
    return name, _gb_s(link.bandwidth_bytes_s).removesuffix(" GB/s"), f"{link.latency_s * 1e6:g} us"


HOSTS = "Figures are per host; chips behind one uplink share it. Adam: parameters that its cores update per second.\n"
HOST_HEAD = ("host", "cores", "memory", "GB/s", "Adam", "disks", "to a chip")


def _host(name: str) -> Sequence[str]:
    host = catalog.host(name)
    shared = f", {host.link_sharing} share it" if host.link_sharing > 1 else ""
    return (
        name,
        f"{host.cores:,}",
        f"{host.memory_bytes / 2**30:,.0f} GiB",
        f"{host.memory_bandwidth_bytes_s / 1e9:,.0f}",
        f"{host.adam_parameters_s / 1e9:g}e9",
        f"{host.nvme_bytes / 1e12:g} TB, {host.nvme_read_bytes_s / 1e9:g} / {host.nvme_write_bytes_s / 1e9:g} GB/s",
        f"{host.link.name}{shared}",
    )


def _rate(flops: float) -> str:
    return "" if not flops else f"{flops / 1e12:,.0f}" if flops >= 1e13 else f"{flops / 1e12:.1f}"


def _gb_s(bandwidth: float) -> str:
    return f"{bandwidth / 1e9:,.4g} GB/s" if bandwidth < 1e12 else f"{bandwidth / 1e9:,.0f} GB/s"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"{PAGE.name}: {len(catalog.chip_names())} chips")
