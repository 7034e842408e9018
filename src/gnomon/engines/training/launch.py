"""What scripts of every training engine share: nodes and processes, one text for all nodes under torchrun or another
launcher, the Slurm job around it, and what no engine's configuration says of a plan."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from gnomon.engines.shell import comment
from gnomon.engines.training.job import idle_settings
from gnomon.errors import InputError
from gnomon.spec import Plan, Recipe
from gnomon.spec.training import RANDOM, seldom_set
from gnomon.spec.training_job import TrainingJob

PORT = 29500
"""torchrun's own default."""
STEPS = 20
"""Where the plan names no number of tokens: enough to see the time of a step."""
RATE, LEAST_RATE = 1e-4, 1e-5
"""Learning rates, which a plan does not set and time does not depend on."""
CUT_SEQUENCES = "sequence_parallel"
BESIDE = 'cd -- "$(dirname -- "${BASH_SOURCE[0]}")"'
"""A line of a script that works in its own folder."""
RUN, SLURM = "run.sh", "slurm.sh"
"""The script that every node starts, and the Slurm job that starts it on all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """The words that start one process per chip, and its options for how nodes meet."""

    words: tuple[str, ...]
    """The program first; words that are options stand with their value."""
    node_rank: str = "--node-rank"
    address: str = "--master-addr"
    port: str = "--master-port"


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


def steps_of(job: TrainingJob) -> int:
    """Steps that a script runs."""
    return STEPS if job.load.steps is None else job.load.steps


def torchrun(job: TrainingJob) -> list[str]:
    """The torchrun command for one process per chip, without the rendezvous address."""
    count, per_node = nodes(job)
    return ["torchrun", "--nnodes", str(count), "--nproc-per-node", str(per_node)]


def script(
    job: TrainingJob, title: str, *, setup: Sequence[str], program: str, arguments: Sequence[Sequence[str]],
    notes: Sequence[str] = (), launcher: Launcher | None = None,
) -> str:  # fmt: skip
    """A shell script for every node. `program` and `setup` are shell text; arguments are quoted here, and notes go into
    the header. The launcher is torchrun where no other is named."""
    count, _ = nodes(job)
    chosen = launcher or Launcher(words=tuple(torchrun(job)))
    lines = ["#!/usr/bin/env bash", comment(title)]
    if count > 1:
        lines += [f"# On every node, with NODE_RANK from 0 to {count - 1} and MASTER_ADDR the address of node 0."]
    lines += [*map(comment, notes), "set -euo pipefail", "", *setup]
    lines += ["launcher=(", *(f"  {line}" for line in [*_lines(chosen.words), *_rendezvous(count, chosen)]), ")"]
    lines += ["arguments=(", *(f"  {shlex.join(words)}" for words in arguments), ")"]
    return "\n".join([*lines, f'exec "${{launcher[@]}}" {program} "${{arguments[@]}}" "$@"']) + "\n"


def slurm_script(job: TrainingJob, plan: Plan) -> str:
    """A Slurm job that starts run.sh once on every node, in the folder that it is submitted from."""
    count, per_node = nodes(job)
    name = re.sub(r"[^A-Za-z0-9.-]+", "-", plan.id or "gnomon").strip("-") or "gnomon"
    options = (f"job-name={name}", f"nodes={count}", "ntasks-per-node=1", f"gpus-per-node={per_node}", "exclusive")
    lines = ["#!/usr/bin/env bash", *(f"#SBATCH --{option}" for option in options)]
    lines += [
        comment(f"sbatch {SLURM}, in this folder. Partition, account and time limit are options of sbatch."),
        "set -euo pipefail",
        'hosts="$(scontrol show hostnames "$SLURM_JOB_NODELIST")"',
        "export MASTER_ADDR=\"${hosts%%$'\\n'*}\"",
        f'exec srun --kill-on-bad-exit=1 bash -c \'NODE_RANK="$SLURM_NODEID" exec bash {RUN} "$@"\' {RUN} "$@"',
    ]
    return "\n".join(lines) + "\n"


def headline(plan: Plan, engine: str) -> str:
    return f"Gnomon plan{f' {plan.id}' if plan.id else ''}: {plan.model} on {plan.chips} {plan.chip}, {engine}"


CHECKED = ("layers_per_stage",)
"""Settings that are refused where an engine's files cannot express them."""


def common_not_expressed(job: TrainingJob, plan: Plan, engine: str, settings: Collection[str] = ()) -> list[str]:
    """Parts of the plan that no training engine's configuration expresses, or that hold for another engine only.
    `settings` are those of `SELDOM` that this one's expresses."""
    found = [f"the technique {name}" for name in plan.strategy.techniques] + _idle(job)
    idle = idle_settings(job.strategy, job.model, job.recipe.expert_tp)
    for name, value in seldom_set(job.recipe).items():
        if name not in (*settings, *idle, *CHECKED):
            found.append(f"{name} {value}: these files have no option for it")
    if plan.power_limit_w:
        found.append(f"the power limit: `nvidia-smi -pl {plan.power_limit_w:g}` on every node")
    if plan.goals:
        found.append("the goals, which apply to serving")
    if plan.predicted and plan.engine.name != engine:
        found.append(f"the predicted figures, which are those of {plan.engine.name}")
    return found


def sequences_not_expressed(job: TrainingJob, packed: str = "", sampled: Collection[str] = (RANDOM,)) -> list[str]:
    """What of sequences that differ in length the data decide, or a data loader: `packed` says what the files do about
    packing, `sampled` which sampling they ask for."""
    sequences = job.load.sequences
    if sequences is None:
        return []
    seed = f", drawn with seed {sequences.seed}" if sequences.seed else ""
    found = [f"sequences of {sequences.lengths.text} tokens{seed}: your own data decide it"]
    kept = " with document masking" if sequences.document_masking else ""
    found += [packed or f"{sequences.packing} packing{kept}: a dataset of your own"]
    if sequences.sampling not in sampled:
        found.append(f"{sequences.sampling} sampling: a data loader of your own")
    return found


def _idle(job: TrainingJob) -> list[str]:
    """Settings other than the defaults that have no effect under the job's degrees; sequence parallelism without tensor
    parallelism is not listed."""
    usual = Recipe().settings
    given = {name: value for name, value in job.recipe.settings.items() if value != usual.get(name, "")}
    idle = idle_settings(job.strategy, job.model, job.recipe.expert_tp)
    return [f"{name} {given[name]}: {why}" for name, why in idle.items() if name in given and name != CUT_SEQUENCES]


def _lines(words: Sequence[str]) -> list[str]:
    """Words of a launcher, each option with its value on a line."""
    lines: list[list[str]] = []
    for word in words:
        if word.startswith("-") or not lines:
            lines.append([word])
        else:
            lines[-1].append(word)
    return [shlex.join(line) for line in lines]


def _rendezvous(count: int, launcher: Launcher) -> list[str]:
    """Rendezvous options. Several nodes have no default address, which would leave each of them waiting for ever."""
    address = "${MASTER_ADDR:-127.0.0.1}" if count == 1 else "${MASTER_ADDR:?not set, it is the address of node 0}"
    rank = (
        "${NODE_RANK:-0}" if count == 1 else f"${{NODE_RANK:?not set, it is the number of this node, 0 to {count - 1}}}"
    )
    port = f"${{MASTER_PORT:-{PORT}}}"
    return [f'{launcher.node_rank} "{rank}"', f'{launcher.address} "{address}"', f'{launcher.port} "{port}"']
