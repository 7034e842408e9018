"""What a step runs forward."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from gnomon.graph.ops import Op
from gnomon.graph.passes.quantise import quantised
from gnomon.graph.style import NOTHING
from gnomon.graph.tape import TapeNode


def forward_ops(nodes: Iterable[TapeNode], count: int = 1) -> Iterator[Op]:
    """Of so many equal layers, but for kernels that are part of others."""
    for node in nodes:
        if node.kernel is not None and node.kernel[0] is NOTHING:
            continue
        for op in node.forward:
            yield from quantised(op if count == 1 else replace(op, count=op.count * count))
