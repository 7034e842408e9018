"""The loads that are run for power: each is of a kind that the fit sets aside, and rests are read as such."""

from __future__ import annotations

import pytest

from gnomon.calibrate.power import loads
from tools import power_loads


class Meter:
    """Draws 100 W on a clock that runs while somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    @property
    def joules(self) -> float:
        return 100.0 * self.now_s


def test_every_kind_of_work_is_run() -> None:
    rows = [
        {
            "op": "sustained", "kernel": load.name, "dtype": load.dtype, "duty": str(load.duty), "time_us": "100",
            "burst_us": "100", "watts": "500", "busy": str(load.duty), "flops": "1e9" if "gemm" in load.name else "0",
            "bytes": "1e6",
        }
        for load in power_loads.named()
    ]  # fmt: skip
    kinds = {load.kind for load in loads(rows)}
    assert {"streams", "GEMMs", "fp8 GEMMs", "mixtures", "pauses", "attention"} <= kinds
    assert len({(row["kernel"], row["dtype"], row["duty"]) for row in rows}) == len(rows)


def test_a_mixture_is_the_sum_of_its_parts() -> None:
    done: list[int] = []
    part = power_loads.Work(call=done.append, flops=2.0, bytes=3.0)
    both = power_loads.mixed(part, power_loads.Work(call=done.append, cached=5.0))
    both.call(7)
    assert done == [7, 7]
    assert (both.flops, both.bytes, both.cached) == (2.0, 3.0, 5.0)


def test_a_rest_is_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    meter = Meter()
    monkeypatch.setattr(power_loads, "time", meter)
    row = power_loads.rest(meter, 0.02)  # type: ignore[arg-type]
    assert set(row) <= set(power_loads.COLUMNS)
    (found,) = loads([{key: str(value) for key, value in row.items()}])
    assert found.kind == "rest"
    assert found.watts == pytest.approx(100)
