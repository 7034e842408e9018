"""Sequence parallelism as a pass: tensor-parallel ranks part the tokens between their products.

Each all-reduce becomes a reduce-scatter and an all-gather of the same bytes, and the norm between them runs on a rank's
own tokens. vLLM has the pass (`pass_config.enable_sp`), off by default, for dense models of 8,192 channels and more and
steps of thousands of tokens.
"""

from __future__ import annotations

from dataclasses import replace

from gnomon.graph.base import Graph
from gnomon.graph.ops import TOKENS, Collective, Elementwise, Op, Rows


def sequence_parallel(graph: Graph, tp: int) -> Graph:
    def change(op: Op) -> tuple[Op, ...]:
        if isinstance(op, Collective) and op.op == "all_reduce" and op.rows == TOKENS and op.ranks == tp:
            stem = op.name.removesuffix("all_reduce")
            scatter = replace(op, name=f"{stem}reduce_scatter", op="reduce_scatter")
            return scatter, replace(op, name=f"{stem}all_gather", op="all_gather")
        if isinstance(op, Elementwise) and op.name.endswith(".norm") and op.rows == TOKENS:
            return (replace(op, rows=Rows("tokens", 1 / tp)),)
        return (op,)

    return graph if tp == 1 else graph.rewrite(change)
