"""Convolutions as matrix products whose left side is made on the fly, or on the vector units where groups are thin.

Tiles and waves are those of `gnomon.cost.gemm`; the bytes are the convolution's own, since a value of the input is
read once from memory and again from caches for every weight that meets it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gnomon.cost import gemm
from gnomon.graph.ops import Shape
from gnomon.spec import Chip
from gnomon.spec.workload import Floats

COEFFICIENTS = gemm.COEFFICIENTS | {
    "rate": (0.65, 0.1, 1.1),
    "memory": (0.6, 0.2, 1.0),
    "launch_us": (4.0, 0.1, 30.0),
    "epilogue_us": (1.5, 0.0, 10.0),
    "vector": (0.12, 0.005, 1.0),
}
"""As of matrix products; `vector` is the share of the plain fp32 rate that kernels for thin groups reach."""


def seconds(shape: Shape, dtype: str, chip: Chip, c: Mapping[str, float]) -> Floats:
    """Device seconds; the quicker of tensor cores, group by group, and vector units over all groups at once."""
    m, n, k, groups = shape["m"], shape["n"], shape["k"], shape["batch"]
    streamed = shape["bytes"] / (chip.memory_bandwidth_bytes_s * c["memory"])
    tiled = gemm.tiled(m, n, k, groups, streamed, chip, dtype, c)
    best = np.minimum(tiled, _thin(2.0 * m * n * k * groups, streamed, chip, c))
    return np.where(m > 0, best + c["launch_us"] * 1e-6, 0.0)


def _thin(flops: Floats, streamed: Floats, chip: Chip, c: Mapping[str, float]) -> Floats | float:
    """On the vector units; never on a chip that has no plain fp32."""
    if "fp32" not in chip.rates_flops:
        return np.inf
    p = c["overlap"]
    return np.asarray(((flops / (chip.rate("fp32") * c["vector"])) ** p + streamed**p) ** (1 / p))
