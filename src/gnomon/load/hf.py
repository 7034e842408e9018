"""A model from the catalog's name or a config.json, read into shapes. Weights are never opened."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from gnomon import catalog
from gnomon.errors import InputError, UnknownNameError
from gnomon.load.families import read_family
from gnomon.load.fields import Fields
from gnomon.load.files import as_path, read_json
from gnomon.spec import Model


def model(ref: str | Path) -> Model:
    """A model by catalog name or hub id, or from a folder with a config.json, or from that file itself."""
    entry = _known(ref)
    path = catalog.model_config_path(entry.name) if entry else _path(ref)
    shown = f"{entry.name}.json" if entry else str(path)
    found = read_family(Fields(read_json(path), shown))
    if entry:
        return dataclasses.replace(found, name=entry.name, hub_id=entry.hub_id, source=entry.source)
    return dataclasses.replace(found, name=_name(path), source=str(path))


def config_of(ref: str | Path) -> dict[str, Any]:
    """The raw config.json of the same reference, as an engine wants it beside (dummy) weights."""
    entry = _known(ref)
    return read_json(catalog.model_config_path(entry.name) if entry else _path(ref))


def _known(ref: str | Path) -> catalog.ModelEntry | None:
    """The catalog's entry. A file of the same name is reached by writing ./name."""
    try:
        return catalog.model_entry(ref) if isinstance(ref, str) else None
    except UnknownNameError:
        return None


def _path(ref: str | Path) -> Path:
    """The config.json a path leads to; what is no path is an unknown name."""
    path = as_path(ref)
    try:
        if str(ref) and path.is_dir():
            return _config_in(path)
        if str(ref) and path.exists():
            return path
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"'{str(ref)[:60]}' cannot be read: {reason}") from None
    if isinstance(ref, Path) or path.suffix == ".json" or ref.startswith((".", "/", "~")):
        raise InputError("no such file or folder", where=str(path))
    catalog.model_entry(ref)  # raises, with the nearest names
    raise AssertionError(ref)


def _config_in(folder: Path) -> Path:
    inside = folder / "config.json"
    if not inside.exists():
        hint = "Give the folder that holds the model's config.json."
        raise InputError("has no config.json", where=str(folder), hint=hint)
    return inside


def _name(path: Path) -> str:
    """What to call a model read from a file: its folder, or in a hub cache the repository."""
    if path.name != "config.json":
        return path.stem
    folders = [part for part in path.absolute().parts if part.startswith("models--")]
    return folders[-1].split("--")[-1] if folders else path.absolute().parent.name
