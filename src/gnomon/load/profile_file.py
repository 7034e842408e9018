"""How a profile's file is read: other schemas, incomplete files and figures out of range are refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnomon.cost.clock import ATTENTION, BURST, BUSY, KEYS, LIMIT, NARROW
from gnomon.cost.kernels import MODELS, kernel_model
from gnomon.cost.profile import Family, Profile
from gnomon.cost.residual import residual_from_dict
from gnomon.errors import CalibrationError, UnknownNameError
from gnomon.graph.dtypes import GEMM_FORMATS, WIDTH, without_kernel
from gnomon.load.schemas import check_schema
from gnomon.spec import Provenance

SCHEMA = "gnomon.profile/1"
POWER = ("idle_w", "active_w", "j_per_flop", "j_per_byte")
"""Watts of an idle chip, watts of a busy one before it does anything, and joules of a FLOP and of a byte."""
MOST_POWER = {"idle_w": 5e3, "active_w": 5e3, "j_per_flop": 1e-9, "j_per_byte": 1e-6}
WIDEST = 3.0
"""A spread beyond this is no estimate."""


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
            system_spread=_number(data.get("system_spread", 0.0), "system_spread", 0.0, WIDEST),
            prompt_spread=_number(data.get("prompt_spread", 0.0), "prompt_spread", 0.0, WIDEST),
        )
        if not profile.families:
            raise ValueError(f"it holds none of {', '.join(MODELS)}")
        return profile
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, UnknownNameError) as problem:
        reason = f"it has no {problem}" if isinstance(problem, KeyError) else problem
        raise CalibrationError(f"is not a whole profile ({reason})", where=where) from None


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
    if without_kernel(rest.partition(".")[0]) not in (*WIDTH, *GEMM_FORMATS):
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
