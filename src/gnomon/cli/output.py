"""What a command prints: the answer on stdout, talk on stderr, and the answer kept in the history."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any


def emit(payload: Mapping[str, Any], *, as_json: bool, keep: bool = True) -> None:
    """Print an answer, as text or as JSON, and keep it in the history."""
    if as_json:
        print_json(payload)
    else:
        from gnomon.report import render

        print(render(payload, colour=wants_colour()))
    if keep:
        from gnomon.store import save

        save(str(payload["schema"]).removeprefix("gnomon.").partition("/")[0], finite(payload))


def print_json(payload: Mapping[str, Any]) -> None:
    print(json.dumps(finite(payload), indent=2, ensure_ascii=False, allow_nan=False))


def say(text: str) -> None:
    """Talk beside the answer."""
    print(one_line(text), file=sys.stderr)


def fail(
    message: str, *, where: str = "", hint: str = "", as_json: bool = False, code: int = 2, kind: str = "error"
) -> int:
    """One line on stderr, the same in JSON on stdout where that was asked for; gives back the code."""
    message, where, hint = one_line(message), one_line(where), one_line(hint)
    head = f"{where}: {message}" if where else message
    stop = "" if head.endswith((".", "?", "!")) else "."
    try:
        print(f"{kind}: {head}{stop} {hint}" if hint else f"{kind}: {head}", file=sys.stderr)
        if as_json:
            print_json({"error": {"message": message, "where": where, "hint": hint}})
            sys.stdout.flush()
    except BrokenPipeError:
        quiet_stdout()
    return code


def one_line(text: str) -> str:
    """The text without line breaks and without anything that could steer a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in " ".join(str(text).split()))


def finite(value: Any) -> Any:
    """The same in plain JSON values, with null where JSON has no number."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: finite(getattr(value, field.name)) for field in fields(value)}
    return value


def wants_colour() -> bool:
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def quiet_stdout() -> None:
    """After the reader has gone away: let the interpreter's last flush go nowhere."""
    sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115
