"""A plan as SGLang 0.5.23 launch commands, one per replica and node, and what those commands cannot express."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gnomon.engines.operations import NodeLayout, Server, Variable
from gnomon.engines.sglang import ENGINE, checks
from gnomon.engines.sglang.degrees import arranged
from gnomon.engines.sglang.options import fill, flags
from gnomon.engines.shell import MASTER, comment
from gnomon.engines.vllm import launch as shared
from gnomon.engines.vllm.platforms import platform_of
from gnomon.errors import unknown_name
from gnomon.load.hf import model as load_model
from gnomon.load.plan import plan_pool
from gnomon.spec import Model, Plan

VERSION = ENGINE.versions[-1]
PROGRAM = ("python", "-m", "sglang.launch_server")
IMAGE = "lmsysorg/sglang"
"""On Docker Hub, with a tag per release (SGLang's installation page)."""
FIRST_PORT, MEETING_PORT = 30000, 20000
"""Of requests, SGLang's default; and where the nodes of a replica meet."""
_COMPUTE = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
MADE_ON_THE_FLY = ("fp8",)
CACHES = {"fp8": "fp8_e4m3"}


def layout(plan: Plan) -> NodeLayout:
    """The nodes of a plan. Raises InputError where a replica is larger than one and does not fill several."""
    with checks.as_sglang():
        return shared.layout(plan)


def command(plan: Plan) -> list[str]:
    """The command of one replica, without its port and its nodes."""
    model, pool = load_model(plan.model), plan_pool(plan)
    strategy, given = arranged(plan.strategy, plan.engine.settings)
    with checks.as_sglang():
        words = [*PROGRAM, "--model-path", shared.served_name(plan, model)]
    words += ["--tp-size", str(strategy.tp * strategy.dp)]
    words += ["--pp-size", str(strategy.pp)] if strategy.pp > 1 else []
    words += ["--dp-size", str(strategy.dp), "--enable-dp-attention"] if strategy.dp > 1 else []
    words += ["--ep-size", str(strategy.ep)] if strategy.ep > 1 else []
    return words + _precision(plan, model) + flags(fill(given, model, pool), model, pool)


@dataclass(frozen=True, slots=True, kw_only=True)
class SglangServers:
    """All processes of a plan, node by node, each made on demand."""

    where: NodeLayout
    words: tuple[str, ...]
    """Of one replica, without its port and its nodes."""
    visible: str

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
        return Server(node=node, devices=tuple(devices), words=(*self.words, *more), visible=self.visible)


def servers(plan: Plan) -> SglangServers:
    platform = platform_of(plan_pool(plan).chip)
    return SglangServers(where=layout(plan), words=tuple(command(plan)), visible=platform.visible if platform else "")


def first_command(plan: Plan) -> list[str]:
    """The command that starts one replica, without its port; of several nodes that of the first, with a placeholder
    for its address."""
    where, words = layout(plan), command(plan)
    if where.nodes_each == 1:
        return words
    return [*words, *_meeting(where, "0", MASTER.lstrip("$"))]


def _meeting(where: NodeLayout, rank: str, address: str = MASTER) -> list[str]:
    """How the nodes of one replica find each other."""
    at = f"{address}:{MEETING_PORT}"
    words = ["--nnodes", str(where.nodes_each), "--node-rank", rank]
    return [*words, "--dist-init-addr", Variable(at) if isinstance(address, Variable) else at]


def not_expressed(plan: Plan) -> list[str]:
    """What of the plan SGLang's options cannot express."""
    plain = [
        words.replace("vLLM", ENGINE.title) for words in shared.plan_not_expressed(plan) if "a server: " not in words
    ]
    why = checks.not_run(plan_pool(plan).chip)
    return [*plain, f"a server: {why}"] if why else plain


def version_of(plan: Plan) -> str:
    """The plan's SGLang version with all its three numbers; one whose options are not known is refused."""
    version = plan.engine.version or VERSION
    if not VERSION.startswith(version):
        raise unknown_name("version of sglang", version, [VERSION], where="engine.version")
    return VERSION


def headline(plan: Plan) -> str:
    chips = f"{plan.replicas} x {plan.ranks} {plan.chip}"
    line = f"Gnomon plan{f' {plan.id}' if plan.id else ''}: {plan.model} on {chips}, SGLang {version_of(plan)}"
    return comment(line)


def _precision(plan: Plan, model: Model) -> list[str]:
    known = (*_COMPUTE, *shared.TOOLS)
    if plan.dtype not in known:
        raise unknown_name("weight format", plan.dtype, known, where="dtype")
    words: list[str] = []
    if plan.dtype in _COMPUTE:
        words = ["--dtype", _COMPUTE[plan.dtype]]
    elif plan.dtype in MADE_ON_THE_FLY and model.dtype in _COMPUTE and not plan.checkpoint:
        half = _COMPUTE[plan_pool(plan).chip.half]
        words = ["--dtype", half] if model.dtype == "fp32" else []
        words += ["--quantization", plan.dtype]
    if plan.kv_dtype in ("", "bf16", "fp16"):
        return words
    if plan.kv_dtype not in CACHES:
        raise unknown_name("format of the cache", plan.kv_dtype, ("bf16", "fp16", *CACHES), where="kv_dtype")
    return [*words, "--kv-cache-dtype", CACHES[plan.kv_dtype]]
