"""Pools of TensorRT-LLM servers: YAML of a role, the disaggregated server in front of them, and Dynamo's workers.

Fields are those of TensorRT-LLM 1.2 (`CacheTransceiverConfig`, `llmapi/disagg_utils.py`) and options those of Dynamo
1.3.1 (`dynamo.trtllm`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from gnomon.engines.operations import (
    Address,
    CommandNames,
    GraphWorker,
    PoolReplica,
    PoolServer,
    RouterServer,
    Routing,
)
from gnomon.engines.trtllm import launch
from gnomon.engines.trtllm.platforms import IMAGE
from gnomon.errors import InputError
from gnomon.spec import Plan
from gnomon.spec.plan import BOTH, DECODE, LAYERWISE, PREFILL, ROUTERS

SERVERS = {PREFILL: "context_servers", DECODE: "generation_servers"}
ROUTER_PORT = 7000
"""Before those of the servers."""
DISAGGREGATED, CONFIG_FLAGS = "disaggregated", ("-c", "--config_file")
ROUTER_FILE = "disagg_config.yaml"
BY_PREFIX = "kv_cache_aware"
POLICIES = {"round-robin": "round_robin", "least-requests": "load_balancing", "prefix-aware": BY_PREFIX}
DEFAULT_POLICY = POLICIES["round-robin"]
"""Of `RouterConfig`."""
NEAREST = {"random": "round_robin", "least-kv": "load_balancing", "weighted": "round_robin"}
EVENTS = 1024
"""Of a KV cache, kept until the router asks: as in TensorRT-LLM's own tests of this router."""
NO_OVERLAP = "disable_overlap_scheduler"
DYNAMO_MODULE, DYNAMO_RUNTIME, DYNAMO_HAS = "dynamo.trtllm", "tensorrtllm-runtime", "1.3.0rc19"
GRAPH_ROLE = "--disaggregation-mode"
DYNAMO_FLAGS = {
    "--tp_size": "--tensor-parallel-size",
    "--pp_size": "--pipeline-parallel-size",
    "--ep_size": "--expert-parallel-size",
    "--max_batch_size": "--max-batch-size",
    "--max_num_tokens": "--max-num-tokens",
    "--max_seq_len": "--max-seq-len",
    "--kv_cache_free_gpu_memory_fraction": "--free-gpu-memory-fraction",
    "--extra_llm_api_options": "--extra-engine-args",
}
"""Flags of `trtllm-serve` and of Dynamo's worker that say the same."""


def role_fields(replica: PoolReplica) -> dict[str, Any]:
    """What a role adds to the YAML, by place. Context servers have no overlap scheduler (TensorRT-LLM's guide to
    disaggregated serving), and a router by prefixes asks servers for the events of their KV cache."""
    if replica.role == BOTH:
        return {}
    fields: dict[str, Any] = {"cache_transceiver_config.backend": "DEFAULT"}
    fields |= {NO_OVERLAP: True} if replica.role == PREFILL else {}
    by_prefix = POLICIES.get(replica.router) == BY_PREFIX
    return fields | ({"kv_cache_config.event_buffer_max_size": EVENTS} if by_prefix else {})


def options_file(replica: PoolReplica) -> str:
    return f"{replica.name}_{launch.OPTIONS_FILE}"


def pool_server(replica: PoolReplica) -> PoolServer:
    port, file = launch.FIRST_PORT + replica.slot, options_file(replica)
    host = ("--host", "0.0.0.0") if replica.reached else ()
    *words, _ = launch.command(replica.plan)
    return PoolServer(
        words=(*words, file, *host, "--port", str(port)),
        program=1,
        port=port,
        files={file: launch.options_yaml(replica.plan, role_fields(replica))},
    )


def pools_not_expressed(plan: Plan) -> list[str]:
    lines = []
    if plan.kv_transfer == LAYERWISE:
        lines.append("KV caches sent layer by layer: TensorRT-LLM's cache transceiver sends one after the prompt")
    context = [pool for pool in plan.each_pool if pool.role == PREFILL]
    if any(not launch.settings_of(plan.of_pool(pool))[NO_OVERLAP] for pool in context):
        lines.append("the overlap scheduler of prefill servers: TensorRT-LLM has none for context servers")
    return lines


def router_policies(plan: Plan) -> Mapping[str, str]:
    return POLICIES if plan.disaggregated else {}


def router(plan: Plan, addresses: Sequence[Address], reached: bool) -> RouterServer | None:
    """The disaggregated server; nothing for servers that do both, in front of which TensorRT-LLM has no router."""
    import yaml

    if not plan.disaggregated:
        return None
    policy = POLICIES.get(plan.router) or NEAREST[plan.router]
    fields: dict[str, Any] = {"hostname": "0.0.0.0" if reached else "localhost", "port": ROUTER_PORT}
    for role, name in SERVERS.items():
        found = [str(each.place) for each in addresses if each.role == role]
        fields[name] = {"num_instances": len(found), "urls": found, "router": {"type": policy}}
    text: str = yaml.safe_dump(fields, sort_keys=False, width=10**6)
    why = f"the router {plan.router}: the disaggregated server does not have it, and has {policy} in its place"
    return RouterServer(
        words=(launch.PROGRAM, DISAGGREGATED, CONFIG_FLAGS[0], ROUTER_FILE),
        port=ROUTER_PORT,
        image=f"{IMAGE}:{launch.version_of(plan)}",
        health="/health",
        files={ROUTER_FILE: text},
        left_out=() if plan.router in POLICIES else (why,),
    )


def routed_by(words: Sequence[str], names: CommandNames) -> Routing | None:
    """`trtllm-serve disaggregated -c FILE`: the addresses and the policy stand in the file."""
    named = [word.rpartition("/")[2] for word in words]
    if (launch.PROGRAM, DISAGGREGATED) not in pairwise(named):
        return None
    file = next((after for before, after in pairwise(words) if before in CONFIG_FLAGS), "")
    file = file or next((word.partition("=")[2] for word in words if word.partition("=")[0] in CONFIG_FLAGS), "")
    if not file:
        raise InputError(
            "names no file with its servers", where=f"{launch.PROGRAM} {DISAGGREGATED}", hint="-c FILE does."
        )
    fields = names.config(file, partly=True)
    roles: dict[str, str] = {}
    policies = set()
    for role, name in SERVERS.items():
        group = fields.get(name)
        urls = group.get("urls") if isinstance(group, Mapping) else None
        if not isinstance(urls, list) or not urls:
            raise InputError(f"{name} has no urls", where=file, hint="It lists `host:port` of every server.")
        for url in map(str, urls):
            address = url.partition("://")[2] or url
            if roles.setdefault(address, role) != role:
                message = f"{address} is among {' and among '.join(SERVERS.values())}"
                raise InputError(message, where=file, hint="A server has one of the two roles.")
        router = group.get("router") if isinstance(group, Mapping) else None
        policies.add(str(router.get("type", DEFAULT_POLICY)) if isinstance(router, Mapping) else DEFAULT_POLICY)
    found = next((name for name, policy in POLICIES.items() if {policy} == policies), "")
    return Routing(router=found, policy=" and ".join(sorted(policies)), roles=roles)


def graph_worker(replica: PoolReplica) -> GraphWorker:
    """`dynamo.trtllm` has options of its own; what it has none for goes into the YAML."""
    _, model, *rest = launch.command(replica.plan)
    args, fields = ["--model", model], role_fields(replace(replica, router=ROUTERS[0]))
    for flag, value in zip(rest[::2], rest[1::2], strict=True):
        if flag in DYNAMO_FLAGS:
            args += [DYNAMO_FLAGS[flag], value if value != launch.OPTIONS_FILE else options_file(replica)]
        elif flag != "--backend":
            fields[flag[2:]] = int(value) if value.isdigit() else value
    role = () if replica.role == BOTH else (GRAPH_ROLE, replica.role)
    return GraphWorker(
        command=("python3", "-m", DYNAMO_MODULE),
        args=(*args, *role),
        runtime=DYNAMO_RUNTIME,
        version=DYNAMO_HAS,
        files={options_file(replica): launch.options_yaml(replica.plan, fields)},
    )
