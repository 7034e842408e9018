"""Matrices replaced by two thin factors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gnomon.engines.base import RankBytes, ServingCase
from gnomon.graph.layers import NodePass, Writer
from gnomon.graph.ops import Gemm, Op
from gnomon.graph.tape import TapeNode
from gnomon.spec import Block, Model
from gnomon.spec.formats import plain
from gnomon.spec.narrowed import matrices
from gnomon.techniques.base import SERVING, Parameter, Rejection, Technique, Trial, Values

LEAST_RANK = 16
"""Tensor cores work on so many channels at once."""
WHOLE = ("ffn.router", "attention.index_q", "attention.index_k")
"""GEMMs whose matrices stay: what they decide is delicate."""


class LowRankWeights(Technique[ServingCase]):
    name = "low-rank-weights"
    work = (SERVING,)
    title = "Matrices replaced by thin factors"
    idea = (
        "Each matrix of the layers becomes the product of two thin ones, found once before serving: bytes and FLOPs "
        "of its GEMM fall to the share that is kept, two kernels run in place of one, and precision is lost."
    )
    trials = (
        Trial(
            paper="low-rank-gemm",
            words="low-rank-weights",
            note="The paper finds factors of both operands in every call; weights are factored once.",
        ),
    )
    parameters = (
        Parameter(
            "share", "of a matrix's weights that its factors have", default=0.5, low=0.05, high=1.0, tried=(0.5,)
        ),
    )
    excludes = ("dequantize-on-the-fly", "sparse-weights", "streamed-layers")
    searched = False
    """Which share a network bears is not predicted, and less is always faster."""
    changes = frozenset({"flops", "weight bytes", "precision"})

    def reject(self, case: ServingCase, values: Values) -> Iterator[Rejection]:
        yield case.model.is_moe, "experts as factors are not priced"
        yield any(block.extras for block in case.model.blocks), f"{case.model.name} has layers that are not factored"

    def program(self, case: ServingCase, values: Values) -> NodePass:
        share = float(values["share"])

        def factored(part: str, nodes: list[TapeNode], writer: Writer) -> list[TapeNode]:
            if part != "layer":
                return nodes
            return [
                replace(node, forward=tuple(new for op in node.forward for new in _factors(op, share)))
                for node in nodes
            ]

        return factored

    def memory(self, used: RankBytes, case: ServingCase, values: Values) -> RankBytes:
        """Every rank factors its own part of a matrix."""
        ranks, share = case.strategy.tp * case.strategy.pp, float(values["share"])
        gone = sum(block.count * _saved_bytes(block, case.model, share) for block in case.model.blocks) / ranks
        return replace(used, weights=used.weights - gone)


def rank(rows: float, columns: float, share: float) -> float:
    """Of factors that have a share of a matrix's weights, at least what a tensor core works on."""
    return max(share * rows * columns / (rows + columns), min(LEAST_RANK, rows, columns))


def _factors(op: Op, share: float) -> tuple[Op, ...]:
    """The input through the first factor, then what that gives through the second."""
    weights = isinstance(op, Gemm) and isinstance(op.n, int) and isinstance(op.k, int) and op.batch == 1
    if not weights or op.name in WHOLE:
        return (op,)
    assert isinstance(op, Gemm) and isinstance(op.n, int) and isinstance(op.k, int)
    r = round(rank(op.n, op.k, share))
    if r * (op.n + op.k) >= op.n * op.k:
        return (op,)
    return replace(op, name=f"{op.name}.factor", n=r), replace(op, k=r)


def _saved_bytes(block: Block, model: Model, share: float) -> float:
    """Of one layer's matrices, what their factors do not take."""
    formats, rest, roles = dict(block.formats), plain(model.working_dtype), matrices(block)
    saved = 0.0
    for tensor in block.tensors(model.hidden):
        if tensor.role in roles:
            size = formats.get(tensor.role, rest).bytes(tensor.rows, tensor.columns)
            left = rank(tensor.rows, tensor.columns, share) * (tensor.rows + tensor.columns)
            saved += size * max(1 - left / (tensor.rows * tensor.columns), 0.0)
    return saved


TECHNIQUES = (LowRankWeights(),)
