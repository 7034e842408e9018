"""A plan as `trtllm-serve` commands, one per replica and node, the YAML they read, and what they cannot express."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnomon.engines.operations import NodeLayout, Server
from gnomon.engines.shell import comment
from gnomon.engines.trtllm import ENGINE, platforms
from gnomon.engines.trtllm.degrees import arranged
from gnomon.engines.trtllm.options import OPTIONS, fill
from gnomon.errors import InputError, unknown_name
from gnomon.load.hf import YAML
from gnomon.load.hf import model as load_model
from gnomon.load.plan import plan_pool
from gnomon.spec import Model, Plan
from gnomon.spec.plan import ROUTERS

VERSION = ENGINE.versions[-1]
PROGRAM = "trtllm-serve"
FIRST_PORT = 8000
CHECKPOINT = "CHECKPOINT"
"""Stands in a command for weights that are not there yet."""
OPTIONS_FILE = "llm_api_options.yaml"
COMPUTE = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
TOOLS = {
    "fp8": "ModelOpt",
    "int4": "ModelOpt, AutoAWQ or GPTQModel",
    "mxfp4": "a checkpoint of gpt-oss",
    "nvfp4": "ModelOpt",
}
"""What makes a checkpoint of a format that TensorRT-LLM then serves; it quantizes nothing while it loads."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def layout(plan: Plan) -> NodeLayout:
    """The nodes of a plan. Raises InputError where a replica is larger than one."""
    pool = plan_pool(plan)
    per_node = plan_pool(plan, max(plan.chips, pool.node_size)).machine_chips
    if plan.ranks > per_node:
        raise InputError(
            f"a replica of {plan.ranks} chips is larger than a node of {per_node}: trtllm-serve starts it under the "
            "MPI of a cluster (trtllm-llmapi-launch), which is not written here",
            where="strategy",
            hint=f"Plan replicas of at most {per_node} chips.",
        )
    return NodeLayout(replicas=plan.replicas, ranks=plan.ranks, per_node=per_node)


def settings_of(plan: Plan) -> dict[str, Any]:
    _, given = arranged(plan.strategy, plan.engine.settings)
    return fill(given, load_model(plan.model), plan_pool(plan))


def command(plan: Plan) -> list[str]:
    """The `trtllm-serve` command of one replica, without its port."""
    model, strategy, settings = load_model(plan.model), plan.strategy, settings_of(plan)
    words = [PROGRAM, served_name(plan, model), "--backend", "pytorch"]
    words += ["--tp_size", str(strategy.tp * strategy.dp)]
    for flag, degree in (("--pp_size", strategy.pp), ("--ep_size", strategy.ep)):
        words += [flag, str(degree)] if degree > 1 else []
    for option in OPTIONS:
        value = settings[option.name]
        if option.written and not option.path and (option.always or value != option.default):
            words += [f"--{option.name}", str(value)]
    return [*words, "--extra_llm_api_options", OPTIONS_FILE]


def options_yaml(plan: Plan, role: Mapping[str, Any] | None = None) -> str:
    """The file of `--extra_llm_api_options`, with the fields of a `role` by their place."""
    import yaml

    found = options_fields(plan)
    for path, value in (role or {}).items():
        _put(found, path, value)
    text: str = yaml.safe_dump(found, sort_keys=True)
    return text


def options_fields(plan: Plan) -> dict[str, Any]:
    """What differs from TensorRT-LLM's defaults and has no flag."""
    found: dict[str, Any] = {}
    settings = settings_of(plan)
    for option in OPTIONS:
        value = settings[option.name]
        usual = settings_of_defaults(settings)[option.name] if option.default is None else option.default
        if option.written and option.path and value != usual:
            _put(found, option.path, _as_written(option.name, value))
    if not settings["cuda_graph_max_batch_size"]:
        found["cuda_graph_config"] = None
    if plan.strategy.dp > 1:
        found["enable_attention_dp"] = True
    if plan.dtype in COMPUTE and plan.dtype != load_model(plan.model).dtype:
        found["dtype"] = COMPUTE[plan.dtype]
    if plan.kv_dtype not in ("", "bf16", "fp16"):
        _put(found, "kv_cache_config.dtype", plan.kv_dtype)
    return found


def file_options(plan: Plan) -> list[str]:
    """The same, field by field."""
    return [f"{path}: {value}" for path, value in _paths(options_fields(plan))]


def _paths(fields: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    for name, value in sorted(fields.items()):
        if isinstance(value, Mapping):
            yield from _paths(value, f"{above}{name}.")
        else:
            yield (
                f"{above}{name}",
                "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value),
            )


def settings_of_defaults(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What settings without a default of their own have where none is given."""
    from gnomon.engines.trtllm.graphs import DEFAULT_LARGEST

    return {"max_seq_len": settings["max_seq_len"], "cuda_graph_max_batch_size": DEFAULT_LARGEST}


def _as_written(name: str, value: Any) -> Any:
    return [int(size) for size in str(value).split()] if name == "cuda_graph_batch_sizes" else value


def _put(found: dict[str, Any], path: str, value: Any) -> None:
    *above, last = path.split(".")
    for key in above:
        found = found.setdefault(key, {})
    found[last] = value


def with_yaml(plan: Plan, words: Sequence[str]) -> str:
    """A shell line that writes the YAML and then becomes the server."""
    return f"printf %s {shlex.quote(options_yaml(plan))} > {OPTIONS_FILE} && exec {shlex.join(words)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrtllmServers:
    """All processes of a plan, node by node, each made on demand."""

    where: NodeLayout
    words: tuple[str, ...]
    """Of one replica, without its port."""
    visible: str

    def of(self, node: int, rank: str = "") -> list[Server]:
        """The processes of one node, from 0; no replica here has several nodes."""
        where = self.where
        count = where.on_the_last if node == where.nodes - 1 else where.replicas_each
        return [
            Server(
                node=node,
                devices=tuple(range(slot * where.ranks, (slot + 1) * where.ranks)),
                words=(*self.words, "--port", str(FIRST_PORT + slot)),
                visible=self.visible,
            )
            for slot in range(count)
        ]

    def __iter__(self) -> Iterator[Server]:
        for node in range(self.where.nodes):
            yield from self.of(node)


def servers(plan: Plan) -> TrtllmServers:
    return TrtllmServers(where=layout(plan), words=tuple(command(plan)), visible=platforms.VISIBLE)


def first_command(plan: Plan) -> list[str]:
    """The command that starts one replica, without its port."""
    layout(plan)
    return command(plan)


def not_expressed(plan: Plan) -> list[str]:
    """What of the plan TensorRT-LLM's options cannot express."""
    model, missing = load_model(plan.model), []
    if plan.replicas > 1:
        how = {"random": "at random", "round-robin": "round-robin"}.get(plan.router, "by least requests")
        missing.append(f"the router: a load balancer that assigns requests to the {plan.replicas:,} replicas {how}")
    elif plan.router != ROUTERS[0]:
        missing.append(f"the router {plan.router}: one replica has every request")
    if plan.goals:
        goals = ", ".join(f"{goal.name} {goal.limit_s:g} s" for goal in plan.goals)
        missing.append(f"the goals ({goals}): TensorRT-LLM does not know them")
    if plan.power_limit_w:
        missing.append(f"the power limit: `nvidia-smi -pl {plan.power_limit_w:g}` on every node")
    if lacking := no_weights(plan, model):
        missing.append(f"weights, for which {CHECKPOINT} stands: {lacking.message}. {lacking.hint}")
    elif plan.checkpoint and not Path(plan.checkpoint).exists():
        missing.append(f"the weights of {plan.checkpoint}: that they are {model.name} in {plan.dtype} was not checked")
    if why := platforms.not_run(plan_pool(plan).chip):
        missing.append(f"a server: {why}")
    if settings_of(plan)["served_by"] != "trtllm-serve":
        missing.append("the front end: a program of your own calls the LLM API")
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
        f"{_as_stored(model)} holds {model.dtype}, and TensorRT-LLM quantizes nothing at load",
        where="dtype",
        hint=f"Create {made} and {named}.",
    )


def own_checkpoint(model: Model, dtype: str) -> str:
    """What has to be made before TensorRT-LLM serves the model in a format, and by which tools; empty where it is
    stored so."""
    if dtype not in (*COMPUTE, *TOOLS):
        raise unknown_name("weight format", dtype, (*COMPUTE, *TOOLS), where="dtype")
    if dtype == model.dtype or (dtype in COMPUTE and model.dtype in COMPUTE):
        return ""
    return f"a checkpoint in {dtype}" + (f" ({TOOLS[dtype]})" if dtype in TOOLS else "")


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
    """The plan's version with all its three numbers; one whose options are not known is refused."""
    version = plan.engine.version or VERSION
    if not VERSION.startswith(version):
        raise unknown_name("version of trtllm", version, [VERSION], where="engine.version")
    return VERSION


def headline(plan: Plan) -> str:
    chips = f"{plan.replicas} x {plan.ranks} {plan.chip}"
    line = f"Gnomon plan{f' {plan.id}' if plan.id else ''}: {plan.model} on {chips}, TensorRT-LLM {version_of(plan)}"
    return comment(line)
