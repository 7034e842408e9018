"""One card beside the chip's profile: what a short calibration found of it, as factors on the profile's figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import hypot

from gnomon.cost.clock import BURST
from gnomon.cost.kernels import kernel_model
from gnomon.cost.profile import Family, Profile
from gnomon.graph.dtypes import WIDTH

CARD_SPREAD = 0.028
"""What operators on one card say of another of its kind (log): decode steps of qwen2.5-14b on two rented H200
(measurements/h200-2026-11-18, both in poisson loads, 9 to 24 sequences) were 4% apart, which is 2.8% for each."""
REMEASURED = 0.01
"""What is left of it after a short calibration, as an assumption: a factor is the median of three to six kernels,
whose replays spread by 0.1 to 1.5% (measurements/h200-2026-11-15/calibration.csv)."""
COMPUTE, MEMORY, ENERGY, HOST = "compute", "memory", "energy", "host"
NARROW = "compute_fp8"
RANGES = {COMPUTE: (0.5, 1.3), NARROW: (0.5, 1.3), MEMORY: (0.5, 1.3), ENERGY: (0.4, 2.5), HOST: (0.1, 10.0)}
"""What each factor may be: a card beyond them is another chip, in other hands, or ill."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFactors:
    """Of one card and its host, each 1 where they do as the profile says: rates of arithmetic and memory and the speed
    of the host, more is faster; joules of a FLOP at full clock, more is a lower sustained clock."""

    chip: str
    source: str
    factors: Mapping[str, float]

    def applied(self, profile: Profile) -> Profile:
        """The profile of this card."""
        families = {key: self._family(key, family) for key, family in profile.families.items()}
        power = dict(profile.power)
        for name in ("j_per_flop", BURST):
            if name in power:
                power[name] *= self.factors.get(ENERGY, 1.0)
        source = f"{profile.source}, {self.source}"
        spread = hypot(profile.system_spread, REMEASURED)
        return replace(profile, source=source, families=families, power=power, system_spread=spread)

    def _family(self, key: str, family: Family) -> Family:
        kind, dtype = key.split(".")[:2]
        narrow = WIDTH.get(dtype, 2.0) < WIDTH["bf16"] and not kind.startswith("attention")
        compute = self.factors.get(NARROW if narrow else COMPUTE, self.factors.get(COMPUTE, 1.0))
        scale = {"rate": compute, "memory": self.factors.get(MEMORY, 1.0)}
        ranges = kernel_model(kind).ranges
        c = dict(family.coefficients)
        for name, factor in scale.items():
            if name in c and name in ranges:
                c[name] = min(c[name] * factor, ranges[name][2])  # never above the data sheet's
        return replace(family, coefficients=c, source=f"{family.source}, {self.source}")
