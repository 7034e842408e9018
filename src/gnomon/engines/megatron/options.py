"""Options of Megatron-LM's pretrain_gpt.py as a command line."""

from __future__ import annotations

from collections.abc import Mapping

COMMIT, DATE = "d98e8a64dd", "2026-08-22"
"""The Megatron-LM that options are written for."""

Value = bool | int | float | str | tuple[str | int, ...]


def words(values: Mapping[str, Value]) -> list[list[str]]:
    """Each option with its value, in the order given. A switch that is on stands alone; False leaves an option out."""
    given = {flag: value for flag, value in values.items() if value is not False}
    return [[flag, *_behind(value)] for flag, value in given.items()]


def _behind(value: Value) -> list[str]:
    if value is True:
        return []
    return list(map(str, value)) if isinstance(value, tuple) else [str(value)]
