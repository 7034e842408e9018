"""What a paper is to Gnomon: an entry of the index and, where it is re-derived, its figures beside ours."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

STATUSES = ("executed", "predicted", "identity", "modelled", "listed")
"""Run on a GPU; given by our own model; arithmetic on the paper's own numbers; mechanism there, figures not
re-derived; known."""
KINDS = ("predicted", "identity")
FIGURE_KINDS = (*KINDS, "contradiction")
"""Of one figure. It is predicted where it depends on what Gnomon models: times, memory in use, schedules, hosts. It is
an identity where it follows by arithmetic from numbers of the paper, and is reproduced; where it follows and is not,
the paper contradicts itself or its conventions are not ours."""
USUAL_TOLERANCE = 0.10
ROUNDING = 0.05
"""What an identity may be off by: printed figures are rounded, and so is what they are computed from."""
_TOPICS = """
    attention batching carbon checkpoint cloud cluster code-generation communication compiler cost cpu diffusion edge
    energy fault-tolerance gemm graph heterogeneous image inference kernel kv-cache long-context lora measurement
    memory moe networking offload optimizer parallelism performance-model pipeline quantization rendering rl robotics
    scheduling science search serving simulation sparsity speculative speech survey training video vision vlm
"""
TOPICS = frozenset(_TOPICS.split())
Ours = tuple[str, float]
"""What `figures()` of a paper's figures.py gives, one after the other: the name of a figure, and ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A figure that a paper claims, in its own words."""

    what: str
    value: str
    against: str = ""
    setting: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paper:
    """One entry of the index."""

    slug: str
    title: str
    shelf: str
    date: str
    """ISO, as exact as it is known; empty where it is not."""
    topics: tuple[str, ...]
    hardware: tuple[str, ...]
    idea: str
    technique: str
    """What the idea changes in a plan, in words."""
    claims: tuple[Claim, ...]
    status: str
    why: str
    """Why it is not re-derived; where it is, which of its claims are not, if any, and why."""
    feasibility: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """A number of the paper that its reproduction takes as it is: a measured rate, a setting, a size."""

    name: str
    value: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """One figure of a paper, and how far ours may be from it: written down before ours is computed."""

    what: str
    claimed: float
    unit: str = ""
    tolerance: float = USUAL_TOLERANCE
    kind: str = "predicted"
    note: str = ""
    """Why it misses, where it does."""
    claim: int = 0
    """Which of the claims in the paper's entry it stands for, counted from 1; 0 for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure(Expected):
    """One figure of a paper beside ours."""

    ours: float

    @property
    def error(self) -> float:
        """Ours against the claimed one, as a share of it; infinite where none is claimed (JSON has null then)."""
        if not self.claimed:
            return 0.0 if not self.ours else math.inf
        return self.ours / self.claimed - 1

    @property
    def within(self) -> bool:
        return abs(self.error) <= self.tolerance

    @property
    def row(self) -> dict[str, Any]:
        """The figure as answers have it."""
        first = {"what": self.what, "claimed": self.claimed, "ours": self.ours}
        return first | asdict(self) | {"error": self.error, "within": self.within}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduction:
    """What a paper is computed again from and compared with. No cost constant of Gnomon is set for a paper."""

    kind: str
    """One of `KINDS`: how its headline figures come about. A single figure may differ and says so."""
    setting: str
    source: str
    """Where the paper's figures were read."""
    assumptions: tuple[str, ...]
    inputs: tuple[Input, ...]
    expected: tuple[Expected, ...]
    """All figures, the headline first."""
    techniques: tuple[str, ...] = ()
    """Names in `gnomon.techniques` that make the idea part of a plan."""
    missing: str = ""
    """Which of the claims in the paper's entry no figure stands for, and why."""
