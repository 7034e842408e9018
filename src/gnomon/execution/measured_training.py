"""A training plan run for real on the built-in runner: step time and peak memory beside their prediction."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from gnomon.engines import planned_training_engine
from gnomon.engines.torch.launch import Measuring
from gnomon.engines.torch.worker import SCHEMA
from gnomon.errors import InputError, UnwrittenError
from gnomon.execution.parts import part
from gnomon.load.fields import Fields
from gnomon.load.files import read_json
from gnomon.load.fleet import parse_pool
from gnomon.load.plan import plan_from_dict, plan_to_yaml, refuse_serving_fields
from gnomon.load.training import job_of, planned_step
from gnomon.paths import unwritten
from gnomon.planning.training.report import report_step
from gnomon.spec import Plan
from gnomon.spec.answers import TrainingReport, Verified
from gnomon.spec.plan_dict import plan_to_dict


@dataclass(frozen=True, kw_only=True)
class MeasuredTraining:
    """What ran, with which versions, and what it took: seconds of each step, bytes of each rank."""

    plan: Plan
    date: str
    versions: Mapping[str, str]
    device: str
    step_s: tuple[float, ...]
    peak_memory_bytes: tuple[float, ...]
    sm_clock_mhz: Mapping[str, Any]
    techniques: Mapping[str, Any] = field(default_factory=dict)
    """What those of the plan say of the first rank's run, by name."""

    def to_dict(self) -> dict[str, Any]:
        told = {"techniques": dict(self.techniques)} if self.techniques else {}
        return {
            "schema": SCHEMA,
            "date": self.date,
            "versions": dict(self.versions),
            "device": self.device,
            "plan": plan_to_dict(self.plan),
            "step_s": [round(seconds, 6) for seconds in self.step_s],
            "peak_memory_bytes": list(self.peak_memory_bytes),
            "sm_clock_mhz": dict(self.sm_clock_mhz),
            **told,
        }


def is_training_file(path: Path) -> bool:
    return read_json(path).get("schema") == SCHEMA


def read_training(path: Path) -> MeasuredTraining:
    """The file that `to_dict` wrote."""
    fields = Fields(read_json(path), str(path))
    if fields.text("schema") != SCHEMA:
        raise InputError("is not a measured training step", where=str(path))
    times, peaks = fields.list("step_s"), fields.list("peak_memory_bytes")
    for name, values in (("step_s", times), ("peak_memory_bytes", peaks)):
        if not values or not all(_positive(value) for value in values):
            raise InputError("is not a list of positive numbers", where=f"{path}, {name}")
    return MeasuredTraining(
        plan=plan_from_dict(fields.inner("plan").items(), f"{path}, plan"),
        date=fields.text("date")[:10],
        versions={str(k): str(v) for k, v in fields.inner("versions").items().items()},
        device=fields.text("device", ""),
        step_s=tuple(float(value) for value in times),
        peak_memory_bytes=tuple(float(value) for value in peaks),
        sm_clock_mhz=fields.inner("sm_clock_mhz").items() if fields.has("sm_clock_mhz") else {},
        techniques=fields.inner("techniques").items() if fields.has("techniques") else {},
    )


LEAST, MOST = 1e-12, 1e18
"""Of seconds and bytes that can be meant."""


def _positive(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and LEAST < value < MOST


def verify_training(plan: Plan, out: Path | None, tell: Callable[[str], None]) -> Verified:
    """Run the plan's steps on this machine and compare. `out` keeps what was measured."""
    planned_training_engine(plan.engine)
    refuse_serving_fields(plan)
    predicted(plan)  # what cannot be predicted is refused before anything runs
    measured = measure(plan, tell)
    problem = unwritten(out, json.dumps(measured.to_dict(), indent=1) + "\n") if out is not None else None
    answer = compare(measured)
    if problem is not None:
        raise UnwrittenError(problem, answer)
    return answer


def measure(plan: Plan, tell: Callable[[str], None], measuring: Measuring | None = None) -> MeasuredTraining:
    """What the plan's steps took on this machine. On a CPU no rank's memory is known."""
    from gnomon.engines.torch.runner import run

    told = {} if measuring is None else {"measuring": measuring}
    found = run(job_of(plan), plan_to_yaml(plan), tell, **told)
    return MeasuredTraining(
        plan=plan,
        date=str(found["date"])[:10],
        versions=found["versions"],
        device=found["device"],
        step_s=tuple(found["step_s"]),
        peak_memory_bytes=tuple(found["peak_memory_bytes"]),
        sm_clock_mhz=found["sm_clock_mhz"],
        techniques=found.get("techniques", [{}])[0],
    )


def predicted(plan: Plan) -> TrainingReport:
    """The plan's step under the engine that runs it here, whichever the plan was made for."""
    return report_step(planned_step(plan, "torch", parse_pool(f"{plan.chip}:{plan.strategy.ranks}")))


def compare(measured: MeasuredTraining) -> Verified:
    """Today's prediction beside a measurement, new or old."""
    answer = predicted(measured.plan)
    seconds = answer.step_time_s
    peak = answer.peak_memory_bytes.value
    return Verified(
        title=f"{answer.title}, measured {measured.date} against predicted",
        parts=(
            part("step", "step time", median(measured.step_s), seconds.value, "s", band=(seconds.low, seconds.high)),
            part("memory", "peak memory", max(measured.peak_memory_bytes), peak, "bytes"),
        ),
        conditions={"date": measured.date, **measured.versions},
        measured={"steps": len(measured.step_s), "sm_clock_mhz": measured.sm_clock_mhz}
        | ({"techniques": measured.techniques} if measured.techniques else {}),
        plan=measured.plan,
    )
