"""Fitted coefficients of a chip: small, dated, with the error they had on data they had not seen.

Coefficients are fractions of the data sheet's figures or absolute times, so that a chip without a profile of
its own can borrow a sibling's and still answer with its own bandwidth and rates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gnomon import catalog
from gnomon.cost.kernels import MODELS, kernel_model
from gnomon.errors import CalibrationError, UnknownNameError
from gnomon.load.files import read_yaml
from gnomon.paths import home
from gnomon.spec import Chip, Provenance


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    chip: str
    source: str
    date: str
    families: Mapping[str, Family]
    power: Mapping[str, float]
    borrowed: bool = False

    def family(self, kind: str, dtype: str) -> Family:
        """The best evidence for an operator: its own format's fit, else the family's."""
        for key in (f"{kind}.{dtype}", kind, f"{kind}.bf16"):
            if key in self.families:
                return self.families[key]
        raise KeyError(f"profile of {self.chip} has no family {kind}.{dtype}")


SCHEMA = "gnomon.profile/1"
POWER = ("idle_w", "active_w", "j_per_flop", "j_per_byte")
"""Watts of an idle chip, watts of a busy one before it does anything, and joules of a FLOP and of a byte."""
MOST_POWER = {"idle_w": 5e3, "active_w": 5e3, "j_per_flop": 1e-9, "j_per_byte": 1e-6}
WIDEST = 3.0
"""A spread beyond this is no estimate."""
BORROWED = 1.5
"""A sibling's coefficients on another chip spread more: the H200's bf16 GEMM fit spreads by 0.12 on the published
H100 table of vLLM 0.24 (AIConfigurator 0.12, 3,425 shapes), and by 0.08 on the H200's own held-out shapes."""


def profile_from_dict(data: Mapping[str, Any], where: str) -> Profile:
    """A profile file's content. Other schemas, newer ones and incomplete files are refused."""
    if data.get("schema") != SCHEMA:
        raise CalibrationError(f"schema is '{data.get('schema')}', not '{SCHEMA}'", where=where)
    try:
        source = f"{data['chip']} {data['date']}"
        profile = Profile(
            chip=catalog.chip(str(data["chip"])).name,
            source=source,
            date=str(data["date"]),
            families={key: _family(key, value, source) for key, value in data["families"].items()},
            power={name: _number(data["power"][name], name, 0.0, MOST_POWER[name]) for name in POWER},
        )
        for kind in MODELS:
            profile.family(kind, "bf16")
        return profile
    except (KeyError, TypeError, ValueError, AttributeError, UnknownNameError) as problem:
        raise CalibrationError(f"is not a whole profile ({problem})", where=where) from None


def _family(key: str, data: Mapping[str, Any], source: str) -> Family:
    ranges = kernel_model(key.partition(".")[0]).ranges
    given = data["coefficients"]
    return Family(
        coefficients={
            name: _number(given[name], f"{key} {name}", low, high) for name, (_, low, high) in ranges.items()
        },
        spread=_number(data["spread"], f"{key} spread", 0.0, WIDEST),
        shared=_number(data["shared"], f"{key} shared", 0.0, WIDEST),
        provenance=Provenance.FITTED,
        source=source,
    )


def _number(value: Any, what: str, low: float, high: float) -> float:
    """A number within its range; fits that end at the edge were rounded."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{what} is not a number")
    if not low * (1 - 1e-3) <= value <= high * (1 + 1e-3):
        raise ValueError(f"{what} is not between {low:g} and {high:g}")
    return float(value)


def user_profiles() -> Path:
    """The folder of profiles that `gnomon calibrate` made on this machine."""
    return home() / "profiles"


def profiles() -> dict[str, Profile]:
    """All profiles by chip: the shipped ones, and in their place the user's own."""
    return _profiles(user_profiles())


@cache
def _profiles(own: Path) -> dict[str, Profile]:
    found = [profile_from_dict(data, where) for where, data in catalog.shipped_profiles()]
    for path in sorted(own.glob("*.yaml")):
        found.append(profile_from_dict(read_yaml(path), str(path)))
    return {profile.chip: profile for profile in found}


def forget_profiles() -> None:
    """Read them again: a file has changed."""
    _profiles.cache_clear()


def profile_for(chip: Chip) -> Profile:
    """The chip's own profile, else its nearest sibling's with wider bands, which says so."""
    known = profiles()
    if chip.name in known:
        return known[chip.name]
    siblings = [p for p in known.values() if catalog.chip(p.chip).architecture == chip.architecture]
    lender = (siblings or list(known.values()))[0]
    widened = {key: _widen(family, chip, lender) for key, family in lender.families.items()}
    return Profile(
        chip=chip.name,
        source=f"borrowed from {lender.source}",
        date=lender.date,
        families=widened,
        power=lender.power,
        borrowed=True,
    )


def _widen(family: Family, chip: Chip, lender: Profile) -> Family:
    return Family(
        coefficients=family.coefficients,
        spread=family.spread * BORROWED,
        shared=min(family.spread * BORROWED, family.shared + 0.05),
        provenance=Provenance.FITTED,
        source=f"{lender.source}, scaled by the data sheet of {chip.name}",
    )
