"""A deployment that was measured elsewhere beside its prediction; it is kept as a check."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from gnomon.calibrate import readers
from gnomon.calibrate.readers.results import Deployed
from gnomon.errors import InputError, UnknownNameError, UnwrittenError
from gnomon.load.files import as_path
from gnomon.paths import home, unwritten
from gnomon.spec.answers import Prediction, Result, ServingReport
from gnomon.spec.questions.running import CalibrateQuestion

Simulate = Callable[..., ServingReport]
Predict = Callable[..., Prediction]
"""`gnomon.simulate_serving` and `gnomon.predict`."""


@dataclass(frozen=True, kw_only=True)
class Checked(Result):
    """A measured deployment beside its prediction. It is kept as a check; no coefficient follows from it."""

    SCHEMA = "calibrate.check"
    title: str
    measured: Mapping[str, Any]
    predicted: Mapping[str, float]
    errors: Mapping[str, float]
    """Predicted over measured, less one."""
    method: str
    kept: str


def checked_deployment(question: CalibrateQuestion, simulate: Simulate, predict: Predict) -> Checked:
    """A measured load predicted: simulated where requests came at a rate, else a step of as many as were under way."""
    assert question.source is not None
    path, on, model = as_path(question.source), question.on, question.model
    found = readers.deployed(path)
    if on is None:
        raise InputError("a result does not say which chips it was measured on", where="--on", hint="Give --on CHIP.")
    name = model or found.model.rpartition("/")[2].lower()
    if model is None and ":" in name:  # a name of code to run is taken from the user alone
        raise InputError(f"'{found.model}' is not a known model", where="--model", hint="Give --model.")
    sizes = round(found.input_tokens), round(found.output_tokens)
    try:
        method, predicted = _predicted(found, sizes, simulate=_on(simulate, name, on), predict=_on(predict, name, on))
    except UnknownNameError as problem:
        if model is None and problem.where in ("", "MODEL"):
            raise InputError(f"'{found.model}' is not a known model", where="--model", hint="Give --model.") from None
        raise
    measured = {"ttft_s": found.ttft_s, "tpot_s": found.tpot_s, "output_tokens_per_s": found.output_tokens_per_s}
    errors = {key: predicted[key] / measured[key] - 1 for key in predicted}
    target = home() / "checks" / f"{path.stem}-{zlib.crc32(path.read_bytes()):08x}.json"
    answer = Checked(
        title=f"{found.tool}: {found.model or name} on {on}, beside its prediction",
        measured=asdict(found),
        predicted=predicted,
        errors=errors,
        method=method,
        kept=str(target),
    )
    unkept = unwritten(target, json.dumps(answer.to_dict(), indent=1) + "\n")
    if unkept is not None:
        raise UnwrittenError(unkept, answer)
    return answer


def _on(function: Callable[..., Any], model: str, on: str) -> Callable[..., Any]:
    return partial(function, model, on=on)


def _predicted(
    found: Deployed, sizes: tuple[int, int], simulate: Simulate, predict: Predict
) -> tuple[str, dict[str, float]]:
    new, made = sizes
    if found.rate_per_s is not None and found.concurrency is None:
        run = simulate(rate=found.rate_per_s, input=new, output=made, requests=found.requests)
        figures = {"ttft_s": run.ttft_s["p50"], "tpot_s": run.tpot_s["p50"]}
        return "simulated at the same rate", figures | {"output_tokens_per_s": run.output_tokens_per_s}
    running = min(found.concurrency or found.requests, found.requests)
    step = predict(phase="decode", batch=running, context=new + made // 2)
    return f"one decode step of {running} sequences: first tokens depend on the order of arrivals", {
        "tpot_s": step.time_s.value
    }
