"""What TensorRT-LLM's kernels do on the way, so that no kernel of its own is left for it.

The attention operator turns queries and keys and writes the cache (`torch.ops.trtllm.attention`), and its published
tables time it as a whole. Inputs of GEMMs in fp8 with a stored scale, or in nvfp4, come narrowed out of the norm, the
activation or the attention before them. With several tensor-parallel ranks the residual and the norm are part of the
all-reduce (`AllReduceFusionOp.RESIDUAL_RMS_NORM` and its quantizing forms).
"""

from __future__ import annotations

from gnomon.graph import Graph
from gnomon.graph.ops import Elementwise, Op

ATTENTION = (".rope", ".cache_write")
NARROWED = ("fp8", "nvfp4")
NORMS = ("attention.norm", "ffn.norm")


def fused(graph: Graph, tp: int) -> Graph:
    """The graph without the operators that are part of others."""
    return Graph(tuple(op for op in graph.ops if not _part_of_another(op, tp)))


def _part_of_another(op: Op, tp: int) -> bool:
    if not isinstance(op, Elementwise):
        return False
    return op.name.endswith(ATTENTION) or op.narrows in NARROWED or (tp > 1 and op.name in NORMS)
