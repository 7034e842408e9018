"""A paper: its entry in the index and, where it is reproduced, its figures against ours."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable
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
RECALLED = ("authors", "arxiv", "date", "doi", "repository")
"""Facts that may be recalled: written from memory, where no source at hand prints them."""
STATES = ("built", "partly", "missing")
"""How much of a mechanism Gnomon has."""
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
    authors: tuple[str, ...] = ()
    """Empty where they are not known."""
    arxiv: str = ""
    """Its number, such as 2104.04473; empty where it has none or none is known, as all that follows."""
    doi: str = ""
    repository: str = ""
    """The authors' code."""
    links: tuple[str, ...] = ()
    """Pages beside its arXiv page, DOI and repository."""
    recalled: tuple[str, ...] = ()
    """Which of `RECALLED` are written from memory."""
    shelf: str
    date: str
    """ISO, as precise as it is known: a month is that of its arXiv number. May be empty."""
    mechanisms: tuple[str, ...] = ()
    """What Gnomon needs to compute its figures: mechanisms of `papers/clusters`, the first one's cluster is its own."""
    topics: tuple[str, ...]
    hardware: tuple[str, ...]
    """Chips as the catalog spells them."""
    other_hardware: tuple[str, ...] = ()
    """What it was measured on and the catalog does not have."""
    idea: str
    technique: str
    """What the idea changes in a plan."""
    claims: tuple[Claim, ...]
    status: str
    why: str
    """Why it is not reproduced; where it is, which of its claims are not, and why."""
    feasibility: str

    @property
    def place(self) -> str:
        """Where it is in lists, as paths are sorted."""
        return f"{self.shelf}/{self.slug}"

    @property
    def pages(self) -> tuple[str, ...]:
        """Where it can be read, its arXiv page first, and its code."""
        arxiv = f"https://arxiv.org/abs/{self.arxiv}" if self.arxiv else ""
        doi = f"https://doi.org/{self.doi}" if self.doi else ""
        return tuple(filter(None, (arxiv, doi, self.repository, *self.links)))

    @property
    def used(self) -> tuple[str, ...]:
        """All hardware it was measured on."""
        return (*self.hardware, *self.other_hardware)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mechanism:
    """What a paper needs of Gnomon, and how much of it there is."""

    name: str
    cluster: str
    what: str
    state: str
    """One of `STATES`."""
    note: str
    """What there is and what is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperCluster:
    """Papers that need the same mechanisms of Gnomon, and what is told of them on their page."""

    name: str
    title: str
    summary: str
    idea: tuple[str, ...]
    """Paragraphs."""
    when: tuple[str, ...]
    """When to use it, in paragraphs."""
    picture: Any
    """What its picture shows, as data."""
    mechanisms: tuple[Mechanism, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Amendment:
    """A change of expected figures after they were sealed."""

    seal: str
    """That of the figures as they were changed."""
    why: str


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
    sealed: str = ""
    """The seal of the expected figures as they were written down, before ours were computed."""
    amended: tuple[Amendment, ...] = ()
    """What was changed of them since, and why."""


def seal(expected: Iterable[Expected]) -> str:
    """A digest of what figures claim and tolerate, whatever they are called and in whatever order."""
    rows = sorted([float(one.claimed), one.unit, one.tolerance, one.kind, one.claim] for one in expected)
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:12]
