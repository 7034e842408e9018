"""A model from the catalog's name or a config.json, read into shapes. Weights are never opened."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from gnomon import catalog
from gnomon.errors import InputError, UnknownNameError
from gnomon.load import hub
from gnomon.load.families import read_family
from gnomon.load.fields import Fields
from gnomon.load.files import as_path, is_file, read_json, read_yaml
from gnomon.load.quantised import quantised
from gnomon.load.shapes import model_from_dict
from gnomon.spec import Model

YAML = (".yaml", ".yml")


def model(ref: str | Path) -> Model:
    """A model by catalog name or hub id, from a folder with a config.json, from that file, or from shapes in YAML."""
    entry = _known(ref)
    path = catalog.model_config_path(entry.name) if entry else _path(ref)
    if path.suffix in YAML:
        found = model_from_dict(read_yaml(path), str(path))
        return dataclasses.replace(found, name=path.stem if found.name == "custom" else found.name, source=str(path))
    shown = f"{entry.name}.json" if entry else str(path)
    found = shapes(Fields(_with_formats(read_json(path), path), shown))
    if entry:
        return dataclasses.replace(found, name=entry.name, hub_id=entry.hub_id, source=entry.source)
    address = str(ref) if _on_hub(ref) else ""
    return dataclasses.replace(found, name=_name(path), hub_id=address, source=str(path))


def shapes(config: Fields) -> Model:
    """The shapes of one config and the formats they are stored in; name and source are the caller's to add."""
    found = read_family(config)
    for holder in (config, config.inner("text_config")):
        if holder.has("quantization_config"):
            return quantised(found, holder.inner("quantization_config"))
    return found


def _with_formats(config: dict[str, Any], path: Path) -> dict[str, Any]:
    """Some tools write what they did to the weights into a file of its own, beside the config."""
    sidecar = path.with_name("hf_quant_config.json")
    if "quantization_config" in config or path.name != "config.json" or not is_file(sidecar):
        return config
    return config | {"quantization_config": read_json(sidecar).get("quantization")}


def config_of(ref: str | Path) -> dict[str, Any]:
    """The raw config.json of the same reference, as an engine wants it beside (dummy) weights; empty for shapes."""
    entry = _known(ref)
    path = catalog.model_config_path(entry.name) if entry else _path(ref)
    return {} if path.suffix in YAML else read_json(path)


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
        if str(ref) and path.exists() and path.suffix != ".py":
            return path
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"'{str(ref)[:60]}' cannot be read: {reason}") from None
    if path.suffix == ".py":
        hint = f"To predict a module of your own, name the function that gives it: {ref}:FUNCTION."
        raise InputError("is Python, not a model's config", where=str(path), hint=hint)
    if isinstance(ref, Path) or path.suffix in (".json", *YAML) or ref.startswith((".", "/", "~")):
        raise InputError("no such file or folder", where=str(path))
    if hub.is_address(ref) and hub.installed():
        return hub.fetched(ref)
    return _unknown(ref)


def _unknown(ref: str) -> Path:
    try:
        catalog.model_entry(ref)
    except UnknownNameError as error:
        if hub.is_address(ref):
            error.hint += " Addresses of the model hub are read with: pip install 'gnomon[hub]'."
        raise
    raise AssertionError(ref)


def _on_hub(ref: str | Path) -> bool:
    """Whether a reference was read from the hub: it looks like an address, and no path is there."""
    return isinstance(ref, str) and hub.is_address(ref) and not as_path(ref).exists()


def _config_in(folder: Path) -> Path:
    for name in hub.FILES:
        if (folder / name).exists():
            return folder / name
    hint = "Give the folder that holds the model's config.json."
    raise InputError("has no config.json", where=str(folder), hint=hint)


def _name(path: Path) -> str:
    """What to call a model read from a file: its folder, or in a hub cache the repository."""
    if path.name != "config.json":
        return path.stem
    folders = [part for part in path.absolute().parts if part.startswith("models--")]
    return folders[-1].split("--")[-1] if folders else path.absolute().parent.name
