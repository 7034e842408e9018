"""Weights in a few bits: multiplied as they are read, or written out in 16 bits before every product."""

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
"""Weights that share a scale in what `int4` alone stands for."""
JOINED = (("q", "k", "v"), ("gate", "up"))
"""Matrices that are multiplied, and so written out, as one."""
STORED_SO = "-weights"
"""How products are called whose weights are narrower than their inputs."""


class _NarrowWeights(ServingTechnique):
    """Matrices of all layers in so many bits; embedding, head, norms and routers stay as they are."""

    changes = frozenset({"weight bytes", "precision"})

    def format(self, values: Values) -> Format:
        raise NotImplementedError

    def reject_reason(self, draft: DeploymentDraft, values: Values) -> str:
        name = self.format(values).name
        return f"weights are asked for in {draft.dtype}, not {name}" if draft.dtype not in (None, name) else ""

    def settled(self, draft: DeploymentDraft, values: Values) -> DeploymentDraft:
        format = self.format(values)
        model = in_format(draft.model, draft.pool.chip.half) if draft.model.dtype == "fp32" else draft.model
        return replace(draft, model=narrowed(model, format), dtype=format.name)


class Int4Weights(_NarrowWeights):
    name = "int4-weights"
    title = "Weights in four bits or three"
    idea = (
        "Matrices are rounded to four bits or three, each so that the next makes up for its error; products read them "
        "as they are and widen them on the way, so memory and small batches gain what is not read."
    )
    trials = (Trial(paper="gptq", words="int4-weights"),)
    parameters = (
        Parameter(name="bits", what="of a weight", default="4", choices=("4", "3"), tried=("4", "3")),
        Parameter(
            name="group",
            whole=True,
            what="weights of a row that share a scale; 0 for all",
            default=GROUP,
            low=0.0,
            high=65536.0,
        ),
    )
    excludes = ("dequantize-on-the-fly",)

    def format(self, values: Values) -> Format:
        bits, group = int(values["bits"]), int(values["group"])
        return Format(name=f"int{bits}", bits=bits, block=(1, group), scale_bits=SCALE_BITS)

    def reject_reason(self, draft: DeploymentDraft, values: Values) -> str:
        if 0 < values["group"] < LEAST_GROUP:
            return f"scales of {values['group']:g} weights are not priced: products read as many as of {GROUP:g}"
        if draft.model.is_moe and self.own_gemm_kernels(values):
            return "experts in three bits are not priced"
        return super().reject_reason(draft, values)

    def expressed_by_config(self, values: Values) -> bool:
        return bool(values["bits"] == "4" and values["group"] == GROUP)

    def own_gemm_kernels(self, values: Values) -> bool:
        """Engines have kernels for four bits; the paper brought one for three."""
        return bool(values["bits"] == "3")


class UnpackedWeights(_NarrowWeights):
    name = "dequantize-on-the-fly"
    aliases = ("unpacked-weights",)
    title = "Weights written out before every product"
    idea = (
        "Matrices are kept in four bits or eight, and every product first writes its own out in 16 bits and multiplies "
        "those: memory shrinks on any chip, and a step takes longer than with weights kept wide."
    )
    trials = (
        Trial(
            paper="glm-130b",
            words="dequantize-on-the-fly",
            note="Every product is taken to write its weights out. The authors' kernels do not for one or two rows, "
            "and are up to three times as quick there: gnomon papers show glm-130b.",
        ),
    )
    parameters = (Parameter(name="bits", what="of a weight", default="4", choices=("4", "8"), tried=("4", "8")),)
    excludes = ("int4-weights",)

    def format(self, values: Values) -> Format:
        return Format(name=f"int{values['bits']}", bits=int(values["bits"]), block=(1, 0), scale_bits=SCALE_BITS)

    def reject_reason(self, draft: DeploymentDraft, values: Values) -> str:
        if draft.model.is_moe:
            return "experts that are written out first are not priced"
        return super().reject_reason(draft, values)

    def own_gemm_kernels(self, values: Values) -> bool:
        return True

    def graph(self, graph: Graph, deployment: Deployment, values: Values) -> Graph:
        half = deployment.pool.chip.half
        return graph.rewrite(lambda op: _unpacked(op, half))

    def extra_bytes(self, deployment: Deployment, values: Values) -> float:
        """The largest matrix, wide: one at a time is written out."""
        return WIDE_BYTES * _largest(deployment.model) / deployment.strategy.tp


def _unpacked(op: Op, half: str) -> tuple[Op, ...]:
    """A stream that reads narrow weights and writes wide ones, in every step, and the product of those."""
    if not isinstance(op, Gemm) or not op.dtype.endswith(STORED_SO):
        return (op,)
    assert isinstance(op.n, int) and isinstance(op.k, int), "matrices of weights have a size of their own"
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
    """Weights of a layer's largest product."""
    narrow = dict(block.formats)
    sizes = {t.role: t.rows * t.columns for t in block.tensors(model.hidden) if t.role in narrow}
    joined = [sum(sizes.get(role, 0) for role in roles) for roles in JOINED]
    return max([*joined, *sizes.values()], default=0)
