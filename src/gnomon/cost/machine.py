"""A chip with the best evidence there is for it: operators in, seconds and their bound out."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gnomon.cost import collective
from gnomon.cost.kernels import MODELS, kernel_model
from gnomon.cost.profile import Family, Profile
from gnomon.graph.dtypes import PRODUCTS
from gnomon.graph.ops import Attention, Op, Shape
from gnomon.spec import Batch, Chip, Pool, Provenance
from gnomon.spec.estimate import DRAWS
from gnomon.spec.workload import Floats

COLLECTIVES = frozenset(collective.PASSES)
COLLECTIVE_SPREAD = 0.2
"""No collective of ours is measured yet; on published tables the formulas spread by somewhat less than this."""
LATENCY_SHARE = 0.4
"""An operator that spends less than this share of its time on arithmetic or memory is bound by latency."""


@dataclass(frozen=True)
class Machine:
    """Chips of one kind and the profile that prices their operators."""

    pool: Pool
    profile: Profile
    framework: str = ""
    """Whose kernels run, where the profile knows several; PyTorch leaves collectives to NCCL."""

    @property
    def chip(self) -> Chip:
        return self.pool.chip

    def evidence(self, kind: str, dtype: str) -> Family:
        if kind in COLLECTIVES:
            return self._formula
        return self.profile.family(kind, dtype, self.framework)

    @cached_property
    def _formula(self) -> Family:
        return Family(
            coefficients={},
            spread=COLLECTIVE_SPREAD,
            shared=COLLECTIVE_SPREAD / 2,
            provenance=Provenance.FORMULA,
            source=f"{self.pool.scaleup.name}, and {self.pool.scaleout.name} beyond a node",
        )

    def seconds(self, kind: str, dtype: str, shape: Shape) -> Floats:
        """Device seconds of one run of an operator, for arrays of sizes."""
        if kind in COLLECTIVES:
            ranks, stride = (int(np.max(shape.get(name, np.ones(1)))) for name in ("ranks", "stride"))
            library = "nccl" if self.framework == "torch" else ""
            return collective.seconds(kind, shape["bytes"], ranks, self.pool, stride, library)
        family = self.profile.family(kind, dtype, self.framework)
        return kernel_model(kind).seconds(shape, dtype, self.chip, family.coefficients)

    def op_seconds(self, op: Op, batch: Batch) -> Floats:
        """Seconds of all runs of an operator in a step."""
        return op.count * self.seconds(op.kind, priced_dtype(op), op.shape(batch))

    def factors(self, op_name: str, kind: str, dtype: str) -> NDArray[np.float64]:
        """What each draw multiplies an operator's time by: a part its family shares, a part of its own.

        Drawn from the held-out errors, by name, so that the same operator gets the same draws anywhere.
        """
        family = self.evidence(kind, dtype)
        own = np.sqrt(max(family.spread**2 - family.shared**2, 0.0))
        shared = normals(f"{self.profile.chip}/{kind}/{dtype}")
        alone = normals(f"{self.profile.chip}/{kind}/{dtype}/{op_name}")
        return np.asarray(np.exp(family.shared * shared + own * alone))

    def bound(self, flops: Floats, moved: Floats, seconds: Floats, kind: str, dtype: str) -> NDArray[np.str_]:
        """What limits an operator: compute, memory, network or latency."""
        if kind in COLLECTIVES:
            return np.full(seconds.shape, "network")
        multiplied = PRODUCTS[dtype].multiplied if dtype in PRODUCTS else dtype
        compute = flops / self.chip.rate(multiplied if multiplied in self.chip.rates_flops else self.chip.half)
        memory = moved / self.chip.memory_bandwidth_bytes_s
        busiest = np.maximum(compute, memory)
        named = np.where(compute >= memory, "compute", "memory")
        return np.asarray(np.where(busiest < LATENCY_SHARE * seconds, "latency", named))


def priced_dtype(op: Op) -> str:
    """The number format that decides an operator's time: of attention, that of the cache it reads."""
    return op.kv_dtype if isinstance(op, Attention) else op.dtype


def normals(name: str) -> NDArray[np.float64]:
    """One draw of the standard normal distribution for each draw of an estimate, always the same for a name."""
    return np.random.default_rng(zlib.crc32(name.encode())).standard_normal(DRAWS)


def known_kinds() -> tuple[str, ...]:
    return (*MODELS, *sorted(COLLECTIVES))
