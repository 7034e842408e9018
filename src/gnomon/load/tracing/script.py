"""`script.py:function`: the user's own code, named on purpose, which builds a module and its inputs.

This is the one place where Gnomon runs code from a file, and only for this form of words: configs, plans and traces
are data and are never executed.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from gnomon.errors import GnomonError, InputError, unknown_name

FORM = re.compile(r"(?P<path>.+\.py):(?P<name>[A-Za-z_]\w*)", re.DOTALL)
NAMED = re.compile(r"\.py(:|$)")
MAY_GIVE = ("module", "inputs", "loss", "optimizer")


def is_script(words: str) -> bool:
    """Whether the words name a Python file, in the right form or in a wrong one, which `parted` refuses."""
    return NAMED.search(words) is not None and not Path(words).is_dir()


def parted(words: str) -> tuple[Path, str]:
    """The file and the function; nothing is run."""
    match = FORM.fullmatch(words)
    if match is None:
        raise InputError(
            f"'{words}' is not SCRIPT.py:FUNCTION",
            where="MODEL",
            hint="Name one function of the file itself, such as net.py:build, that takes nothing and returns "
            "(module, inputs).",
        )
    return Path(match["path"]).expanduser(), match["name"]


def built(words: str) -> dict[str, Any]:
    """What the function gives: `module` and `inputs`, and `loss` or `optimizer` where it gives a mapping."""
    path, name = parted(words)
    with _blamed_on(path):
        script = _imported(path)
        function = getattr(script, name, None)
        if not callable(function):
            known = [key for key, value in vars(script).items() if callable(value) and not key.startswith("_")]
            raise unknown_name("function", name, known or ["none"], where=str(path))
        given = function()
    return _parts(given, f"{path.name}:{name}")


def _parts(given: Any, where: str) -> dict[str, Any]:
    hint = "Return (module, inputs), or a mapping with these and, if you like, loss and optimizer."
    if isinstance(given, Mapping):
        for key in given:
            if key not in MAY_GIVE:
                raise unknown_name("key", str(key), MAY_GIVE, where=where)
        found = dict(given)
    elif isinstance(given, tuple) and len(given) == 2:
        found = {"module": given[0], "inputs": given[1]}
    else:
        raise InputError(f"gives {type(given).__name__}, not a module and its inputs", where=where, hint=hint)
    for key in ("module", "inputs"):
        if key not in found:
            raise InputError(f"gives no {key}", where=where, hint=hint)
    return found


def _imported(path: Path) -> ModuleType:
    if not path.is_file():
        raise InputError("no such file", where=str(path))
    name = f"gnomon_script_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError("cannot be imported", where=str(path))
    script = importlib.util.module_from_spec(spec)
    sys.modules[name] = script
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(script)
    finally:
        sys.path.pop(0)
    return script


@contextmanager
def _blamed_on(path: Path) -> Iterator[None]:
    """An error of the script's own, told with its line."""
    try:
        yield
    except (GnomonError, KeyboardInterrupt):
        raise
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = path.resolve()
        lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == own]
        place = getattr(error, "lineno", None) if isinstance(error, SyntaxError) else (lines[-1] if lines else None)
        where = f"{path} line {place}" if place else str(path)
        reason = str(error).strip().splitlines()
        raise InputError(f"fails: {type(error).__name__}{f': {reason[0]}' if reason else ''}", where=where) from None
