"""Building blocks of plain text reports: tables, bands, next steps, and emphasis where a terminal can show it."""

from __future__ import annotations

import hashlib
import json
import math
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from gnomon.spec.answers import Resolved, Result
from gnomon.spec.estimate import Estimate
from gnomon.spec.plan_dict import as_json
from gnomon.units import format_bytes, format_count, format_duration

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


def headed(rows: Sequence[Sequence[str]], align: str, style: Style) -> list[str]:
    """Rows as lines of aligned columns; the first row is the head."""
    head, *lines = table(rows, align)
    return [style.faint(head), *lines]


def band(estimate: Estimate) -> str:
    """`(5.9 to 6.7, 90%)` in the unit of the value, which is not repeated; nothing for an exact number."""
    low, high = estimate.low, estimate.high
    if low == high:
        return ""
    scale = _SCALES.get(format_duration(estimate.value).rpartition(" ")[2], 1.0)
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
    """GiB without its unit; what would be 0.0 has a smaller unit."""
    return gib(size) if size >= 0.05 * 1024**3 else format_bytes(size)


def scaled(value: float, unit: str) -> str:
    """Powers of 1000: `4.8 TB/s`, `989 TFLOP/s`, `1.88 GB`."""
    for prefix, scale in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= scale:
            return f"{digits(value / scale)} {prefix}{unit}"
    return f"{digits(value)} {unit}"


def known(value: float | None) -> float | None:
    """A finite number, or None: unknown values are NaN in a fresh answer and null in a stored one."""
    return value if value is not None and math.isfinite(value) else None


def assumed(answer: Result) -> tuple[str, ...]:
    """Unstated properties of the machine that an answer, or the plan it chose, assumes."""
    found: tuple[str, ...] = getattr(answer, "assumed", ()) or getattr(getattr(answer, "best", None), "assumed", ())
    return found


def footer(answer: Result) -> list[str]:
    """What an answer assumes, and what was given and has no effect on it, a line each."""
    ignored = [f"{each.option}: {each.why}" for each in getattr(answer, "not_modelled", ())]
    return [f"{INDENT}assumed: {text}" for text in assumed(answer)] + [
        f"{INDENT}not modelled: {text}" for text in ignored
    ]


def legible(value: Any) -> Any:
    """A value without control characters in any of its texts: an answer may come from any file."""
    if isinstance(value, str):
        return value if value.isprintable() else "".join(map(_letter, value))
    if isinstance(value, Mapping):
        return {legible(key): legible(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(legible, value))
    if not is_dataclass(value) or isinstance(value, type):
        return value
    hidden = getattr(value, "HIDDEN", ())
    return replace(
        value, **{each.name: legible(getattr(value, each.name)) for each in fields(value) if each.name not in hidden}
    )


def _letter(letter: str) -> str:
    return letter if letter.isprintable() else " " if letter.isspace() else "?"


def labelled(label: str, text: str, emphasis: Callable[[str], str] = str) -> str:
    """A line of a plan's report, below the label in the left column."""
    return f"{INDENT}{label:<9} {emphasis(text)}"


def next_steps(*commands: str) -> list[str]:
    """The last lines of a report: commands that work when they are pasted."""
    return [f"{NEXT if index == 0 else ' ' * len(NEXT)}{command}" for index, command in enumerate(commands)]


def folder_of(use: str, answer: Mapping[str, Any]) -> str:
    """A folder for the files of one answer, `deploy-3fa9c1`: those of another answer are not in the way there."""
    content = json.dumps(as_json(answer), sort_keys=True)
    return f"{use}-{hashlib.sha256(content.encode()).hexdigest()[:6]}"


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


def deployed(inputs: Mapping[str, Any], resolved: Resolved) -> list[Any]:
    """The words that name a deployment again: model, chips, and the flags that differ from their defaults."""
    said = [inputs["model"], "--on", inputs["on"]]
    said += flag("--dtype", inputs.get("dtype"), resolved.model_dtype)
    if inputs.get("kind") not in CACHELESS:
        said += flag("--kv-dtype", inputs.get("kv_dtype"), "bf16")
    said += flag("--tp", inputs.get("tp"), chip_count(inputs["on"], resolved))
    for name in ("pp", "ep", "cp", "dp"):
        said += flag(f"--{name}", inputs.get(name), 1)
    for name, value in (inputs.get("settings") or {}).items():
        said += ["--set", f"{name}={value}"]
    for name in inputs.get("techniques") or ():
        said += ["--with", name]
    return said


def chip_word(on: str, resolved: Resolved) -> str:
    """The chip as it was typed; of a file, the chip's own name."""
    name = on.partition(":")[0].strip()
    return resolved.chip or name if _is_file(name) else name


def chip_count(on: str, resolved: Resolved) -> int:
    """How many were named; of a cluster's file all it has, where no part of it is asked for."""
    name, _, count = on.partition(":")
    if count.strip().isdigit():
        return int(count)
    return resolved.count or 1 if _is_file(name.strip()) else 1


def fleet(on: str, resolved: Resolved, least: int = 8) -> str:
    """A fleet to plan on: a cluster's file as it was named, of other chips so many at least."""
    name = on.partition(":")[0].strip()
    if _is_file(name) and resolved.file:
        return on
    chip = resolved.reference or name if _is_file(name) else name
    return f"{chip}:{max(least, chip_count(on, resolved))}"


def _is_file(name: str) -> bool:
    return name.lower().endswith((".yaml", ".yml"))


def plural(count: int, noun: str, several: str = "") -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {several or noun + 's'}"


def technique_lines(techniques: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Figures that techniques add."""
    return [f"{name}: {', '.join(_fact(*fact) for fact in facts.items())}" for name, facts in techniques.items()]


def _fact(name: str, value: float) -> str:
    what, _, unit = name.rpartition("_")
    return f"{what} {format_duration(value)}" if unit == "s" else f"{name.replace('_', ' ')} {format_count(value)}"
