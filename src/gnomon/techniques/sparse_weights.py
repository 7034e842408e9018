"""Weights of which two in every four are zero, for sparse tensor cores."""

from __future__ import annotations

from collections.abc import Iterator

from gnomon.engines.base import ServingCase
from gnomon.spec import Format
from gnomon.spec.chip import HALVES
from gnomon.techniques.base import Parameter, Rejection, Trial, Values
from gnomon.techniques.narrow_weights import NarrowWeights

BITS = {"bf16": 16, "fp8": 8, "int8": 8}
PLACE_BITS = 1.0
"""Per weight, of the two bits for each one that is left."""
ROW_SCALE_BITS = 32.0


class SparseWeights(NarrowWeights):
    name = "sparse-weights"
    title = "Weights with two of every four zero"
    idea = (
        "A network that was pruned to a 2:4 pattern keeps half of its weights and two bits of place for each: GEMMs "
        "read little more than half of the bytes and run at the rate of sparse tensor cores, and precision is lost."
    )
    trials = (
        Trial(
            paper="gpusq-vit",
            words="sparse-weights:format=int8",
            note="The paper's networks see images; here matrices of a decoder's layers are pruned.",
        ),
    )
    parameters = (Parameter("format", "of weights and inputs", default="bf16", choices=tuple(BITS), tried=("bf16",)),)
    searched = False
    """It takes a network that was pruned for it."""
    excludes = ("int4-weights", "dequantize-on-the-fly", "rotated-fp4")

    def format(self, values: Values) -> Format:
        name = str(values["format"])
        bits = BITS[name] / 2 + PLACE_BITS
        if name == "bf16":
            return Format(name="bf16-sparse", bits=bits)
        return Format(name=f"{name}-sparse", bits=bits, block=(1, 0), scale_bits=ROW_SCALE_BITS, activations=name)

    def reject(self, case: ServingCase, values: Values) -> Iterator[Rejection]:
        chip, name = case.pool.chip, str(values["format"])
        there = chip.sparse_flops.keys() & (set(HALVES[:2]) if name == "bf16" else {name})
        yield not there, f"{chip.name} has no rate for 2:4 sparse weights in {name}"
        yield case.model.is_moe, "experts with sparse weights are not priced"
        yield from super().reject(case, values)

    def brings_gemm_kernels(self, values: Values) -> bool:
        return True


TECHNIQUES = (SparseWeights(),)
