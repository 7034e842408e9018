"""The chips, models and techniques that there are, as answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from gnomon import catalog
from gnomon.engines import engine as engine_of
from gnomon.errors import InputError, unknown_name
from gnomon.graph.support import unpriced, unpriced_step
from gnomon.load import chip as load_chip
from gnomon.load import chips as load_chips
from gnomon.load import model as load_model
from gnomon.load.chip_file import check_name, file_of, template
from gnomon.load.files import as_path
from gnomon.load.shapes import model_to_dict
from gnomon.paths import write_text
from gnomon.spec import Chip, Host, Link, Model, Node
from gnomon.spec.answers import Result
from gnomon.spec.model import KINDS
from gnomon.spec.plan import DEFAULT_ENGINE
from gnomon.spec.questions.known import ChipsQuestion, ModelsQuestion, NewChipQuestion
from gnomon.techniques import AnyTechnique
from gnomon.techniques import techniques as known_techniques
from gnomon.units import parse_bytes

SMALLER = 0.99
"""A chip of 80 GiB by its data sheet is one, though the driver reports a little less."""

MOST_GB = 1e6


@dataclass(frozen=True, kw_only=True)
class Chips(Result):
    SCHEMA = "chips"
    chips: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, kw_only=True)
class Models(Result):
    SCHEMA = "models"
    models: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, kw_only=True)
class NewChip(Result):
    SCHEMA = "chips.new"
    name: str
    like: str
    replaces: str
    file: str
    on: str
    """What commands call it by: its name where Gnomon finds it, else the file."""
    text: str


@dataclass(frozen=True, kw_only=True)
class Techniques(Result):
    SCHEMA = "techniques"
    techniques: tuple[Mapping[str, Any], ...]


FAMILY = "family"
ORDERS: Mapping[str, Callable[[Chip], Any]] = {
    FAMILY: lambda chip: (chip.year, chip.name),
    "name": lambda chip: chip.name.lower(),
    "memory": lambda chip: -chip.memory_bytes,
    "bandwidth": lambda chip: -chip.memory_bandwidth_bytes_s,
    "rate": lambda chip: -chip.rate(chip.half),
    "power": lambda chip: chip.tdp_w,
    "price": lambda chip: chip.price_usd_h,
}
"""What a list can be sorted by; memory, bandwidth and rate with the most first."""


def list_chips(question: ChipsQuestion) -> Chips:
    """All chips that a question leaves, or the one it names."""
    if question.name is not None:
        return Chips(chips=(_opened(load_chip(question.name)),))
    if question.sort not in ORDERS:
        raise unknown_name("order", question.sort, ORDERS, where="--sort")
    found = list(load_chips())
    found = _of(found, "vendor", question.vendor)
    found = _of(found, "architecture", question.architecture)
    least = 0.0 if question.memory is None else _size(question.memory) * SMALLER
    found = [chip for chip in found if chip.memory_bytes >= least]
    found.sort(key=ORDERS[question.sort])
    return Chips(chips=tuple(map(_chip, _by_family(found) if question.sort == FAMILY else found)))


def _size(memory: str | float) -> float:
    """A size; no chip has so few bytes as a small number without a unit says, so that is gigabytes."""
    found = parse_bytes(memory, "--memory")
    bare = not isinstance(memory, str) or memory.strip()[-1:].isdigit()
    return found * 1e9 if bare and found < MOST_GB else found


def _by_family(chips: list[Chip]) -> list[Chip]:
    """Vendors by name, their architectures by age."""
    born: dict[tuple[str, str], int] = {}
    for chip in chips:
        born.setdefault((chip.vendor, chip.architecture), chip.year)
    return sorted(chips, key=lambda chip: (chip.vendor, born[chip.vendor, chip.architecture], chip.architecture))


def write_chip(question: NewChipQuestion) -> NewChip:
    """A chip's file, filled with another's figures."""
    name = question.name.strip()
    replaced = check_name(name, question.replace)
    model = load_chip(question.like, "--like")
    file = file_of(name) if question.out is None else as_path(question.out)
    if file.exists():
        raise InputError("is there already", where=str(file), hint="Edit it, or choose another name.")
    on = name if question.out is None else str(file)
    text = template(name, model, replaced, on)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be made: {error.strerror or error}", where=str(file.parent)) from None
    write_text(file, text)
    return NewChip(name=name, like=model.name, replaces=replaced, file=str(file), on=on, text=text)


def list_models(question: ModelsQuestion) -> Models:
    """All models that a question leaves, or the one it names."""
    if question.name is not None:
        found = load_model(question.name)
        return Models(models=(_model(found) | {"shapes": model_to_dict(found)},))
    kind = question.kind
    if kind and kind not in KINDS:
        raise unknown_name("kind of model", kind, KINDS, where="--kind")
    known = [_model(load_model(each)) for each in catalog.model_names() if _has(each, question.find or "")]
    return Models(models=tuple(model for model in known if not kind or model["kind"] == kind))


def _has(name: str, words: str) -> bool:
    entry = catalog.model_entry(name)
    names = " ".join((entry.name, entry.title, entry.hub_id, *entry.aliases)).casefold()
    return all(word in names for word in words.casefold().split())


def _of(chips: list[Chip], field: str, wanted: str | None) -> list[Chip]:
    """The chips whose vendor or architecture is the one wanted, however it is written."""
    if wanted is None:
        return chips
    known = {str(getattr(chip, field)) for chip in chips}
    if wanted.casefold() not in {name.casefold() for name in known}:
        raise unknown_name(field, wanted, sorted(known), where=f"--{field}")
    return [chip for chip in chips if str(getattr(chip, field)).casefold() == wanted.casefold()]


def _chip(chip: Chip) -> dict[str, Any]:
    left_out = ("sources", "confidence")
    plain = {field.name: getattr(chip, field.name) for field in fields(chip) if field.name not in left_out}
    links = {name: asdict(value) for name, value in plain.items() if isinstance(value, Link)}
    rates = {"rates_flops": dict(chip.rates_flops), "sparse_flops": dict(chip.sparse_flops)}
    return plain | links | rates | {"aliases": list(chip.aliases)}


def _opened(chip: Chip) -> dict[str, Any]:
    """A chip with where every figure is from, its node, and what clouds ask for it."""
    return _chip(chip) | {
        "sources": dict(chip.sources),
        "confidence": dict(chip.confidence),
        "machine": _node(catalog.node_of(chip)),
        "prices": [asdict(price) for price in catalog.prices(chip.name)],
    }


def _node(node: Node) -> dict[str, Any]:
    return {
        "name": node.name,
        "chips": node.chips,
        "scaleup": asdict(node.scaleup),
        "adapter": asdict(node.adapter),
        "adapters": node.adapters,
        "bridged": node.bridged,
        "sockets": node.sockets,
        "host": _host(node.host) if node.host else None,
    }


def _host(host: Host) -> dict[str, Any]:
    plain = {field.name: getattr(host, field.name) for field in fields(host) if field.name != "aliases"}
    return plain | {"link": asdict(host.link), "sources": dict(host.sources), "confidence": dict(host.confidence)}


def _model(model: Model) -> dict[str, Any]:
    weights = model.weight_bytes()
    state_dtype, state_bytes = engine_of(DEFAULT_ENGINE).sequence_state(model)
    return {
        "name": model.name,
        "title": catalog.model_title(model.name),
        "family": model.family,
        "kind": model.kind,
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
        "state_bytes_per_sequence": state_bytes,
        "state_dtype": state_dtype,
        "source_bytes_per_token_bf16": model.source_bytes_per_token(2.0),
        "weights_bytes": weights,
        "priced": not unpriced_step(model),
        "why_not_priced": unpriced_step(model),
        "why_not_served": unpriced(model),
        "hub_id": model.hub_id,
        "source": model.source,
    }


def list_techniques() -> Techniques:
    """All techniques by name: what each does, its parameters with their ranges, what it excludes, its papers."""
    return Techniques(techniques=tuple(_technique(one) for _, one in sorted(known_techniques().items())))


def _technique(one: AnyTechnique) -> dict[str, Any]:
    return {
        "name": one.name,
        "aliases": list(one.aliases),
        "title": one.title,
        "work": " and ".join(one.work),
        "idea": one.idea,
        "parameters": [
            {"name": p.name, "what": p.what, "default": p.default, "range": p.range} for p in one.parameters
        ],
        "excludes": list(one.excludes),
        "changes": sorted(one.changes),
        "papers": [trial.paper for trial in one.trials],
    }
