"""Whole inputs with something of them changed: one field of a tree, one cell of a table, some bytes of a text."""

from __future__ import annotations

import copy
import gzip
import json
import re
from collections.abc import Iterator
from typing import Any

import yaml
from tests.fuzz.case import Draw
from tests.fuzz.values import NUMBERS, TEXTS, WORDS, junk, tree

_NUMBER = re.compile(rb"\d+(\.\d+)?")
_STRAY = (
    b"\x00", b"\xff", b"\xc3\x28", b"\n", b"\r", b",", b'"', b"'", b":", b"- ", b"{", b"[", b"}", b"&a ", b"*a", b"#",
)  # fmt: skip


def paths(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where values stand in a tree."""
    items: Any = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from paths(value, (*path, key))


def at(data: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        data = data[key]
    return data


def changed_tree(draw: Draw, data: Any) -> Any:
    """The tree with one to three changes."""
    data = copy.deepcopy(data)
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        places = list(paths(data))
        if not places:
            return tree(draw)
        *before, key = draw.choice(places)
        holder = at(data, tuple(before))
        _change(draw, holder, key, at(data, draw.choice(places)))
    return data


def tuned_tree(draw: Draw, data: Any, other: Any) -> Any:
    """The tree with one to three values that could be meant: other sizes, other words, fields of another tree."""
    data = copy.deepcopy(data)
    for _ in range(draw.choice((1, 1, 2, 3))):
        places = [path for path in paths(data) if not isinstance(at(data, path), (dict, list)) and path != ("schema",)]
        if not places:
            return data
        *before, key = draw.choice(places)
        holder = at(data, tuple(before))
        holder[key] = _tuned(draw, holder[key])
        if draw.random() < 0.3:
            grafts = [path for path in paths(other) if isinstance(path[-1], str) and path != ("schema",)]
            graft = draw.choice(grafts) if grafts else ()
            if graft and isinstance(holder, dict):
                holder[graft[-1]] = copy.deepcopy(at(other, graft))
    return data


def _tuned(draw: Draw, value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return draw.choice((value * 2, value // 2, value + 1, value - 1, value * 10, value * 1000, 1, 2, 0))
    if isinstance(value, float):
        return draw.choice((value * 2, value / 2, value * 1000, value / 1000, 1.0, 0.5))
    return draw.choice(WORDS) if isinstance(value, str) else draw.choice((value, 1, 2, 64))


def _change(draw: Draw, holder: Any, key: Any, other: Any) -> None:
    value = holder[key]
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    way = 5 if number and draw.random() < 0.5 else draw.randrange(9)
    if way == 0:
        del holder[key]
    elif way == 1 and isinstance(holder, dict):
        holder[f"{key}{draw.choice(('s', '_', ' ', '2', ''))}{draw.choice(TEXTS[:8])}"] = holder.pop(key)
    elif way == 2:
        holder[key] = copy.deepcopy(other)
    elif way == 3:
        holder[key] = [value]
    elif way == 4:
        holder[key] = tree(draw)
    elif way == 5 and number:
        others = (-value, value * 10, value // 2, value * 2, value * 1e6, value + 0.5, float(value), value + 1, 1, 0)
        holder[key] = draw.choice(others)
    elif way == 6 and isinstance(value, list) and value:
        holder[key] = value * draw.choice((2, 50))
    elif way == 7:
        holder[key] = str(value)
    else:
        holder[key] = junk(draw)


def as_json(data: Any) -> bytes:
    return json.dumps(data, indent=1).encode(errors="surrogatepass")


def as_yaml(data: Any) -> bytes:
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True).encode(errors="surrogatepass")


def changed_text(draw: Draw, text: bytes) -> bytes:
    """The bytes with one to four changes that know nothing of what they mean."""
    for _ in range(draw.choice((1, 1, 2, 4))):
        text = _changed_once(draw, text or b" ")
    return text


def _changed_once(draw: Draw, text: bytes) -> bytes:
    start = draw.randrange(len(text))
    end = min(len(text), start + draw.choice((1, 2, 8, 40)))
    way = draw.randrange(10)
    if way == 0:
        return text[:start]
    if way == 1:
        return text[:start] + text[end:]
    if way == 2:
        return text[:end] + text[start:]
    if way == 3:
        return text[:start] + draw.choice(_STRAY) + text[start:]
    if way == 4:
        return text[:start] + bytes([text[start] ^ (1 << draw.randrange(8))]) + text[start + 1 :]
    if way == 5:
        return text.replace(b"\n", draw.choice((b"\r\n", b"\r", b"\n\n", b" ")))
    if way == 6:
        return draw.choice((b"\xef\xbb\xbf", b"\xff\xfe", b"\x1f\x8b", b"---\n", b"\n" * 50)) + text
    if way == 7:
        lines = text.splitlines(keepends=True)
        draw.shuffle(lines)
        return b"".join(lines)
    found = list(_NUMBER.finditer(text))
    if not found:
        return text * 2
    number = draw.choice(found)
    other = str(draw.choice(NUMBERS)) if way == 8 else draw.choice(TEXTS)
    return text[: number.start()] + other.encode(errors="surrogatepass") + text[number.end() :]


def changed_table(draw: Draw, text: str) -> bytes:
    """A CSV with some cells, columns or rows changed."""
    rows = [line.split(",") for line in text.splitlines()]
    for _ in range(draw.choice((1, 1, 2, 3))):
        row = draw.choice(rows)
        place = draw.randrange(len(row)) if row else 0
        way = draw.randrange(8)
        if way == 0:
            rows.insert(draw.randrange(len(rows) + 1), list(row))
        elif way == 1 and len(rows) > 1:
            rows.remove(row)
        elif way == 2:
            row.insert(place, draw.choice(TEXTS))
        elif way == 3 and row:
            del row[place]
        elif way == 4:
            for each in rows:
                each.append(str(draw.choice(NUMBERS)))
        elif way == 5 and row:
            row[place] = f'"{row[place]}{draw.choice(("", chr(34), chr(10), ","))}"'
        elif row:
            row[place] = str(draw.choice(NUMBERS)) if way == 6 else draw.choice(TEXTS)
    return "\n".join(",".join(row) for row in rows).encode(errors="surrogatepass")


def packed(draw: Draw, data: bytes) -> bytes:
    """The bytes as gzip, sometimes not all of them, or not once."""
    made = gzip.compress(data, mtime=0)
    way = draw.randrange(8)
    if way == 0:
        return made[: draw.randrange(len(made))]
    if way == 1:
        return made + draw.choice((made, b"tail", gzip.compress(b"\n" * 100_000) * 50))
    if way == 2:
        return gzip.compress(made)
    if way == 3:
        return _changed_once(draw, made)
    return data if way == 4 else made
