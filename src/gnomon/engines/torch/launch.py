"""Training plans under torchrun: processes and nodes, launch scripts, and the command of the built-in runner."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from gnomon.engines.shell import comment
from gnomon.engines.torch.checks import check
from gnomon.engines.training.job import check_job, idle_settings
from gnomon.errors import InputError
from gnomon.spec import Plan, Recipe
from gnomon.spec.training_job import TrainingJob

WORKER = "gnomon.engines.torch.worker"
STEPS, WARMUP = 8, 3
"""Measured steps, and warm-up steps before them."""
PORT = 29500
"""torchrun's own default."""
CUT_SEQUENCES = "sequence_parallel"
_HERE = '"$(dirname -- "${BASH_SOURCE[0]}")"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Measuring:
    """How many steps are run and measured, and on which device."""

    steps: int = STEPS
    warmup: int = WARMUP
    """Steps before the measured ones."""
    seed: int = 0
    device: str = "cuda"
    """cuda or cpu."""


def nodes(job: TrainingJob) -> tuple[int, int]:
    """Nodes, and chips per node; a node is a tray where a rack is one NVLink domain."""
    chips = job.strategy.ranks
    per_node = job.pool.resized(max(chips, job.pool.node_size)).machine_chips
    count, rest = divmod(chips, per_node)
    if count == 0:
        return 1, chips
    if rest:
        hint = f"Use {count * per_node} or {(count + 1) * per_node}."
        raise InputError(f"{chips} chips do not fill nodes of {per_node}", where="strategy", hint=hint)
    return count, per_node


def torchrun(job: TrainingJob) -> list[str]:
    """The torchrun command for one process per chip, without the rendezvous address."""
    count, per_node = nodes(job)
    return ["torchrun", "--nnodes", str(count), "--nproc-per-node", str(per_node)]


def script(
    job: TrainingJob, title: str, *, setup: Sequence[str], program: str, arguments: Sequence[Sequence[str]],
    notes: Sequence[str] = (),
) -> str:  # fmt: skip
    """A shell script for every node. `program` and `setup` are shell text; arguments are quoted here, and notes go into
    the header."""
    count, _ = nodes(job)
    launcher = [*_pairs(torchrun(job)), *_rendezvous(count)]
    lines = ["#!/usr/bin/env bash", comment(title)]
    if count > 1:
        lines += [f"# On every node, with NODE_RANK from 0 to {count - 1} and MASTER_ADDR the address of node 0."]
    lines += [*map(comment, notes), "set -euo pipefail", "", *setup]
    lines += ["launcher=(", *(f"  {line}" for line in launcher), ")"]
    lines += ["arguments=(", *(f"  {shlex.join(words)}" for words in arguments), ")"]
    return "\n".join([*lines, f'exec "${{launcher[@]}}" {program} "${{arguments[@]}}" "$@"']) + "\n"


def headline(plan: Plan, engine: str) -> str:
    return f"Gnomon plan{f' {plan.id}' if plan.id else ''}: {plan.model} on {plan.chips} {plan.chip}, {engine}"


def command(job: TrainingJob) -> list[str]:
    """The command of the built-in runner, to be run in the folder of plan.yaml."""
    check_runner(job)
    return [*torchrun(job), "-m", WORKER, "plan.yaml", *(word for words in _arguments() for word in words)]


def run_script(job: TrainingJob, plan: Plan, notes: Sequence[str] = ()) -> str:
    """`run.sh`, which every node starts beside plan.yaml."""
    check_runner(job)
    program = f"-m {WORKER} {_HERE}/plan.yaml"
    return script(job, headline(plan, "PyTorch"), setup=(), program=program, arguments=_arguments(), notes=notes)


def not_expressed(job: TrainingJob, plan: Plan) -> list[str]:
    """Parts of the plan that the built-in runner does not execute."""
    first = f"data and a full run: {WARMUP} warm-up steps and {STEPS} measured ones, on synthetic tokens"
    return [first] + common_not_expressed(job, plan, "torch")


def common_not_expressed(job: TrainingJob, plan: Plan, engine: str) -> list[str]:
    """Parts of the plan that no training engine's configuration expresses, or that hold for another engine only."""
    found = [f"the technique {name}" for name in plan.strategy.techniques] + _idle(job)
    if plan.power_limit_w:
        found.append(f"the power limit: `nvidia-smi -pl {plan.power_limit_w:g}` on every node")
    if plan.goals:
        found.append("the goals, which apply to serving")
    if plan.predicted and plan.engine.name != engine:
        found.append(f"the predicted figures, which are those of {plan.engine.name}")
    return found


def _idle(job: TrainingJob) -> list[str]:
    """Settings other than the defaults that have no effect under the job's degrees; sequence parallelism without tensor
    parallelism is not listed."""
    usual = Recipe().settings
    given = {name: value for name, value in job.recipe.settings.items() if value != usual.get(name, "")}
    idle = idle_settings(job.strategy, job.model, job.recipe.expert_tp)
    return [f"{name} {given[name]}: {why}" for name, why in idle.items() if name in given and name != CUT_SEQUENCES]


def _arguments() -> list[list[str]]:
    return [["--steps", str(STEPS)], ["--warmup", str(WARMUP)], ["--out", "result.json"]]


def _pairs(words: list[str]) -> list[str]:
    """torchrun, then each option with its value on a line."""
    return [words[0], *(shlex.join(words[at : at + 2]) for at in range(1, len(words), 2))]


def _rendezvous(count: int) -> list[str]:
    """Rendezvous options. Several nodes have no default address, which would leave each of them waiting for ever."""
    address = "${MASTER_ADDR:-127.0.0.1}" if count == 1 else "${MASTER_ADDR:?not set, it is the address of node 0}"
    rank = (
        "${NODE_RANK:-0}" if count == 1 else f"${{NODE_RANK:?not set, it is the number of this node, 0 to {count - 1}}}"
    )
    port = f"${{MASTER_PORT:-{PORT}}}"
    return [f'--node-rank "{rank}"', f'--master-addr "{address}"', f'--master-port "{port}"']


def check_runner(job: TrainingJob) -> None:
    """Raise InputError where the built-in runner does not support the job."""
    check_job(job)
    check(job.model, job.strategy, job.recipe, job.load, job.dtype)
