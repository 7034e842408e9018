"""Where the factors of the user's own card and host stand that `gnomon calibrate --quick` found."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from gnomon.cost.card import HOST, RANGES, CardFactors
from gnomon.engines.own import SPEED
from gnomon.errors import CalibrationError
from gnomon.load.files import is_there, read_yaml
from gnomon.load.schemas import check_schema
from gnomon.paths import home

SCHEMA = "gnomon.card/1"
AGAIN = "Remove it, or run `gnomon calibrate --quick` again."


def card_path(chip: str) -> Path:
    return home() / "cards" / file_name(chip)


def file_name(chip: str) -> str:
    return f"{chip.lower()}.yaml"


def own_cards(*chips: str) -> dict[str, CardFactors]:
    """The factors of the user's own cards of these chips, as far as there are any."""
    folder = card_path("").parent
    found = {chip: _read(folder / file_name(chip), chip) for chip in chips}
    return {chip: card for chip, card in found.items() if card is not None}


def card_from_dict(data: Mapping[str, Any], where: str, chip: str) -> CardFactors:
    """A card file's content; other schemas, other chips and figures out of range are refused."""
    check_schema(data.get("schema"), SCHEMA, where)
    if data.get("chip") != chip:
        raise CalibrationError(f"is of chip '{data.get('chip')}', not {chip}", where=where, hint=AGAIN)
    factors = data.get("factors")
    if not isinstance(factors, Mapping) or not factors:
        raise CalibrationError("has no factors", where=where, hint=AGAIN)
    if not isinstance(data.get("date"), str):
        raise CalibrationError("has no date", where=where, hint=AGAIN)
    for name, value in factors.items():
        if name not in RANGES:
            raise CalibrationError(f"has '{name}', which is not a factor of a card", where=where, hint=AGAIN)
        low, high = RANGES[name]
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
            raise CalibrationError(f"{name} is '{value}', not {low:g} to {high:g}", where=where, hint=AGAIN)
    named = {str(name): float(value) for name, value in factors.items()}
    return CardFactors(chip=chip, source=f"this card's factors of {data['date']}", factors=named)


@cache
def _read(path: Path, chip: str) -> CardFactors | None:
    return card_from_dict(read_yaml(path), str(path), chip) if is_there(path) else None


def host_of(card: CardFactors | None) -> dict[str, Mapping[str, Any]]:
    """How fast a card's host is beside the one that engines were measured on; nothing where nobody measured it."""
    if card is None or HOST not in card.factors:
        return {}
    return {SPEED: {"speed": card.factors[HOST], "source": card.source}}


def forget_cards() -> None:
    """Read them again: a file has changed."""
    _read.cache_clear()
