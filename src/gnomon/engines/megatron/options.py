"""Options of Megatron-LM's pretrain_gpt.py as a command line."""

from __future__ import annotations

from collections.abc import Mapping

COMMIT, DATE = "d98e8a64dd", "2026-08-22"
"""The Megatron-LM that options are written for."""

Value = bool | int | float | str | tuple[int, ...]


def words(values: Mapping[str, Value]) -> list[list[str]]:
    """Each option with its value, in the order given. A switch that is on stands alone; False leaves an option out."""
    return [[flag, *_texts(value)] for flag, value in values.items() if value is not False]


def _texts(value: Value) -> list[str]:
    several = value if isinstance(value, tuple) else (value,)
    return [] if value is True else [str(one) for one in several]
