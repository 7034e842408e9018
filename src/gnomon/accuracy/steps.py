"""Whole steps and loads that we measured under a real engine, of networks that nothing was fitted to."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gnomon.accuracy.option_loads import option_loads
from gnomon.accuracy.scores import LeftOut, Row, compared, summaries
from gnomon.accuracy.served import served
from gnomon.execution.measured_serving import compare
from gnomon.load import model as load_model
from gnomon.load.files import read_json
from gnomon.load.measured import SCHEMA as MEASURED
from gnomon.load.measured import Measured, read_measured
from gnomon.spec import EngineChoice, Plan, Strategy
from gnomon.spec.answers import Verified

ENGINE_ROWS = "gnomon.engine-rows/1"
FITTED = "engine.json"
"""The engine's overheads are fitted to it."""
OTHER_SCHEMAS = {
    "gnomon.measured.modules/1": "traced with PyTorch: compared in docs/tracing.md",
    "gnomon.measured.decoders/1": "traced with PyTorch: compared in docs/tracing.md",
    "gnomon.starts/1": "starts of an engine, not steps",
}
INFO, TRAINING = "measured.json", "train-"
"""What was measured on, and training steps, which have tables of their own."""
PARTS = {
    "decode alone": "decode step",
    "prompt alone": "one prompt",
    "decode": "TPOT under load",
    "ttft": "TTFT under load",
    "memory": "KV blocks",
}
LIMIT = 64 * 1024**2


def steps(measurements: Path) -> Row:
    """Every figure of every folder of measurements; files that are not compared here are counted."""
    left, rows = LeftOut(), list[Row]()
    for path in sorted(measurements.glob("*/*.json")):
        where = f"{path.parent.name}/{path.name}"
        try:
            rows += _of_file(path, where)
        except _Other as why:
            left.add(where, str(why))
        except KeyError as missing:
            left.add(where, f"has no {missing}")
    rows += served(measurements)
    rows += option_loads(measurements)
    return {
        "rows": rows,
        "totals": summaries(rows),
        "summaries": summaries(rows, ("chip", "model", "what")),
        "left_out": left.listed(),
    }


class _Other(Exception):
    """Why a file holds no steps to compare."""


def _of_file(path: Path, where: str) -> list[Row]:
    if path.name == INFO or path.name.startswith(TRAINING):
        return []
    if path.name == FITTED:
        raise _Other("fitted to: the engine's overheads")
    schema = str(read_json(path, limit=LIMIT).get("schema"))
    if schema == MEASURED:
        return _rows(where, read_measured(path))
    if schema == ENGINE_ROWS:
        return [row for found in _measured(path) for row in _rows(where, found)]
    raise _Other(OTHER_SCHEMAS.get(schema, f"nothing here reads {schema}"))


def _measured(path: Path) -> Iterator[Measured]:
    """Steps by network, each as if it had been verified with a plan."""
    data = read_json(path, limit=LIMIT)
    chip = json.loads((path.parent / INFO).read_text(encoding="utf-8"))["chip"]
    with TemporaryDirectory() as home:
        for name, config in data["models"].items():
            folder = Path(home, name)
            folder.mkdir()
            (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
            settings = _settings(data, name)
            engine = EngineChoice(name=data["engine"], settings={"max_model_len": settings["max_model_len"]})
            yield Measured(
                plan=Plan(
                    model=str(folder),
                    chip=chip,
                    replicas=1,
                    strategy=Strategy(),
                    dtype=data.get("formats", {}).get(name) or load_model(folder).dtype,
                    engine=engine,
                ),
                date=data["date"],
                versions=data["versions"],
                settings=settings,
                loads=(),
                probes=tuple(row for row in data["rows"] if row["model"] == name),
            )


def _settings(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    """What the engine chose for a network, in whichever of two ways the file has it."""
    if "settings" in data:
        return dict(data["settings"][name])
    return {"max_model_len": data["max_model_len"], "kv_blocks": data["kv_blocks"][name]}


def _rows(where: str, measured: Measured) -> list[Row]:
    about = {
        "file": where,
        "chip": measured.plan.chip,
        "model": Path(measured.plan.model).name,
        "engine": f"{measured.plan.engine.name} {measured.versions.get(measured.plan.engine.name, '')}".strip(),
        "dtype": measured.plan.dtype,
    }
    return [about | row for row in _compared(compare(measured))]


def _compared(found: Verified) -> Iterator[Row]:
    for part in found.parts:
        if part["part"] in PARTS and part["measured"]:
            yield _detail(part) | compared(
                PARTS[part["part"]], part["unit"], part["measured"], part["predicted"], _band(part)
            )


def _detail(part: Mapping[str, Any]) -> Row:
    rate = part["rate_per_s"]
    return {"detail": part["what"] if rate is None else f"{part['what']} at {rate:g} requests/s"}


def _band(part: Mapping[str, Any]) -> tuple[float, float] | None:
    return None if part["low"] is None else (part["low"], part["high"])
