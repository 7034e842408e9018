"""Convolutions as implicit GEMMs, or on the vector units where groups have few channels.

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

WAYS = {"by_input": (0.9, 0.2, 1.5), "by_weight": (0.7, 0.2, 1.5)}
"""Throughput of the gradients' arithmetic relative to the forward pass."""
TURNING = {"turn": (0.4, 0.05, 2.0), "turn_weights": (0.15, 0.02, 2.0)}
"""Shares of the memory's bandwidth at which tensors, and weights, that lie channels first are turned."""
COEFFICIENTS = (
    gemm.TILED
    | {"rate": (0.65, 0.1, 1.0), "memory": (0.8, 0.2, 1.0), "launch_us": (4.0, 0.1, 30.0)}
    | {"epilogue_us": (1.5, 0.0, 10.0), "split_us": (4.0, 0.0, 20.0)}
    | WAYS
    | TURNING
)
FEW = TURNING | {
    "vector": (0.4, 0.02, 8.0),
    "memory": (0.3, 0.02, 1.0),
    "launch_us": (4.0, 0.1, 60.0),
    "overlap": (2.4, 1.0, 12.0),
    "by_input": (0.9, 0.1, 3.0),
    "by_weight": (0.7, 0.1, 3.0),
}
"""`vector` is what kernels for few channels reach, as a share of the plain fp32 rate."""
DEPTHWISE = {name: ends for name, ends in FEW.items() if name not in TURNING} | {"first": (0.2, 0.02, 1.5)}
"""`first` is the throughput of PyTorch's own kernels, which take channels first, relative to cuDNN's."""


def seconds(shape: Shape, dtype: str, chip: Chip, c: Mapping[str, float]) -> Floats:
    """Device seconds on tensor cores, group by group."""
    m, k = shape["m"], shape["k"] / _efficiency(shape, c)
    tiled = gemm.tiled(m, shape["n"], k, shape["batch"], _streamed(shape, chip, c), chip, dtype, c)
    return np.where(m > 0, tiled + _turning(shape, chip, c) + c["launch_us"] * 1e-6, 0.0)


def few_seconds(shape: Shape, dtype: str, chip: Chip, c: Mapping[str, float]) -> Floats:
    """Device seconds where a side has so few channels that tensor cores idle."""
    return _overlapped(shape, _efficiency(shape, c), chip, c) + np.where(shape["m"] > 0, _turning(shape, chip, c), 0.0)


def depthwise_seconds(shape: Shape, dtype: str, chip: Chip, c: Mapping[str, float]) -> Floats:
    """Device seconds on vector units, all groups at once."""
    first = np.where(_given(shape, "turned") > 0, c["first"], 1.0)
    return _overlapped(shape, _efficiency(shape, c) * first, chip, c)


def _overlapped(shape: Shape, efficiency: Floats, chip: Chip, c: Mapping[str, float]) -> Floats:
    p, flops = c["overlap"], 2.0 * shape["m"] * shape["n"] * shape["k"] * shape["batch"]
    multiplied = flops / (chip.vector_rate * c["vector"] * efficiency)
    body = (multiplied**p + _streamed(shape, chip, c) ** p) ** (1 / p)
    return np.where(shape["m"] > 0, body + c["launch_us"] * 1e-6, 0.0)


def _streamed(shape: Shape, chip: Chip, c: Mapping[str, float]) -> Floats:
    return shape["bytes"] / (chip.memory_bandwidth_bytes_s * c["memory"])


def _given(shape: Shape, name: str) -> Floats:
    return shape.get(name, np.zeros(1))


def _efficiency(shape: Shape, c: Mapping[str, float]) -> Floats:
    return np.asarray(c["by_input"] ** _given(shape, "by_input") * c["by_weight"] ** _given(shape, "by_weight"))


def _turning(shape: Shape, chip: Chip, c: Mapping[str, float]) -> Floats:
    """Read in one order, written in the other."""
    parts = ((_given(shape, "turned"), c["turn"]), (_given(shape, "turned_weights"), c["turn_weights"]))
    return np.asarray(sum(2.0 * size / (chip.memory_bandwidth_bytes_s * share) for size, share in parts))
