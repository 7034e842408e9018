"""Machines to price operators on, and one-line operators."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gnomon import catalog
from gnomon.cost.machine import Machine
from gnomon.cost.rows import shape_of
from gnomon.load.profiles import profile_for
from gnomon.spec import Chip, Pool
from gnomon.spec.workload import Floats

CHIPS = (
    "H100-SXM-80GB",
    "H200-SXM-141GB",
    "A100-SXM-80GB",
    "V100-SXM2-16GB",
    "RTX-3090",
    "MI300X",
    "TPU-v6e",
)
"""Chips with a profile and without, near their lender and far, without bf16, slow for their memory, of few large cores;
`tests/property/test_chips.py` goes over all there are."""


def machine(chip: str | Chip = "H200", count: int = 1, **changes: Any) -> Machine:
    """A chip, perhaps with other figures, under the profile it has as it is."""
    found = catalog.chip(chip) if isinstance(chip, str) else chip
    changed = replace(found, **changes)
    return Machine(Pool(chip=changed, count=count, per_node=min(count, changed.scaleup_size)), profile_for(found))


def faster(chip: Chip, memory: float = 1.0, rate: float = 1.0) -> dict[str, Any]:
    """The changes that make a chip's memory and arithmetic so many times as fast."""
    rates = {dtype: value * rate for dtype, value in chip.rates_flops.items()}
    return {"memory_bandwidth_bytes_s": chip.memory_bandwidth_bytes_s * memory, "rates_flops": rates}


def seconds(on: Machine, kind: str, dtype: str = "bf16", **columns: Any) -> Floats:
    """Seconds of operators by the columns of an operator table; numbers and arrays mix."""
    names = list(columns)
    arrays = np.broadcast_arrays(*(np.atleast_1d(np.asarray(columns[name], float)) for name in names))
    return on.seconds(kind, dtype, shape_of(kind, dict(zip(names, arrays, strict=True))))
