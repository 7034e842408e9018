"""A plan, or an earlier measurement of one, beside what is predicted of it today."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from gnomon.errors import InputError, UnwrittenError
from gnomon.execution import measured_serving, measured_training
from gnomon.execution.startable import refuse_pools
from gnomon.load.measured import read_measured
from gnomon.paths import unwritten
from gnomon.spec import Plan, TrainingLoad
from gnomon.spec.answers import Verified
from gnomon.spec.questions.running import VerifyQuestion
from gnomon.store import resolve_plan


def verified(question: VerifyQuestion, tell: Callable[[str], None]) -> Verified:
    """Run the plan on this machine and compare; a file of an earlier measurement is only compared again."""
    plan, out = question.plan, Path(question.out) if question.out is not None else None
    if isinstance(plan, (str, Path)) and str(plan).endswith(".json"):
        return _compared(Path(plan))
    chosen = plan if isinstance(plan, Plan) else resolve_plan(str(plan))
    if isinstance(chosen.load, TrainingLoad):
        if question.rate or question.probe:
            hint = "Leave --rate and --probe out."
            raise InputError("a training plan has no requests to replay", where="--rate", hint=hint)
        return measured_training.verify_training(chosen, out, tell)
    refuse_pools(chosen, "verified")
    measured = measured_serving.measure(chosen, rates=question.rate, probe=question.probe, progress=tell)
    text = json.dumps(measured.to_dict(), separators=(",", ":")) + "\n"
    problem = unwritten(out, text) if out is not None else None
    answer = measured_serving.compare(measured)
    if problem is not None:
        raise UnwrittenError(problem, answer)
    return answer


def _compared(file: Path) -> Verified:
    if measured_training.is_training_file(file):
        return measured_training.compare(measured_training.read_training(file))
    return measured_serving.compare(read_measured(file))
