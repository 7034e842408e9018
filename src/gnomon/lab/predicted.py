"""What Gnomon says of an experiment before it is looked at: the gain of each row, from the models that plans use.

The paces of the host (copies, updates, writes) are those that the run measured on the way: nothing else is known of
whose host it is. What the chip does is predicted from its profile.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gnomon.cost.machine import Machine
from gnomon.cost.profile import profile_for
from gnomon.errors import UnknownNameError
from gnomon.lab.base import Compared, Findings, Measured
from gnomon.load.chips import chip as find_chip
from gnomon.spec import Chip, Pool
from gnomon.techniques.checkpoints import waited_s
from gnomon.techniques.hosts import SUSTAINED
from gnomon.techniques.offload_optimizer import UPDATE_BYTES, update_s

UPDATES_SHARE = 0.46
"""Of its memory's bandwidth, what a host's updates move: as for the hosts of the catalog, whose memory is known."""

Facts = Mapping[str, Any]


def gains(slug: str, findings: Findings, device: str) -> dict[str, float]:
    """Predicted gains by row; none where nothing was timed or the chip is not known."""
    if slug not in _OF or not any(row.gain for row in findings.compared):
        return {}
    try:
        chip = find_chip(device)
    except UnknownNameError:
        return {}
    found = ((row.what, _OF[slug](row, findings.facts, chip)) for row in findings.compared)
    return {what: gain for what, gain in found if gain}


def _offloaded(row: Compared, facts: Facts, chip: Chip) -> float | None:
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
    return plain / strided


def _narrow(row: Compared, facts: Facts, chip: Chip) -> float | None:
    """Weights unpacked inside the product, as a serving engine's kernel does, or written out wide before it."""
    machine = Machine(Pool.of(chip, 1), profile_for(chip))
    shape = {name: np.array([float(row.shape[name])]) for name in ("m", "n", "k")} | {"batch": np.ones(1)}
    wide, fused = (float(machine.seconds("gemm", dtype, shape)[0]) for dtype in ("bf16", "int4-weights"))
    packed, whole = float(row.shape["technique_bytes"]), float(row.shape["plain_bytes"])
    stream = {"bytes_read": np.array([packed]), "bytes_written": np.array([whole]), "pace": np.ones(1)}
    unfolded = wide + float(machine.seconds("elementwise", "bf16", stream)[0])
    return wide / min(fused, unfolded)


def _checkpointed(row: Compared, facts: Facts, chip: Chip) -> float | None:
    if not row.what.startswith("iteration"):  # what waits for nothing has no finite gain
        return None
    size, step = float(row.shape["checkpoint_bytes"]), float(facts["iteration_s"])
    copy, write = size / float(facts["gpu_to_host_bytes_s"]), size / float(facts["disk_write_bytes_s"])
    passes = step - float(facts["update_s"])
    modes = ("synchronous", str(row.shape["mode"]))
    plain, other = (step + float(waited_s(mode, copy, write, passes)) for mode in modes)
    return plain / other


def told_again(outcome: dict[str, Any]) -> dict[str, Any]:
    """A stored outcome with the gains that are predicted today."""
    rows = tuple(
        Compared(
            what=row["what"], shape=row["shape"], plain=Measured(**row["plain"]), technique=Measured(**row["technique"])
        )
        for row in outcome["compared"]
    )
    found = gains(outcome["slug"], Findings(checks=(), compared=rows, facts=outcome["facts"]), outcome["device"])
    compared = [row | {"predicted_gain": found.get(row["what"])} for row in outcome["compared"]]
    return outcome | {"compared": compared}


_OF: dict[str, Callable[[Compared, Facts, Chip], float | None]] = {
    "deep-optimizer-states": _offloaded,
    "gptq": _narrow,
    "datastates-llm": _checkpointed,
}


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(json.dumps(told_again(json.loads(path.read_text())), indent=1) + "\n")
