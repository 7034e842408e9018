"""Quantities at the edges: text to seconds, bytes, counts and rates, and back to text a person reads.

Inside Gnomon everything is a plain float in seconds, bytes, tokens or dollars. `where` names the flag
or the field a text came from, and leads the error when the text cannot be understood.
"""

from __future__ import annotations

import math
import re
from numbers import Integral, Real

from gnomon.errors import InputError

HOUR_S, DAY_S = 3600.0, 86400.0
_WHOLE = r"(?:\d{1,3}(?:,\d{3})+|\d[\d_]*)"
_NUMBER = rf"[+-]?(?:{_WHOLE}(?:\.[\d_]*)?|\.\d+)(?:[eE][+-]?\d+)?"
_QUANTITY = re.compile(rf"\s*({_NUMBER})\s*([^\d\s.,+-]*)\s*", re.ASCII)

_PERIODS = {"s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": HOUR_S, "d": DAY_S}
_DURATIONS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, **_PERIODS, "day": DAY_S, "days": DAY_S}
_COUNTS = {"": 1.0, "k": 1e3, "K": 1e3, "Ki": 1024.0, "M": 1e6, "Mi": 1024.0**2, "B": 1e9, "G": 1e9, "T": 1e12}
_BYTES = {"": 1.0, "B": 1.0} | {
    f"{letter}{infix}B": base ** (power + 1)
    for power, letter in enumerate("KMGTP")
    for infix, base in (("", 1000.0), ("i", 1024.0))
}
_LARGEST = 1e30
"""Anything beyond is a typing error, and would overflow further on."""
_LEAST_S = 1e-9
RATES_PER_S = (1e-6, 1e9)
"""One request in twelve days, and more than any fleet serves in a second."""
_PLAIN = (1e-6, 1e15)
"""Numbers outside are printed with an exponent."""


def parse_duration(text: str | float, where: str = "") -> float:
    """Seconds. A text needs its unit: `40ms`, `1s`, `2.5us`, `1m`, `3h`, `2d`; a number is already seconds."""
    if not isinstance(text, str):
        return _duration(_number(text, "a duration", where), text, where)
    value, unit = _split(text, "a duration such as 40ms or 1.5s", where)
    if not unit and value == 0:
        return 0.0
    if not unit:
        raise InputError(f"'{text}' has no unit", where=where, hint=f"Write {text.strip()}ms or {text.strip()}s.")
    return _duration(value * _scale(unit, _DURATIONS, text, "a duration", where), text, where)


def _duration(seconds: float, text: str | float, where: str) -> float:
    if 0 < seconds < _LEAST_S:
        raise InputError(f"'{_shown(text)}' is less than 1 ns", where=where)
    return _checked(seconds, text, "a duration", where)


def parse_count(text: str | float, where: str = "") -> float:
    """A count, perhaps fractional: `300e9`, `8k` (8,000), `8Ki` (8,192), `1.5M`, `70B`, `1,000`."""
    if not isinstance(text, str):
        return _checked(_number(text, "a count", where), text, "a count", where)
    value, unit = _split(text, "a count such as 300e9 or 8k", where)
    return _checked(value * _scale(unit, _COUNTS, text, "a count", where), text, "a count", where)


def parse_whole(text: str | float, where: str = "", *, least: int = 1, most: int | None = None) -> int:
    """A whole number from `least` to `most`; the forms of `parse_count`, or a number that is whole."""
    value = parse_count(text, where)
    if value != int(value) or value < least:
        kind = "a positive whole number" if least == 1 else f"a whole number of at least {least}"
        raise InputError(f"'{text}' is not {kind}", where=where)
    if most is not None and value > most:
        raise InputError(f"'{text}' is more than {most:,}", where=where)
    return int(text) if isinstance(text, Integral) else int(value)


def parse_bytes(text: str | float, where: str = "") -> float:
    """Bytes: `80GiB` (powers of 1024), `80GB` (powers of 1000), or a plain number of bytes."""
    if not isinstance(text, str):
        return _checked(_number(text, "a size", where), text, "a size", where)
    value, unit = _split(text, "a size such as 80GiB", where)
    return _checked(value * _scale(unit, _BYTES, text, "a size", where), text, "a size", where)


def parse_rate(text: str | float, where: str = "") -> float:
    """Events per second, within `RATES_PER_S`: `8` (per second), `8/s`, `480/min`, `2k/h`."""
    if not isinstance(text, str):
        amount, period = _number(text, "a rate", where), "s"
    else:
        head, slash, tail = text.partition("/")
        amount, period = parse_count(head, where), tail.strip() if slash else "s"
    value = amount / _scale(period, _PERIODS, text, "a rate such as 8/s", where)
    return check_rate(value, where, _shown(text))


def parse_watts(text: str | float, where: str = "") -> float:
    """Watts above zero: `400`, `400 W`, `0.4kW`."""
    if not isinstance(text, str):
        watts = _number(text, "a power", where)
    else:
        head = text.strip().removesuffix("W").rstrip()
        thousands = 1e3 if head.endswith("k") and "W" in text else 1.0
        watts = thousands * parse_count(head.removesuffix("k") if thousands > 1 else head, where)
    if not 0 < watts < float("inf"):
        raise InputError(f"'{_shown(text)}' is not a power above zero", where=where, hint="Give watts, such as 400.")
    return watts


def parse_money(text: str | float, where: str = "") -> float:
    """Dollars: `$1.5M`, `1M$`, `500k`, `2e6`, or a number."""
    if isinstance(text, str):
        amount = text.strip().removeprefix("$").removesuffix("$")
        if not amount.strip():
            raise InputError(f"'{text}' is not an amount such as 1M$", where=where)
        return parse_count(amount, where)
    return _checked(_number(text, "an amount", where), text, "an amount", where)


def check_rate(per_second: float, where: str, text: str = "") -> float:
    """A rate, once it is above zero and within `RATES_PER_S`; `text` is how it was given."""
    shown, (low, high) = text or f"{per_second:g}", RATES_PER_S
    if not per_second > 0:
        raise InputError(f"'{shown}' is not a rate above zero", where=where)
    if not low <= per_second <= high:
        raise InputError(f"'{shown}' is not between {low:g} and {high:g} per second", where=where)
    return per_second


def format_duration(seconds: float) -> str:
    """Three digits and the unit that suits: `6.3 ms`, `38 ms`, `1.4 s`, `12.5 min`, `34 days`."""
    if not math.isfinite(seconds):
        return "never" if seconds > 0 else str(seconds)
    for unit, scale, limit in (("us", 1e-6, 1e-3), ("ms", 1e-3, 1.0), ("s", 1.0, 120.0), ("min", 60.0, 7200.0)):
        if seconds == 0:
            return "0 s"
        if abs(_rounded(seconds)) < limit:
            return f"{_digits(seconds / scale)} {unit}"
    if abs(_rounded(seconds)) < 172800.0:
        return f"{_digits(seconds / HOUR_S)} h"
    return f"{_digits(seconds / DAY_S)} days"


def format_bytes(size: float) -> str:
    """GiB with one decimal, as memory is talked about: `24.1 GiB`; below 0.1 GiB in MiB, KiB or B, and from ten
    thousand on in TiB or PiB."""
    if not math.isfinite(size):
        return str(size)
    for unit, scale in (("PiB", 1024.0**5), ("TiB", 1024.0**4)):
        if abs(size) >= 10 * scale:
            return f"{_long(size / scale, 1)} {unit}"
    if size == 0 or abs(size) >= 0.1 * 1024.0**3:
        return f"{size / 1024.0**3:,.1f} GiB"
    for unit, scale in (("MiB", 1024.0**2), ("KiB", 1024.0)):
        if abs(size) >= scale:
            return f"{size / scale:,.1f} {unit}"
    return f"{size:,.0f} B"


def format_money(usd: float) -> str:
    """Dollars: `$19.90`, `$0.0012`, `$45.2k`, `$1.9M`."""
    if not math.isfinite(usd):
        return str(usd)
    sign, amount = ("-" if usd < 0 else ""), abs(usd)
    if 0 < amount < 0.01:
        return f"{sign}${_digits(amount, 2)}"
    if amount < 9999.995:
        return f"{sign}${amount:,.2f}"
    unit, scale = ("k", 1e3) if _rounded(amount) < 1e6 else ("M", 1e6) if _rounded(amount) < 1e9 else ("B", 1e9)
    return f"{sign}${_digits(amount / scale)}{unit}"


def format_count(count: float) -> str:
    """A whole count with its thousands marked: `33,000`."""
    return _long(count, 0) if math.isfinite(count) else str(count)


def format_short_count(count: float) -> str:
    """Three digits and a suffix that `parse_count` reads back: `8.03B`, `70.6B`, `131k`."""
    if not math.isfinite(count):
        return str(count)
    for unit, scale in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(_rounded(count)) >= scale:
            return f"{_digits(count / scale)}{unit}"
    return _digits(count)


def format_rate(per_second: float) -> str:
    """Events per second: `11.2/s`."""
    return f"{_digits(per_second)}/s"


def _split(text: str, expected: str, where: str) -> tuple[float, str]:
    match = _QUANTITY.fullmatch(text) if len(text) <= 64 else None
    if match is None:
        raise InputError(f"'{_shown(text)}' is not {expected}", where=where)
    return float(match[1].replace(",", "").replace("_", "")), match[2]


def _number(value: object, kind: str, where: str) -> float:
    """A number of Python or NumPy that was given as such."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InputError(f"'{_shown(value)}' is not {kind}", where=where)
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _shown(value: object) -> str:
    try:
        text = str(value)
    except ValueError:  # a whole number of thousands of digits
        text = "a number of thousands of digits"
    return text if len(text) <= 64 else text[:61] + "..."


def _scale(unit: str, table: dict[str, float], text: str | float, kind: str, where: str) -> float:
    if unit in table:
        return table[unit]
    folded = {name.lower(): scale for name, scale in table.items()}
    if unit.lower() in folded and table is _BYTES:
        return folded[unit.lower()]
    units = ", ".join(name for name in table if name and name.isascii())
    raise InputError(
        f"'{_shown(text)}' is not {kind}: unknown unit '{_shown(unit)}'", where=where, hint=f"Units: {units}."
    )


def _checked(value: float, text: str | float, kind: str, where: str) -> float:
    if value >= _LARGEST:
        raise InputError(f"'{_shown(text)}' is too large for {kind}: it has to be below {_LARGEST:g}", where=where)
    if not value >= 0:
        raise InputError(f"'{_shown(text)}' is not {kind} of zero or more", where=where)
    return value


def _rounded(value: float, digits: int = 3) -> float:
    return float(f"{value:.{digits - 1}e}")


def _digits(value: float, digits: int = 3) -> str:
    """`digits` significant digits, no trailing zeros; an exponent where there would be long rows of zeros."""
    rounded = _rounded(value, digits)
    if rounded == 0:
        return "0"
    if not _PLAIN[0] <= abs(rounded) < _PLAIN[1]:
        return f"{rounded:.{digits}g}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
    text = f"{rounded:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _long(value: float, decimals: int) -> str:
    """All digits before the point, up to a size that nobody reads digit by digit."""
    return f"{value:,.{decimals}f}" if abs(value) < _PLAIN[1] else f"{value:.3g}"
