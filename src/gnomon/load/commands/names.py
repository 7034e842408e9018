"""What commands name and engines do not open themselves: models, configuration files, and the chips of `--on`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from posixpath import normpath
from typing import Any

from gnomon import catalog
from gnomon.engines.operations import Variable
from gnomon.errors import GnomonError, InputError, UnknownNameError, named_by
from gnomon.load.files import MIB, as_path, parse_toml, parse_yaml, read_text, read_yaml
from gnomon.load.fleet import parse_pool
from gnomon.load.hf import model as load_model
from gnomon.spec import Model, Pool

TOML = ".toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamesOf:
    """Opens what commands name: see `CommandNames`."""

    folder: Path
    known: str
    """The model whose weights they are, where the user says it."""
    dtype: str
    files: Mapping[str, str] = field(default_factory=dict)
    """What the text itself writes into files."""

    def model(self, name: str) -> Model:
        with named_by("--model" if self.known else "the model"):
            try:
                return load_model(self.known or name)
            except GnomonError as error:
                if not self.known:
                    error.hint += " --model NAME says which known model the weights are of."
                raise

    def other_model(self, name: str) -> Model:
        return load_model(name)

    def config(self, path: str, *, partly: bool = False) -> Mapping[str, Any]:
        written = self.files.get(normpath(path))
        if isinstance(written, Variable) and (not partly or not written):
            hint = "Write the file out in the script, with values and at one place."
            raise InputError("is written with values that only the shell knows", where=path, hint=hint)
        if written is not None:
            return parse_toml(str(written), path) if path.endswith(TOML) else parse_yaml(str(written), path)
        found = self._place(path)
        return parse_toml(read_text(found, MIB), str(found)) if path.endswith(TOML) else read_yaml(found)

    def text(self, path: str) -> str:
        written = self.files.get(normpath(path))
        if written is not None and not isinstance(written, Variable):
            return str(written)
        return read_text(self._place(path), MIB)

    def _place(self, path: str) -> Path:
        found = as_path(path)
        return found if found.is_absolute() else self.folder / found


def folder_of(given: str | Path) -> Path:
    path = as_path(given)
    with suppress(OSError, ValueError):
        if path.is_file():
            return path.parent
    return Path()


def total_chips(on: str | Pool | None) -> int:
    """The chips that `--on CHIP:N` names; 0 where it names a kind alone."""
    if isinstance(on, Pool):
        return on.count if on.count > 1 else 0
    found = re.search(r":\s*\d", on or "")
    return parse_pool(on or "").count if found else 0


def reference(written: str) -> str:
    """A model of the catalog by its own name, any other as it is written."""
    try:
        return catalog.model_entry(written).name
    except UnknownNameError:
        return written
