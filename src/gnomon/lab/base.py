"""Experiments and their outcomes: checks first, then the baseline against the technique."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field
from typing import Any

from gnomon.errors import InputError, unknown_name
from gnomon.units import parse_whole

SCHEMA = "gnomon.lab/1"
DEFERRED = 0.01
"""Share of a repeat's seconds that may be left to do when it ends."""
PREDICTIONS = ("prediction", "fit", "other kernel")
"""Kinds of predictions: independent of the run; by a formula with a constant fitted to this run; of another kernel than
the one that ran. What follows from the row's own times is an identity and none of these."""
Tell = Callable[[str], None]
"""A progress callback."""


@dataclass(frozen=True, slots=True)
class Size:
    """An integer parameter of an experiment; `on_cpu` is small enough for a test."""

    name: str
    what: str
    _: KW_ONLY
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
        """Whether the difference is within the bound; false for NaN."""
        return self.difference <= self.bound


@dataclass(frozen=True, slots=True, kw_only=True)
class LabRun:
    """Timing of one version: the median of its repeats; None on a CPU, where nothing is timed."""

    seconds: float | None
    spread: float | None
    """Interquartile range of the repeats over their median."""
    repeats: int
    gpu_bytes: int
    """Peak bytes that PyTorch allocated on the GPU."""
    host_bytes: int = 0
    """Bytes of host memory it holds."""
    samples_s: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sustained:
    """Steady-state seconds of a technique, deferred work included."""

    seconds: float
    how: str
    """Measured or derived, and from what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The baseline and the technique on the same work. `deferred_s` is work that the technique had left when its clock
    stopped: a gain that excludes it is that of a burst."""

    what: str
    shape: Mapping[str, Any] = field(default_factory=dict)
    plain: LabRun
    technique: LabRun
    deferred_s: float
    """Seconds of work left when the last repeat was timed; zero where every repeat ends idle."""
    sustained: Sustained | None = None
    """The technique with that work included; None where nothing is left, or where it is not known."""
    of_paper: bool = True
    """Whether this is what the paper proposes, or an alternative."""

    @property
    def burst(self) -> bool:
        """Whether the technique's seconds leave work for later."""
        return bool(self.technique.seconds and self.deferred_s > DEFERRED * self.technique.seconds)

    @property
    def burst_gain(self) -> float | None:
        """Speedup of a burst, where it is one."""
        return self._over(self.technique.seconds) if self.burst else None

    @property
    def gain(self) -> float | None:
        """Sustained speedup of the technique; None where it is not known."""
        if self.sustained is not None:
            return self._over(self.sustained.seconds)
        return None if self.burst else self._over(self.technique.seconds)

    def _over(self, seconds: float | None) -> float | None:
        return self.plain.seconds / seconds if self.plain.seconds and seconds else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """The gain of a row that Gnomon's models predict, and what kind of prediction it is."""

    gain: float
    by: str
    """The kernel or formula, and its inputs."""
    kind: str
    """One of `PREDICTIONS`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabClaim:
    """The paper's claim, and whether a run of the experiment can be compared with it."""

    what: str
    comparable: bool
    why: str
    """Why not, or under which conditions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Results of an experiment; `Outcome` adds where and when it ran."""

    checks: tuple[Check, ...]
    compared: tuple[Compared, ...]
    references: Mapping[str, LabRun] = field(default_factory=dict)
    """Other versions that were timed."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Rates of the machine and sizes in bytes and parameters, units in their names. Rates only where there is a GPU."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One run of an experiment."""

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
    claim: LabClaim
    predicted: Mapping[str, Predicted] = field(default_factory=dict)
    """Predictions of Gnomon's models for this machine, by row."""

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
            "compared": [row_to_dict(row, self.predicted.get(row.what)) for row in found.compared],
            "comparable": {"claim": self.claim.what, "comparable": self.claim.comparable, "why": self.claim.why},
            "references": {name: asdict(row) for name, row in found.references.items()},
            "facts": dict(found.facts),
            "device": self.device,
            "sm_hz": self.sm_hz,
            "date": self.date,
            "versions": dict(self.versions),
            "notes": [*found.notes, *self.notes, *beaten(found.compared)],
            "wall_s": self.wall_s,
        }


def row_to_dict(row: Compared, predicted: Predicted | None) -> dict[str, Any]:
    """A row as JSON has it. `predicted_gain` is set only for a prediction of the kernel that ran; `prediction` has any
    prediction and its kind."""
    gain = predicted.gain if predicted and predicted.kind == "prediction" else None
    gains = {"gain": row.gain, "burst": row.burst, "burst_gain": row.burst_gain, "predicted_gain": gain}
    return asdict(row) | gains | {"prediction": asdict(predicted) if predicted else None}


def row_from_dict(row: Mapping[str, Any]) -> Compared:
    """A row from its JSON."""
    return Compared(
        what=row["what"],
        shape=row["shape"],
        plain=LabRun(**row["plain"]),
        technique=LabRun(**row["technique"]),
        deferred_s=row["deferred_s"],
        sustained=Sustained(**row["sustained"]) if row["sustained"] else None,
        of_paper=row["of_paper"],
    )


def beaten(rows: Sequence[Compared]) -> tuple[str, ...]:
    """Notes on alternatives that are faster than the paper's headline, its first row with a gain."""
    best = next((row for row in rows if row.of_paper and row.gain), None)
    if best is None or best.gain is None:
        return ()
    return tuple(
        f"{row.what}, which is not what the paper proposes, is faster here: {row.gain:.3g}x against {best.gain:.3g}x "
        f"of {best.what}"
        for row in rows
        if not row.of_paper and row.gain and row.gain > best.gain
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """A technique and its baseline. `work(bench, sizes)` runs both on a `Bench`."""

    slug: str
    title: str
    checks: str
    """What it checks, in a sentence."""
    claim: LabClaim
    sizes: tuple[Size, ...]
    work: Callable[[Any, Mapping[str, int]], Findings]

    def read_sizes(self, given: Mapping[str, str], device: str) -> dict[str, int]:
        """All sizes: those given as strings, checked, and the device's defaults for the others."""
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


def parse_sizes(given: list[str]) -> dict[str, str]:
    """Values of `name=value` options by name."""
    found: dict[str, str] = {}
    for option in given:
        name, equals, value = option.partition("=")
        if not equals or not name or not value:
            raise InputError(f"'{option}' is not name=value", where="--size", hint="As in: --size parameters=1e9")
        if name in found:
            raise InputError(f"'{name}' is given twice", where="--size")
        found[name] = value
    return found
