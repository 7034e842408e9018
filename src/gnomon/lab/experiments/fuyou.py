"""Fuyou: Adam on states in files, run beside the backward instead of after it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnomon.lab import blocks
from gnomon.lab.base import (
    Check,
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
from gnomon.lab.checkpoint import check_disk
from gnomon.lab.hosted import (
    COPIED,
    STATE_BYTES,
    UPDATED,
    FileStates,
    HostedTraining,
    HostStates,
    disk_rates,
    scratch_folder,
    update_rate,
)
from gnomon.lab.hosted_checks import checked, shape_of
from gnomon.lab.priced import copy_bytes_s, torch_machine
from gnomon.lab.stream import link_rates
from gnomon.spec import Chip

PROBE_BYTES = 2**31


def work(bench: Bench, sizes: Mapping[str, int]) -> Findings:
    size = blocks.parameters(sizes["width"])
    with scratch_folder() as folder:
        check_disk(folder, sizes["blocks"] * size * STATE_BYTES + PROBE_BYTES)
        bench.tell("checking both modes")
        checks = [*_checks(bench)]
        bench.tell("measuring the link, the CPU and the disk")
        facts: dict[str, Any] = {**link_rates(bench), **update_rate(bench, size)}
        facts |= disk_rates(bench, folder, PROBE_BYTES)
        facts["parameters"] = sizes["blocks"] * size
        weights = blocks.drawn(bench, sizes["blocks"], sizes["width"])
        runs = {}
        for mode in (COPIED, UPDATED):
            bench.release()
            bench.tell(mode)
            states = FileStates(bench, weights, folder)
            training = HostedTraining(bench, sizes, states, weights, mode)
            runs[mode] = bench.wall(training.step, sizes["repeats"], host_bytes=4 * facts["parameters"])
            training.close()
            states.close()
            del training, states
        compute = _compute(bench, sizes, weights)
    (row,) = rows(sizes)
    compared = row.compared(runs[COPIED], runs[UPDATED], deferred_s=0.0)
    references = {"forward and backward alone": compute}
    return Findings(checks=tuple(checks), compared=(compared,), references=references, facts=facts, notes=NOTES)


NOTES = (
    "plain: gradients copied during the backward, then states read, updated and written, the three at once "
    "(ZeRO-Infinity's order)",
    "a block is written when fsync returns, and is read from the disk and not from the cache of files",
)


def _checks(bench: Bench) -> list[Check]:
    with scratch_folder() as folder:
        return [*checked(bench, lambda bench, weights: FileStates(bench, weights, folder), (COPIED, UPDATED))]


def _compute(bench: Bench, sizes: Mapping[str, int], weights: list[Any]) -> LabRun:
    training = HostedTraining(bench, sizes, HostStates(bench, weights[:1]), weights, COPIED)

    def alone() -> None:
        training.forward_backward()
        bench.synchronize()

    found = bench.wall(alone, sizes["repeats"])
    training.close()
    return found


def rows(sizes: Mapping[str, int]) -> tuple[LabRow, ...]:
    return (LabRow(what="a step, updates from files during the backward", shape=shape_of(sizes)),)


def predict(row: LabRow, rates: Rates, chip: Chip) -> Predicted | None:
    """The slowest of reading, updating and writing a block, after the backward or from its first gradient on."""
    shape = row.shape
    width, count = int(shape["width"]), int(shape["blocks"])
    size = blocks.parameters(width)
    stages = (
        STATE_BYTES * size / rates["disk_read_bytes_s"],
        size / rates["cpu_update_parameters_s"],
        STATE_BYTES * size / rates["disk_write_bytes_s"],
    )
    queue = sum(stages) + (count - 1) * max(stages)
    one = (torch_machine(chip), width, int(shape["heads"]), int(shape["sequences"]), int(shape["tokens"]))
    ahead, back = blocks.forward_s(*one), blocks.forward_s(*one) + blocks.backward_s(*one)
    copy = blocks.block_bytes(width) / copy_bytes_s(chip)
    plain = count * (ahead + back) + copy + queue
    mine = count * ahead + back + copy + max(queue, (count - 1) * back + sum(stages))
    by = f"kernels of {chip.name}; disk and CPU as the run measured them alone, the slowest stage of all blocks"
    return Predicted.of_seconds(plain, mine, by)


EXPERIMENT = Experiment(
    slug="fuyou",
    title="Fuyou: Adam on states in files, run beside the backward",
    checks="weights and states in the files equal those of updates in host memory after the backward, bit by bit",
    claim=LabClaim(
        what="GPT-3 13B on an RTX 4090 at 156 TFLOP/s, against 45 with ZeRO-Infinity",
        comparable=False,
        why="the paper has twelve SSDs and swaps activations too; this is the overlap of the update alone, on the disk "
        "that there is",
    ),
    sizes=(
        Size("blocks", "blocks of the decoder", default=8, on_cpu=3, most=200),
        Size("width", "its hidden width", default=2048, on_cpu=64, most=32768),
        Size("heads", "its attention heads", default=16, on_cpu=4, most=256),
        Size("sequences", "sequences of a step", default=96, on_cpu=2, most=4096),
        Size("tokens", "tokens of a sequence", default=2048, on_cpu=16, most=2**17),
        Size("repeats", "timed steps", default=2, on_cpu=1, most=1000),
    ),
    work=work,
    rows=rows,
    predict=predict,
    rates=("disk_read_bytes_s", "disk_write_bytes_s", "cpu_update_parameters_s"),
)
