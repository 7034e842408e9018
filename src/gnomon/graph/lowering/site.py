"""Where an operator stands: what every part needs to know of the layer around it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gnomon.graph.dtypes import width
from gnomon.graph.formats import gemm_dtype
from gnomon.graph.ops import TOKENS, Collective, Op
from gnomon.spec import Block, Strategy
from gnomon.spec.formats import PLAIN_BITS

STATE = "bf16"
"""Activations between operators stay in this format whatever the weights are in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Equal layers of a stream `hidden` wide, cut by a strategy, with weights and cache in their formats."""

    block: Block
    hidden: int
    strategy: Strategy
    dtype: str
    kv_dtype: str

    @property
    def count(self) -> int:
        return self.block.count

    @property
    def tp(self) -> int:
        return self.strategy.tp

    def gemm_dtype(self, role: str) -> str:
        """The format of the GEMM with a matrix, by its role (`graph.dtypes`). A shared expert's matrices have roles of
        their own beside those of a dense feed-forward."""
        formats = dict(self.block.formats)
        format = formats.get(role) or formats.get(f"shared_{role}")
        if format is not None:
            return gemm_dtype(format)
        return self.dtype if self.dtype in PLAIN_BITS else STATE


def all_reduce(name: str, site: Site, values: int | None = None) -> Iterator[Op]:
    """Partial sums of the tensor-parallel ranks, reduced: of the stream, or of so many values per token."""
    if site.tp > 1:
        size = (site.hidden if values is None else values) * width(STATE)
        yield Collective(name=name, op="all_reduce", rows=TOKENS, bytes_per_row=size, ranks=site.tp, count=site.count)
