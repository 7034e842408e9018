"""Steps of load: pieces are noted as they end, and what the governor did is read off them."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tools.power_loads import Work
from tools.power_samples import COLUMNS

from tools import governor, governor_steps

PIECE_S = 0.01


class Clock:
    """A machine whose GPU takes 10 ms a piece and whose host takes no time."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(governor, "time", made)
    return made


def _torch(clock: Clock) -> Any:
    class Event:
        def __init__(self, **_: object) -> None: ...

        def record(self) -> None: ...

        def synchronize(self) -> None:
            clock.now_s += PIECE_S

        def elapsed_time(self, _end: object) -> float:
            return PIECE_S * 1e3

    class Cuda:
        pass

    Cuda.Event = Event  # type: ignore[attr-defined]
    return type("Torch", (), {"cuda": Cuda})


class Graph:
    def replay(self) -> None: ...


def _run(clock: Clock, monkeypatch: pytest.MonkeyPatch, *steps: governor.Step) -> tuple[dict[str, Any], list[str]]:
    monkeypatch.setattr(governor, "captured", lambda _torch, _call: (Graph(), 3))
    pieces = io.StringIO()
    driver = governor.Driver(_torch(clock), pieces)
    builds = (lambda _torch: Work(call=print, flops=5.0), lambda _torch: Work(call=print, bytes=7.0))
    row = driver.run(4, governor.Load("both", builds, steps))
    return row, pieces.getvalue().splitlines()


def test_every_piece_of_every_step_is_noted(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    row, lines = _run(clock, monkeypatch, governor.Step(0.1), governor.Step(0.5, None), governor.Step(0.05, 1))
    noted = [line.rsplit(",", 2)[0] for line in lines[1:]]
    assert noted[0] == "4,0,0" and noted[-1] == "4,2,1"
    assert 10 <= noted.count("4,0,0") <= 12 and 5 <= noted.count("4,2,1") <= 7
    assert [step["work"] for step in row["steps"]] == [0, None, 1]
    assert [work["calls"] for work in row["works"]] == [6, 6]
    assert row["works"][1]["bytes"] == 7.0
    ends = np.array([float(line.split(",")[3]) for line in lines[1:]])
    assert np.all(np.diff(ends) > 0) and ends[-1] == pytest.approx(row["end_s"])


def test_a_duty_cycle_pauses_after_every_piece(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    _, lines = _run(clock, monkeypatch, governor.Step(0.4, duty=0.25))
    assert len(lines) - 1 == 10
    assert clock.slept[1:] == pytest.approx([3 * PIECE_S] * 10)


def test_names_of_loads_are_different() -> None:
    names = [load.name for load in governor.loads()]
    assert len(set(names)) == len(names)
    assert sum(step.seconds for load in governor.loads() for step in load.steps) < 200


def _write(folder: Path, slow: float) -> None:
    """Two seconds at the full rate for 0.1 s, then at 1 / `slow` of it; 700 W and 1,500 MHz."""
    work = {"flops": 1e12, "bytes": 2e9, "cached_bytes": 0.0, "calls": 2}
    load = {"load": 0, "name": "gemm", "begin_s": 50.0, "end_s": 52.5, "works": [work], "steps": []}
    (folder / "governor.json").write_text(json.dumps({"loads": [load]}))
    took = [PIECE_S] * 10 + [PIECE_S * slow] * 200
    ends = 50.0 + np.cumsum(took)
    rows = [f"0,0,0,{end:.5f},{one:.5f}" for end, one in zip(ends, took, strict=True)]
    (folder / "governor-pieces.csv").write_text("\n".join(["load,step,work,end_s,device_s", *rows]) + "\n")
    samples = []
    for at in np.arange(49.0, 54.0, 0.02):
        named = {"monotonic_s": at, "energy_j": 700.0 * at, "sm_mhz": 1500.0, "gpu_c": 60.0}
        samples.append(",".join(f"{named.get(name, 0.0):.6g}" for name in COLUMNS))
    (folder / "governor-power.csv").write_text("\n".join([",".join(COLUMNS), *samples]) + "\n")


def test_the_governor_is_read_off_the_pieces(tmp_path: Path) -> None:
    _write(tmp_path, slow=1.25)
    (row,) = governor_steps.responses(tmp_path)
    assert row.burst_flops == pytest.approx(2e12 / PIECE_S)
    assert row.reaction_s == pytest.approx(0.1125)
    assert (row.plateau, row.dip, row.sustained) == pytest.approx((0.8, 0.8, 0.8))
    assert (row.watts, row.sm_mhz, row.celsius) == pytest.approx((700.0, 1500.0, 60.0), rel=1e-3)


def test_a_load_that_keeps_its_rate_has_no_reaction(tmp_path: Path) -> None:
    _write(tmp_path, slow=1.0)
    (row,) = governor_steps.responses(tmp_path)
    assert np.isnan(row.reaction_s) and row.sustained == pytest.approx(1.0)
