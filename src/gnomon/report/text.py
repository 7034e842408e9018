"""Building blocks of plain text reports: tables, bands, next steps, and emphasis where a terminal can show it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gnomon.errors import GnomonError
from gnomon.spec import Chip, Pool
from gnomon.units import format_bytes, format_duration

INDENT = "  "
GAP = "   "
NEXT = f"{INDENT}next: "
CACHELESS = ("diffusion", "encoder")
"""Kinds of networks that keep nothing of their tokens."""
_SCALES = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "days": 86400.0}


@dataclass(frozen=True, slots=True)
class Style:
    """Emphasis as terminal codes, or nothing at all."""

    colour: bool = False

    def strong(self, text: str) -> str:
        return self._code("1", text)

    def faint(self, text: str) -> str:
        return self._code("2", text)

    def good(self, text: str) -> str:
        return self._code("32", text)

    def bad(self, text: str) -> str:
        return self._code("31", text)

    def _code(self, code: str, text: str) -> str:
        return f"\033[{code}m{text}\033[0m" if self.colour and text else text


class Notes:
    """Long texts of a table's cells, told once below it."""

    def __init__(self, longest: int = 28) -> None:
        self._longest = longest
        self._texts: list[str] = []

    def short(self, text: str) -> str:
        """The text, or the mark of its note."""
        if len(text) <= self._longest:
            return text
        if text not in self._texts:
            self._texts.append(text)
        return f"[{self._texts.index(text) + 1}]"

    def lines(self) -> list[str]:
        return [f"[{index}] {text}" for index, text in enumerate(self._texts, 1)]


def table(rows: Sequence[Sequence[str]], align: str) -> list[str]:
    """Rows as lines of aligned columns; `align` has one of `<` and `>` a column."""
    widths = [max(len(row[index]) for row in rows) for index in range(len(align))]
    columns = list(zip(align, widths, strict=True))
    lines = []
    for row in rows:
        cells = [f"{cell:{side}{width}}" for cell, (side, width) in zip(row, columns, strict=True)]
        lines.append((INDENT + GAP.join(cells)).rstrip())
    return lines


def band(estimate: Mapping[str, Any]) -> str:
    """`(5.9 to 6.7, 90%)` in the unit of the value, which is not repeated; nothing for an exact number."""
    low, high, value = (float(estimate[name]) for name in ("low", "high", "value"))
    if low == high:
        return ""
    scale = _SCALES.get(format_duration(value).rpartition(" ")[2], 1.0)
    return f"({digits(low / scale)} to {digits(high / scale)}, 90%)"


def digits(value: float, count: int = 3) -> str:
    """Some significant digits, no exponent: `0.0123`, `5.93`, `141`, `5,080`."""
    if not value or abs(value) >= 10 ** (count - 1):
        return f"{value:,.0f}"
    text = f"{value:.{count}g}"
    return text if "e" not in text else f"{value:.10f}".rstrip("0")


def gib(size: float) -> str:
    """GiB without its unit, for lists that name it once."""
    return f"{size / 1024**3:,.1f}"


def part(size: float) -> str:
    """The same of one part; what would be 0.0 has a smaller unit."""
    return gib(size) if size >= 0.05 * 1024**3 else format_bytes(size)


def scaled(value: float, unit: str) -> str:
    """Powers of 1000: `4.8 TB/s`, `989 TFLOP/s`, `1.88 GB`."""
    for prefix, scale in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= scale:
            return f"{digits(value / scale)} {prefix}{unit}"
    return f"{digits(value)} {unit}"


def assumed(payload: Mapping[str, Any]) -> list[str]:
    """What the answer takes a machine to have that nobody has told, a line each."""
    told = payload.get("assumed") or (payload.get("best") or {}).get("assumed") or ()
    return [f"{INDENT}assumed: {text}" for text in told]


def not_modelled(payload: Mapping[str, Any]) -> list[str]:
    """What was given and has no effect on the answer, a line each."""
    return [f"{INDENT}not modelled: {each['option']}: {each['why']}" for each in payload.get("not_modelled") or ()]


def legible(value: Any) -> Any:
    """The same with nothing in any of its texts that could steer a terminal: an answer may come from any file."""
    if isinstance(value, str):
        return value if value.isprintable() else "".join(map(_letter, value))
    if isinstance(value, Mapping):
        return {legible(key): legible(item) for key, item in value.items()}
    return [legible(item) for item in value] if isinstance(value, (list, tuple)) else value


def _letter(letter: str) -> str:
    return letter if letter.isprintable() else " " if letter.isspace() else "?"


def next_steps(*commands: str) -> list[str]:
    """The last lines of a report: commands that work when they are pasted."""
    return [f"{NEXT if index == 0 else ' ' * len(NEXT)}{command}" for index, command in enumerate(commands)]


def words(*parts: Any) -> str:
    """A command line, quoted where a shell needs it; empty parts are left out."""
    shown = [f"{part:g}" if isinstance(part, float) else str(part) for part in parts if part not in (None, "")]
    return shlex.join(shown)


def flag(name: str, value: Any, default: Any = None) -> Iterable[Any]:
    """`--name value`, or nothing when it has its default."""
    return () if value is None or value == default else (name, value)


def a_load(longest: int) -> tuple[Any, ...]:
    """The flags of a load to begin with, whose requests are no longer than they may be."""
    output = min(256, max(1, longest // 4))
    return ("--rate", 4, "--input", min(1024, max(1, longest - output)), "--output", output)


def longest_of(model: str) -> int:
    """Tokens of the longest sequence a model is made for, where it is still to be found."""
    from gnomon.load import model as load_model

    try:
        return load_model(model).max_context
    except GnomonError:
        return 1280


def deployed(inputs: Mapping[str, Any]) -> list[Any]:
    """The words that name a deployment again: model, chips, and the flags that differ from their defaults."""
    said = [inputs["model"], "--on", inputs["on"]]
    said += flag("--dtype", inputs.get("dtype"), _own_dtype(inputs["model"]))
    if inputs.get("kind") not in CACHELESS:
        said += flag("--kv-dtype", inputs.get("kv_dtype"), "bf16")
    said += flag("--tp", inputs.get("tp"), chip_count(inputs["on"]))
    for name in ("pp", "ep", "cp", "dp"):
        said += flag(f"--{name}", inputs.get(name), 1)
    for name, value in (inputs.get("settings") or {}).items():
        said += ["--set", f"{name}={value}"]
    for name in inputs.get("techniques") or ():
        said += ["--with", name]
    return said


def _own_dtype(model: str) -> str:
    """The format that a model comes in, and runs in where none is asked for."""
    from gnomon.load import model as load_model

    try:
        return load_model(model).dtype
    except GnomonError:
        return ""


def chip_name(on: str) -> str:
    """`H100` of `H100:4`."""
    return on.partition(":")[0].strip()


def known_pool(on: str) -> Pool | None:
    """The chips that `--on` named, by a name or a file, where they are still to be found."""
    from gnomon.load import parse_pool

    try:
        return parse_pool(on)
    except GnomonError:
        return None


def known_chip(on: str) -> Chip | None:
    pool = known_pool(on)
    return pool.chip if pool else None


def chip_word(on: str) -> str:
    """The chip as it was typed; of a file, the chip's own name."""
    name = chip_name(on)
    if not _is_file(name):
        return name
    found = known_chip(on)
    return found.name if found else name


def chip_count(on: str) -> int:
    """How many were named; of a cluster's file all it has, where no part of it is asked for."""
    name, _, count = on.partition(":")
    if count.strip().isdigit():
        return int(count)
    pool = known_pool(on) if _is_file(name.strip()) else None
    return pool.count if pool else 1


def fleet(on: str, least: int = 8) -> str:
    """A fleet to plan on: a cluster's file as it was named, of other chips so many at least."""
    pool = known_pool(on) if _is_file(chip_name(on)) else None
    if pool and pool.file:
        return on
    return f"{pool.chip.reference if pool else chip_name(on)}:{max(least, chip_count(on))}"


def _is_file(name: str) -> bool:
    return name.lower().endswith((".yaml", ".yml"))


def plural(count: int, noun: str, several: str = "") -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {several or noun + 's'}"
