"""The files that answers of a sweep depend on, by content: those of a changed file are not mixed with earlier ones."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from gnomon import catalog
from gnomon.errors import GnomonError, UnknownNameError
from gnomon.load import hub
from gnomon.load.chips import ENDINGS, is_file_name
from gnomon.load.files import MIB, as_path, is_file, read_yaml, reading
from gnomon.load.traces import trace_path
from gnomon.paths import home
from gnomon.spec.sweep import Sweep

OWN_FOLDERS = ("chips", "profiles", "overheads")
"""Of the user's folder: chips and profiles take the place of shipped ones or are donors, overheads are an engine's."""
BESIDE_CONFIG = "hf_quant_config.json"
GONE, NEW, CHANGED = "was deleted", "was added", "changed"

Named = Iterator[tuple[str, Path]]
"""Files, each with the name that messages and records call it by."""


def named_files(sweep: Sweep) -> dict[str, str]:
    """SHA-256 of every file that questions of a sweep name and of those in the user's folder, by name."""
    found = dict(_own_files())
    for field, files in FIELDS.items():
        for text in _texts(sweep, field):
            found |= dict(files(text))
    return {name: _digest(path) for name, path in sorted(found.items()) if is_file(path)}


def changed_file(before: Mapping[str, str], now: Mapping[str, str]) -> tuple[str, str] | None:
    """The first file that differs and what became of it; none where all are the same."""
    for name in sorted({*before, *now}):
        if before.get(name) != now.get(name):
            return name, NEW if name not in before else GONE if name not in now else CHANGED
    return None


def _texts(sweep: Sweep, field: str) -> list[str]:
    """The values that a field has in any question, each once."""
    given = (step[field] for step in (sweep.fixed, *(step for axis in sweep.axes for step in axis)) if field in step)
    return list(dict.fromkeys(value for value in given if isinstance(value, str)))


def _model(text: str) -> Named:
    """What a model is read from: a config with the formats beside it, shapes, or a script that gives a module."""
    try:
        catalog.model_entry(text)
        return
    except UnknownNameError:
        path = as_path(text)
    for file in (path, *(path / name for name in hub.FILES), Path(text.rpartition(":")[0] or text)):
        if is_file(file):
            yield str(file), file
            yield str(file.with_name(BESIDE_CONFIG)), file.with_name(BESIDE_CONFIG)
            return


def _chips(text: str) -> Named:
    """Files of chips and clusters, and the chips that a cluster's file takes from files of their own."""
    for part in text.split(","):
        name, colon, _ = part.rpartition(":")
        file = (name if colon and is_file_name(name) else part).strip()
        if is_file_name(file):
            path = as_path(file)
            yield file, path
            for inner in _chips_of(path):
                yield str(path.parent / inner), path.parent / inner


def _chips_of(cluster: Path) -> list[str]:
    try:
        data = read_yaml(cluster)
    except GnomonError:
        return []  # questions about it are refused
    pools = data.get("pools")
    parts = [data, *(pools if isinstance(pools, list) else [])]
    named = [part.get("chip") for part in parts if isinstance(part, dict)]
    return [str(as_path(name)) for name in named if isinstance(name, str) and is_file_name(name)]


def _trace(text: str) -> Named:
    try:
        yield text, trace_path(text)
    except GnomonError:
        return  # a published trace that is not on this machine


def _lengths(text: str) -> Named:
    """A file of lengths, where that is what they are drawn from."""
    kind, colon, path = text.partition(":")
    if colon and kind.strip().lower() == "file":
        yield path.strip(), as_path(path.strip())


FIELDS: Mapping[str, Callable[[str], Named]] = {
    "model": _model, "on": _chips, "fleet": _chips, "cluster": _chips, "trace": _trace,
    "input": _lengths, "output": _lengths, "lengths": _lengths,
}  # fmt: skip
"""Fields whose values may name files."""


def _own_files() -> Named:
    """The user's own chips, profiles and overheads, called by their places in that folder."""
    for folder in OWN_FOLDERS:
        try:
            files = sorted((home() / folder).iterdir())
        except OSError:
            continue
        yield from ((f"{folder}/{file.name}", file) for file in files if file.suffix in ENDINGS)


def _digest(path: Path) -> str:
    with reading(path), path.open("rb") as file:
        found = hashlib.sha256()
        while block := file.read(MIB):
            found.update(block)
    return found.hexdigest()
