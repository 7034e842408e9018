"""Techniques from outside Gnomon: entry points of other packages, and Python files of a folder that the user names.

Whoever installs a package, or names a folder in `GNOMON_TECHNIQUES`, has that Python run; no other file is.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from gnomon.errors import InputError
from gnomon.techniques.base import Technique

GROUP = "gnomon.techniques"
"""The entry points by which other packages add techniques."""
FOLDER = "GNOMON_TECHNIQUES"
"""The environment variable that names a folder of techniques: its own Python files, and `technique.py` of the folders
in it, as a paper's folder has it. Each says what it declares in `TECHNIQUES`."""


def of_packages(taken: Collection[str], where: str) -> Iterator[Technique[Any]]:
    """Techniques of other packages, under names that none here has."""
    from importlib.metadata import entry_points

    for point in entry_points(group=GROUP):
        if point.name in taken:
            continue
        hint = f"Repair or remove the package behind the entry point {point.name} of {GROUP}."
        try:
            found = point.load()
        except Exception as reason:  # whatever another package does when it is imported
            raise InputError(
                f"the technique {point.name} cannot be loaded: {reason}", where=where, hint=hint
            ) from reason
        if not isinstance(found, Technique) or found.name != point.name:
            raise InputError(f"{point.name} is not a technique of that name", where=where, hint=hint)
        yield found


def of_folder(taken: Collection[str]) -> Iterator[Technique[Any]]:
    """Techniques of the folder that `GNOMON_TECHNIQUES` names; none where it names none."""
    named = os.environ.get(FOLDER, "").strip()
    if not named:
        return
    folder = Path(named).expanduser()
    if not folder.is_dir():
        hint = "Name a folder of Python files, or unset it."
        raise InputError(f"'{named}' is not a folder", where=FOLDER, hint=hint)
    known = set(taken)
    for file in sorted((*folder.glob("*.py"), *folder.glob("*/technique.py"))):
        for one in _declared(file):
            if not isinstance(one, Technique) or one.name in known:
                reason = f"{one.name} is there already" if isinstance(one, Technique) else f"{one!r} is not a technique"
                raise InputError(reason, where=f"{file}, TECHNIQUES", hint=f"Correct it, or unset {FOLDER}.")
            known.add(one.name)
            yield one


def _declared(file: Path) -> tuple[object, ...]:
    """What a file names in `TECHNIQUES`, run as Python."""
    spec = spec_from_file_location(f"gnomon_own_technique_{file.parent.name}_{file.stem}", file)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as reason:  # whatever somebody's own file does
        hint = f"Correct it, or unset {FOLDER}."
        problem = f"{type(reason).__name__}: {reason}"
        raise InputError(f"cannot be loaded: {problem}", where=str(file), hint=hint) from reason
    return tuple(getattr(module, "TECHNIQUES", ()))
