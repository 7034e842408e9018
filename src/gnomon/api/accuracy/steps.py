"""Whole steps that we measured under a real engine: batches and loads of networks that nothing was fitted to."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gnomon.api.accuracy.scores import LeftOut, Row, compared, summaries
from gnomon.api.measured import SCHEMA as MEASURED
from gnomon.api.measured import Measured, read_measured
from gnomon.api.results import Verified
from gnomon.api.verify import compare
from gnomon.load import model as load_model
from gnomon.load.files import read_json
from gnomon.spec import EngineChoice, Plan, Strategy

ENGINE_ROWS = "gnomon.engine-rows/1"
FITTED = "engine.json"
"""The engine's overheads are fitted to it."""
ELSEWHERE = {
    "gnomon.measured.training/1": "compared in a table of its own",
    "gnomon.measured.modules/1": "needs PyTorch: compared in docs/tracing.md",
    "gnomon.starts/1": "starts of an engine, not steps",
}
INFO = "measured.json"
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
    left, rows = LeftOut(), []
    for path in sorted(measurements.glob("*/*.json")):
        if path.name == INFO:
            continue
        where = f"{path.parent.name}/{path.name}"
        schema = str(read_json(path, limit=LIMIT).get("schema"))
        if path.name == FITTED:
            left.add(where, "fitted to: the engine's overheads")
        elif schema == MEASURED:
            rows += _rows(where, read_measured(path))
        elif schema == ENGINE_ROWS:
            rows += [row for found in _measured(path) for row in _rows(where, found)]
        elif not path.name.startswith("train-"):
            left.add(where, ELSEWHERE.get(schema, f"nothing here reads {schema}"))
    return {
        "rows": rows,
        "totals": summaries(rows),
        "summaries": summaries(rows, ("chip", "model", "what")),
        "left_out": left.listed(),
    }


def _measured(path: Path) -> Iterator[Measured]:
    """Steps by network, each as if it had been verified with a plan."""
    data = read_json(path, limit=LIMIT)
    chip = json.loads((path.parent / INFO).read_text(encoding="utf-8"))["chip"]
    with TemporaryDirectory() as home:
        for name, config in data["models"].items():
            folder = Path(home, name)
            folder.mkdir()
            (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
            settings = data["settings"][name]
            engine = EngineChoice(name=data["engine"], settings={"max_model_len": settings["max_model_len"]})
            yield Measured(
                plan=Plan(
                    model=str(folder),
                    chip=chip,
                    replicas=1,
                    strategy=Strategy(),
                    dtype=load_model(folder).dtype,
                    engine=engine,
                ),
                date=data["date"],
                versions=data["versions"],
                settings=settings,
                loads=(),
                probes=tuple(row for row in data["rows"] if row["model"] == name),
            )


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
