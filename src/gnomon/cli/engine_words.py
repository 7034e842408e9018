"""What engines and schedules say in the help of flags: filled in when help is shown, so that no command pays for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


def told(text: str) -> str:
    """A help text with what the engines say in the place of `{settings}`, `{targets}` and `{training_engines}`,
    and the schedules of `{schedules}`."""
    for name, words in WORDS.items():
        if f"{{{name}}}" in text:
            text = text.replace(f"{{{name}}}", words())
    return text


def fill(param: Any) -> None:
    """Tell what the engines say in the help of a command's parameter."""
    if getattr(param, "help", None):
        param.help = told(param.help)


def _settings() -> str:
    from gnomon.engines import engine, serving_engines

    found = (engine(name) for name in serving_engines())
    return " ".join(f"Of {one.title}: {', '.join(one.listed_settings())}." for one in found)


def _targets() -> str:
    from gnomon.export import serving_targets, training_targets

    return f"{_either(serving_targets())} for serving, {_either(tuple(training_targets()))} for training"


def _training_engines() -> str:
    from gnomon.engines import training_engines

    return _either(training_engines())


def _schedules() -> str:
    from gnomon.sim.training import names

    return _either(names())


def _either(names: Sequence[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} or {last}" if most else last


WORDS: dict[str, Callable[[], str]] = {
    "settings": _settings,
    "targets": _targets,
    "training_engines": _training_engines,
    "schedules": _schedules,
}
