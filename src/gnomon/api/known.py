"""The chips and models the catalog holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from gnomon import catalog
from gnomon.api.results import Result
from gnomon.load import model as load_model
from gnomon.spec import Chip, Link, Model


@dataclass(frozen=True, kw_only=True)
class Chips(Result):
    SCHEMA = "chips"
    chips: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, kw_only=True)
class Models(Result):
    SCHEMA = "models"
    models: tuple[Mapping[str, Any], ...]


def chips(name: str | None = None) -> Chips:
    """Every known chip, or the one of a name or alias with the sources of its figures."""
    if name is not None:
        found = catalog.chip(name)
        return Chips(chips=(_chip(found) | {"sources": dict(found.sources)},))
    return Chips(chips=tuple(map(_chip, catalog.chips())))


def models(name: str | None = None) -> Models:
    """Every known model, or the one of a name, a hub id or a folder."""
    names = [name] if name is not None else list(catalog.model_names())
    return Models(models=tuple(_model(load_model(each)) for each in names))


def _chip(chip: Chip) -> dict[str, Any]:
    plain = {field.name: getattr(chip, field.name) for field in fields(chip) if field.name != "sources"}
    links = {name: _link(value) for name, value in plain.items() if isinstance(value, Link)}
    return plain | links | {"rates_flops": dict(chip.rates_flops), "aliases": list(chip.aliases)}


def _link(link: Link) -> dict[str, Any]:
    return {field.name: getattr(link, field.name) for field in fields(link)}


def _model(model: Model) -> dict[str, Any]:
    return {
        "name": model.name,
        "title": catalog.model_title(model.name),
        "family": model.family,
        "parameters": model.parameters,
        "active_parameters": model.active_parameters,
        "layers": model.layers,
        "hidden": model.hidden,
        "vocab": model.vocab,
        "max_context": model.max_context,
        "dtype": model.dtype,
        "moe": model.is_moe,
        "kv_bytes_per_token_bf16": model.kv_bytes_per_token(2.0),
        "hub_id": model.hub_id,
        "source": model.source,
    }
