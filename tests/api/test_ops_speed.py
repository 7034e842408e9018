"""The mixed table of `bench/ops_speed.py`, a tenth of it: as many calls as kinds and formats, however many rows."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

import gnomon
from gnomon.cost.machine import Machine

BENCH = runpy.run_path(str(Path(__file__).parents[2] / "bench" / "ops_speed.py"))


def test_rows_of_a_kind_are_priced_together(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds, calls = Machine.seconds, []

    def counted(self: Machine, kind: str, *rest: Any, **more: Any) -> Any:
        calls.append(kind)
        return seconds(self, kind, *rest, **more)

    monkeypatch.setattr(Machine, "seconds", counted)
    gnomon.ops(BENCH["mixed"](1_000, 7), on=BENCH["CHIP"])
    few = sorted(calls)
    calls.clear()
    gnomon.ops(BENCH["mixed"](100_000, 7), on=BENCH["CHIP"])
    assert sorted(calls) == few
    assert set(few) == set(BENCH["KINDS"])
    assert len(few) <= 2 * len(BENCH["KINDS"])


def test_the_bench_prices_every_kind_in_its_mixed_table() -> None:
    table = BENCH["mixed"](1000, 7)
    assert set(table["op"]) == set(BENCH["KINDS"])
    assert not (BENCH["mixed"](1000, 8)["m"] == table["m"]).all(), "each run has shapes of its own"
