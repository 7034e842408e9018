"""What the plans of a search differ in."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from gnomon.planning.serving.axes import axes_of
from gnomon.search import PlanFamily

TASK: Any = SimpleNamespace(
    chip=lambda name: SimpleNamespace(short=name),
    bindings={"c": SimpleNamespace(engine=SimpleNamespace(knobs=()))},
)


def family(**degrees: int) -> PlanFamily:
    base: dict[str, Any] = {"chip": "c", "tp": 1, "dtype": "bf16", "dtype_rank": 0, "settings": (), "usd_h": 1.0}
    return PlanFamily(**{**base, "most": 2, "order": 0, **degrees})


def test_every_degree_that_differs_is_an_axis() -> None:
    found = axes_of(TASK, [family(), family(dp=4, ep=4), family(dp=2, ep=2), family(pp=2)])
    assert {name: found[name] for name in ("TP", "DP", "PP", "EP")} == {
        "TP": ("1",),
        "DP": ("1", "2", "4"),
        "PP": ("1", "2"),
        "EP": ("1", "2", "4"),
    }


def test_a_degree_that_all_have_is_none() -> None:
    assert list(axes_of(TASK, [family(pp=2), family(pp=2, tp=2)])) == ["chip", "TP", "weights", "pools", "replicas"]
