"""One measured figure beside its prediction."""

from __future__ import annotations

from typing import Any


def part(
    name: str,
    what: str,
    measured: float,
    predicted: float,
    unit: str,
    *,
    rate: float | None = None,
    band: tuple[float, float] | None = None,
) -> dict[str, Any]:
    """A row of `gnomon verify`: the part of a run, what of it, both figures and how far they are apart."""
    low, high = band or (None, None)
    return {
        "part": name,
        "rate_per_s": rate,
        "what": what,
        "measured": measured,
        "predicted": predicted,
        "low": low,
        "high": high,
        "error": predicted / measured - 1 if measured else None,
        "unit": unit,
    }
