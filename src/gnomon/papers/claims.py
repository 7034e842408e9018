"""Numbers and units of what papers claim: `2.5x faster, in 40 ms` has 2.5 x and 40 ms."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gnomon.errors import InputError

_UNITS = """
    x % dB
    ns us ms s minutes hours days weeks GPU-hours GPU-days
    bytes KB MB GB TB KiB MiB GiB TiB
    GB/s TB/s Gb/s Gparameters/s
    FLOP FLOP/s GFLOP/s TFLOP/s PFLOP/s
    tokens/s steps/s requests/s samples/s sequences/s keys/s FPS Hz
    W kW MW J kJ kWh MWh USD USD/h USD/Mtok tons km2
    GPUs nodes servers devices
    parameters layers channels tokens sequences users requests samples images frames frame-pairs videos scenes models
    architectures platforms categories tasks steps evaluations elements experts adapters keys n
"""
UNITS = frozenset(_UNITS.split())
"""What a number of a claim, or of an expected figure, may be of; a bare number is of what the claim is about."""
_SPELLED: dict[str, tuple[str, float]] = {
    "seconds": ("s", 1), "second": ("s", 1), "minute": ("minutes", 1), "hour": ("hours", 1), "day": ("days", 1),
    "week": ("weeks", 1), "GPU hours": ("GPU-hours", 1), "H100-hours": ("GPU-hours", 1),
    "TFLOPS": ("TFLOP/s", 1), "petaflops": ("PFLOP/s", 1), "petaFLOP/s": ("PFLOP/s", 1), "exaflops": ("FLOP", 1e18),
    "GKey/s": ("keys/s", 1e9), "frames/s": ("FPS", 1), "frame pairs": ("frame-pairs", 1), "pictures": ("images", 1),
    "high-resolution frames": ("frames", 1), "examples": ("samples", 1), "cold starts": ("requests", 1),
    "V100": ("GPUs", 1), "A100": ("GPUs", 1), "H100": ("GPUs", 1), "GPU": ("GPUs", 1), "NPUs": ("devices", 1),
    "x TFLOPS": ("x", 1), "TFLOP/s a GPU": ("TFLOP/s", 1), "x channels": ("x", 1),
}  # fmt: skip
"""Other spellings, with the unit that they are and how many of it."""
_POWERS = {"k": 3, "K": 3, "M": 6, "B": 9, "T": 12, "thousand": 3, "million": 6, "billion": 9}
_KNOWN = sorted((*UNITS, *_SPELLED), key=lambda unit: (-len(unit), unit))
_UNIT = re.compile("|".join(rf"{re.escape(unit)}(?![\w/])" for unit in _KNOWN))
_NUMBER = re.compile(
    r"(?<![\w.,-])(\$?)(\d+(?:,\d{3})*(?:\.\d+)?)\+?(?:([kKMBT])(?![\w/])| (thousand|million|billion)\b)?"
)
_CARDS = re.compile(r"\b(?:RTX|GTX|Titan|Max)[ -]?\d[\w.]*(?: Ti\b| Ada\b)?")
_NAMED = re.compile(r"\b(?:iPhone|Habitat|Llama|GPT|CIFAR)[ -]?\d[\w.]*")
"""Names with numbers in them."""
_RANGE = re.compile(r"(?:-| to | and |, |/| / )(?=\$?\d)")
"""Between numbers of one unit, which the last one has."""
_BARE = re.compile(r"$|[,;:)]|(?:with|higher|lower|better|more|against|in|at|and|for|of|or|to|from|about)\b")
"""What may follow a number without a unit."""


def quantities(text: str, where: str = "") -> tuple[tuple[float, str], ...]:
    """Every number of a text with its unit, in order; a number of an unknown unit is refused.

    >>> quantities("2.3x to 8.02x, within 5 minutes on one RTX 3090 (24 GB), over $100K")
    ((2.3, 'x'), (8.02, 'x'), (5.0, 'minutes'), (24.0, 'GB'), (100000.0, 'USD'))
    >>> quantities("65 to 92% higher; 120 million parameters")
    ((65.0, '%'), (92.0, '%'), (120000000.0, 'parameters'))
    """
    return tuple(_read(_NAMED.sub(",", _CARDS.sub("GPUs", text)), where))


def unit_of(text: str) -> str | None:
    """The unit that an expected figure is printed with; None where it is unknown."""
    text = text.strip()
    if text in _POWERS or not text:
        return ""
    return text if text in UNITS else _SPELLED.get(text, (None, 1))[0]


def _read(text: str, where: str) -> Iterator[tuple[float, str]]:
    waiting: list[float] = []
    for found in _NUMBER.finditer(text):
        dollar, digits, letter, word = found.groups()
        value = float(f"{digits.replace(',', '')}e{_POWERS.get(letter or word, 0)}")
        after = text[found.end() :]
        unit, more = ("USD", 1.0) if dollar else _unit(after.lstrip())
        if unit is None and _RANGE.match(after):
            waiting.append(value)
            continue
        if unit is None:
            if not _BARE.match(after.lstrip()):
                hint = f"Known: {', '.join(sorted(UNITS))}."
                raise InputError(f"'{after.split()[0]}' after {digits} is not a known unit", where=where, hint=hint)
            unit = ""
        yield from ((each * more, unit) for each in (*waiting, value))
        waiting.clear()


def _unit(text: str) -> tuple[str | None, float]:
    found = _UNIT.match(text)
    if not found:
        return None, 1.0
    return _SPELLED.get(found[0], (found[0], 1.0))
