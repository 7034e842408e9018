"""Quantized weights: dequantized inside the GEMM, or written out in 16 bits before every GEMM."""

from __future__ import annotations

from dataclasses import replace

from gnomon.engines.base import Deployment
from gnomon.graph import Graph
from gnomon.graph.dtypes import gemm_format, width
from gnomon.graph.ops import Elementwise, Gemm, Op
from gnomon.spec import Block, Format, Model
from gnomon.spec.narrowed import in_format, narrowed
from gnomon.techniques.base import Parameter, Trial, Values
from gnomon.techniques.serving import DeploymentDraft, ServingTechnique

SCALE_BITS = 16.0
WIDE_BYTES = 2.0
LEAST_GROUP = 32.0
GROUP = 128.0
"""Weights per scale of the plain format `int4`."""
JOINED = (("q", "k", "v"), ("gate", "up"))
"""Matrices that one fused GEMM reads, and that are dequantized together."""
STORED_SO = "-weights"
"""Suffix of GEMM formats whose weights are narrower than their activations."""


class _NarrowWeights(ServingTechnique):
    """Matrices of all layers in a few bits; embedding, head, norms and routers keep their format."""

    changes = frozenset({"weight bytes", "precision"})

    def format(self, values: Values) -> Format:
        raise NotImplementedError

    def reject_reason(self, draft: DeploymentDraft, values: Values) -> str:
        name = self.format(values).name
        return f"the weights' dtype is set to {draft.dtype}, not {name}" if draft.dtype not in (None, name) else ""

    def rewrite(self, draft: DeploymentDraft, values: Values) -> DeploymentDraft:
        format = self.format(values)
        model = in_format(draft.model, draft.pool.chip.half) if draft.model.dtype == "fp32" else draft.model
        return replace(draft, model=narrowed(model, format), dtype=format.name)


class Int4Weights(_NarrowWeights):
    name = "int4-weights"
    title = "Weights in four bits or three"
    idea = (
        "Matrices are quantized to four bits or three, each column compensating the error of those before it; GEMMs "
        "read the codes and dequantize them in registers, so memory shrinks and small batches run faster."
    )
    trials = (Trial(paper="gptq", words="int4-weights"),)
    parameters = (
        Parameter("bits", "of a weight", default="4", choices=("4", "3"), tried=("4", "3")),
        Parameter("group", "weights of a row per scale; 0 for the whole row", default=GROUP, high=65536.0, whole=True),
    )
    excludes = ("dequantize-on-the-fly",)

    def format(self, values: Values) -> Format:
        bits, group = int(values["bits"]), int(values["group"])
        return Format(name=f"int{bits}", bits=bits, block=(1, group), scale_bits=SCALE_BITS)

    def reject_reason(self, draft: DeploymentDraft, values: Values) -> str:
        if 0 < values["group"] < LEAST_GROUP:
            return f"groups of {values['group']:g} weights are not priced; GEMMs are priced with groups of {GROUP:g}"
        if draft.model.is_moe and self.brings_gemm_kernels(values):
            return "experts in three bits are not priced"
        return super().reject_reason(draft, values)

    def expressed_by_config(self, values: Values) -> bool:
        return bool(values["bits"] == "4" and values["group"] == GROUP)

    def brings_gemm_kernels(self, values: Values) -> bool:
        """Engines have kernels for four bits; the paper has one for three."""
        return bool(values["bits"] == "3")


class DequantizeOnTheFly(_NarrowWeights):
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
    )
    parameters = (Parameter("bits", "of a weight", default="4", choices=("4", "8"), tried=("4", "8")),)
    excludes = ("int4-weights",)

    def format(self, values: Values) -> Format:
        return Format(name=f"int{values['bits']}", bits=int(values["bits"]), block=(1, 0), scale_bits=SCALE_BITS)

    def reject_reason(self, draft: DeploymentDraft, values: Values) -> str:
        if draft.model.is_moe:
            return "experts that are dequantized first are not priced"
        return super().reject_reason(draft, values)

    def brings_gemm_kernels(self, values: Values) -> bool:
        return True

    def graph(self, graph: Graph, deployment: Deployment, values: Values) -> Graph:
        half = deployment.pool.chip.half
        return graph.rewrite(lambda op: _unpacked(op, half))

    def extra_bytes(self, deployment: Deployment, values: Values) -> float:
        """The largest matrix in 16 bits: one at a time is dequantized."""
        return WIDE_BYTES * _largest(deployment.model) / deployment.strategy.tp


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


TECHNIQUES = (Int4Weights(), DequantizeOnTheFly())
