"""Stand-ins for the functions the commands call, so that parsing and printing are tested on their own."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
from tests.report import answers


class Calls:
    """What was called with what."""

    def __init__(self) -> None:
        self.made: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def fake(self, name: str, answer: Any) -> Any:
        def call(*positional: Any, **named: Any) -> Any:
            self.made.append((name, positional, named))
            if isinstance(answer, BaseException):
                raise answer
            return answer

        return call


def install(monkeypatch: pytest.MonkeyPatch, calls: Calls, **changes: Any) -> None:
    """Fake functions of `gnomon.api`; `changes` replaces the answer of a function, or raises it."""
    asked = {  # commands that call `answer(question)`
        "predict": "predict",
        "fit": "fit",
        "ops": "ops",
        "simulate": "simulate_serving",
        "plan": "plan_serving",
        "simulate_training": "simulate_training",
        "plan_training": "plan_training",
        "verify": "verify",
    }
    known = {
        ("predict", "predict"): answers.prediction(),
        ("fit", "fit"): answers.fit(),
        ("ops", "ops"): [
            {"op": "gemm", "m": "1", "time_us": 2.5, "low_us": 2.0, "high_us": 3.0, "provenance": "fitted"}
        ],
        ("simulate", "simulate_serving"): answers.served(),
        ("plan", "plan_serving"): answers.planned(),
        ("verify", "verify"): answers.verified(),
        ("simulate_training", "simulate_training"): answers.trained(),
        ("plan_training", "plan_training"): answers.trained_plan(),
    }
    for (module, function), answer in known.items():
        fake = calls.fake(function, changes.get(function, answer))
        called = "answer" if asked.get(module) == function else function
        monkeypatch.setattr(import_module(f"gnomon.api.{module}"), called, fake)
