"""What differs between answers, and their figures beside each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gnomon.spec.key_figures import KeyFigure


def differing(mappings: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Fields that are not equal in all of some mappings, nested ones by their path."""
    flat = [dict(_flat(one)) for one in mappings]
    for field in dict.fromkeys(name for one in flat for name in one):
        values = [one.get(field) for one in flat]
        if any(value != values[0] for value in values):
            yield {"field": field, "values": values}


def _flat(value: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, item in value.items():
        name = f"{path}.{key}" if path else str(key)
        if isinstance(item, Mapping):
            yield from _flat(item, name)
        else:
            yield name, item


def figure_values(figures: Sequence[KeyFigure], answers: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Each figure that some answer has, with all values and their ratios to the first."""
    for figure in figures:
        values = [_with_interval(figure, answer) for answer in answers]
        if all(value is None for value in values):
            continue
        yield {
            **figure.description,
            "values": values,
            "ratios": [_ratio(value, values[0]) for value in values],
        }


def _with_interval(figure: KeyFigure, answer: Mapping[str, Any]) -> Any:
    """The value; a number with its interval where the answer has one, as an estimate or among its bands."""
    value = figure.of(answer)
    if isinstance(value, Mapping):
        edges = {name: value.get(name) for name in ("value", "low", "high")}
        return edges if all(map(_is_number, edges.values())) else None
    if not _is_number(value):
        return value if isinstance(value, (bool, str)) else None
    bands = (KeyFigure(name="", path=f"bands.{path}").of(answer) for path in _spots(figure))
    band = next(filter(None, bands), None)
    low, high = band if isinstance(band, (list, tuple)) and len(band) == 2 else (None, None)
    return {"value": value, "low": value if low is None else low, "high": value if high is None else high}


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _spots(figure: KeyFigure) -> tuple[str, str]:
    return f"{figure.path}.mean", figure.path


def _ratio(value: Any, first: Any) -> float | None:
    numbers = [one.get("value") if isinstance(one, Mapping) else None for one in (value, first)]
    return numbers[0] / numbers[1] if None not in numbers and numbers[1] else None
