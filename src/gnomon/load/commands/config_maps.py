"""Files that a manifest mounts into its containers from ConfigMaps of the same file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from posixpath import join, normpath
from typing import Any

ConfigMaps = Mapping[str, Mapping[str, str]]
"""What each ConfigMap holds: texts by key."""


def config_maps(documents: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """The ConfigMaps of a file by name."""
    found: dict[str, dict[str, str]] = {}
    for document in documents:
        if document.get("kind") == "List":
            found |= config_maps([item for item in _sequence(document.get("items")) if isinstance(item, Mapping)])
        elif document.get("kind") == "ConfigMap":
            name = str(_mapping(document.get("metadata")).get("name", ""))
            found[name] = {str(key): str(text) for key, text in _mapping(document.get("data")).items()}
    return found


def mounted_files(pod: Mapping[str, Any], container: Mapping[str, Any], maps: ConfigMaps) -> dict[str, str]:
    """What a container finds at which path."""
    volumes = {str(one.get("name")): _mapping(one.get("configMap")) for one in _mappings(pod.get("volumes"))}
    found: dict[str, str] = {}
    for mount in _mappings(container.get("volumeMounts")):
        volume = volumes.get(str(mount.get("name")), {})
        held = maps.get(str(volume.get("name")), {})
        named = {str(one.get("path")): str(one.get("key")) for one in _mappings(volume.get("items"))}
        inside = {path: held[key] for path, key in named.items() if key in held} if named else held
        at, part = str(mount.get("mountPath", "")), mount.get("subPath")
        if part is not None:
            found |= {normpath(at): inside[str(part)]} if str(part) in inside else {}
        else:
            found |= {normpath(join(at, name)): text for name, text in inside.items()}
    return found


def _mapping(given: Any) -> Mapping[str, Any]:
    return given if isinstance(given, Mapping) else {}


def _sequence(given: Any) -> Sequence[Any]:
    return given if isinstance(given, list) else []


def _mappings(given: Any) -> Iterator[Mapping[str, Any]]:
    return (one for one in _sequence(given) if isinstance(one, Mapping))
