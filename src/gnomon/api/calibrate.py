"""A GPU measured operator by operator and fitted; later predictions for that chip use the fit."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnomon import catalog
from gnomon.api.results import Result
from gnomon.calibrate.collect import FAMILIES, collect, torch_module
from gnomon.calibrate.fit import fit_profile
from gnomon.cost.profile import forget_profiles, profile_from_dict, user_profiles
from gnomon.errors import CalibrationError, InputError, unknown_name
from gnomon.load.chips import chip as find_chip
from gnomon.load.files import read_yaml
from gnomon.paths import write_text
from gnomon.spec import Chip

BUDGET_S = 480.0


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


def calibrate(
    out: str | Path = "calibration.csv",
    *,
    source: str | Path | None = None,
    on: str | None = None,
    profile: str | Path | None = None,
    families: Sequence[str] | None = None,
    budget_s: float = BUDGET_S,
    progress: Callable[[int, int, str], None] | None = None,
) -> Calibrated:
    """Measure the first GPU into the CSV file `out`, which a later call goes on with, and fit a profile to it.

    `source` is a table measured before, on the chip `on`: it is fitted and nothing is measured. The profile goes
    to `profile`, or to the user's own profiles, where every later prediction for the chip finds it.
    """
    for name in families or ():
        if name not in FAMILIES:
            raise unknown_name("family of operators", str(name), FAMILIES, where="--families")
    if source is not None:
        if on is None:
            raise InputError("a table does not say which chip it was measured on", where="--on", hint="Give --on CHIP.")
        chip, table = find_chip(on), Path(source)
        rows: dict[str, int] = {}
        versions: dict[str, str] = {}
    else:
        chip, table, rows, versions = _measured(Path(out), families, budget_s, progress)
    made = fit_profile(table, chip, date=time.strftime("%Y-%m-%d"), versions=versions)
    if not made["families"]:
        raise CalibrationError("holds no operators", where=str(table))
    if source is not None and families is not None:
        kept = {name: found for name, found in made["families"].items() if _family_of(name) in families}
        made |= {"families": kept}
    if not made["families"]:
        raise CalibrationError("holds none of these families", where=str(table))
    target = _keep(made, chip, profile)
    return Calibrated(
        title=f"{chip.name}: a profile of {len(made['families'])} families of operators",
        chip=chip.name,
        table=str(table),
        profile=str(target),
        rows=rows,
        families=made["families"],
        power=made["power"],
    )


def _family_of(name: str) -> str:
    """The family of measurements that an operator in a number format belongs to."""
    kind, _, dtype = name.partition(".")
    return "fp8" if (kind, dtype) == ("gemm", "fp8") else kind.partition("_")[0]


def _measured(
    out: Path, families: Sequence[str] | None, budget_s: float, progress: Callable[[int, int, str], None] | None
) -> tuple[Chip, Path, dict[str, int], dict[str, str]]:
    from gnomon.engines.vllm.runner import versions

    chosen = FAMILIES if families is None else tuple(families)
    chip = find_chip(str(torch_module().cuda.get_device_name(0)))
    return chip, out, collect(out, chosen, budget_s=budget_s, progress=progress), versions()


def _keep(made: Mapping[str, Any], chip: Chip, profile: str | Path | None) -> Path:
    """Write the profile; families it lacks are filled from the shipped one, so that it is whole."""
    import yaml

    path = catalog.PROFILES / f"{chip.name.lower()}.yaml"
    shipped = read_yaml(path)["families"] if path.exists() else {}
    whole = dict(made) | {"families": {**shipped, **made["families"]}}
    profile_from_dict(whole, where="the new profile")
    target = Path(profile) if profile is not None else user_profiles() / f"{chip.name.lower()}.yaml"
    if profile is None:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise InputError(f"cannot be made: {problem.strerror or problem}", where=str(target.parent)) from None
    write_text(target, yaml.safe_dump(whole, sort_keys=False, width=100))
    forget_profiles()
    return target
