"""Fitted coefficients of a chip: small, dated, with the error they had on data they had not seen.

Coefficients are fractions of the data sheet's figures or absolute times, so that a chip without a profile of
its own can borrow a sibling's and still answer with its own bandwidth and rates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from gnomon.catalog import read_profiles
from gnomon.cost.kernels import kernel_model
from gnomon.errors import CalibrationError, UnknownNameError
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
BORROWED = 1.5
"""A sibling's coefficients on another chip spread more: the H200's bf16 GEMM fit spreads by 0.12 on the published
H100 table of vLLM 0.24 (AIConfigurator 0.12, 3,425 shapes), and by 0.08 on the H200's own held-out shapes."""


def profile_from_dict(data: Mapping[str, Any], where: str) -> Profile:
    """A profile file's content. Other schemas, newer ones and incomplete files are refused."""
    if data.get("schema") != SCHEMA:
        raise CalibrationError(f"schema is '{data.get('schema')}', not '{SCHEMA}'", where=where)
    try:
        source = f"{data['chip']} {data['date']}"
        return Profile(
            chip=str(data["chip"]),
            source=source,
            date=str(data["date"]),
            families={key: _family(key, value, source) for key, value in data["families"].items()},
            power={name: float(data["power"][name]) for name in POWER},
        )
    except (KeyError, TypeError, ValueError, AttributeError, UnknownNameError) as problem:
        raise CalibrationError(f"is not a whole profile ({problem})", where=where) from None


def _family(key: str, data: Mapping[str, Any], source: str) -> Family:
    needed = kernel_model(key.partition(".")[0]).ranges
    coefficients = {name: float(data["coefficients"][name]) for name in needed}
    if not all(math.isfinite(value) for value in coefficients.values()):
        raise ValueError(f"{key} holds a coefficient that is not a number")
    return Family(
        coefficients=coefficients,
        spread=float(data["spread"]),
        shared=float(data["shared"]),
        provenance=Provenance.FITTED,
        source=source,
    )


@cache
def profiles() -> dict[str, Profile]:
    """All shipped profiles by chip."""
    found = (profile_from_dict(data, where) for where, data in read_profiles())
    return {profile.chip: profile for profile in found}


def profile_for(chip: Chip) -> Profile:
    """The chip's own profile, else its nearest sibling's with wider bands, which says so."""
    known = profiles()
    if chip.name in known:
        return known[chip.name]
    siblings = [p for p in known.values() if p.chip.split("-")[0][0] == chip.name[0]] or list(known.values())
    lender = siblings[0]
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
