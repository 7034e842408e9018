"""Models and chips that come as objects of Python: their figures are checked as those of files are.

A `Model` is held to what a file of shapes is held to. Chips and their surroundings must have figures that are numbers
and above zero; whether anything like them was ever built is not asked, as a what-if needs no chip that exists.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from functools import cache, lru_cache
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, get_args, get_type_hints

from gnomon.errors import GnomonError, InputError, shown
from gnomon.load.shapes import model_from_dict, model_to_dict
from gnomon.spec import Chip, Cluster, Model, Pool

FROM_ZERO = frozenset({
    "year", "latency_s", "idle_w", "price_usd_h", "g_co2_kwh", "nvme_bytes", "nvme_read_bytes_s", "nvme_write_bytes_s",
    "power_limit_w",
})  # fmt: skip
"""Figures that may be zero; all others are above it."""
RATES = ("rates_flops", "sparse_flops")
"""Mappings of figures."""


def checked_model(model: Model) -> Model:
    """The model, once its shapes can be those of a network."""
    try:
        _check_model(model)
    except GnomonError:
        raise
    except Exception as error:  # a field of another type than a model's
        raise InputError(f"is not a model that can be read: {error}", where=_name(model)) from None
    return model


@lru_cache(maxsize=64)
def _check_model(model: Model) -> None:
    model_from_dict(model_to_dict(model), _name(model))


def _name(model: Model) -> str:
    return model.name if isinstance(model.name, str) and model.name else "model"


def checked_pool(pool: Pool, where: str) -> Pool:
    """The pool, once every figure of its chip, node, host and links can be one."""
    _check_noun(pool, f"{where}, {pool.chip.name if isinstance(pool.chip, Chip) else 'chip'}")
    return pool


def checked_cluster(cluster: Cluster, where: str) -> Cluster:
    """The cluster, once it has pools and each is one."""
    if not isinstance(cluster.pools, tuple) or not cluster.pools:
        raise InputError("has no pools", where=where)
    for pool in cluster.pools:
        if not isinstance(pool, Pool):
            raise InputError(f"{shown(pool)} is not a Pool", where=where)
        checked_pool(pool, where)
    return cluster


@cache
def _hints(noun: Any) -> dict[str, Any]:
    return get_type_hints(noun)


def _check_noun(noun: Any, spot: str) -> None:
    kind: Any = type(noun)
    for name, hint in _hints(kind).items():
        value, kinds = getattr(noun, name), get_args(hint) if isinstance(hint, UnionType) else (hint,)
        if value is None and NoneType in kinds:
            continue
        if name in RATES:
            _check_rates(value, name == RATES[0], f"{spot}, {name}")
        elif dataclasses.is_dataclass(kinds[0]):
            if type(value) is not kinds[0]:
                raise InputError(f"{shown(value)} is not a {name}", where=f"{spot}, {name}")
            _check_noun(value, f"{spot}, {name}")
        elif hint in (str, bool) and not isinstance(value, hint):
            raise InputError(f"{shown(value)} is not {'a text' if hint is str else 'true or false'}",
                             where=f"{spot}, {name}")  # fmt: skip
        elif hint in (int, float):
            _check_figure(value, hint, name in FROM_ZERO, f"{spot}, {name}")


def _check_rates(rates: Any, needed: bool, spot: str) -> None:
    if not isinstance(rates, Mapping) or (needed and not rates):
        raise InputError(f"{shown(rates)} is not a mapping of number formats to rates", where=spot)
    for dtype, rate in rates.items():
        _check_figure(rate, float, False, f"{spot}.{dtype}")


def _check_figure(value: Any, kind: type, from_zero: bool, spot: str) -> None:
    number = isinstance(value, Integral if kind is int else Real) and not isinstance(value, bool)
    if not number or not math.isfinite(value):
        raise InputError(f"{shown(value)} is not a {'whole ' * (kind is int)}number", where=spot)
    if value < 0 or (value == 0 and not from_zero):
        raise InputError(f"{shown(value)} is not {'zero or more' if from_zero else 'above zero'}", where=spot)
