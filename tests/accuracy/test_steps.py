"""Files of measurements are compared, or counted with the reason."""

from __future__ import annotations

import json
from pathlib import Path

from gnomon.accuracy.steps import ENGINE_ROWS, steps


def test_files_that_hold_no_steps(tmp_path: Path) -> None:
    folder = tmp_path / "h200-today"
    folder.mkdir()
    files = {
        "measured.json": {"chip": "H200"},
        "engine.json": {"schema": ENGINE_ROWS},
        "train-x.json": {},
        "other.json": {"schema": "gnomon.other/1"},
        "rows.json": {"schema": ENGINE_ROWS},
    }
    for name, data in files.items():
        (folder / name).write_text(json.dumps(data))
    found = steps(tmp_path)
    assert found["rows"] == []
    assert {row["source"].partition("/")[2]: row["why"] for row in found["left_out"]} == {
        "engine.json": "fitted to: the engine's overheads",
        "other.json": "nothing here reads gnomon.other/1",
        "rows.json": "has no 'models'",
    }
