"""Inputs broken by a machine: whole ones, with one part of them changed to what no part can be. Always the same."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import yaml
from tests.corpus.bases import BASES, BESIDE
from tests.corpus.case import Case

EACH = 14
"""Cases of each kind of file."""
WRONG: tuple[Any, ...] = (-1, "nonsense", [], {"a": 1}, float("nan"), float("inf"), 1e300, "")
"""No number, name or list of ours is any of these."""
FREE = {"name", "vendor", "architecture", "memory", "source", "date", "year", "torch_dtype", "tie_word_embeddings",
        "architectures", "model_type", "max_position_embeddings"}  # fmt: skip
"""Fields that may hold nearly anything, or that others stand in for."""


def _leaves(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        if key not in FREE:
            yield from _leaves(value, (*path, key))
    if not isinstance(data, (dict, list)):
        yield path


def _with(data: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    key, *rest = path
    copy = dict(data) if isinstance(data, dict) else list(data)
    copy[key] = _with(data[key], tuple(rest), value)
    return copy


def _fields(kind: str, source: random.Random) -> Iterator[tuple[str, str]]:
    """A mapping with one field of it wrong."""
    file, text, _ = BASES[kind]
    as_json = file.endswith(".json")
    data = json.loads(text) if as_json else yaml.safe_load(text)
    leaves = list(_leaves(data))
    while True:
        path, wrong = source.choice(leaves), source.choice(WRONG)
        broken = _with(data, path, wrong)
        shown = json.dumps(broken) if as_json else yaml.safe_dump(broken, sort_keys=False)
        yield f"{'.'.join(map(str, path))} = {wrong!r}", shown


def _cells(kind: str, source: random.Random) -> Iterator[tuple[str, str]]:
    """A table with one filled cell of it wrong."""
    lines = [line.split(",") for line in BASES[kind][1].splitlines()]
    filled = [(row, column) for row in range(1, len(lines)) for column, cell in enumerate(lines[row]) if cell]
    while True:
        row, column = source.choice(filled)
        wrong = source.choice(["-7", "x", "nan", "inf", "-inf", "1e999", "0x10", "1;2", "\u00bd", "True "])
        broken = [list(line) for line in lines]
        broken[row][column] = wrong
        yield f"line {row + 1}, {lines[0][column]} = {wrong!r}", "\n".join(map(",".join, broken)) + "\n"


def _cuts(kind: str, source: random.Random) -> Iterator[tuple[str, bytes]]:
    """A file with a stray byte in it that no text has."""
    text = BASES[kind][1].encode()
    while True:
        place = source.randrange(len(text))
        stray = source.choice([b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"\xfe"])
        yield f"{stray!r} at {place}", text[:place] + stray + text[place:]


def cases() -> Iterator[Case]:
    for kind, (file, _, words) in BASES.items():
        source = random.Random(f"corpus {kind}")
        makers = (_cells if file.endswith(".csv") else _fields, _cuts)
        for make, count in zip(makers, (EACH, 3), strict=True):
            seen: set[str] = set()
            for name, content in make(kind, source):
                if name not in seen:
                    seen.add(name)
                    yield Case(name=f"fuzzed {kind}: {name}", words=words, place=file, files={**BESIDE, file: content})
                if len(seen) == count:
                    break
