"""Predicted gains of an experiment's rows, from the models that plans use.

The rates of the host (copies, updates) are those that the run measured separately: the host is otherwise unknown. The
chip is predicted from its profile. What would follow from a row's own times is an identity and left out: sustained
checkpoints are that, as long as the disk bounds them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gnomon.cost.host_link import SUSTAINED
from gnomon.cost.machine import Machine
from gnomon.errors import UnknownNameError
from gnomon.lab import experiment
from gnomon.lab.base import Compared, Findings, Predicted, beaten, row_from_dict, row_to_dict
from gnomon.load.chips import chip as find_chip
from gnomon.load.profiles import profile_for
from gnomon.spec import Chip, Pool
from gnomon.techniques.offload_optimizer import UPDATE_BYTES, update_s

UPDATES_SHARE = 0.46
"""Share of memory bandwidth that a host's updates reach, as for the hosts of the catalog."""
UNFOLDED = "unfolded"
"""Prefix of the kernel that dequantizes its weights first."""
FITTED_TO = {"deep-optimizer-states": ("NVIDIA H200", "2026-11-15")}
"""The run that a constant of its formula is fitted to (`offload_optimizer.BANDWIDTH_CONTENTION`): device and date."""

Facts = Mapping[str, Any]


def predictions(slug: str, findings: Findings, device: str, date: str = "") -> dict[str, Predicted]:
    """Predictions by row of a run; none where nothing was timed or the chip is not known."""
    if slug not in _OF or not any(row.gain for row in findings.compared):
        return {}
    try:
        chip = find_chip(device)
    except UnknownNameError:
        return {}
    found = ((row.what, _OF[slug](row, findings.facts, chip)) for row in findings.compared)
    fitted = FITTED_TO.get(slug) == (device, date)
    return {what: replace(one, kind="fit") if fitted else one for what, one in found if one}


def _offloaded(row: Compared, facts: Facts, chip: Chip) -> Predicted | None:
    stride = int(row.shape["stride"])
    if stride < 2:  # everything on the chip is no offloaded update
        return None
    host = float(facts["cpu_update_parameters_s"])
    link = min(float(facts["host_to_gpu_bytes_s"]), float(facts["gpu_to_host_bytes_s"]))
    memory = SUSTAINED * host * UPDATE_BYTES / UPDATES_SHARE
    here = float(facts["parameters"]) / float(facts["gpu_update_parameters_s"])
    plain, strided = (
        float(update_s(np.array(float(facts["parameters"])), turns, host, memory, link, here * turns))
        for turns in (0.0, 1 / stride)
    )
    by = "the formula of offload-optimizer, with the rates of copies and updates that the run measured separately"
    return Predicted(gain=plain / strided, by=by, kind="prediction")


def _narrow(row: Compared, facts: Facts, chip: Chip) -> Predicted | None:
    """Weights dequantized before the GEMM, where that is what ran; else a serving engine's kernel."""
    machine = Machine(Pool.of(chip, 1), profile_for(chip))
    shape = {name: np.array([float(row.shape[name])]) for name in ("m", "n", "k")} | {"batch": np.ones(1)}
    wide, fused = (float(machine.seconds("gemm", dtype, shape)[0]) for dtype in ("bf16", "int4-weights"))
    if not str(row.shape["way"]).startswith(UNFOLDED):
        by = f"vLLM's Marlin kernel on {chip.name}, not the Triton kernel of this row"
        return Predicted(gain=wide / fused, by=by, kind="other kernel")
    packed, whole = float(row.shape["technique_bytes"]), float(row.shape["plain_bytes"])
    stream = {"bytes_read": np.array([packed]), "bytes_written": np.array([whole]), "efficiency": np.ones(1)}
    unfolded = wide + float(machine.seconds("elementwise", "bf16", stream)[0])
    by = f"{chip.name}'s bf16 GEMM and a kernel that dequantizes the weights, as this row does"
    return Predicted(gain=wide / unfolded, by=by, kind="prediction")


def updated_outcome(outcome: dict[str, Any]) -> dict[str, Any]:
    """A stored outcome with current predictions, and with its experiment's current view of the paper's claim."""
    rows = tuple(map(row_from_dict, outcome["compared"]))
    findings = Findings(checks=(), compared=rows, facts=outcome["facts"])
    found = predictions(outcome["slug"], findings, outcome["device"], outcome["date"])
    claim = experiment(outcome["slug"]).claim
    notes = list(dict.fromkeys([*outcome["notes"], *beaten(rows)]))
    return outcome | {
        "compared": [row_to_dict(row, found.get(row.what)) for row in rows],
        "comparable": {"claim": claim.what, "comparable": claim.comparable, "why": claim.why},
        "notes": notes,
    }


_OF: dict[str, Callable[[Compared, Facts, Chip], Predicted | None]] = {
    "deep-optimizer-states": _offloaded,
    "gptq": _narrow,
}


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(json.dumps(updated_outcome(json.loads(path.read_text())), indent=1) + "\n")
