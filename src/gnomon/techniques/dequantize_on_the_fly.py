"""Quantized weights, written out in 16 bits before every GEMM."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gnomon.engines.base import RankBytes, ServingCase
from gnomon.graph.dtypes import gemm_format, width
from gnomon.graph.layers import NodePass, Writer
from gnomon.graph.ops import Elementwise, Gemm, Op
from gnomon.graph.tape import TapeNode
from gnomon.spec import Block, Format, Model
from gnomon.techniques.base import Parameter, Rejection, Trial, Values
from gnomon.techniques.narrow_weights import SCALE_BITS, NarrowWeights

WIDE_BYTES = 2.0
JOINED = (("q", "k", "v"), ("gate", "up"))
"""Matrices that one fused GEMM reads, and that are dequantized together."""
STORED_SO = "-weights"
"""Suffix of GEMM formats whose weights are narrower than their activations."""


class DequantizeOnTheFly(NarrowWeights):
    name = "dequantize-on-the-fly"
    aliases = ("unpacked-weights",)
    title = "Weights dequantized before every GEMM"
    idea = (
        "Matrices are stored in four bits or eight, and dequantized to 16 bits in memory before every GEMM: memory "
        "shrinks on any chip, and a step takes longer than with 16-bit weights."
    )
    trials = (
        Trial(
            paper="glm-130b",
            words="dequantize-on-the-fly",
            note="Every GEMM is assumed to write its weights out. The authors' kernels do not for one or two rows, "
            "and are up to three times faster there: gnomon papers show glm-130b.",
        ),
        Trial(paper="small-lm-ecommerce", words="dequantize-on-the-fly"),
    )
    parameters = (Parameter("bits", "of a weight", default="4", choices=("4", "8"), tried=("4", "8")),)
    excludes = ("int4-weights",)

    def format(self, values: Values) -> Format:
        return Format(name=f"int{values['bits']}", bits=int(values["bits"]), block=(1, 0), scale_bits=SCALE_BITS)

    def reject(self, case: ServingCase, values: Values) -> Iterator[Rejection]:
        yield case.model.is_moe, "experts that are dequantized first are not priced"
        yield from super().reject(case, values)

    def brings_gemm_kernels(self, values: Values) -> bool:
        return True

    def program(self, case: ServingCase, values: Values) -> NodePass:
        half = case.pool.chip.half

        def unpacked(part: str, nodes: list[TapeNode], writer: Writer) -> list[TapeNode]:
            return [
                replace(node, forward=tuple(new for op in node.forward for new in _unpacked(op, half)))
                for node in nodes
            ]

        return unpacked

    def memory(self, used: RankBytes, case: ServingCase, values: Values) -> RankBytes:
        """The largest matrix in 16 bits: one at a time is dequantized."""
        largest = WIDE_BYTES * _largest(case.model) / case.strategy.tp
        return replace(used, activations=used.activations + largest)


def _unpacked(op: Op, half: str) -> tuple[Op, ...]:
    """A kernel that dequantizes the weights in every step, and the GEMM that reads them."""
    if not isinstance(op, Gemm) or not op.dtype.endswith(STORED_SO):
        return (op,)
    assert isinstance(op.n, int) and isinstance(op.k, int), "weight matrices have fixed sizes"
    stream = Elementwise(
        name=f"{op.name}.unpack",
        rows=op.n * op.k,
        read_per_row=gemm_format(op.dtype).weights,
        written_per_row=width(half),
        count=op.count,
    )
    return stream, replace(op, dtype=half)


def _largest(model: Model) -> int:
    return max((_matrix(block, model) for block in model.blocks), default=0)


def _matrix(block: Block, model: Model) -> int:
    """Weights of a layer's largest GEMM."""
    narrow = dict(block.formats)
    sizes = {t.role: t.rows * t.columns for t in block.tensors(model.hidden) if t.role in narrow}
    joined = [sum(sizes.get(role, 0) for role in roles) for roles in JOINED]
    return max([*joined, *sizes.values()], default=0)


TECHNIQUES = (DequantizeOnTheFly(),)
