"""Files from outside, read with suspicion: bounded size, UTF-8, no deep nesting, no repeated keys."""

from __future__ import annotations

import gzip
import json
import os
import re
import stat
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gnomon.errors import InputError

MIB = 1024**2
MAX_DEPTH = 64
_TWO_WAYS = re.compile(r"[-+]?(0[0-9_]+|0b.*|.*:.*)", re.ASCII)
"""Numbers that YAML 1.1 reads by eights, by twos or by sixties, and YAML 1.2 does not."""


def as_path(ref: str | Path) -> Path:
    """A path with its `~` resolved where that user exists."""
    try:
        return Path(ref).expanduser()
    except RuntimeError:
        return Path(ref)


def is_file(path: Path) -> bool:
    """Whether a file stands there; a name that no file can have is no file."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def is_there(path: Path) -> bool:
    """Whether a name is taken, by a file or by anything else, which its reader then refuses."""
    return os.path.lexists(path)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """A file read in here; what goes wrong is said of it, and so is memory that does not suffice."""
    try:
        yield
    except FileNotFoundError:
        raise InputError("no such file", where=str(path)) from None
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise InputError("is not a whole gzip file", where=str(path), hint="Download or pack it again.") from None
    except MemoryError:
        raise InputError("needs more memory than there is", where=str(path), hint="Read a smaller file.") from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", where=str(path)) from None


def blocks(path: Path, limit: int | None, size: int = MIB) -> Iterator[bytes]:
    """The bytes of a file in blocks of at most `size`, at most `limit` in all; a `.gz` is unpacked on the way."""
    total = 0
    with reading(path):
        check_regular(path, limit)
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
            while data := file.read(size):
                total += len(data)
                if limit is not None and total > limit:
                    raise _too_large(path, limit)
                yield data


def read_bytes(path: Path, limit: int) -> bytes:
    """All bytes of a file that has at most `limit`; a `.gz` is unpacked on the way."""
    with reading(path):
        return b"".join(blocks(path, limit))


def check_regular(path: Path, limit: int | None) -> None:
    """Refuse, before it is opened, what is no plain file (a pipe would wait without end) or is too large."""
    try:
        found = path.stat()
    except ValueError as error:  # a name that no file can have
        raise InputError(f"cannot be read: {error}", where=str(path)) from None
    if stat.S_ISDIR(found.st_mode):
        raise InputError("is a folder, not a file", where=str(path))
    if not stat.S_ISREG(found.st_mode):
        raise InputError(
            "is not a plain file", where=str(path), hint="Pipes and devices cannot be read; save it first."
        )
    if limit is not None and found.st_size > limit:
        raise _too_large(path, limit)


def _too_large(path: Path, limit: int) -> InputError:
    return InputError(f"is larger than {limit // MIB} MiB", where=str(path))


def read_text(path: Path, limit: int) -> str:
    with reading(path):
        return decoded(read_bytes(path, limit), path)


def decoded(data: bytes, path: Path, first_line: int = 1) -> str:
    """The text of bytes that begin at that line of the file."""
    try:
        return data.decode("utf-8-sig" if first_line == 1 else "utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + first_line
        hint = "Save the file as UTF-8."
        raise InputError("is not UTF-8 text", where=f"{path} line {line}", hint=hint) from None


def read_json(path: Path, limit: int = 4 * MIB) -> dict[str, Any]:
    """A JSON object."""
    text = read_text(path, limit)
    try:
        with reading(path):
            data = json.loads(text, object_pairs_hook=without_repeats)
    except json.JSONDecodeError as error:
        where = f"{path} line {error.lineno}, column {error.colno}"
        raise InputError(f"is not JSON: {error.msg}", where=where) from None
    except RecursionError:
        raise InputError("is nested too deeply", where=str(path)) from None
    except RepeatedKeyError as error:
        raise InputError(f"the key '{error}' is given twice in one object", where=str(path)) from None
    except ValueError:  # a whole number of thousands of digits
        raise InputError("holds a number that is too long", where=str(path)) from None
    if not isinstance(data, dict):
        raise InputError(f"holds {_kind(data)}, not a JSON object", where=str(path))
    return data


def read_yaml(path: Path, limit: int = MIB) -> dict[str, Any]:
    """A YAML mapping of plain values."""
    return parse_yaml(read_text(path, limit), str(path))


def parse_yaml(text: str, where: str) -> dict[str, Any]:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _check_events(yaml.parse(text, Loader=loader), where)
        _check_nodes(yaml.compose(text, Loader=loader), where)
        data = yaml.load(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        spot = f"{where} line {mark.line + 1}" if mark else where
        raise InputError(f"is not plain YAML: {error.problem or error.context}", where=spot) from None
    except yaml.YAMLError as error:
        raise InputError(f"is not YAML: {' '.join(str(error).split())}", where=where) from None
    except (RecursionError, MemoryError):
        raise InputError("is nested too deeply", where=where) from None
    except (ValueError, OverflowError, TypeError, AttributeError) as error:  # an impossible date, an endless number
        raise InputError(f"holds a value that cannot be read: {error}", where=where) from None
    if not isinstance(data, dict):
        raise InputError(f"holds {_kind(data)}, not a mapping of fields", where=where)
    return data


def parse_toml(text: str, where: str) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"is not TOML: {' '.join(str(error).split())}", where=where) from None
    except (RecursionError, MemoryError, ValueError):
        raise InputError("is nested too deeply, or holds a value that cannot be read", where=where) from None


def _check_events(events: Iterable[Any], where: str) -> None:
    """Refuse deep nesting, aliases (which can unfold without end) and a second document."""
    import yaml

    depth, documents = 0, 0
    for event in events:
        if isinstance(event, yaml.AliasEvent):
            raise InputError(f"aliases (*{event.anchor}) are not allowed", where=where, hint="Write the value out.")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise InputError("is nested too deeply", where=where)
        documents += isinstance(event, yaml.DocumentStartEvent)
    if documents > 1:
        raise InputError("holds more than one document", where=where)


def _check_nodes(root: Any, where: str) -> None:
    """Refuse repeated keys, merges, and numbers that are one to YAML 1.1 and another, or none, to YAML 1.2."""
    import yaml

    waiting = [(root, "")]
    while waiting:
        node, path = waiting.pop()
        if isinstance(node, yaml.SequenceNode):
            waiting.extend((item, f"{path}[{place}]") for place, item in enumerate(node.value))
        elif isinstance(node, yaml.MappingNode):
            _check_keys(node, where)
            named = ((value, key.value if isinstance(key.value, str) else "?") for key, value in node.value)
            waiting.extend((value, f"{path}.{name}".lstrip(".")) for value, name in named)
        elif isinstance(node, yaml.ScalarNode):
            _check_scalar(node, f"{where}, field {path}" if path else where)


def _check_keys(node: Any, where: str) -> None:
    seen: set[str] = set()
    for key, _ in node.value:
        spot = f"{where} line {key.start_mark.line + 1}"
        if key.tag == "tag:yaml.org,2002:merge":
            raise InputError("merges (<<) are not allowed", where=spot, hint="Write the fields out.")
        if key.value.__hash__ and key.value in seen:
            raise InputError(f"the key '{key.value}' is given twice", where=spot)
        seen.update([key.value] if isinstance(key.value, str) else [])


def _check_scalar(node: Any, spot: str) -> None:
    """`010` is eight to some readers of YAML and ten to others, `1:30` ninety or a text, `0b11` three or a text."""
    number = node.tag in ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
    if number and _TWO_WAYS.fullmatch(node.value):
        hint = "Write a number in plain digits, or a text in quotes."
        raise InputError(f"'{node.value}' is not read as one number by all of YAML", where=spot, hint=hint)


class RepeatedKeyError(Exception):
    """A key that is given twice in one object."""


def without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON. Raises RepeatedKeyError."""
    found = dict(pairs)
    if len(found) != len(pairs):
        counts = Counter(key for key, _ in pairs)
        raise RepeatedKeyError(next(key for key, count in counts.items() if count > 1))
    return found


def _kind(value: Any) -> str:
    names = {list: "a list", str: "a text", bool: "a truth value", int: "a number", float: "a number"}
    return "nothing" if value is None else names.get(type(value), f"a {type(value).__name__}")
