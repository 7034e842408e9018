"""Quantized weights, dequantized inside the GEMM."""

from __future__ import annotations

from collections.abc import Iterator

from gnomon.engines.base import ServingCase
from gnomon.spec import Format
from gnomon.techniques.base import Parameter, Rejection, Trial, Values
from gnomon.techniques.narrow_weights import SCALE_BITS, NarrowWeights

LEAST_GROUP = 32.0
GROUP = 128.0
"""Weights per scale of the plain format `int4`."""


class Int4Weights(NarrowWeights):
    name = "int4-weights"
    title = "Weights in eight bits to one"
    idea = (
        "Matrices are quantized to four bits, or as many as are asked for, each column compensating the error of those "
        "before it; GEMMs read the codes and dequantize them in registers, so memory shrinks and small batches run "
        "faster."
    )
    trials = (
        Trial(paper="gptq", words="int4-weights"),
        Trial(
            paper="tilus",
            words="int4-weights:bits=6",
            note="The compiler's own kernels are not fitted: other widths than eight and four read their bytes as four "
            "bits do.",
        ),
    )
    parameters = (
        Parameter("bits", "of a weight", default="4", choices=("8", "6", "5", "4", "3", "2", "1")),
        Parameter("group", "weights of a row per scale; 0 for the whole row", default=GROUP, high=65536.0, whole=True),
    )
    excludes = ("dequantize-on-the-fly",)

    def format(self, values: Values) -> Format:
        bits, group = int(values["bits"]), int(values["group"])
        return Format(name=f"int{bits}", bits=bits, block=(1, group), scale_bits=SCALE_BITS)

    def reject(self, case: ServingCase, values: Values) -> Iterator[Rejection]:
        group = values["group"]
        yield (
            0 < group < LEAST_GROUP,
            f"groups of {group:g} weights are not priced; GEMMs are priced with groups of {GROUP:g}",
        )
        yield (
            case.model.is_moe and self.brings_gemm_kernels(values),
            f"experts in {values['bits']} bits are not priced",
        )
        yield from super().reject(case, values)

    def expressed_by_config(self, values: Values) -> bool:
        return bool(values["bits"] == "4" and values["group"] == GROUP)

    def brings_gemm_kernels(self, values: Values) -> bool:
        """Engines have kernels for eight bits and four; papers have some for others."""
        return values["bits"] not in ("8", "4")


TECHNIQUES = (Int4Weights(),)
