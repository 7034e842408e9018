"""Files a command writes: checked before the work, written completely or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from gnomon.errors import InputError
from gnomon.paths import special, written


def output_file(text: str, flag: str) -> Path:
    """The path of a file to be written. Raises at once where it could not be."""
    path = _path(text, flag)
    if path.is_dir():
        raise InputError(f"'{text}' is a folder", where=flag, hint="Give the name of a file.")
    if path.exists() and not os.access(path, os.W_OK):
        raise InputError(f"'{text}' cannot be written: permission denied", where=flag)
    if not special(path):
        _check_folder(path.absolute().parent, text, flag)
    return path


def output_files(named: dict[str, str | None]) -> dict[str, Path]:
    """The paths of the flags that were given, each checked, and no two the same."""
    paths: dict[str, Path] = {}
    for flag, text in named.items():
        if text is None:
            continue
        path = output_file(text, flag)
        twin = next((other for other in paths if _same(paths[other], path)), None)
        if twin and not special(path):
            raise InputError(f"'{text}' is also the file of {twin}", where=flag)
        paths[flag] = path
    return paths


def keep_apart(paths: Mapping[str, Path], source: str | Path | None, name: str) -> None:
    """Refuse outputs that would overwrite the input `name`."""
    if source is None:
        return
    for flag, path in paths.items():
        if _same(path, Path(source)) and not special(path):
            raise InputError(f"'{path}' is also the file of {name}", where=flag, hint="Write to another file.")


def output_folder(text: str, flag: str) -> Path:
    """The path of a folder to be filled, created if needed."""
    path = _path(text, flag)
    if path.exists() and not path.is_dir():
        raise InputError(f"'{text}' is a file, not a folder", where=flag)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"'{text}' cannot be created: {error.strerror or error}", where=flag) from None
    _check_folder(path, text, flag)
    return path


def check_overwritten(files: Mapping[str, str], folder: Path, flag: str) -> None:
    """Refuse to overwrite files with other content."""
    others = [name for name, text in files.items() if _holds_another(folder / name, text)]
    if others:
        named = " and ".join(f"'{folder / name}'" for name in others)
        hint = "Write to another folder, or give --force to overwrite."
        raise InputError(f"{named} would be overwritten", where=flag, hint=hint)


def _holds_another(file: Path, text: str) -> bool:
    """Whether there is a file of that name with another content. One that cannot be read holds another, and so does a
    dangling link, whose target would be written."""
    content = text.encode()
    try:
        if not file.exists():
            return file.is_symlink()
        return file.is_file() and (file.stat().st_size != len(content) or file.read_bytes() != content)
    except OSError:
        return True


def write_all(files: dict[str, str], folder: Path) -> None:
    """Files by name into a folder, all of them or none; scripts can be run."""
    for name in files:
        if (folder / name).is_dir():
            raise InputError("is a folder where a file is to be written", where=str(folder / name))
    with ExitStack() as open_files:
        for name, text in files.items():
            file = open_files.enter_context(written(folder / name))
            file.write(text)
            file.flush()
    for name in files:
        if name.endswith(".sh"):
            (folder / name).chmod(0o755)


def _path(text: str, flag: str) -> Path:
    if not text.strip() or "\0" in text:
        raise InputError("the path is empty", where=flag)
    try:
        path = Path(text).expanduser()
        path.exists()
        path.resolve()
    except (OSError, RuntimeError) as error:
        raise InputError(f"'{text}' cannot be used: {getattr(error, 'strerror', error)}", where=flag) from None
    return path


def _same(one: Path, other: Path) -> bool:
    try:
        one, other = one.expanduser(), other.expanduser()
        return one.resolve() == other.resolve() or (one.exists() and other.exists() and one.samefile(other))
    except (OSError, RuntimeError, ValueError):
        return False


def _check_folder(folder: Path, text: str, flag: str) -> None:
    if not folder.is_dir():
        raise InputError(f"'{text}' cannot be written: there is no folder '{folder}'", where=flag)
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"'{text}' cannot be written: {reason}", where=flag) from None
