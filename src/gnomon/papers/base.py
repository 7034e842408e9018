"""A paper: its entry in the index and, where it is reproduced, its figures against ours."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

STATUSES = ("executed", "predicted", "identity", "modelled", "listed")
"""Run on a GPU; predicted by Gnomon's models; arithmetic on the paper's own numbers; mechanism modelled, figures not
reproduced; listed only."""
KINDS = ("predicted", "identity")
FIGURE_KINDS = (*KINDS, "contradiction")
"""Kinds of a figure. Predicted: it depends on what Gnomon models (times, memory, schedules). Identity: it follows
by arithmetic from the paper's numbers, and is reproduced. Contradiction: it should follow and is not reproduced: the
paper contradicts itself or uses other conventions."""
USUAL_TOLERANCE = 0.10
ROUNDING = 0.05
"""Largest error of an identity: printed figures and their inputs are rounded."""
_TOPICS = """
    attention batching carbon checkpoint cloud cluster code-generation communication compiler cost cpu diffusion edge
    energy fault-tolerance gemm graph heterogeneous image inference kernel kv-cache long-context lora measurement
    memory moe networking offload optimizer parallelism performance-model pipeline quantization rendering rl robotics
    scheduling science search serving simulation sparsity speculative speech survey training video vision vlm
"""
TOPICS = frozenset(_TOPICS.split())
Ours = tuple[str, float]
"""What `figures()` of a paper's figures.py yields: the name of a figure, and our value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A figure that a paper claims, as it states it."""

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
    """ISO, as precise as it is known; may be empty."""
    topics: tuple[str, ...]
    hardware: tuple[str, ...]
    idea: str
    technique: str
    """What the idea changes in a plan."""
    claims: tuple[Claim, ...]
    status: str
    why: str
    """Why it is not reproduced; where it is, which of its claims are not, and why."""
    feasibility: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """A number of the paper that its reproduction takes as given: a measured rate, a setting, a size."""

    name: str
    value: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """One figure of a paper, and its tolerance, set before ours is computed."""

    what: str
    claimed: float
    unit: str = ""
    tolerance: float = USUAL_TOLERANCE
    kind: str = "predicted"
    note: str = ""
    """Why ours is out of tolerance, where it is."""
    claim: int = 0
    """The claim of the paper's entry that it checks, counted from 1; 0 for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure(Expected):
    """One figure of a paper and ours."""

    ours: float

    @property
    def error(self) -> float:
        """Relative error of ours; infinite where zero is claimed and ours is not zero (null in JSON)."""
        if not self.claimed:
            return 0.0 if not self.ours else math.inf
        return self.ours / self.claimed - 1

    @property
    def within(self) -> bool:
        return abs(self.error) <= self.tolerance

    @property
    def row(self) -> dict[str, Any]:
        """The figure as a row of an answer."""
        first = {"what": self.what, "claimed": self.claimed, "ours": self.ours}
        return first | asdict(self) | {"error": self.error, "within": self.within}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduction:
    """Inputs and expected figures of a reproduced paper. No cost constant of Gnomon is set for a paper."""

    kind: str
    """One of `KINDS`: that of its headline figures. A single figure may state another kind."""
    setting: str
    source: str
    """Where the paper's figures come from."""
    assumptions: tuple[str, ...]
    inputs: tuple[Input, ...]
    expected: tuple[Expected, ...]
    """All figures, the headline first."""
    techniques: tuple[str, ...] = ()
    """Techniques (`gnomon.techniques`) that implement the idea."""
    missing: str = ""
    """Which claims of the paper's entry no figure checks, and why."""
