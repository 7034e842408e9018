"""The chips and models the catalog holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from gnomon import catalog
from gnomon.api.results import Result
from gnomon.errors import unknown_name
from gnomon.graph.support import unpriced
from gnomon.load import model as load_model
from gnomon.load.shapes import model_to_dict
from gnomon.spec import Attention, Chip, CrossAttention, LatentAttention, Link, Model

KINDS = ("dense", "moe", "hybrid", "state-space", "encoder", "encoder-decoder", "multimodal", "diffusion")


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


def models(name: str | None = None, *, find: str = "", kind: str = "") -> Models:
    """Every known model, or the one of a name, a hub id, a folder or a file with its shapes.

    `find` keeps those that have all of its words in one of their names, `kind` those built so: see `KINDS`.
    """
    if name is not None:
        found = load_model(name)
        return Models(models=(_model(found) | {"shapes": model_to_dict(found)},))
    if kind and kind not in KINDS:
        raise unknown_name("kind of model", kind, KINDS, where="--kind")
    known = [_model(load_model(each)) for each in catalog.model_names() if _has(each, find)]
    return Models(models=tuple(model for model in known if not kind or model["kind"] == kind))


def _has(name: str, words: str) -> bool:
    entry = catalog.model_entry(name)
    names = " ".join((entry.name, entry.title, entry.hub_id, *entry.aliases)).casefold()
    return all(word in names for word in words.casefold().split())


def _chip(chip: Chip) -> dict[str, Any]:
    plain = {field.name: getattr(chip, field.name) for field in fields(chip) if field.name != "sources"}
    links = {name: _link(value) for name, value in plain.items() if isinstance(value, Link)}
    return plain | links | {"rates_flops": dict(chip.rates_flops), "aliases": list(chip.aliases)}


def _link(link: Link) -> dict[str, Any]:
    return {field.name: getattr(link, field.name) for field in fields(link)}


def _model(model: Model) -> dict[str, Any]:
    weights = model.weight_bytes()
    return {
        "name": model.name,
        "title": catalog.model_title(model.name),
        "family": model.family,
        "kind": _kind(model),
        "parameters": model.parameters,
        "active_parameters": model.active_parameters,
        "mtp_parameters": model.mtp_parameters,
        "towers": {tower.name: tower.parameters for tower in model.towers},
        "layers": model.layers,
        "hidden": model.hidden,
        "vocab": model.vocab,
        "max_context": model.max_context,
        "dtype": model.dtype,
        "moe": model.is_moe,
        "kv_bytes_per_token_bf16": model.kv_bytes_per_token(2.0),
        "state_bytes_per_sequence_bf16": model.state_bytes_per_sequence(2.0),
        "source_bytes_per_token_bf16": model.source_bytes_per_token(2.0),
        "weights_bytes": weights,
        "priced": not unpriced(model),
        "why_not_priced": unpriced(model),
        "hub_id": model.hub_id,
        "source": model.source,
    }


def _kind(model: Model) -> str:
    """The word of `KINDS` that says most."""
    mixers = [block.mixer for block in model.blocks if block.mixer is not None]
    looks = [isinstance(mixer, Attention | LatentAttention | CrossAttention) for mixer in mixers]
    if not model.vocab:
        return "diffusion"
    if model.towers:
        return "multimodal" if model.towers[0].name == "vision" else "encoder-decoder"
    if not all(looks):
        return "hybrid" if any(looks) else "state-space"
    if any(isinstance(mixer, Attention) and not mixer.causal for mixer in mixers):
        return "encoder"
    return "moe" if model.is_moe else "dense"
