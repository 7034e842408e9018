"""Chips by name, as their data sheets and drivers describe them."""

from __future__ import annotations

from functools import cache
from typing import Any

from gnomon.catalog.base import fold, read_entries
from gnomon.errors import unknown_name
from gnomon.spec import Chip, Link


def chips() -> tuple[Chip, ...]:
    """Every known chip, in the order of its file."""
    return _chips()


def chip_names() -> tuple[str, ...]:
    return tuple(entry.name for entry in _chips())


def chip(name: str) -> Chip:
    """The chip of a name or an alias (`H100`, `nvidia h200`, ...)."""
    found = _by_name().get(fold(name))
    if found is None:
        raise unknown_name("chip", name, chip_names(), hint=f"`gnomon chips` lists {len(_chips())}.")
    return found


@cache
def _chips() -> tuple[Chip, ...]:
    return tuple(_chip(entry) for entry in read_entries("chips.yaml"))


@cache
def _by_name() -> dict[str, Chip]:
    return {fold(name): entry for entry in _chips() for name in (entry.name, *entry.aliases)}


def _chip(entry: dict[str, Any]) -> Chip:
    sources: dict[str, str] = {}
    values = {key: _value(key, item, sources) for key, item in entry.items()}
    rates = {dtype: float(rate) for dtype, rate in values.pop("rates_flops").items()}
    return Chip(
        **values | {"aliases": tuple(values["aliases"])},
        rates_flops=rates,
        sources=sources,
    )


def _value(key: str, item: Any, sources: dict[str, str]) -> Any:
    """A figure without its source, which goes to `sources` under the figure's dotted name."""
    if not isinstance(item, dict):
        return item
    if "value" in item:
        sources[key] = f"{item['source']} ({item['date']})"
        value = item["value"]
        return value if key in ("sm_count", "scaleup_size") else float(value)
    parts = {name: _value(f"{key}.{name}", part, sources) for name, part in item.items()}
    return Link(**parts) if key in ("scaleup", "scaleout") else parts
