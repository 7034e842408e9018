"""Training with feed-forward weights of which two in every four are zero."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from gnomon.engines.training import RankMemory
from gnomon.engines.training.case import TrainingCase
from gnomon.graph.layers import NodePass, Writer
from gnomon.graph.ops import Elementwise, Gemm, Op
from gnomon.graph.tape import TapeNode
from gnomon.spec import DenseFfn
from gnomon.spec.chip import HALVES
from gnomon.techniques.base import TRAINING, Rejection, Technique, Trial, Values

SPARSE = "bf16-sparse"
HALF_BYTES, SPARSE_BYTES = 2.0, 1.125
"""Of a weight, and of its values and places where half of them are left."""
SIDES = 2
"""A pattern that holds for a matrix and its transpose is packed for both GEMMs."""
FEED_FORWARD = ("ffn.up", "ffn.gate", "ffn.down")


class SparseTraining(Technique[TrainingCase]):
    name = "sparse-training"
    work = (TRAINING,)
    title = "Feed-forwards trained with two of every four weights zero"
    idea = (
        "Feed-forward weights are pruned to a 2:4 pattern that holds for the matrix and its transpose, so that GEMMs "
        "forward and by input run on sparse tensor cores; gradients by weight stay dense, every forward pass prunes "
        "and packs the weights again, and training converges to something else."
    )
    trials = (Trial(paper="sparse24-pretraining", words="sparse-training"),)
    excludes = ("lora", "qlora", "dora", "zeroth-order")
    searched = False
    """What it makes of training is not predicted, and it is always faster."""
    changes = frozenset()

    def reject(self, case: TrainingCase, values: Values) -> Iterator[Rejection]:
        chip, model = case.pool.chip, case.model
        yield not chip.sparse_flops.keys() & set(HALVES[:2]), f"{chip.name} has no sparse rate in 16 bits"
        yield case.dtype not in HALVES[:2], f"sparse GEMMs are priced in 16 bits, not {case.dtype}"
        dense = any(isinstance(block.ffn, DenseFfn) for block in model.blocks)
        yield not dense, f"{model.name} has no dense feed-forwards"

    def program(self, case: TrainingCase, values: Values) -> NodePass:
        def sparse(part: str, nodes: list[TapeNode], writer: Writer) -> list[TapeNode]:
            return [_sparse(node, writer) for node in nodes] if part == "layer" else nodes

        return sparse

    def memory(self, used: RankMemory, case: TrainingCase, values: Values) -> RankMemory:
        """Packed weights stay from the forward pass to the backward pass."""
        model, grid = case.model, case.plans
        packed = sum(
            block.count * block.ffn.parameters(model.hidden)
            for block in model.blocks
            if isinstance(block.ffn, DenseFfn)
        )
        each = SIDES * SPARSE_BYTES * packed / (grid.tp * grid.pp)
        return replace(used, weights=np.asarray(used.weights + each))


def _sparse(node: TapeNode, writer: Writer) -> TapeNode:
    gemm = next((op for op in node.forward if isinstance(op, Gemm)), None)
    if node.name not in FEED_FORWARD or gemm is None or gemm.dtype not in HALVES[:2]:
        return node
    assert isinstance(gemm.n, int) and isinstance(gemm.k, int)
    pruned = Elementwise(
        name=f"{gemm.name}.prune", rows=gemm.n * gemm.k, read_per_row=HALF_BYTES,
        written_per_row=SIDES * SPARSE_BYTES, count=gemm.count,
    )  # fmt: skip
    narrow = replace(gemm, dtype=SPARSE)
    back = replace(narrow, name=f"{gemm.name}.by_input", n=gemm.k, k=gemm.n)
    by_weight: Op = replace(
        gemm, name=f"{gemm.name}.by_weight", m=gemm.n, n=gemm.k, k=gemm.m, out_dtype=writer.style.gradient_dtype
    )
    forward = tuple(new for op in node.forward for new in ((pruned, narrow) if op is gemm else (op,)))
    return replace(node, forward=forward, dgrad=(back,), wgrad=(by_weight,))


TECHNIQUES = (SparseTraining(),)
