"""Timestamps of a trace as seconds: many at once for a whole column, and one at a time to find the wrong one."""

from __future__ import annotations

import re
import warnings
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

STAMP = "S48"
FIRST_YEAR, LAST_YEAR = 1900, 2200
_DATE = 10
_WIDTH = int(STAMP[1:])
_OFFSET = re.compile(r"([+-])(\d\d):?(\d\d)?")
_TIME = re.compile(r"(\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d)?)?)(?:\.\d+)?\s*(Z|[+-]\d\d(?::?\d\d)?)?", re.ASCII)
Moment = tuple[int, int]
"""Seconds since 1970, and nanoseconds."""


def seconds_since(stamps: NDArray[Any], start: Moment | None) -> tuple[NDArray[np.float64], Moment]:
    """Seconds after a moment, or after the first of a column of `STAMP`, and that moment. Each stamp has its own offset
    from UTC (none: UTC).

    Raises ValueError where one is not a date and time.
    """
    if np.char.str_len(stamps).max(initial=0) >= _WIDTH:  # perhaps cut off
        raise ValueError("too long")
    plain = np.ascontiguousarray(np.char.strip(stamps).astype(STAMP))
    letters = plain.view(np.uint8).reshape(len(plain), _WIDTH)
    if not np.all((letters[:, 4] == ord("-")) & (letters[:, 7] == ord("-"))):
        raise ValueError("not a date")
    offsets = _take_offsets(letters)
    plain = np.char.rstrip(plain, b"Z ")
    whole = _seconds(plain)
    years = whole.astype("datetime64[Y]").astype(np.int64) + 1970
    if np.isnat(whole).any() or years.min() < FIRST_YEAR or years.max() > LAST_YEAR:
        raise ValueError("not a date")
    parts = (plain.astype("datetime64[ns]") - whole.astype("datetime64[ns]")).astype(np.int64)
    seconds = whole.astype(np.int64) - offsets
    start = start or (int(seconds[0]), int(parts[0]))
    found: NDArray[np.float64] = ((seconds - start[0]) * 1_000_000_000.0 + (parts - start[1])) / 1e9
    return found, start


def _seconds(plain: NDArray[Any]) -> NDArray[np.datetime64]:
    """Raises ValueError, also where NumPy would read an offset that was not taken off."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return plain.astype("datetime64[s]")
        except UserWarning:
            raise ValueError("not a date") from None


def is_time(cell: str) -> bool:
    """Whether one cell is a date and time, as `seconds_since` reads them."""
    match = _TIME.fullmatch(cell)
    if match is None or len(cell) >= _WIDTH:
        return False
    try:
        if match[2] and match[2] != "Z":
            _offset_s(match[2])
        return FIRST_YEAR <= datetime.fromisoformat(match[1]).year <= LAST_YEAR
    except ValueError:
        return False


def _take_offsets(letters: NDArray[np.uint8]) -> NDArray[np.int64]:
    """The seconds that each stamp is ahead of UTC; they are blanked out of the letters."""
    signs = (letters == ord("+")) | (letters == ord("-"))
    signs[:, :_DATE] = False
    ahead = np.zeros(len(letters), dtype=np.int64)
    places = np.where(signs.any(axis=1), signs.argmax(axis=1), 0)
    for place in np.unique(places[places > 0]).tolist():
        rows = np.flatnonzero(places == place)
        tails = np.ascontiguousarray(letters[rows, place:]).view(f"S{_WIDTH - place}").ravel()
        kinds, which = np.unique(tails, return_inverse=True)
        ahead[rows] = np.array([_offset_s(kind.decode("latin-1")) for kind in kinds])[which]
        letters[rows, place:] = 0
    return ahead


def _offset_s(text: str) -> int:
    match = _OFFSET.fullmatch(text)
    hours, minutes = (int(match[2]), int(match[3] or 0)) if match else (24, 0)
    if match is None or hours > 23 or minutes > 59:
        raise ValueError("not an offset")
    return (hours * 3600 + minutes * 60) * (1 if match[1] == "+" else -1)
