"""Plans that are run one by one on a GPU: each ends in time, what was measured stays, and nothing is run twice."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from tools.finetune_verify import CASES, MEASURED, in_turn, measurements, predictions

from tools import finetune_verify

OPTIONS: dict[str, Any] = {"device": "cpu", "steps": 2, "seconds": 600.0, "out": None, "again": False}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two plans, and a process for each that sleeps for the first and gives a result for the second."""
    chosen = CASES[:2]
    finetune_verify.predict(tmp_path, chosen)
    program = tmp_path / "program.py"
    program.write_text(
        "import json, sys, time\n"
        f"slow, out = {chosen[0].name!r} in sys.argv[-1], sys.argv[-1]\n"
        "print('working', flush=True)\n"
        "time.sleep(60 if slow else 0)\n"
        "open(out, 'w').write(json.dumps({'step_s': [1.0], 'peak_memory_bytes': [2.0]}))\n"
    )
    ended = finetune_verify._ended

    def started(words: list[str], *more: Any) -> bool:
        return ended([sys.executable, str(program), words[words.index("--out") + 1]], *more)

    monkeypatch.setattr(finetune_verify, "_ended", started)
    monkeypatch.setattr(finetune_verify, "SETUP_S", 0.0)
    return tmp_path


def test_a_plan_that_takes_too_long_is_ended_and_the_others_go_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finetune_verify, "LIMIT_S", 2.0)
    finetune_verify.run(folder, Namespace(**OPTIONS))
    first, second = (measurements(folder / MEASURED)[row["name"]] for row in predictions(folder))
    assert first == {"error": "ended after 2 s: working"} and second["step_s"] == [1.0]
    before = (folder / MEASURED).read_bytes()
    finetune_verify.run(folder, Namespace(**OPTIONS))
    assert (folder / MEASURED).read_bytes() == before, "neither is run again"


def test_what_there_is_no_time_for_is_left_to_the_next_run(folder: Path) -> None:
    finetune_verify.run(folder, Namespace(**OPTIONS | {"seconds": 0.0}))
    assert measurements(folder / MEASURED) == {}


def test_parts_take_turns() -> None:
    rows = [{"part": part, "name": name} for part, name in (("a", 1), ("a", 2), ("b", 3), ("c", 4), ("c", 5))]
    assert [row["name"] for row in in_turn(rows)] == [1, 3, 4, 2, 5]
