"""What a profile holds: fitted coefficients of a chip, small, dated, with their error on held-out data.

Coefficients are fractions of the data sheet's figures or absolute times, so that other chips can use them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import hypot

from gnomon.cost.efficiencies import RelativeEfficiency, efficiency
from gnomon.cost.kernels import UNFITTED
from gnomon.cost.residual import Residual
from gnomon.graph.dtypes import KERNEL, without_kernel
from gnomon.spec import Provenance

SYSTEM_SPREAD = 0.12
"""What whole steps on a chip with a donor's profile, or of training where only tables are known, may be off by beyond
what their operators may (log): other machines, driver and engine versions, settings. An estimate."""
SERVED_SPREAD, PROMPT_SPREAD = 0.04, 0.25
"""The same of steps of a serving engine on a chip with published tables, and what steps with prompts add to it (log).
`python -m tools.system_spread` finds how many of the published vLLM deployments of 2025-26 (InferenceX, H100 and B200)
are inside their 90% intervals with such figures: of the half that may be fitted to, about 90% of TPOT and TTFT. The
second holds a bias too: first tokens on a B200 are predicted about 15% too fast."""
HALF = ("bf16", "fp16")
"""Formats with the same throughput."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One operator family in one number format."""

    coefficients: Mapping[str, float]
    spread: float
    """Standard deviation of log(predicted / measured) on held-out shapes: what one operator may be off by."""
    shared: float
    """The part of the spread that all operators of the family share (one chip, one library, one clock)."""
    provenance: Provenance
    source: str
    residual: Residual | None = None
    """What the formula leaves over, where it was fitted."""
    no_slower_than: str = ""
    """A wider format that bounds its time, where no measured kernel of the chip's generation says otherwise: an engine
    would widen the operands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    chip: str
    """The one it was fitted on: whatever it is transferred to errs as that does."""
    source: str
    date: str
    families: Mapping[str, Family]
    power: Mapping[str, float]
    transferred: bool = False
    """Whether all of it is from a donor's profile."""
    system_spread: float = 0.0
    """What all its operators together may be off by, where it was not measured by whoever uses it."""
    prompt_spread: float = 0.0
    """What steps with prompts may be off by beyond that, all their operators together."""
    architecture: str = ""
    """Of the chip it prices, where that is settled."""

    def family(self, kind: str, dtype: str, framework: str = "") -> Family:
        """The best evidence for an operator: a framework's own fit, its own format's, else the family's, else that of
        any framework there is."""
        if KERNEL in dtype:
            known = self.families.get(f"{kind}.{dtype}.{framework}") or self.families.get(f"{kind}.{dtype}")
            return known or self.family(kind, without_kernel(dtype), framework)
        own = (f"{kind}.{dtype}.{framework}", f"{kind}.bf16.{framework}") if framework else ()
        fitted = {f"{kind}.{dtype}", f"{kind}.{dtype}.{framework}"} & self.families.keys()
        relative = None if fitted else efficiency(kind, dtype, self.architecture)
        if relative:
            return _scaled(self.family(kind, relative.base, framework), relative)
        for key in (*own, f"{kind}.{dtype}", kind, f"{kind}.bf16"):
            if key in self.families:
                return self.families[key] if dtype in key or dtype in HALF else _unfitted(self.families[key], dtype)
        others = [key for key in self.families if key.partition(".")[0] == kind and KERNEL not in key]
        if others:
            return self.families[min(others, key=lambda key: (key.split(".")[1] != dtype, key))]
        raise KeyError(f"profile of {self.chip} has no family {kind}.{dtype}")


def _unfitted(family: Family, dtype: str) -> Family:
    """A fit in another format than the requested one."""
    return replace(
        family,
        spread=hypot(family.spread, UNFITTED),
        shared=hypot(family.shared, UNFITTED / 2),
        source=f"{family.source}, none in {dtype}",
    )


def _scaled(family: Family, found: RelativeEfficiency) -> Family:
    """A family in a format without a fit on this chip."""
    c = dict(family.coefficients)
    c |= {"rate": c["rate"] * found.rate, "memory": c["memory"] * found.memory}
    c["launch_us"] += found.launch_us
    return replace(
        family,
        coefficients=c,
        residual=None,
        spread=hypot(family.spread, found.spread),
        shared=hypot(family.shared, found.spread / 2),
        source=f"{family.source}, efficiency by {found.source}",
        no_slower_than=family.no_slower_than if found.same_kernel else "" if found.measured else HALF[0],
    )
