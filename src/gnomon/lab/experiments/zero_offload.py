"""ZeRO-Offload: gradients, Adam states and the update on the host, weights and compute on the GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnomon.lab import blocks
from gnomon.lab.base import (
    BF16_BYTES,
    Compared,
    Experiment,
    Findings,
    LabClaim,
    LabRow,
    LabRun,
    Predicted,
    Rates,
    Size,
)
from gnomon.lab.bench import Bench
from gnomon.lab.hosted import (
    AFTER,
    COPIED,
    DELAYED,
    UPDATED,
    HostedTraining,
    HostStates,
    Resident,
    update_rate,
)
from gnomon.lab.hosted_checks import checked, shape_of
from gnomon.lab.priced import copy_bytes_s, torch_machine
from gnomon.lab.stream import link_rates
from gnomon.spec import Chip

RESIDENT = "states on the GPU"
MODES = (AFTER, COPIED, DELAYED, UPDATED)
RESIDENT_BYTES, HOSTED_BYTES = 16, 2
"""Of a parameter on the GPU: bf16 weight and gradient and three fp32 states; the weight alone."""
IN_FLIGHT = 3
"""Gradients of blocks on the GPU at once during the backward: in parts, joined, and on its way out."""
SAVED = 24
"""Tensors as wide as an input at the widest point of the backward: what autograd saved of the block that is recomputed
(16), the gradients on both sides of its activation, and input and target of the step."""


def work(bench: Bench, sizes: Mapping[str, int]) -> Findings:
    bench.tell("checking every mode")
    checks = [*checked(bench, HostStates, (COPIED, DELAYED, UPDATED))]
    bench.tell("measuring the link and the CPU")
    size = blocks.parameters(sizes["width"])
    facts: dict[str, Any] = {**link_rates(bench), **update_rate(bench, size)}
    facts["parameters"] = sizes["blocks"] * size
    weights = blocks.drawn(bench, sizes["blocks"], sizes["width"])
    runs: dict[str, LabRun] = {}
    bench.tell(RESIDENT)
    resident = Resident(bench, sizes, weights)
    runs[RESIDENT] = bench.wall(resident.step, sizes["repeats"])
    del resident
    for mode in MODES:
        bench.release()
        bench.tell(mode)
        training = HostedTraining(bench, sizes, HostStates(bench, weights), weights, mode)
        training.step()
        host = (12 + 4) * facts["parameters"]
        runs[mode] = bench.wall(training.step, sizes["repeats"], host_bytes=host)
        training.close()
        del training
    compared = [_compared(row, runs) for row in rows(sizes)]
    return Findings(
        checks=tuple(checks), compared=tuple(compared), references={RESIDENT: runs[RESIDENT]}, facts=facts, notes=NOTES
    )


NOTES = (
    "plain: forward and backward, then gradients copied down, updates and weights copied up, block by block, all three "
    "at once; activations are recomputed in every mode",
    "the paper clips gradients by their norm over all parameters, so that its updates begin after the backward; "
    "updates during the backward do not allow that",
)


def _compared(row: LabRow, runs: Mapping[str, LabRun]) -> Compared:
    plain, mine = runs[str(row.shape["plain"])], runs[str(row.shape["technique"])]
    return row.compared(plain, mine, deferred_s=0.0, of_paper=row.shape["technique"] != UPDATED)


def rows(sizes: Mapping[str, int]) -> tuple[LabRow, ...]:
    shape = shape_of(sizes)
    memory = LabRow(what="GPU memory of a step", shape=shape | {"plain": RESIDENT, "technique": COPIED}, unit="bytes")
    steps = (
        LabRow(what=f"a step, {mode}", shape=shape | {"plain": AFTER, "technique": mode})
        for mode in (DELAYED, COPIED, UPDATED)
    )
    return memory, *steps


def predict(row: LabRow, rates: Rates, chip: Chip) -> Predicted | None:
    """Compute by the chip's kernels, updates at the host's measured rate, copies by its link."""
    shape = row.shape
    width, count = int(shape["width"]), int(shape["blocks"])
    parameters = count * blocks.parameters(width)
    tokens = int(shape["sequences"]) * int(shape["tokens"])
    if row.unit == "bytes":
        beside = float((count + SAVED) * BF16_BYTES * tokens * width)
        plain = RESIDENT_BYTES * parameters + beside
        mine = HOSTED_BYTES * parameters + IN_FLIGHT * blocks.block_bytes(width) + beside
        return Predicted(gain=plain / mine, by="bytes of a parameter on the GPU and the activations of one block")
    update = blocks.parameters(width) / rates["cpu_update_parameters_s"]
    copy = blocks.block_bytes(width) / copy_bytes_s(chip)
    machine = torch_machine(chip)
    one = (machine, width, int(shape["heads"]), int(shape["sequences"]), int(shape["tokens"]))
    ahead, back = count * blocks.forward_s(*one), count * (blocks.forward_s(*one) + blocks.backward_s(*one))
    queue = max(update, copy)
    step = {
        AFTER: ahead + back + copy + count * queue + copy,
        COPIED: ahead + back + copy + count * queue,
        UPDATED: ahead + back / count + max(back * (count - 1) / count + copy + update, copy + count * queue) + copy,
        DELAYED: max(ahead + back + copy, count * update) + count * copy,
    }
    by = f"kernels of {chip.name}, its host's link, and the CPU's updates as the run measured them alone"
    return Predicted.of_seconds(step[AFTER], step[str(shape["technique"])], by)


EXPERIMENT = Experiment(
    slug="zero-offload",
    title="ZeRO-Offload: gradients, Adam states and the update on the host",
    checks="weights and states equal those of updates after the backward, bit by bit, a delayed update its definition; "
    "the CPU's AdamW equals its definition in fp64",
    claim=LabClaim(
        what="13B parameters on one V100 of 32 GB instead of 1.4B, at 40 TFLOP/s against PyTorch's 30",
        comparable=False,
        why="the paper compares the largest models and their throughput, this the memory and the time of the same "
        "blocks on a GPU that holds both",
    ),
    sizes=(
        Size("blocks", "blocks of the decoder", default=8, on_cpu=3, most=200),
        Size("width", "its hidden width", default=4096, on_cpu=64, most=32768),
        Size("heads", "its attention heads", default=32, on_cpu=4, most=256),
        Size("sequences", "sequences of a step", default=8, on_cpu=2, most=1024),
        Size("tokens", "tokens of a sequence", default=2048, on_cpu=16, most=2**17),
        Size("repeats", "timed steps", default=5, on_cpu=1, most=1000),
    ),
    work=work,
    rows=rows,
    predict=predict,
    rates=("cpu_update_parameters_s",),
)
