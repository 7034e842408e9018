"""A plan as vLLM launch commands, one per replica and node, and what those commands cannot express."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnomon.engines.operations import NodeLayout, Server
from gnomon.engines.shell import MASTER, comment
from gnomon.engines.vllm import platforms
from gnomon.engines.vllm.degrees import arranged
from gnomon.engines.vllm.drafts import NEEDS_MODEL, NONE
from gnomon.engines.vllm.offloaders import RUNNER_VARIABLE, backend
from gnomon.engines.vllm.options import fill, flags
from gnomon.engines.vllm.releases import RELEASES, Release, release
from gnomon.errors import GnomonError, InputError, unknown_name
from gnomon.load.hf import YAML
from gnomon.load.hf import model as load_model
from gnomon.load.plan import plan_pool
from gnomon.spec import Model, Plan
from gnomon.spec.formats import OF_TECHNIQUES
from gnomon.spec.plan import ROUTERS

FIRST_PORT = 8000
CHECKPOINT = "CHECKPOINT"
"""Stands in a command for weights that are not there yet."""
_COMPUTE = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
MADE_ON_THE_FLY = ("fp8",)
"""Weight formats vLLM makes itself while it loads a 16-bit checkpoint (`_ONLINE_SHORTHANDS`; int8 of experts alone)."""
OWN_KERNEL = "GPTQModel, and a kernel for it, which vLLM does not have"
SPARSE_KERNEL = "llm-compressor, and a sparse kernel for it, which vLLM no longer has"
TOOLS = {
    "fp8": "llm-compressor or ModelOpt",
    "int4": "GPTQModel, AutoAWQ or llm-compressor",
    **dict.fromkeys((name for name in OF_TECHNIQUES if not name.endswith("sparse")), OWN_KERNEL),
    **dict.fromkeys((name for name in OF_TECHNIQUES if name.endswith("sparse")), SPARSE_KERNEL),
    "int8": "llm-compressor",
    "mxfp4": "llm-compressor or Quark",
    "nvfp4": "llm-compressor or ModelOpt",
}
"""What makes a checkpoint of a format that vLLM then serves."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def layout(plan: Plan) -> NodeLayout:
    """The nodes of a plan. Raises InputError where a replica is larger than one and does not fill several."""
    pool = plan_pool(plan)
    whole = plan_pool(plan, max(plan.chips, pool.node_size))
    per_node = whole.machine_chips
    if plan.ranks > per_node and plan.ranks % per_node:
        near = plan.ranks // per_node * per_node
        raise InputError(
            f"a replica of {plan.ranks} chips does not fill nodes of {per_node}, which vLLM requires",
            where="strategy",
            hint=f"Plan replicas of {near} or {near + per_node} chips.",
        )
    return NodeLayout(replicas=plan.replicas, ranks=plan.ranks, per_node=per_node)


def command(plan: Plan) -> list[str]:
    """The `vllm serve` command of one replica, without its port and its nodes."""
    model, pool = load_model(plan.model), plan_pool(plan)
    strategy, given = arranged(plan.strategy, plan.engine.settings)
    lacking = not_offloaded(plan, model)
    name = CHECKPOINT if lacking else served_name(plan, model)
    words = ["vllm", "serve", name, "--tensor-parallel-size", str(strategy.tp)]
    for flag, degree in (("--pipeline-parallel-size", strategy.pp), ("--data-parallel-size", strategy.dp)):
        words += [flag, str(degree)] if degree > 1 else []
    words += ["--enable-expert-parallel"] if strategy.ep > 1 else []
    of = release_of(plan)
    settings = fill(given, model, pool, of)
    settings["draft_model"] = _draft_weights(settings["draft_model"])
    precision = _cache(plan) if lacking else _precision(plan, model)
    return words + precision + flags(settings, model, pool, of)


def _draft_weights(name: str) -> str:
    """The draft model's hub id where its name is a known one; any other as it is."""
    try:
        return load_model(name).hub_id or name if name else ""
    except GnomonError:
        return name


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmServers:
    """All processes of a plan, node by node, each made on demand."""

    where: NodeLayout
    words: tuple[str, ...]
    """Of one replica, without its port and its nodes."""
    visible: str
    environment: Mapping[str, str]

    def of(self, node: int, rank: str = "") -> list[Server]:
        """The processes of one node, from 0; the first of a replica's nodes takes its requests. `rank` stands for the
        number of the node in its replica where it is not to be written out."""
        where = self.where
        if where.nodes_each > 1:
            meeting = _meeting(where, rank or str(node % where.nodes_each))
            return [self._one(node, range(where.per_node), meeting)]
        count = where.on_the_last if node == where.nodes - 1 else where.replicas_each
        return [
            self._one(node, range(slot * where.ranks, (slot + 1) * where.ranks), ("--port", str(FIRST_PORT + slot)))
            for slot in range(count)
        ]

    def __iter__(self) -> Iterator[Server]:
        for node in range(self.where.nodes):
            yield from self.of(node)

    def _one(self, node: int, devices: range, more: Sequence[str]) -> Server:
        words = (*self.words, *more)
        return Server(
            node=node, devices=tuple(devices), words=words, visible=self.visible, environment=self.environment
        )  # fmt: skip


def servers(plan: Plan) -> VllmServers:
    platform = platforms.platform_of(plan_pool(plan).chip)
    visible = platform.visible if platform else ""
    return VllmServers(
        where=layout(plan), words=tuple(command(plan)), visible=visible, environment=environment(plan)
    )  # fmt: skip


def environment(plan: Plan) -> dict[str, str]:
    """Variables of every process: the first model runner, where a release offloads weights on no other."""
    of, offloads = release_of(plan), backend(_settings(plan))
    second = of.second_runner is None or load_model(plan.model).family in of.second_runner
    return {RUNNER_VARIABLE: "0"} if offloads and second and not of.second_offloads else {}


def _settings(plan: Plan) -> dict[str, Any]:
    given = arranged(plan.strategy, plan.engine.settings)[1]
    return fill(given, load_model(plan.model), plan_pool(plan), release_of(plan))


def first_command(plan: Plan) -> list[str]:
    """The command that starts one replica, without its port; of several nodes those of the first, with a placeholder
    for its address."""
    needed = [f"{name}={value}" for name, value in environment(plan).items()]
    where, words = layout(plan), [*(["env", *needed] if needed else []), *command(plan)]
    if where.nodes_each == 1:
        return words
    return [*words, "--nnodes", str(where.nodes_each), "--node-rank", "0", "--master-addr", MASTER.lstrip("$")]


def _meeting(where: NodeLayout, rank: str) -> list[str]:
    """How the nodes of one replica find each other (`EngineArgs`, `run_headless`)."""
    words = ["--nnodes", str(where.nodes_each), "--node-rank", rank, "--master-addr", MASTER]
    return [*words, "--port", str(FIRST_PORT)] if rank == "0" else [*words, "--headless"]


def not_expressed(plan: Plan) -> list[str]:
    """What of the plan vLLM's options cannot express."""
    missing = [*plan_not_expressed(plan), *_drafts_not_expressed(plan)]
    if lacking := not_offloaded(plan, load_model(plan.model)):
        missing.append(f"weights, for which {CHECKPOINT} stands: {lacking.message}. {lacking.hint}")
    return missing


def _drafts_not_expressed(plan: Plan) -> Iterator[str]:
    settings = _settings(plan)
    method, acceptance = settings["speculative_method"], settings["draft_acceptance"]
    if method == NONE:
        return
    yield f"draft_acceptance {acceptance}: how many drafts are accepted is measured, not set"
    if lacking := no_draft_model(settings):
        yield f"the draft model: {lacking.message}. {lacking.hint}"


def no_draft_model(settings: Mapping[str, Any]) -> InputError | None:
    """Why vLLM has nothing that writes the drafts of these settings; nothing where it has."""
    if settings["speculative_method"] not in NEEDS_MODEL or settings["draft_model"]:
        return None
    message = f"vLLM does not start {settings['speculative_method']} without its weights"
    return InputError(message, where="setting draft_model", hint="Name them as the plan's setting draft_model.")


def plan_not_expressed(plan: Plan) -> list[str]:
    """The same of what every engine's plans have."""
    model, missing = load_model(plan.model), []
    if plan.replicas > 1:
        how = {"random": "at random", "round-robin": "round-robin"}.get(
            plan.router, f"by {plan.router.replace('-', ' ')}"
        )
        missing.append(f"the router: a load balancer that assigns requests to the {plan.replicas:,} replicas {how}")
    elif plan.router != ROUTERS[0]:
        missing.append(f"the router {plan.router}: one replica has every request")
    if plan.goals:
        goals = ", ".join(f"{goal.name} {goal.limit_s:g} s" for goal in plan.goals)
        missing.append(f"the goals ({goals}): vLLM does not know them")
    if plan.power_limit_w:
        missing.append(f"the power limit: `nvidia-smi -pl {plan.power_limit_w:g}` on every node")
    if lacking := no_weights(plan, model):
        missing.append(f"weights, for which {CHECKPOINT} stands: {lacking.message}. {lacking.hint}")
    elif plan.checkpoint and not Path(plan.checkpoint).exists():
        missing.append(f"the weights of {plan.checkpoint}: that they are {model.name} in {plan.dtype} was not checked")
    if why := platforms.not_run(plan_pool(plan).chip):
        missing.append(f"a server: {why}")
    return missing + [f"the technique {name}" for name in plan.strategy.techniques]


def no_weights(plan: Plan, model: Model) -> InputError | None:
    """Why there are no weights to serve as the plan says, and what makes them; nothing where there are."""
    if plan.checkpoint:
        return None
    named = "name it as the plan's field checkpoint, or by --checkpoint"
    if Path(model.source).suffix in YAML:
        hint = f"Where a checkpoint of them is, {named}."
        return InputError(f"{plan.model} holds shapes, not weights", where="model", hint=hint)
    made = own_checkpoint(model, plan.dtype)
    if not made:
        return None
    return InputError(
        f"{_as_stored(model)} holds {model.dtype}, which vLLM does not quantize to {plan.dtype} at load",
        where="dtype",
        hint=f"Create {made} and {named}.",
    )


def not_offloaded(plan: Plan, model: Model) -> InputError | None:
    """Why vLLM cannot keep the plan's weights on the host: those that it quantizes itself are not there yet when it
    moves them."""
    if not _made_on_the_fly(plan, model) or not backend(_settings(plan)):
        return None
    return InputError(
        f"vLLM keeps no weights on the host that it quantizes to {plan.dtype} at load",
        where="dtype",
        hint=f"Create a checkpoint in {plan.dtype} ({TOOLS[plan.dtype]}) and name it as the plan's field checkpoint, "
        "or by --checkpoint.",
    )


def _made_on_the_fly(plan: Plan, model: Model) -> bool:
    return plan.dtype in MADE_ON_THE_FLY and model.dtype in _COMPUTE and not plan.checkpoint


def own_checkpoint(model: Model, dtype: str) -> str:
    """What has to be made before vLLM serves the model in a format, and by which tools; empty where it makes the
    format itself while it loads, or the model is stored so."""
    if dtype == model.dtype or (dtype in (*_COMPUTE, *MADE_ON_THE_FLY) and model.dtype in _COMPUTE):
        return ""
    tools = f" ({TOOLS[dtype]})" if dtype in TOOLS else ""
    return f"a checkpoint in {dtype}{tools}"


def served_name(plan: Plan, model: Model) -> str:
    """The hub id, or the folder of a model read from disk; it never reads as an option. A placeholder where no weights
    are as the plan says."""
    if no_weights(plan, model):
        return CHECKPOINT
    folder = Path(plan.checkpoint)
    named = str(folder.resolve()) if plan.checkpoint and folder.exists() else plan.checkpoint
    name = named or _as_stored(model)
    if name.startswith("-") or not name or _CONTROL.search(name):
        raise InputError(f"'{_CONTROL.sub('?', name)}' cannot be a model's name in a command", where=plan.model)
    return name


def _as_stored(model: Model) -> str:
    return model.hub_id or str(Path(model.source).resolve().parent)


def version_of(plan: Plan) -> str:
    """The plan's vLLM version with all its three numbers; one whose options are not known is refused."""
    return release_of(plan).version


def release_of(plan: Plan) -> Release:
    found = release(plan.engine.version, where="engine.version")
    if not found.operated:
        hint = f"Known commands: {', '.join(RELEASES)}."
        raise InputError(f"{found.title} is predicted, not started", where="engine.version", hint=hint)
    return found


def headline(plan: Plan) -> str:
    chips = f"{plan.replicas} x {plan.ranks} {plan.chip}"
    line = f"Gnomon plan{f' {plan.id}' if plan.id else ''}: {plan.model} on {chips}, vLLM {version_of(plan)}"
    return comment(line)


def _precision(plan: Plan, model: Model) -> list[str]:
    known = (*_COMPUTE, *TOOLS)
    if plan.dtype not in known:
        raise unknown_name("weight format", plan.dtype, known, where="dtype")
    words: list[str] = []
    if plan.dtype in _COMPUTE:
        words = ["--dtype", _COMPUTE[plan.dtype]]
    elif _made_on_the_fly(plan, model):
        half = _COMPUTE[plan_pool(plan).chip.half]
        words = ["--dtype", half] if model.dtype == "fp32" else []
        words += ["--quantization", plan.dtype]
    return words + _cache(plan)


def _cache(plan: Plan) -> list[str]:
    """vLLM keeps a cache of 16 bits in the format it computes in, and makes one of fp8 on request."""
    if plan.kv_dtype in ("", "bf16", "fp16"):
        return []
    if plan.kv_dtype != "fp8":
        raise unknown_name("format of the cache", plan.kv_dtype, ("bf16", "fp16", "fp8"), where="kv_dtype")
    return ["--kv-cache-dtype", "fp8"]
