"""Published collectives inside a node, by chip, library and link, without the rows that measured something else.

Left out are rows of several nodes, rank counts that no node has, times that beat the link, times that a larger message
of the same group was well below, and octaves of sizes in which times differ by more than twice: there the host was
measured, or somebody else's traffic.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from gnomon import catalog
from gnomon.calibrate.truth import Row, number, rows
from gnomon.cost import experts
from gnomon.cost.nccl import PASSES, WHOLE
from gnomon.errors import UnknownNameError
from gnomon.graph.ops import Shape
from gnomon.spec import Chip, Link
from gnomon.spec.cluster import ACROSS_SOCKETS, BETWEEN_BRIDGES
from gnomon.spec.workload import Floats

OPS = {
    "alltoall": "all_to_all",
    "sendrecv": "send_recv",
    "alltoall_dispatch": experts.DISPATCH,
    "alltoall_combine": experts.COMBINE,
    "alltoall_prepare": experts.PREPARE,
}
"""Operators of the published tables, and Gnomon's names of them; lower precision is in the format."""
PAIRED = {"a100_pairwise_nvlink": "PCIe 4.0 x16", "h100_pairwise_nvlink": "PCIe 5.0 x16"}
"""Machines where only pairs have NVLink: what more than two ranks cross."""
COPIED = ("h100_pairwise_nvlink", "send_recv")
"""These rows are those of the A100 machine, to the digit."""
EAGER = "_eager"
"""Launched one by one: no time is under 17 us on any chip, so that the host is what was measured."""
MOST_RANKS = 72
LEAST_JUMPY = 10
"""Rows of an octave that show how they scatter."""
BEATEN = 1.25
"""A message that takes so much longer than a larger one was not measured alone."""
WIDTHS = {
    "": 1.03, "default": 1.03, "fp8": 1.03, "bfloat16": 2.0, "nvfp4": 0.5625, "fp4": 0.5625,
}  # fmt: skip
"""Bytes of an element that is sent to experts, with its scales; DeepEP sends fp8 where nothing else is said."""
LOW = "_low_precision"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One operator among so many ranks; NCCL cannot add up int8 in the switch."""

    op: str
    ranks: int
    plain: bool
    payload: Floats
    seconds: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Collectives:
    """One library on one link of one chip."""

    source: str
    chip: str
    library: str
    impl: str
    link: Link
    groups: tuple[Group, ...]
    left_out: int

    @property
    def rows(self) -> int:
        return sum(group.seconds.size for group in self.groups)

    @property
    def name(self) -> str:
        return " ".join(word for word in (self.chip, self.library, self.impl, f"over {self.link.name}") if word)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchanges:
    """Tokens sent to experts or back, by one library on one chip, with any number of thread blocks."""

    chip: Chip
    library: str
    op: str
    columns: Shape
    seconds: Floats

    @property
    def name(self) -> str:
        return f"{self.chip.name} {self.library} {self.op}"


@cache
def collectives(folder: Path) -> tuple[Collectives, ...]:
    """The tables of collectives proper."""
    found: dict[tuple[str, ...], dict[tuple[str, int, bool], list[tuple[float, float]]]] = {}
    for row in rows(folder, "collectives"):
        op, link = OPS.get(row["op"], row["op"]), _link(row)
        if op not in PASSES or not row["bytes"] or row["impl"].endswith(EAGER) or (row["impl"], op) == COPIED:
            continue
        if link is None or not _inside(row):
            continue
        ranks, key = int(row["n_gpus"]), (row["source"], row["gpu"], row["library"], row["impl"], link.name)
        payload = number(row, "bytes") * (ranks if row["impl"] == "oneCCL" and op == "all_gather" else 1)
        plain = op == "all_reduce" and row["dtype"] == "int8"
        group = found.setdefault(key, defaultdict(list))[op, ranks, plain]
        group.append((payload, number(row, "time_us") * 1e-6))
    return tuple(_collectives(key, found[key]) for key in sorted(found))


def _inside(row: Row) -> bool:
    return row["n_nodes"] in ("", "1") and 2 <= number(row, "n_gpus") <= MOST_RANKS and number(row, "time_us") > 0


def _link(row: Row) -> Link | None:
    if row["impl"] in PAIRED and row["n_gpus"] != "2":
        link = catalog.link(PAIRED[row["impl"]])
        return replace(link, name=link.name + BETWEEN_BRIDGES)
    try:
        return catalog.chip(row["gpu"]).scaleup
    except UnknownNameError:
        return None


def _collectives(
    key: tuple[str, ...], times: Mapping[tuple[str, int, bool], Iterable[tuple[float, float]]]
) -> Collectives:
    source, chip, library, impl, name = key
    usual = catalog.link(name.removesuffix(BETWEEN_BRIDGES))
    link, groups, left = replace(usual, name=name), [], 0
    for (op, ranks, plain), pairs in sorted(times.items()):
        payload, took = np.array(sorted(pairs)).T
        later = np.minimum.accumulate(took[::-1])[::-1]
        sound = (payload > 0) & (took <= BEATEN * later) & (took >= _least(op, payload, ranks, link))
        sound &= ~_jumpy(payload, took)
        left += int((~sound).sum())
        groups.append(Group(op=op, ranks=ranks, plain=plain, payload=payload[sound], seconds=took[sound]))
    return Collectives(
        source=source, chip=chip, library=library, impl=impl, link=link, groups=tuple(groups), left_out=left
    )


def _jumpy(payload: Floats, took: Floats) -> np.ndarray[Any, Any]:
    """Rows of an octave in which times differ by more than their bytes: there the host was measured."""
    octave = np.floor(np.log2(np.maximum(payload, 1.0)))
    found = np.zeros(took.size, bool)
    for one in np.unique(octave):
        among = octave == one
        if among.sum() >= LEAST_JUMPY:
            quick, slow = np.quantile(took[among], (0.05, 0.95))
            found[among] = slow > 2 * quick
    return found


def _least(op: str, payload: Floats, ranks: int, link: Link) -> Floats:
    """What the wires alone take; a switch that adds up halves it."""
    share = 1.0 if op in WHOLE else (ranks - 1) / ranks
    return np.asarray(share * payload / link.bandwidth_bytes_s)


PCIE_ROWS = Path(__file__).parents[1] / "measurements" / "published" / "pcie.csv"
PATHS = {"socket": "", "sockets": ACROSS_SOCKETS, "switch": ""}
"""What a group of cards without NVLink crossed: one processor, both, or switches alone."""


@cache
def pcie_tables(file: Path = PCIE_ROWS) -> tuple[Collectives, ...]:
    """Published times of NCCL among cards without NVLink, one table a machine, its settings and a path."""
    found: dict[tuple[str, ...], dict[tuple[str, int], list[tuple[float, float]]]] = {}
    with file.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            key = tuple(row[name] for name in ("source", "gpu", "settings", "machine", "link", "path"))
            group = found.setdefault(key, defaultdict(list))[row["op"], int(row["ranks"])]
            group.append((number(row, "bytes"), number(row, "time_us") * 1e-6))
    return tuple(_pcie_table(key, found[key]) for key in sorted(found))


def _pcie_table(key: tuple[str, ...], times: Mapping[tuple[str, int], list[tuple[float, float]]]) -> Collectives:
    source, gpu, settings, machine, name, path = key
    link = catalog.link(name)
    groups = []
    for (op, ranks), pairs in sorted(times.items()):
        payload, took = np.array(sorted(pairs)).T
        groups.append(Group(op=op, ranks=ranks, plain=False, payload=payload, seconds=took))
    return Collectives(
        source=source,
        chip=gpu,
        library=f"nccl, {settings}",
        impl=machine,
        link=replace(link, name=link.name + PATHS[path]),
        groups=tuple(groups),
        left_out=0,
    )


@cache
def exchanges(folder: Path) -> tuple[Exchanges, ...]:
    """The tables of tokens sent to experts inside a node, or a rack that is one."""
    found: dict[tuple[str, str, str], list[tuple[float, ...]]] = defaultdict(list)
    for row in rows(folder, "collectives"):
        op = OPS.get(row["op"].removesuffix(LOW), row["op"])
        if op not in (experts.DISPATCH, experts.COMBINE, experts.PREPARE) or not row["tokens"] or not _inside(row):
            continue
        library = f"{row['library']} {row['impl'].partition(' ')[0]}"
        if "low_latency" in row["impl"] or row["library"].endswith("_ll"):
            continue
        kept = tuple(number(row, name) for name in ("tokens", "hidden", "topk", "experts", "n_gpus"))
        low = row["op"].endswith(LOW)
        library += f" {row['dtype']}" if row["dtype"] else ""
        found[row["gpu"], library + LOW * low, op].append(
            (*kept, _width(op, row["dtype"], low), _blocks(row["impl"]), number(row, "time_us") * 1e-6)
        )
    return tuple(_exchanges(key, found[key]) for key in sorted(found))


def _width(op: str, dtype: str, low: bool) -> float:
    if op == experts.PREPARE:
        return 0.0
    return experts.SUMMED if op == experts.COMBINE and not low else WIDTHS[dtype]


def _blocks(impl: str) -> float:
    _, told, count = impl.partition("sms=")
    return float(count) if told else experts.BLOCKS


def _exchanges(key: tuple[str, str, str], found: Iterable[tuple[float, ...]]) -> Exchanges:
    names = ("tokens", "hidden", "topk", "experts", "ranks", "width", "blocks", "seconds")
    columns = dict(zip(names, np.array(sorted(found)).T, strict=True))
    chip, library, op = key
    return Exchanges(chip=catalog.chip(chip), library=library, op=op, seconds=columns.pop("seconds"), columns=columns)
