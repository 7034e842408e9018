"""Parquet tables of operators as AIConfigurator keeps them: one file a kind of operator, latencies in milliseconds."""

from __future__ import annotations

import csv
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gnomon.calibrate.truth import FORMATS
from gnomon.errors import CalibrationError, InputError, MissingExtraError
from gnomon.load.files import check_regular

Cells = Mapping[str, Any]
Groups = Mapping[tuple[str, str], list[dict[str, Any]]]
"""Rows by framework and version."""
MOST_FILES, MOST_FOLDERS, MOST_BYTES = 200, 2000, 512 * 1024**2
FLOOR_US, FLAT, LEAST_ROWS = 35.0, 1.5, 100
"""vLLM 0.24's block-scaled fp8 GEMMs on an H100 never take less than 55 us, and a fifth of them hardly more."""
PARTS = 4
"""Numbers of a version that count."""
EVEN = ("balanced", "uniform", "power_law_1.01")
"""How tokens were spread over experts, where it was evenly or nearly so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operators:
    """Rows in our columns, of one framework in its newest version, and what was left out."""

    framework: str
    version: str
    rows: tuple[dict[str, Any], ...]
    device: str
    left_out: Mapping[str, int]


def _gemm(row: Cells) -> dict[str, Any]:
    return {"op": "gemm", "dtype": row["gemm_dtype"], **{name: row[name] for name in "mnk"}}


def _heads(row: Cells) -> dict[str, Any]:
    heads = int(row["num_heads"])
    return {
        "dtype": row["kv_cache_dtype"],
        "batch": row["batch_size"],
        "heads": heads,
        "kv_heads": int(row["num_key_value_heads"]) or heads,
        "head_dim": row["head_dim"],
    }


def _context(row: Cells) -> dict[str, Any] | None:
    if int(row.get("window_size") or 0) or int(row.get("beam_width") or 1) > 1 or int(row.get("step") or 0):
        return None
    return _heads(row) | {"op": "attention_prefill", "q_len": row["isl"], "kv_len": row["isl"], "causal": 1}


def _generation(row: Cells) -> dict[str, Any] | None:
    if int(row.get("window_size") or 0) or int(row.get("beam_width") or 1) > 1:
        return None
    keys = int(row["isl"]) + int(row.get("step") or 0)
    return _heads(row) | {"op": "attention_decode", "q_len": 1, "kv_len": keys, "causal": 1}


def _moe(row: Cells) -> dict[str, Any] | None:
    """Experts of one rank that holds all of them, visited about evenly; a cut of their width is a smaller width."""
    if int(row["moe_ep_size"]) != 1 or str(row["distribution"]) not in EVEN:
        return None
    return {
        "op": "moe",
        "dtype": row["moe_dtype"],
        "tokens": row["num_tokens"],
        "hidden": row["hidden_size"],
        "inter": int(row["inter_size"]) // int(row["moe_tp_size"]),
        "experts": row["num_experts"],
        "topk": row["topk"],
    }


NAMED, MOST_WORD = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}"), 64
"""What a framework may be called, since a file is named after it, and how long a version may be."""
TABLES: dict[str, Callable[[Cells], dict[str, Any] | None]] = {
    "gemm_perf": _gemm,
    "context_attention_perf": _context,
    "generation_attention_perf": _generation,
    "moe_perf": _moe,
}


def operators(path: Path) -> list[Operators]:
    """What a file or a folder holds, by framework; of several versions of one, the newest."""
    known = [file for file in (_within(path) if path.is_dir() else [path]) if file.stem in TABLES]
    if not known:
        hint = f"Known: {', '.join(f'{name}.parquet' for name in TABLES)}."
        raise CalibrationError("holds no table of operators that is read here", where=str(path), hint=hint)
    if len(known) > MOST_FILES:
        raise InputError(f"holds {len(known)} tables", where=str(path), hint="Name the folder of one chip.")
    groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    left: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    devices: set[str] = set()
    for file in known:
        for cells in _cells(file):
            framework, version, made = _row(cells, file)
            devices.add(str(cells.get("device", "")))
            if made is None:
                left[framework][file.stem] += 1
            else:
                groups[framework, version].append(made)
    if len(devices) > 1:
        named = ", ".join(sorted(devices)[:4])
        raise InputError(f"holds several chips: {named}", where=str(path), hint="Name the folder of one.")
    if not groups:
        raise CalibrationError("holds no rows that can be fitted", where=str(path))
    newest = {name: max((v for n, v in groups if n == name), key=_order) for name, _ in groups}
    return [
        _framework(name, version, groups, left[name], next(iter(devices), ""))
        for name, version in sorted(newest.items())
    ]


def _within(folder: Path) -> list[Path]:
    """Parquet files anywhere below a folder, which may not be a whole disk."""
    found: list[Path] = []
    for number, (place, _, files) in enumerate(os.walk(folder)):
        if number >= MOST_FOLDERS:
            hint = "Name the folder of one chip."
            raise InputError(f"holds more than {MOST_FOLDERS:,} folders", where=str(folder), hint=hint)
        found += [Path(place, name) for name in files if name.endswith(".parquet")]
    return sorted(found)


def _framework(name: str, version: str, groups: Groups, left: Mapping[str, int], device: str) -> Operators:
    """One framework's newest rows, without tables that hold the host's time."""
    older = {f"version {v}": len(rows) for (n, v), rows in groups.items() if n == name and v != version}
    tables: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in groups[name, version]:
        tables[f"{row['op']} in {row['dtype']}"].append(row)
    slow = {kind: least for kind, rows in tables.items() if (least := host_us([row["time_us"] for row in rows]))}
    waited = {f"{kind}, never under {least:.0f} us: the host's time": len(tables[kind]) for kind, least in slow.items()}
    return Operators(
        framework=name,
        version=version,
        rows=tuple(row for kind, rows in tables.items() if kind not in slow for row in rows),
        device=device,
        left_out={**left, **older, **waited},
    )


def host_us(times: Sequence[float]) -> float:
    """The floor of a table that a fifth of its rows lie on, where it is so high that no launch explains it; else 0."""
    if len(times) < LEAST_ROWS:
        return 0.0
    low, fifth = np.quantile(times, (0.02, 0.2))
    return float(min(times)) if min(times) > FLOOR_US and fifth < FLAT * low else 0.0


def write(rows: tuple[dict[str, Any], ...], path: Path) -> None:
    """The rows as a table of ours."""
    from gnomon.calibrate.collect import COLUMNS

    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)


def _row(cells: Cells, file: Path) -> tuple[str, str, dict[str, Any] | None]:
    """Framework, version, and our row; none where it is something we have no model of."""
    try:
        framework, version = str(cells["framework"]).lower(), str(cells["version"])
        made, latency_ms = TABLES[file.stem](cells), float(cells["latency"])
    except (KeyError, TypeError, ValueError, ArithmeticError) as problem:
        raise CalibrationError(f"a row cannot be read ({problem})", where=str(file)) from None
    if not NAMED.fullmatch(framework) or len(version) > MOST_WORD:
        raise CalibrationError(f"a row is of no framework: '{framework[:40]}' '{version[:40]}'", where=str(file))
    if made is None or str(made["dtype"]) not in FORMATS or not latency_ms > 0:
        return framework, version, None
    return framework, version, made | {"dtype": FORMATS[str(made["dtype"])], "time_us": latency_ms * 1e3}


def _cells(file: Path) -> Iterator[Cells]:
    try:
        import duckdb
    except ImportError:
        raise MissingExtraError("duckdb", "parquet", "reading Parquet") from None
    try:
        check_regular(file, MOST_BYTES)
        with duckdb.connect() as engine:
            nodes = engine.execute("select name, num_children from parquet_schema(?)", [str(file)]).fetchall()
            _check_names(nodes, str(file))
            found = engine.execute("select * from read_parquet(?)", [str(file)])
            names = [column[0] for column in found.description]
            rows = found.fetchall()
    except OSError as problem:
        raise InputError(f"cannot be read: {problem.strerror or problem}", where=str(file)) from None
    except duckdb.Error as problem:
        raise CalibrationError(f"is no Parquet table ({str(problem).splitlines()[0][:120]})", where=str(file)) from None
    for row in rows:
        yield dict(zip(names, row, strict=True))


def _check_names(nodes: Sequence[tuple[str, int | None]], where: str) -> None:
    """Refuse a column that is given twice; names within a column of several may repeat."""
    names, inside = Counter[str](), 0
    for name, children in nodes[1:]:
        names.update([] if inside else [name.lower()])
        inside = max(inside - 1, 0) + (children or 0)
    twice = next((name for name, count in names.items() if count > 1), None)
    if twice is not None:
        raise CalibrationError(f"the column '{twice}' is given twice", where=where, hint="Keep one of them.")


def _order(version: str) -> tuple[int, ...]:
    """Versions in their order: numbers as numbers, candidates before what they became."""
    head, candidate, rest = version.partition("rc")
    numbers = [int(digits) for digits in re.findall(r"\d+", head)][:PARTS]
    last = re.findall(r"\d+", rest)
    padded = numbers + [0] * (PARTS - len(numbers))
    return (*padded, -1 if candidate else 0, int(last[0]) if last else 0)
