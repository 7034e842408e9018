"""What an experiment is, and what one run of it gives: checks first, then the plain version beside the technique."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from gnomon.errors import InputError, unknown_name
from gnomon.units import parse_whole

SCHEMA = "gnomon.lab/1"
Tell = Callable[[str], None]
"""Told what is being done, in a few words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A whole number that an experiment can be run with; `on_cpu` is small enough for a test."""

    name: str
    what: str
    default: int
    on_cpu: int
    least: int = 1
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A difference that was measured, and the largest that is allowed."""

    what: str
    difference: float
    bound: float

    @property
    def ok(self) -> bool:
        """Not so where the difference is no number."""
        return self.difference <= self.bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Seconds of one version, the middle of its repeats; none on a CPU, where times would claim nothing."""

    seconds: float | None
    spread: float | None
    """The middle half of the repeats over their median."""
    repeats: int
    gpu_bytes: int
    """The most that PyTorch held on the GPU meanwhile."""
    host_bytes: int = 0
    """Host memory that it keeps for itself."""
    samples_s: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The plain version and the technique on the same work."""

    what: str
    shape: Mapping[str, Any] = field(default_factory=dict)
    plain: Measured
    technique: Measured

    @property
    def gain(self) -> float | None:
        """How many times quicker the technique is."""
        if not self.plain.seconds or not self.technique.seconds:
            return None
        return self.plain.seconds / self.technique.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What an experiment itself can say; `Outcome` adds where and when."""

    checks: tuple[Check, ...]
    compared: tuple[Compared, ...]
    references: Mapping[str, Measured] = field(default_factory=dict)
    """Other versions timed on the way."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Rates of the machine and sizes in bytes and parameters, units in their names. Rates only where there is a GPU."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One run."""

    slug: str
    title: str
    sizes: Mapping[str, int]
    findings: Findings
    device: str
    sm_hz: float | None
    date: str
    versions: Mapping[str, str]
    notes: tuple[str, ...]
    wall_s: float
    predicted: Mapping[str, float] = field(default_factory=dict)
    """Gains that Gnomon's own models say of this machine, by row."""

    @property
    def ok(self) -> bool:
        return bool(self.findings.checks) and all(check.ok for check in self.findings.checks)

    def to_dict(self) -> dict[str, Any]:
        found = self.findings
        return {
            "schema": SCHEMA,
            "slug": self.slug,
            "title": self.title,
            "ok": self.ok,
            "sizes": dict(self.sizes),
            "checks": [asdict(check) | {"ok": check.ok} for check in found.checks],
            "compared": [
                asdict(row) | {"gain": row.gain, "predicted_gain": self.predicted.get(row.what)}
                for row in found.compared
            ],
            "references": {name: asdict(row) for name, row in found.references.items()},
            "facts": dict(found.facts),
            "device": self.device,
            "sm_hz": self.sm_hz,
            "date": self.date,
            "versions": dict(self.versions),
            "notes": [*found.notes, *self.notes],
            "wall_s": self.wall_s,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """A technique and its plain version. `work(bench, sizes)` runs both on a `Bench`."""

    slug: str
    title: str
    checks: str
    """What it checks, in a sentence."""
    sizes: tuple[Size, ...]
    work: Callable[[Any, Mapping[str, int]], Findings]

    def read_sizes(self, given: Mapping[str, str], device: str) -> dict[str, int]:
        """All sizes: those given as text, checked, and the device's defaults for the others."""
        known = {size.name: size for size in self.sizes}
        for name in given:
            if name not in known:
                raise unknown_name("size", name, known, where="--size")
        found = {}
        for name, size in known.items():
            value = size.on_cpu if device == "cpu" else size.default
            where = f"--size {name}"
            found[name] = parse_whole(given[name], where, least=size.least, most=size.most) if name in given else value
        return found


def words_of_sizes(given: list[str]) -> dict[str, str]:
    """`name=value` words by name."""
    found: dict[str, str] = {}
    for word in given:
        name, equals, value = word.partition("=")
        if not equals or not name or not value:
            raise InputError(f"'{word}' is not name=value", where="--size", hint="As in: --size parameters=1e9")
        if name in found:
            raise InputError(f"'{name}' is given twice", where="--size")
        found[name] = value
    return found
