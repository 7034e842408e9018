"""A plan run for real: measured against predicted, part by part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from gnomon.execution.verified import verified
from gnomon.spec import Plan
from gnomon.spec.answers import Verified
from gnomon.spec.questions.running import VerifyQuestion


def verify(
    plan: str | Path | Plan,
    *,
    rates: Sequence[float] | None = None,
    probe: bool = False,
    out: str | Path | None = None,
    progress: Callable[[str], None] | None = None,
) -> Verified:
    """Start one replica of the plan with dummy weights, replay its load (at several rates), and compare.

    Needs a GPU and the engine. `probe` also times prompts and decode batches in isolation. `out` stores
    the measurement as a file; such a file in place of the plan is compared again without measuring.
    """
    return answer(VerifyQuestion(plan=plan, rate=rates, probe=probe, out=out), progress)


def answer(question: VerifyQuestion, progress: Callable[[str], None] | None = None) -> Verified:
    """What a question's plan, or an earlier measurement of it, compares with its prediction."""
    return verified(question, progress or (lambda text: None))
