"""What a profile holds, and how its file is read: fitted coefficients of a chip, small, dated, with the error they had
on data they had not seen.

Coefficients are fractions of the data sheet's figures or absolute times, so that another chip can borrow them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import hypot
from typing import Any

from gnomon.cost.clock import ATTENTION, BURST, BUSY, KEYS, LIMIT, NARROW
from gnomon.cost.kernels import MODELS, UNFITTED, kernel_model
from gnomon.cost.paces import Pace, pace
from gnomon.cost.residual import Residual, residual_from_dict
from gnomon.errors import CalibrationError, UnknownNameError
from gnomon.graph.dtypes import PRODUCTS, WIDTH
from gnomon.load.schemas import check_schema
from gnomon.spec import Provenance

SCHEMA = "gnomon.profile/1"
POWER = ("idle_w", "active_w", "j_per_flop", "j_per_byte")
"""Watts of an idle chip, watts of a busy one before it does anything, and joules of a FLOP and of a byte."""
MOST_POWER = {"idle_w": 5e3, "active_w": 5e3, "j_per_flop": 1e-9, "j_per_byte": 1e-6}
WIDEST = 3.0
"""A spread beyond this is no estimate."""
ELSEWHERE = 0.12
"""What whole steps on a chip of which only tables are known may be off by beyond what their operators may: other
machines, driver and engine versions, settings. Fitted so that the bands of every second published vLLM deployment of
2025-26 (InferenceX, H100 and B200) hold 88% of them; the other half's then hold 85%."""
HALF = ("bf16", "fp16")
"""Formats that run alike."""


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
    residual: Residual | None = None
    """What the formula leaves over, where a fit has learnt it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    chip: str
    """The one it was fitted on: whoever borrows it errs as that does."""
    source: str
    date: str
    families: Mapping[str, Family]
    power: Mapping[str, float]
    borrowed: bool = False
    elsewhere: float = 0.0
    """What all its operators together may be off by, where it was not measured by whoever uses it."""
    architecture: str = ""
    """Of the chip it prices, where that is settled."""

    def family(self, kind: str, dtype: str, framework: str = "") -> Family:
        """The best evidence for an operator: a framework's own fit, its own format's, else the family's, else that of
        any framework there is."""
        own = (f"{kind}.{dtype}.{framework}", f"{kind}.bf16.{framework}") if framework else ()
        fitted = {f"{kind}.{dtype}", f"{kind}.{dtype}.{framework}"} & self.families.keys()
        paced = None if fitted else pace(kind, dtype, self.architecture)
        if paced:
            return _paced(self.family(kind, paced.base, framework), paced)
        for key in (*own, f"{kind}.{dtype}", kind, f"{kind}.bf16"):
            if key in self.families:
                return self.families[key] if dtype in key or dtype in HALF else _unfitted(self.families[key], dtype)
        others = [key for key in self.families if key.partition(".")[0] == kind]
        if others:
            return self.families[min(others, key=lambda key: (key.split(".")[1] != dtype, key))]
        raise KeyError(f"profile of {self.chip} has no family {kind}.{dtype}")


def _unfitted(family: Family, dtype: str) -> Family:
    """A fit in another format than the one that is asked for."""
    return replace(
        family,
        spread=hypot(family.spread, UNFITTED),
        shared=hypot(family.shared, UNFITTED / 2),
        source=f"{family.source}, none in {dtype}",
    )


def _paced(family: Family, found: Pace) -> Family:
    """A family in a format that nobody has fitted on this chip."""
    c = dict(family.coefficients)
    c |= {"rate": c["rate"] * found.rate, "memory": c["memory"] * found.memory}
    c["launch_us"] += found.launch_us
    return replace(
        family,
        coefficients=c,
        residual=None,
        spread=hypot(family.spread, found.spread),
        shared=hypot(family.shared, found.spread / 2),
        source=f"{family.source}, paced by {found.source}",
    )


def profile_from_dict(data: Mapping[str, Any], where: str, whose: str = "") -> Profile:
    """A profile file's content, with the families it holds. Other schemas and incomplete files are refused. What is
    not shipped says `whose` it is."""
    check_schema(data.get("schema"), SCHEMA, where)
    try:
        source = f"{whose}{data['chip']} {data['date']}"
        end = f".{data['framework']}" if "framework" in data else ""
        profile = Profile(
            chip=str(data["chip"]),
            source=source,
            date=str(data["date"]),
            families={f"{key}{end}": _family(key, it, source) for key, it in _mapping(data, "families").items()},
            power=_power(_mapping(data, "power")),
            elsewhere=_number(data.get("elsewhere", 0.0), "elsewhere", 0.0, WIDEST),
        )
        if not profile.families:
            raise ValueError(f"it holds none of {', '.join(MODELS)}")
        return profile
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, UnknownNameError) as problem:
        told = f"it has no {problem}" if isinstance(problem, KeyError) else problem
        raise CalibrationError(f"is not a whole profile ({told})", where=where) from None


def _mapping(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = data[name]
    if not isinstance(found, Mapping):
        raise ValueError(f"{name} is no mapping of fields")
    return found


def _power(data: Mapping[str, Any]) -> dict[str, float]:
    """All of the board's figures, and those of its clock under the limit where they were measured."""
    needed = {name: _number(data[name], name, 0.0, MOST_POWER[name]) for name in POWER}
    if none := [name for name, value in needed.items() if value == 0]:
        raise ValueError(f"{none[0]} is not above 0")
    limits = {LIMIT: (0.2, 1.2), BURST: (0.0, 1e-9), ATTENTION: (0.2, 5.0)}
    given = {name: _number(data[name], name, *limits[name]) for name in KEYS if name in data}
    beside = {BUSY: (0.0, 5e3), NARROW: (0.2, 5.0)}
    more = {name: _number(data[name], name, *ends) for name, ends in beside.items() if name in data}
    return needed | (given | more if len(given) == len(KEYS) else {})


def _family(key: str, data: Mapping[str, Any], source: str) -> Family:
    kind, _, rest = str(key).partition(".")
    if rest.partition(".")[0] not in (*WIDTH, *PRODUCTS):
        raise ValueError(f"the family '{key}' is not an operator and its number format, as in gemm.bf16")
    if not isinstance(data, Mapping):
        raise ValueError(f"{key} is no mapping of fields")
    model, given = kernel_model(kind), _mapping(data, "coefficients")
    spread = _number(data["spread"], f"{key} spread", 0.0, WIDEST)
    ranges = {**model.ranges, **{name: ends for name, ends in model.some.items() if name in given}}
    return Family(
        coefficients={
            name: _number(given[name], f"{key} {name}", low, high) for name, (_, low, high) in ranges.items()
        },
        spread=spread,
        shared=_number(data["shared"], f"{key} shared, a part of its spread,", 0.0, spread),
        provenance=Provenance.FITTED,
        source=f"{source}, {data['source']}" if "source" in data else source,
        residual=residual_from_dict(data["residual"], model.axes) if "residual" in data else None,
    )


def _number(value: Any, what: str, low: float, high: float) -> float:
    """A number within its range; fits that end at the edge were rounded."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{what} is not a number")
    if not low * (1 - 1e-3) <= value <= high * (1 + 1e-3):
        raise ValueError(f"{what} is not between {low:g} and {high:g}")
    return float(value)
