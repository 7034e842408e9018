"""A GPU measured operator by operator and fitted; later predictions for that chip use the fit."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gnomon import catalog
from gnomon.calibrate.collect import FAMILIES, Log, notes_of
from gnomon.calibrate.fit import LEAST_ROWS
from gnomon.calibrate.measured import profile as fit_profile
from gnomon.errors import CalibrationError, InputError, unknown_name
from gnomon.load.files import is_file, read_yaml
from gnomon.load.profile_file import profile_from_dict
from gnomon.load.profiles import forget_profiles, user_profiles
from gnomon.paths import write_text
from gnomon.spec import Chip
from gnomon.spec.answers import Result
from gnomon.spec.questions.running import BUDGET_S, CalibrateQuestion

PROFILE, MOST_BYTES = re.compile(rb"^schema: gnomon\.(profile|card)/\d", re.MULTILINE), 4096
TABLE = "calibration.csv"


@dataclass(frozen=True, kw_only=True)
class Calibrated(Result):
    """A table of measurements and the profile fitted to it; errors are on shapes the fit had not seen."""

    SCHEMA = "calibrate"
    title: str
    chip: str
    table: str
    profile: str
    rows: Mapping[str, int]
    families: Mapping[str, Any]
    power: Mapping[str, float]
    skipped: Mapping[str, int] = field(default_factory=dict)
    """Why kernels could not be measured, and how many."""
    notes: Sequence[str] = ()
    in_use: bool = True
    """Whether predictions find the profile where it is."""


@dataclass(frozen=True, kw_only=True)
class MeasuredTable:
    """A table, what it was measured on, and how it went."""

    chip: Chip
    table: Path
    date: str
    versions: Mapping[str, str] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    source: str = ""
    """Where the table came from, if it was made of something else."""

    @property
    def named(self) -> str:
        return self.source or str(self.table)


def calibrated(question: CalibrateQuestion, progress: Callable[[int, int, str], None] | None = None) -> Calibrated:
    """The first GPU of this machine, measured into the question's table, and the profile fitted to it."""
    from gnomon.calibrate.session import measure

    budget = BUDGET_S if question.budget is None else question.budget
    table, families = Path(question.out or TABLE), question.families or FAMILIES
    log, chip, rows = measure(table, families, budget_s=budget, force=question.force, tell=progress)
    if progress:
        progress(1, 1, "fitting")
    return fitted(_of(log, chip, rows), profile=question.profile)


def check_families(families: Sequence[str] | None) -> None:
    for name in families or ():
        if name not in FAMILIES:
            raise unknown_name("family of operators", str(name), FAMILIES, where="--families")


def refuse_foreign(path: Path) -> None:
    """A file that is no profile of ours is not overwritten by one."""
    if not is_file(path):
        return
    try:
        with path.open("rb") as file:
            begins = file.read(MOST_BYTES)
    except OSError as problem:
        raise InputError(f"'{path}' cannot be read: {problem.strerror or problem}", where="--profile") from None
    if begins and not PROFILE.search(begins):
        raise InputError(f"'{path}' is not a Gnomon profile", where="--profile", hint="Give a new file.")


def fitted(
    found: MeasuredTable,
    *,
    families: Sequence[str] | None = None,
    profile: str | Path | None = None,
    framework: str = "",
) -> Calibrated:
    """The profile of a table, kept where it is used or in the file `profile`; of these families alone where named."""
    shipped = _shipped(found.chip, framework)
    made = fit_profile(
        found.table,
        found.chip,
        date=found.date,
        versions=found.versions,
        notes=found.notes,
        watts=shipped.get("power"),
        wanted=lambda name: families is None or family_of(name) in families,
        where=found.named,
    )
    if not made["families"]:
        hint = f"A family needs {LEAST_ROWS} rows of one operator in one format."
        what = "operators that can be fitted" if families is None else "rows that can be fitted of these families"
        raise CalibrationError(f"holds no {what}", where=found.named, hint=hint)
    if framework:
        made = {"schema": made["schema"], "chip": made["chip"], "framework": framework} | made
    kept = _from_shipped(shipped) | (_before(found.chip, framework) if families is not None else {})
    target = _keep(made | {"families": kept | made["families"]}, profile, framework)
    return Calibrated(
        title=f"{found.chip.name}: a profile of {_counted(len(made['families']))} of operators",
        chip=found.chip.name,
        table=found.named,
        profile=str(target),
        in_use=profile is None,
        rows=found.rows,
        families=made["families"],
        power=made["power"],
        skipped=found.skipped,
        notes=tuple(made.get("notes", ())),
    )


def _counted(families: int) -> str:
    return "1 family" if families == 1 else f"{families} families"


def _of(log: Log, chip: Chip, rows: Mapping[str, int]) -> MeasuredTable:
    reasons: dict[str, int] = {}
    for reason in log.skipped.values():
        reasons[reason] = reasons.get(reason, 0) + 1
    return MeasuredTable(
        chip=chip,
        table=log.table,
        date=log.head["date"],
        versions=log.head["versions"],
        rows=rows,
        skipped=reasons,
        notes=notes_of(log.head | {"forced": log.forced}),
    )


def family_of(name: str) -> str:
    """The family of measurements that an operator in a number format belongs to."""
    kind, dtype = name.split(".")[:2]
    if kind == "gemm" and dtype != "bf16" and dtype in FAMILIES:
        return dtype
    return kind.partition("_")[0]


def _named(chip: str, framework: str) -> str:
    return f"{chip.lower()}{'.' * bool(framework)}{framework}.yaml"


def _shipped(chip: Chip, framework: str) -> dict[str, Any]:
    """The profile that comes with Gnomon, whose families stand in for those that were not measured."""
    path = catalog.PROFILES / _named(chip.name, framework)
    return read_yaml(path) if path.is_file() else {}


def _before(chip: Chip, framework: str) -> dict[str, Any]:
    """Families of the user's own profile, fitted earlier, which stay unless they are fitted again."""
    path = user_profiles() / _named(chip.name, framework)
    found = read_yaml(path)["families"] if path.is_file() else {}
    return {name: family for name, family in found.items() if "shipped with Gnomon" not in str(family.get("source"))}


def _from_shipped(shipped: Mapping[str, Any]) -> dict[str, Any]:
    """The families of the shipped profile, each marked as such in its source."""
    label = f"shipped with Gnomon, {shipped.get('date')}"
    return {
        name: dict(family) | {"source": ", ".join(filter(None, [label, family.get("source")]))}
        for name, family in shipped.get("families", {}).items()
    }


def _keep(whole: Mapping[str, Any], profile: str | Path | None, framework: str) -> Path:
    import yaml

    profile_from_dict(whole, where="the new profile")
    target = Path(profile) if profile is not None else user_profiles() / _named(whole["chip"], framework)
    if profile is None:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise InputError(f"cannot be made: {problem.strerror or problem}", where=str(target.parent)) from None
    plain = json.loads(json.dumps(whole))  # families that are one object would be written as references
    write_text(target, yaml.safe_dump(plain, sort_keys=False, width=100))
    forget_profiles()
    return target
