"""What a question says of a run's failures, checkpoints and power grid, as objects."""

from __future__ import annotations

import re
from dataclasses import replace

from gnomon.catalog import grid
from gnomon.catalog.failures import DEFAULT, RATE_HINT, failure_rate
from gnomon.errors import InputError, named_by, unknown_name
from gnomon.planning.training.binding import TrainingBinding
from gnomon.spec import Pool
from gnomon.spec.questions.run import AUTO, RunQuestion
from gnomon.spec.reliability import (
    ASYNCHRONOUS,
    DETECTION_S,
    LOCAL,
    MOST_SPARES,
    REPAIR_S,
    RESTART_S,
    SHARED,
    CheckpointStorage,
    FailureRate,
    FaultTolerance,
)
from gnomon.units import DAY_S, HOUR_S, parse_bytes, parse_count, parse_duration, parse_whole

FAILURES, TO, EVERY, SPARES = "--failures", "--checkpoint-to", "--checkpoint-every", "--spares"
RATE = re.compile(
    r"\s*(?P<count>[^/\s]+)\s*/\s*(?P<times>[\d.,]*)[\s-]*(?P<of>gpu|node)-?(?P<period>hour|day|year)s?\s*"
)
PERIODS_S = {"hour": HOUR_S, "day": DAY_S, "year": 365.25 * DAY_S}
LONGEST = 64
"""Letters of a rate."""
MOST_PER_GPU_HOUR = 60.0
"""A failure of every GPU every minute; more is a typing error."""


def on_grid(bound: TrainingBinding, name: str | None) -> TrainingBinding:
    """The same chips where this grid feeds them; without a name, as a cluster's file has it."""
    if name is None:
        return bound
    with named_by("--grid"):
        return replace(bound, pool=replace(bound.pool, grid=grid(name)))


def fault_tolerance(question: RunQuestion, pool: Pool) -> FaultTolerance | None:
    """None where no failures are asked for."""
    if question.failures is None:
        return None
    steps, seconds = _every(question.checkpoint_every)
    given = (question.detection_time_s, question.restart_time_s, question.repair_time_s)
    usual = (DETECTION_S, RESTART_S, REPAIR_S)
    detection, restart, repair = (one if value is None else value for value, one in zip(given, usual, strict=True))
    return FaultTolerance(
        failures=_failures(question.failures, pool.node_size),
        storage=_storage(question.checkpoint_to),
        mode=question.checkpoint_mode or ASYNCHRONOUS,
        every_steps=steps,
        every_s=seconds,
        spares=_spares(question.spares),
        detection_s=detection,
        restart_s=restart,
        repair_s=repair,
    )


def _failures(text: str, node_size: int) -> FailureRate:
    """A published rate by its name, or one per GPU or node."""
    if "/" not in text:
        with named_by(FAILURES):
            return failure_rate(text)
    found = RATE.fullmatch(text.casefold()) if len(text) <= LONGEST else None
    if found is None:
        raise InputError(f"'{text[:LONGEST]}' is not a rate of failures", where=FAILURES, hint=RATE_HINT)
    count, times = parse_count(found["count"], FAILURES), parse_count(found["times"] or "1", FAILURES)
    devices = times * (node_size if found["of"] == "node" else 1)
    rate = count / devices / (PERIODS_S[found["period"]] / HOUR_S) if devices else 0.0
    if not rate > 0:
        raise InputError(f"'{text}' is not a rate above zero", where=FAILURES, hint=RATE_HINT)
    if rate > MOST_PER_GPU_HOUR:
        more = f"'{text}' is more than {MOST_PER_GPU_HOUR:g} failures per GPU-hour"
        raise InputError(more, where=FAILURES, hint=RATE_HINT)
    return FailureRate(name=text, per_gpu_hour=rate, hardware=failure_rate(DEFAULT).hardware, source="given")


def _storage(text: str | None) -> CheckpointStorage:
    if text is None:
        return CheckpointStorage(place=SHARED)
    place, colon, rate = text.partition(":")
    if place.strip() not in (SHARED, LOCAL):
        raise unknown_name("place for checkpoints", place, (SHARED, LOCAL), where=TO)
    if not colon:
        return CheckpointStorage(place=place.strip())
    size = re.sub(r"/s\s*$", "", rate).strip()
    per_s = parse_bytes(size, TO)
    if per_s < 1:
        raise InputError(f"'{rate}' is not a bandwidth above zero", where=TO, hint="Write it as 100GB/s.")
    if not size[-1:].isalpha():
        hint = f"Write {place.strip()}:{size}GB/s or {place.strip()}:{size}MB/s."
        raise InputError(f"'{rate.strip()}' has no unit", where=TO, hint=hint)
    return CheckpointStorage(place=place.strip(), bytes_s=per_s)


def _every(value: str | int | None) -> tuple[int | None, float | None]:
    """Steps, or seconds; neither for the best."""
    if value is None or value == AUTO:
        return None, None
    if isinstance(value, str) and value.strip()[-1:].isalpha() and value.strip()[-1:] not in "kKMBGT":
        seconds = parse_duration(value, EVERY)
        if not seconds:
            raise InputError(f"'{value}' is not above zero", where=EVERY)
        return None, seconds
    return parse_whole(value, EVERY), None


def _spares(value: str | int | None) -> int | None:
    return None if value is None or value == AUTO else parse_whole(value, SPARES, least=0, most=MOST_SPARES)
