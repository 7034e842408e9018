"""A plan as vLLM 0.24 launch commands, one a replica, and what those commands cannot say."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from gnomon.engines.vllm.options import fill, flags
from gnomon.errors import InputError, unknown_name
from gnomon.load.chips import chip as find_chip
from gnomon.load.hf import YAML
from gnomon.load.hf import model as load_model
from gnomon.load.plan import plan_to_yaml
from gnomon.spec import Model, Plan, Pool

VERSION = "0.24.0"
FIRST_PORT = 8000
_COMPUTE = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
_ONLINE = {"fp8": "fp8"}
"""Weight formats vLLM makes itself while it loads a bf16 checkpoint."""
_MADE_BEFOREHAND = {
    "int4": "GPTQ or AWQ",
    "int3": "GPTQ, and a kernel for it, which vLLM does not have",
    "int8": "compressed-tensors",
    "mxfp4": "compressed-tensors",
    "nvfp4": "compressed-tensors or ModelOpt",
}
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One server process: its node, its chips on that node, its port and its command."""

    node: int
    devices: tuple[int, ...]
    port: int
    words: tuple[str, ...]

    @property
    def shell(self) -> str:
        visible = f"CUDA_VISIBLE_DEVICES={','.join(map(str, self.devices))}"
        return f"{visible} {shlex.join(self.words)}"


def command(plan: Plan) -> list[str]:
    """The words of `vllm serve` of one replica, without its port."""
    model = load_model(plan.model)
    pool = pool_of(plan)
    settings = fill(plan.engine.settings, model, pool)
    words = ["vllm", "serve", served_name(plan, model)]
    words += _parallel(plan) + _precision(plan, model)
    return words + flags(settings, model, pool)


def replicas(plan: Plan) -> list[Replica]:
    """Every server of the plan, filled node by node; a replica larger than a node starts on one of its own."""
    words = command(plan)
    ranks, per_node = plan.strategy.ranks, pool_of(plan).per_node
    fitting = max(1, per_node // ranks)
    found = []
    for index in range(plan.replicas):
        slot = index % fitting
        port = FIRST_PORT + slot
        found.append(
            Replica(
                node=index // fitting,
                devices=tuple(range(slot * ranks, slot * ranks + min(ranks, per_node))),
                port=port,
                words=(*words, "--port", str(port)),
            )
        )
    return found


def files(plan: Plan) -> dict[str, str]:
    """`launch.sh`, which starts the replicas of one node, and the plan itself."""
    return {"launch.sh": _script(plan), "plan.yaml": plan_to_yaml(plan)}


def not_expressed(plan: Plan) -> list[str]:
    """What the plan says and vLLM's options cannot."""
    said: list[str] = []
    strategy = plan.strategy
    if plan.replicas > 1:
        said.append(f"spreading requests over {plan.replicas} replicas: put a load balancer in front of their ports")
    if plan.goals:
        goals = ", ".join(f"{goal.name} {goal.limit_s:g} s" for goal in plan.goals)
        said.append(f"the goals ({goals}): vLLM does not know them")
    if strategy.ranks > pool_of(plan).per_node:
        said.append("a replica over several nodes: start it with --nnodes, --node-rank and --master-addr on each")
    if strategy.cp > 1:
        said.append(
            f"context parallel degree {strategy.cp} on chips of its own: vLLM shares a cache inside the "
            "tensor-parallel group, by the setting decode_context_parallel_size"
        )
    if strategy.ep > 1 and strategy.ep != strategy.tp * strategy.dp:
        said.append(f"expert parallel degree {strategy.ep}: vLLM always takes tensor times data parallel")
    stored = load_model(plan.model)
    if plan.dtype in _MADE_BEFOREHAND and plan.dtype != stored.dtype:
        tools = _MADE_BEFOREHAND[plan.dtype]
        said.append(f"{plan.dtype} weights: serve a checkpoint quantised beforehand ({tools})")
    if stored.kept_dtype and plan.dtype != stored.dtype:
        said.append(f"weights in {plan.dtype}: the checkpoint holds {stored.dtype}")
    if plan.kv_dtype not in (_kv_compute(plan), "auto", "fp8", ""):
        said.append(f"a KV cache in {plan.kv_dtype}")
    said += [f"the technique {name}" for name in strategy.techniques]
    return said


def served_name(plan: Plan, model: Model) -> str:
    """The hub id, or the folder of a model read from disk; shapes have no weights, and their name stands for them.
    It never reads as an option."""
    source = Path(model.source)
    name = model.hub_id or (model.name if source.suffix in YAML else str(source.resolve().parent))
    if name.startswith("-") or not name or _CONTROL.search(name):
        raise InputError(f"'{_CONTROL.sub('?', name)}' cannot be a model's name in a command", where=plan.model)
    return name


def pool_of(plan: Plan) -> Pool:
    chip = find_chip(plan.chip)
    return Pool(chip=chip, count=plan.chips, per_node=plan.per_node or chip.scaleup_size)


def version_of(plan: Plan) -> str:
    """The plan's vLLM version with all its three numbers; one whose options are not known is refused."""
    version = plan.engine.version or VERSION
    if not VERSION.startswith(version):
        raise unknown_name("version of vllm", version, [VERSION], where="engine.version")
    return VERSION


def _parallel(plan: Plan) -> list[str]:
    strategy = plan.strategy
    words = ["--tensor-parallel-size", str(strategy.tp)]
    for flag, degree in (("--pipeline-parallel-size", strategy.pp), ("--data-parallel-size", strategy.dp)):
        words += [flag, str(degree)] if degree > 1 else []
    return words + (["--enable-expert-parallel"] if strategy.ep > 1 else [])


def _precision(plan: Plan, model: Model) -> list[str]:
    known = (*_COMPUTE, *_ONLINE, *_MADE_BEFOREHAND)
    if plan.dtype not in known:
        raise unknown_name("weight format", plan.dtype, known, where="dtype")
    if plan.dtype in _COMPUTE:
        words = ["--dtype", _COMPUTE[plan.dtype]]
    else:
        made_here = plan.dtype in _ONLINE and plan.dtype != model.dtype
        words = ["--quantization", _ONLINE[plan.dtype]] if made_here else []
    return words + (["--kv-cache-dtype", "fp8"] if plan.kv_dtype == "fp8" else [])


def _kv_compute(plan: Plan) -> str:
    """What vLLM stores the cache in when not told otherwise."""
    return plan.dtype if plan.dtype in _COMPUTE else "bf16"


def _script(plan: Plan) -> str:
    servers = replicas(plan)
    nodes = sorted({server.node for server in servers})
    lines = ["#!/usr/bin/env bash", "# " + _headline(plan), "set -euo pipefail"]
    if len(nodes) == 1:
        return "\n".join([*lines, "", *_start(servers)]) + "\n"
    lines += [f"# On every node: ./launch.sh NODE, with NODE from 0 to {nodes[-1]}.", "", 'case "${1:-}" in']
    for node in nodes:
        body = _start([server for server in servers if server.node == node])
        lines += [f"{node})", *(f"  {line}" for line in body), "  ;;"]
    lines += ["*)", f'  echo "usage: $0 NODE, from 0 to {nodes[-1]}" >&2', "  exit 2", "  ;;", "esac"]
    return "\n".join(lines) + "\n"


def _start(servers: list[Replica]) -> list[str]:
    """One server replaces the shell; several are stopped together when one of them, or the shell, ends."""
    if len(servers) == 1:
        visible, _, rest = servers[0].shell.partition(" ")
        return [f"export {visible}", f"exec {rest}"]
    trap = ["trap 'kill $(jobs -p) 2>/dev/null || true' EXIT"]
    return [*trap, *(f"{server.shell} &" for server in servers), "wait -n"]


def _headline(plan: Plan) -> str:
    chips = f"{plan.replicas} x {plan.strategy.ranks} {plan.chip}"
    line = f"Gnomon plan{f' {plan.id}' if plan.id else ''}: {plan.model} on {chips}, vLLM {version_of(plan)}"
    return _CONTROL.sub("?", line)
