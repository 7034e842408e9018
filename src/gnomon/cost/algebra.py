"""Dense linear algebra by its textbook counts: arithmetic outside tensor cores, passes over memory, a chain of columns.

Nothing here is measured by us, and little is checked. The step is that of PyTorch's published Cholesky factorisations
of one matrix (github.com/pytorch/pytorch/pull/173515, whose GPU is not named); batches of 16 and 64 in the same table,
known when the share of the rate was chosen, come out at 0.47 to 0.95 of what they took, as on an H100. The shares are
estimates, and libraries' choices of algorithm may add as much again.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gnomon.graph.ops import Shape
from gnomon.spec import Chip
from gnomon.spec.workload import Floats

COEFFICIENTS = {
    "rate": (0.25, 0.02, 1.0),
    "memory": (0.7, 0.2, 1.0),
    "step_us": (1.0, 0.1, 10.0),
    "launch_us": (5.0, 1.0, 50.0),
}
"""Where a fit would start, and the range in which each coefficient means what it says."""
SPREAD = 0.8
"""What an operator may be off by (log): a factor of 4 either way."""


def seconds(shape: Shape, dtype: str, chip: Chip, c: Mapping[str, float]) -> Floats:
    """One after the other: blocks of GEMMs, memory traffic, and the chain of dependent steps."""
    multiplied = shape["flops"] / (chip.vector_rate * c["rate"])
    streamed = shape["bytes"] / (chip.memory_bandwidth_bytes_s * c["memory"])
    chained = shape["steps"] * c["step_us"] * 1e-6
    return np.asarray(multiplied + streamed + chained + c["launch_us"] * 1e-6)
