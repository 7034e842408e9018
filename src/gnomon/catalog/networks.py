"""Models by name. The catalog holds their configs as published; `gnomon.load` reads them into shapes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gnomon.catalog.base import DATA, fold
from gnomon.catalog.book import Book
from gnomon.errors import unknown_name


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """One known model: its name here, how its publisher writes it, and its address on the model hub (or its name)."""

    name: str
    title: str
    hub_id: str
    aliases: tuple[str, ...]
    source: str


def model_names() -> tuple[str, ...]:
    return _models().names


def model_entry(name: str) -> ModelEntry:
    """The entry of a name, an alias or a hub id."""
    found = _models().find(name)
    if found is None:
        hint = f"`gnomon models` lists {len(model_names())}; a folder with a config.json works too."
        raise unknown_name("model", name, model_names(), hint=hint)
    return _entry(found)


def model_config_path(name: str) -> Path:
    """Where the config.json of a known model stands."""
    return DATA / "models" / f"{model_entry(name).name}.json"


def model_title(name: str) -> str:
    """A model's name as its publisher writes it; a name the catalog does not hold is its own title."""
    found = _models().find(name)
    return _entry(found).title if found else name


@cache
def _models() -> Book:
    return Book("models", fold)


@cache
def _entry(name: str) -> ModelEntry:
    entry = _models().entry(name)
    return ModelEntry(
        name=entry["name"],
        title=entry["title"],
        hub_id=entry.get("hub_id", entry["name"]),
        aliases=tuple(entry["aliases"]),
        source=f"{entry['source']} ({entry['date']})",
    )
