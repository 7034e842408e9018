"""Published collectives over several nodes: tokens sent to experts by DeepEP, and the smallest messages of NCCL."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from gnomon import catalog
from gnomon.calibrate.truth import number, rows
from gnomon.cost import collective, experts, nccl, token_once
from gnomon.graph.routing import TokenRouting
from gnomon.load import parse_pool
from gnomon.spec.workload import Floats

BLOCKS = 20
"""Thread blocks that DeepEP and Megatron-LM's flex dispatcher use by default."""
DISPATCHED, SUMMED = 1.03, 2.0
"""Bytes of an element there, in fp8 with its scales, and back."""
CHIPS = {"a100_dgx": "A100", "h100_dgx": "H100", "a40_pairwise_nvlink": "A40", "a100_pairwise_nvlink": "A100"}
"""Machines whose two nodes were measured; the rows of a fifth are copies of another's."""
SMALL = 32 * 1024
TWO_NODES = Path(__file__).parents[1] / "measurements" / "published" / "two_nodes.csv"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeExchange:
    """Tokens sent to experts of other nodes, or back, by one rank."""

    op: str
    tokens: float
    nodes: int
    payload: Floats
    routing: TokenRouting
    inner: token_once.Level
    outer: token_once.Level
    seconds: float

    def by(self, c: dict[str, float]) -> float:
        """Seconds by the given figures."""
        return float(token_once.by(c, self.payload, self.routing, self.inner, self.outer)[0])


@cache
def node_exchanges(folder: Path) -> tuple[NodeExchange, ...]:
    """DeepEP's kernels for many tokens on H100 nodes, at its usual number of thread blocks."""
    chip, found = catalog.chip("H100"), []
    for row in rows(folder, "collectives"):
        if row["op"] not in (experts.DISPATCH, experts.COMBINE) or row["impl"] != f"normal sms={BLOCKS}":
            continue
        if row["gpu"] != chip.name or row["n_nodes"] in ("", "1") or not row["time_us"]:
            continue
        nodes, tokens, topk = int(row["n_nodes"]), number(row, "tokens"), int(row["topk"])
        width = DISPATCHED if row["op"] == experts.DISPATCH else SUMMED
        one = NodeExchange(
            op=row["op"],
            tokens=tokens,
            nodes=nodes,
            payload=np.array([tokens * topk * number(row, "hidden") * width]),
            routing=TokenRouting(experts=int(row["experts"]), topk=topk),
            inner=(int(row["n_gpus"]) // nodes, chip.scaleup),
            outer=(nodes, chip.scaleout),
            seconds=number(row, "time_us") * 1e-6,
        )
        found.append(one)
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallMessage:
    """A message of a few KiB between two nodes; `base_s` is its price without what a network adds to every one."""

    machine: str
    op: str
    ranks: int
    base_s: float
    seconds: float


@cache
def small_messages(folder: Path) -> tuple[SmallMessage, ...]:
    """NCCL's, up to 32 KiB, from the published tables and from single threads."""
    found = []
    for row in rows(folder, "collectives"):
        if row["n_nodes"] != "2" or row["impl"] not in CHIPS or not row["bytes"] or number(row, "bytes") > SMALL:
            continue
        op, ranks, size = row["op"], int(row["n_gpus"]), np.array([number(row, "bytes")])
        pool = parse_pool(f"{CHIPS[row['impl']]}:16")
        priced = collective.seconds(op, size, ranks, pool, library="nccl", nodes=2)[0]
        found.append(
            SmallMessage(
                machine=row["impl"],
                op=op,
                ranks=ranks,
                base_s=float(priced) - nccl.network_s(op),
                seconds=number(row, "time_us") * 1e-6,
            )
        )
    return (*found, *_listed())


def _listed(file: Path = TWO_NODES) -> Iterator[SmallMessage]:
    with file.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            op, each, size = row["op"], int(row["per_node"]), np.array([number(row, "bytes")])
            inside = nccl.level(op, size, each, catalog.chip(row["gpu"]).scaleup)[0]
            across = nccl.level(op, size / each, 2, catalog.link(row["wire"]), network=True)[0]
            base_s = float(inside + across) - nccl.network_s(op)
            took = number(row, "time_us") * 1e-6
            yield SmallMessage(machine=row["gpu"], op=op, ranks=2 * each, base_s=base_s, seconds=took)
