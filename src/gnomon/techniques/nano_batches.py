"""Nano-batches: GEMMs, decode attention and collectives of two parts of a batch run at once, on shares of the SMs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np

from gnomon.cost.step import StepModel
from gnomon.engines.base import ServingCase
from gnomon.graph.host_ops import HostExperts
from gnomon.graph.layers import NodePass, Writer
from gnomon.graph.ops import Collective, Op, Rows
from gnomon.graph.sizes import TOKENS
from gnomon.graph.tape import TapeNode
from gnomon.spec.workload import Floats
from gnomon.techniques.base import SERVING, Parameter, Rejection, Technique, Trial, Values

COMPUTE, MEMORY, NETWORK = range(3)
MEMORY_SPEED = ((0.0, 0.1, 0.2, 0.8, 0.9, 1.0), (0.0, 0.2, 0.3, 0.85, 0.95, 1.0))
NETWORK_SPEED = ((0.0, 0.1, 0.2, 0.8, 0.9, 1.0), (0.0, 0.3, 0.5, 0.9, 1.0, 1.0))
"""Speed of decode attention and of collectives by their share of the SMs, relative to all of them, beside GEMMs whose
speed is their share: measured on A100s (arXiv:2408.12757v2, section 4), and straight between the points."""
ENDS = ("embedding", "head.")
TINY = 1e-9


@lru_cache(maxsize=1)
def corners() -> Floats:
    """Prices of a second of each lane, one row per corner: what lanes take together is the most that any row says.

    A step is a mixture of ways to share the SMs, each for so long that every lane is done; ways between the points of
    the curves are mixtures of those at them. The shortest step is a linear program, and these are the corners of its
    dual: `max y.t` over `y >= 0` with `speed y <= 1` for every way.
    """
    ways = [
        (1 - memory - network, read, sent)
        for memory, read in zip(*MEMORY_SPEED, strict=True)
        for network, sent in zip(*NETWORK_SPEED, strict=True)
        if memory + network <= 1 + TINY
    ]
    speeds = np.clip(np.array(ways), 0.0, 1.0)
    limits = np.vstack([speeds, -np.eye(3)])
    most = np.append(np.ones(len(ways)), np.zeros(3))
    chosen = np.array(list(combinations(range(len(limits)), 3)))
    solvable = np.abs(np.linalg.det(limits[chosen])) > TINY
    points = np.linalg.solve(limits[chosen[solvable]], most[chosen[solvable]][:, :, None])[:, :, 0]
    allowed = (points @ limits.T <= most + TINY).all(axis=1)
    return np.unique(np.maximum(points[allowed], 0.0).round(12), axis=0)


@dataclass(frozen=True, slots=True)
class Shared:
    """Lanes by what operators wait for: tensor cores, memory (decode attention), network."""

    lanes: int = 3
    decode: int = MEMORY
    prefill: int = COMPUTE

    def lane(self, op: Op) -> int | None:
        if op.name.startswith(ENDS):
            return None
        return NETWORK if isinstance(op, Collective) else COMPUTE

    def exposed(self, lanes: Floats) -> Floats:
        """GEMMs as long as they take alone; the other lanes share what the step takes beyond."""
        step = (corners() @ lanes).max(axis=0)
        beside = lanes[MEMORY] + lanes[NETWORK]
        share = np.divide(step - lanes[COMPUTE], beside, out=np.zeros_like(beside), where=beside > 0)
        share = np.clip(share, 0.0, 1.0)
        return np.stack([lanes[COMPUTE], lanes[MEMORY] * share, lanes[NETWORK] * share])


class NanoBatches(Technique[ServingCase]):
    name = "nano-batches"
    work = (SERVING,)
    searched = False
    title = "Nano-batches that overlap compute, memory and network"
    idea = (
        "The tokens of a step are cut into two nano-batches, whose GEMMs, decode attention and collectives run side by "
        "side on shares of the SMs; weights are read once per nano-batch, and each kernel runs slower than alone."
    )
    trials = (Trial(paper="nanoflow", words="nano-batches"),)
    parameters = (
        Parameter(
            "first", "share of a step's tokens in the first nano-batch", default=0.375, low=0.1, high=0.9,
            tried=(0.375, 0.5),
        ),
    )  # fmt: skip
    excludes = ("ladder-residual",)

    def reject(self, case: ServingCase, values: Values) -> Iterator[Rejection]:
        yield case.strategy.dp > 1, "data-parallel ranks that share a replica's steps are not priced with lanes"

    def program(self, case: ServingCase, values: Values) -> NodePass:
        first = float(values["first"])

        def cut(part: str, nodes: list[TapeNode], writer: Writer) -> list[TapeNode]:
            return [replace(node, forward=tuple(_in_two(node.forward, first))) for node in nodes]

        return cut

    def costs(self, found: StepModel, case: ServingCase, values: Values) -> StepModel:
        return replace(found, overlap=Shared())

    def assumed(self, case: ServingCase, values: Values) -> str:
        return "kernels share SMs as on A100s; what one waits for in another nano-batch is not counted"


def _in_two(ops: Sequence[Op], first: float) -> Iterator[Op]:
    """What follows the tokens of a layer once per nano-batch; attention works request by request and stays whole."""
    for op in ops:
        run = op.op if isinstance(op, HostExperts) else op
        sized = [name for name in ("m", "rows", "tokens") if isinstance(getattr(run, name, None), Rows)]
        size = getattr(run, sized[0]) if sized else None
        if size is None or size.of != TOKENS.of or op.name.startswith(ENDS):
            yield op
            continue
        for share in (first, 1 - first):
            part: Any = replace(run, **{sized[0]: replace(size, factor=size.factor * share)})
            yield replace(op, op=part) if isinstance(op, HostExperts) else part


TECHNIQUES = (NanoBatches(),)
