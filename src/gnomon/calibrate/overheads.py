"""From measured steps of an engine to its own share of them: what is left after the operators.

Fitted through the simulator, since a host that launches slowly shows only in the order of events: each
measured prompt and decode batch is simulated with the very requests that were sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gnomon.calibrate.engine import beside_requests
from gnomon.calibrate.least_squares import fit
from gnomon.calibrate.server_loads import together
from gnomon.cost.table import TableStepCost
from gnomon.engines.vllm.overheads import BUSY, DECODE, FRONT, LAUNCH, Overheads
from gnomon.errors import CalibrationError
from gnomon.sim.serving import simulate
from gnomon.spec import Requests, ServingLimits
from gnomon.spec.workload import Floats

HOST_BOUND = 0.85
"""A launch shows in the time between outputs where the device had less than this share of it to do."""
STEP = (300.0, 0.0, 2000.0)
"""Processor microseconds of the front end on a step's outputs, before each of them: start, least, most."""
WORST = 1.0
"""Steps that stay off by more than a factor of two are of another chip or model than they say."""
Rows = Sequence[Mapping[str, Any]]
Priced = Mapping[str, tuple[TableStepCost, ServingLimits, int]]
"""By model: the step cost without overheads, the limits, and the layers."""


def fit_overheads(rows: Rows, priced: Priced, held: Mapping[str, float] | None = None) -> dict[str, float]:
    """Figures of one kind of model from the rows of one or more of them, but for those that are `held`."""
    if not any(row["kind"] == "frontend" for row in rows):
        raise CalibrationError("the rows hold no `frontend` measurement")
    figures = _fit_decode([row for row in rows if row["kind"] == "decode"], priced) | dict(held or {})
    prompts = [row for row in rows if row["kind"] == "prompt"]
    waits = [row["scheduled_s"] for row in prompts if "scheduled_s" in row]
    if not waits:
        raise CalibrationError("the rows hold no prompt that says when it was scheduled")
    leaves = [row["egress_s"] for row in rows if row["kind"] == "frontend"]
    figures |= {"egress_us": float(np.median(leaves)) * 1e6} | fit_front(rows)
    arrives = float(np.quantile(waits, 0.25)) * 1e6
    figures["ingress_us"] = max(arrives - figures.get("request_us", 0.0), 0.0)
    figures |= _fit_launch(prompts, [row for row in rows if row["kind"] == "launch"], priced, figures)
    return figures | {"spread": _spread(rows, priced, figures)}


def _spread(rows: Rows, priced: Priced, figures: Mapping[str, float]) -> float:
    """How far first tokens are off: on the machines of the fit and on another, on an idle engine and beside decodes.

    The other machine has no say in the fit: it met one model only, so that its speed would pass for that of layers.
    """
    alone = [row for row in rows if row["kind"] in ("prompt", "prompt_again")]
    mixed = [row for row in rows if row["kind"] in ("beside", "burst")]
    errors = _launch_errors(alone, priced, figures, "time_s"), _launch_errors(mixed, priced, figures, "ttft_s")
    return float(np.sqrt(np.mean(np.concatenate(errors) ** 2)))


def _fit_decode(rows: Rows, priced: Priced) -> dict[str, float]:
    device = []
    for row in rows:
        curve = priced[row["model"]][0].decode_curve(row["sequences"])
        device.append(float(np.interp(row["context"], curve.context, curve.seconds)))
    sequences, measured = ([row[name] for row in rows] for name in ("sequences", "time_s"))

    def residual(c: Mapping[str, float]) -> Floats:
        host = _overheads(c).host(0, (max(sequences),))
        ours = [max(bare + host.gap(n), host.decode(n)) for bare, n in zip(device, sequences, strict=True)]
        return np.asarray(np.log(np.array(ours) / measured))

    found = fit(residual, DECODE, rounds=30)
    off = float(np.expm1(np.median(np.abs(residual(found)))))
    if off > WORST:
        raise CalibrationError(f"no overheads explain the decode steps: they stay off by {off:.0%} (median)")
    return found


def _fit_launch(rows: Rows, busy: Rows, priced: Priced, known: Mapping[str, float]) -> dict[str, float]:
    """From the fastest of the repeated prompts of an idle engine, since slower ones shared the host with other work,
    and from launches of a busy one, where there are any."""
    held_up = [row for row in busy if _before_s(row, priced) < HOST_BOUND * row["time_s"]]
    ranges = {name: ends for name, ends in (LAUNCH | (BUSY if held_up else {})).items() if name not in known}

    def residual(c: Mapping[str, float]) -> Floats:
        figures = {**known, **c}
        idle = _launch_errors(rows, priced, figures, "least_s")
        return np.concatenate([idle, _busy_errors(held_up, priced, figures)])

    return fit(residual, ranges, rounds=30)


def _before_s(row: Mapping[str, Any], priced: Priced) -> float:
    """Device seconds of the step in flight while the next one was launched."""
    cost, _, _ = priced[row["model"]]
    prompts, decodes = row["before_prompts"], row["before_sequences"] - row["before_prompts"]
    context = row["tokens"] // max(row["prompts"], 1)
    if not prompts:
        curve = cost.decode_curve(decodes)
        return float(np.interp(context, curve.context, curve.seconds))
    each = max(row["before_tokens"] // prompts, 1)
    return cost.mixed(decodes, decodes * context, [(each, 0)] * prompts)


def _busy_errors(rows: Rows, priced: Priced, c: Mapping[str, float]) -> Floats:
    """log(ours / measured) of launches under load."""
    ours = []
    for row in rows:
        cost, _, layers = priced[row["model"]]
        host = _overheads(c).host(layers, cost.host.captured)
        tokens = row["sequences"] - row["prompts"] + row["tokens"]
        ours.append(host.launch(tokens, row["sequences"], row["prompts"]))
    return np.asarray(np.log(np.array(ours) / np.array([row["time_s"] for row in rows])))


def fit_front(rows: Rows) -> dict[str, float]:
    """What the front end works, by its processor seconds, and what outputs take to the client, by how many leave."""
    loads = [row for row in rows if row["kind"] == "front"]
    leaves = [row for row in rows if row["kind"] == "egress"]
    if not loads or not leaves:
        return {}
    counts = np.array([(row["requests"], row["steps"], row["outputs"]) for row in loads], float)
    seconds = np.array([row["cpu_s"] for row in loads])
    sequences, taken = (np.array([row[name] for row in leaves], float) for name in ("sequences", "egress_s"))
    work = {"request_us": FRONT["request_us"], "step_us": STEP, "output_us": FRONT["output_us"]}
    found = fit(lambda c: np.log(counts @ np.array(list(c.values())) * 1e-6 / seconds), work)
    way = {name: FRONT[name] for name in ("egress_us", "egress_sequence_us")}
    found |= fit(lambda c: np.log((c["egress_us"] + c["egress_sequence_us"] * sequences) * 1e-6 / taken), way)
    return {name: value for name, value in found.items() if name in FRONT}


def _launch_errors(rows: Rows, priced: Priced, c: Mapping[str, float], column: str) -> Floats:
    """log(simulated / measured) of the time to the first token of prompts, on an idle engine or beside decodes."""
    extra, ours = _overheads(c), []
    for row in rows:
        cost, limits, layers = priced[row["model"]]
        stream, timed = _requests(row)
        whole = cost.under(extra.host(layers, cost.host.captured))
        run = simulate(stream, whole, replace(limits, **extra.latencies()))
        ours.append(float(np.median(run.ttft_s[timed])))
    return np.asarray(np.log(np.array(ours) / np.array([row[column] for row in rows])))


def _requests(row: Mapping[str, Any]) -> tuple[Requests, slice]:
    """The requests a row was measured with, and those whose first token it timed."""
    if row["kind"].startswith("prompt"):
        return Requests(np.zeros(1), np.array([row["tokens"]]), np.ones(1, np.int64)), slice(0, 1)
    if row["kind"] == "burst":
        return together(row["requests"], row["tokens"], row["output"]), slice(None)
    return beside_requests(row["sequences"], row["tokens"]), slice(row["sequences"], None)


NOTHING = dict.fromkeys([*DECODE, *LAUNCH, *BUSY, *FRONT, "ingress_us", "spread"], 0.0) | {"idle_launch": 1.0}


def bare(cost: TableStepCost) -> TableStepCost:
    """The operators alone."""
    return cost.under(_overheads({}).host(0, cost.host.captured))


def _overheads(figures: Mapping[str, float]) -> Overheads:
    return Overheads(figures={**NOTHING, **figures}, source="")
