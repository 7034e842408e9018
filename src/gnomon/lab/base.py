"""Experiments and their outcomes: checks first, then the baseline against the technique."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from typing import Any, Self

from gnomon.errors import InputError, unknown_name
from gnomon.spec import Chip
from gnomon.units import parse_whole

SCHEMA = "gnomon.lab/1"
FP32_BYTES, BF16_BYTES = 4, 2
"""Of a value."""
DEFERRED = 0.01
"""Share of a repeat's seconds that may be left to do when it ends."""
PREDICTIONS = ("prediction", "fit", "other kernel")
"""Kinds of predictions: independent of the run; by a formula with a constant fitted to this run; of another kernel than
the one that ran. What follows from the row's own times is an identity and none of these."""
UNITS = ("seconds", "bytes", "error")
"""What a gain is of: plain over technique."""
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

    def each(self, count: int) -> LabRun:
        """One of so many alike that were timed together."""
        seconds = None if self.seconds is None else self.seconds / count
        return replace(self, seconds=seconds, samples_s=tuple(sample / count for sample in self.samples_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sustained:
    """Steady-state seconds of a technique, deferred work included."""

    seconds: float
    how: str
    """Measured or derived, and from what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """Bytes or errors of both versions, for a gain that is not of seconds."""

    plain: float
    technique: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LabRow:
    """What is compared, known before it runs: all that a prediction sees of it."""

    what: str
    shape: Mapping[str, Any] = field(default_factory=dict)
    unit: str = "seconds"

    def compared(
        self, plain: LabRun, technique: LabRun, *, deferred_s: float, of_paper: bool = True,
        shape: Mapping[str, Any] | None = None, amounts: Amounts | None = None,
    ) -> Compared:  # fmt: skip
        """The row with both runs; `shape` where the run adds to it. A gain of bytes is of those on the GPU unless
        `amounts` says otherwise."""
        if amounts is None and self.unit == "bytes":
            amounts = Amounts(plain=plain.gpu_bytes, technique=technique.gpu_bytes)
        return Compared(
            what=self.what, shape=self.shape if shape is None else shape, unit=self.unit, amounts=amounts, plain=plain,
            technique=technique, deferred_s=deferred_s, of_paper=of_paper,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The baseline and the technique on the same work. `deferred_s` is work that the technique had left when its clock
    stopped: a gain that excludes it is that of a burst."""

    what: str
    shape: Mapping[str, Any] = field(default_factory=dict)
    unit: str = "seconds"
    """One of `UNITS`: what the paper's technique reduces."""
    amounts: Amounts | None = None
    """Where the unit is bytes or error."""
    plain: LabRun
    technique: LabRun
    deferred_s: float
    """Seconds of work left when the last repeat was timed; zero where every repeat ends idle."""
    sustained: Sustained | None = None
    """The technique with that work included; None where nothing is left, or where it is not known."""
    of_paper: bool = True
    """Whether this is what the paper proposes, or an alternative."""

    def __post_init__(self) -> None:
        if self.unit not in UNITS or (self.unit == "seconds") != (self.amounts is None):
            raise InputError(f"a gain of '{self.unit}' with amounts {self.amounts}", where=self.what)

    @property
    def row(self) -> LabRow:
        """The row without anything that was measured."""
        return LabRow(what=self.what, shape=self.shape, unit=self.unit)

    @property
    def burst(self) -> bool:
        """Whether the technique's seconds leave work for later, and the gain is of seconds."""
        timed = self.technique.seconds if self.amounts is None else None
        return bool(timed and self.deferred_s > DEFERRED * timed)

    @property
    def burst_gain(self) -> float | None:
        """Speedup of a burst, where it is one."""
        return self._over(self.technique.seconds) if self.burst else None

    @property
    def gain(self) -> float | None:
        """Sustained gain of the technique in its unit; None where it is not known."""
        if self.amounts is not None:
            known = self.amounts.plain > 0 and self.amounts.technique > 0
            return self.amounts.plain / self.amounts.technique if known else None
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
    kind: str = "prediction"
    """One of `PREDICTIONS`."""
    plain_s: float | None = None
    technique_s: float | None = None

    @classmethod
    def of_seconds(cls, plain_s: float, technique_s: float, by: str) -> Self:
        """The prediction of both versions' seconds."""
        return cls(gain=plain_s / technique_s, by=by, plain_s=plain_s, technique_s=technique_s)

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}


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
            "predicted_at_run": {what: one.to_dict() for what, one in self.predicted.items()},
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
    gains = {"gain": row.gain, "burst": row.burst, "burst_gain": row.burst_gain}
    return asdict(row) | gains | predicted_to_dict(predicted)


def predicted_to_dict(predicted: Predicted | None) -> dict[str, Any]:
    """The part of a row's JSON that later models may change."""
    gain = predicted.gain if predicted and predicted.kind == "prediction" else None
    return {"predicted_gain": gain, "prediction": predicted.to_dict() if predicted else None}


def row_from_dict(row: Mapping[str, Any]) -> Compared:
    """A row from its JSON."""
    return Compared(
        what=row["what"],
        shape=row["shape"],
        unit=row.get("unit", "seconds"),
        amounts=Amounts(**row["amounts"]) if row.get("amounts") else None,
        plain=LabRun(**row["plain"]),
        technique=LabRun(**row["technique"]),
        deferred_s=row["deferred_s"],
        sustained=Sustained(**row["sustained"]) if row["sustained"] else None,
        of_paper=row["of_paper"],
    )


def beaten(rows: Sequence[Compared]) -> tuple[str, ...]:
    """Notes on alternatives that are faster than the paper's, both against the same baseline at the same sizes."""
    found = []
    for row in rows:
        papers = [one for one in rows if one.of_paper and one.gain and (one.unit, one.plain) == (row.unit, row.plain)]
        if row.of_paper or not row.gain or not papers:
            continue
        first = papers[0]
        if first.gain and row.gain > first.gain:
            found.append(
                f"{row.what}, which is not what the paper proposes, is faster here: {row.gain:.3g}x against "
                f"{first.gain:.3g}x of {first.what}"
            )
    return tuple(found)


class RateUnknown(Exception):
    """A rate of the machine that a prediction needs and that nobody measured yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Rates of the machine that a prediction may read: those an experiment names, never times of the row itself."""

    names: tuple[str, ...]
    measured: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> float:
        if name not in self.names:
            raise KeyError(f"{name} is not among the rates that the experiment names")
        found = self.measured.get(name)
        if found is None:
            raise RateUnknown(name)
        return float(found)


def _unpredicted(row: LabRow, rates: Rates, chip: Chip) -> Predicted | None:
    return None


def _unplanned(sizes: Mapping[str, int]) -> Sequence[LabRow]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """A technique and its baseline. `work(bench, sizes)` runs both on a `Bench`; `predict` says beforehand what it will
    find."""

    slug: str
    title: str
    checks: str
    """What it checks, in a sentence."""
    claim: LabClaim
    sizes: tuple[Size, ...]
    work: Callable[[Any, Mapping[str, int]], Findings]
    rows: Callable[[Mapping[str, int]], Sequence[LabRow]] = _unplanned
    """What it compares, before it runs; what a run adds to a row's shape is not needed to predict it."""
    predict: Callable[[LabRow, Rates, Chip], Predicted | None] = _unpredicted
    rates: tuple[str, ...] = ()
    """Facts that `predict` reads: rates of the machine, measured separately."""
    fitted_to: tuple[tuple[str, str], ...] = ()
    """Runs that a constant of its formula is fitted to: device and date."""

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
