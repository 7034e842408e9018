"""Weights and inputs of GEMMs in four-bit floats, rotated so that rounding hurts less."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gnomon.engines.base import ServingCase
from gnomon.spec import Format
from gnomon.spec.formats import MXFP4, NVFP4
from gnomon.techniques.base import Parameter, Rejection, Trial, Values
from gnomon.techniques.narrow_weights import NarrowWeights

FORMATS = {"mxfp4": replace(MXFP4, activations="mxfp4"), "nvfp4": NVFP4}
FP4 = "fp4"


class RotatedFp4(NarrowWeights):
    name = "rotated-fp4"
    title = "GEMMs in fp4 with rotated inputs"
    idea = (
        "Weights and inputs are rounded to four-bit floats after a block-wise Hadamard rotation, which is folded into "
        "the weights and applied to inputs by the pass that rounds them: GEMMs run at the chip's fp4 rate, and "
        "precision is lost."
    )
    trials = (
        Trial(
            paper="mr-gptq",
            words="rotated-fp4",
            note="The pass that rounds inputs rotates them too: a block of up to 128 takes fewer FLOPs per byte than "
            "the chip has, so the rotation adds no time of its own.",
        ),
    )
    parameters = (
        Parameter("format", "of weights and inputs", default="mxfp4", choices=("mxfp4", "nvfp4"), tried=("mxfp4",)),
    )
    excludes = ("int4-weights", "dequantize-on-the-fly")

    def format(self, values: Values) -> Format:
        return FORMATS[str(values["format"])]

    def reject(self, case: ServingCase, values: Values) -> Iterator[Rejection]:
        chip = case.pool.chip
        yield FP4 not in chip.rates_flops, f"{chip.name} has no rate in fp4"
        yield case.model.is_moe, "experts whose inputs are rotated are not priced"
        yield from super().reject(case, values)

    def brings_gemm_kernels(self, values: Values) -> bool:
        return True


TECHNIQUES = (RotatedFp4(),)
