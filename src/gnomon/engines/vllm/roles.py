"""Pools of vLLM servers: what a role adds to `vllm serve`, vLLM Router in front of them, and Dynamo's workers.

Options are those of vLLM 0.24 (`KVTransferConfig`, `NixlConnector`), vllm-router 0.1.16 and Dynamo 1.3.1
(`dynamo.vllm`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from gnomon.engines.operations import (
    OWN_ADDRESS,
    Address,
    CommandNames,
    GraphWorker,
    PoolReplica,
    PoolServer,
    RouterServer,
    Routing,
)
from gnomon.engines.routers import NEAREST, POLICIES, STARTUP_S, router_left_out, routing
from gnomon.engines.vllm import launch
from gnomon.errors import InputError
from gnomon.spec import Plan
from gnomon.spec.plan import BOTH, DECODE, LAYERWISE, PREFILL

CONNECTOR = "NixlConnector"
KV_ROLES = {PREFILL: "kv_producer", DECODE: "kv_consumer"}
SIDE_CHANNEL_PORT = 5600
"""vLLM's default; a data-parallel rank adds its number, so servers of a node are as far apart as their chips."""
SIDE_CHANNEL = "VLLM_NIXL_SIDE_CHANNEL_"
ROUTER, ROUTER_VERSION, ROUTER_PORT = "vllm-router", "0.1.16", 30000
GRAPH_ROLE = "--disaggregation-mode"
DYNAMO_MODULE, DYNAMO_RUNTIME, DYNAMO_HAS = "dynamo.vllm", "vllm-runtime", "0.23.0"


def role_words(role: str) -> tuple[str, ...]:
    """How a server of a role sends or takes KV caches."""
    if role == BOTH:
        return ()
    return "--kv-transfer-config", json.dumps({"kv_connector": CONNECTOR, "kv_role": KV_ROLES[role]})


def role_of(config: Any) -> str:
    """The role that a server's KV transfer config has; empty where it has none, or does something else."""
    if (
        not isinstance(config, dict)
        or set(config) != {"kv_connector", "kv_role"}
        or config["kv_connector"] != CONNECTOR
    ):
        return ""
    return next((role for role, name in KV_ROLES.items() if name == config["kv_role"]), "")


def graph_role(words: Sequence[str]) -> str:
    """What Dynamo's worker is told to do; empty where it is not told."""
    behind = [after for before, after in pairwise(words) if before == GRAPH_ROLE]
    return next(iter([*behind, *(word.partition("=")[2] for word in words if word.startswith(f"{GRAPH_ROLE}="))]), "")


def without_graph_words(words: Sequence[str]) -> list[str]:
    """Options of Dynamo's worker without those that `vllm serve` does not have."""
    pairs = zip(("", *words), words, strict=False)
    return [word for before, word in pairs if GRAPH_ROLE not in (before, word.partition("=")[0])]


def pool_server(replica: PoolReplica) -> PoolServer:
    port = launch.FIRST_PORT + replica.slot
    words = (*launch.command(replica.plan), *role_words(replica.role), "--port", str(port))
    environment = launch.environment(replica.plan)
    if replica.role != BOTH:
        environment[f"{SIDE_CHANNEL}PORT"] = str(SIDE_CHANNEL_PORT + min(replica.devices, default=0))
        environment |= {f"{SIDE_CHANNEL}HOST": OWN_ADDRESS} if replica.reached else {}
    return PoolServer(words=words, program=2, port=port, environment=environment)


def pools_not_expressed(plan: Plan) -> list[str]:
    if plan.kv_transfer == LAYERWISE:
        return [f"KV caches sent layer by layer: {CONNECTOR} sends all of one after the prompt"]
    return []


def router_policies(plan: Plan) -> Mapping[str, str]:
    return POLICIES


def router(plan: Plan, addresses: Sequence[Address], reached: bool) -> RouterServer:
    policy = POLICIES.get(plan.router) or NEAREST[plan.router]
    return RouterServer(
        words=(ROUTER, *_servers(plan, addresses), *_listening(policy, reached)),
        port=ROUTER_PORT,
        image=f"vllm/{ROUTER}:v{ROUTER_VERSION}",
        health="/health",
        left_out=router_left_out(plan, ROUTER, policy) if plan.router not in POLICIES else (),
    )


def _servers(plan: Plan, addresses: Sequence[Address]) -> list[str]:
    if not plan.disaggregated:
        return ["--worker-urls", *(each.url for each in addresses)]
    words = ["--vllm-pd-disaggregation", "--kv-connector", "nixl"]
    for each in addresses:
        words += [f"--{each.role}", each.url]
    return words


def _listening(policy: str, reached: bool) -> list[str]:
    words = ["--policy", policy, "--host", "0.0.0.0" if reached else "127.0.0.1", "--port", str(ROUTER_PORT)]
    return [*words, "--worker-startup-timeout-secs", str(STARTUP_S)]


def routed_by(words: Sequence[str], names: CommandNames) -> Routing | None:
    if not words or words[0].rpartition("/")[2] != ROUTER:
        return None
    return routing(words)


def graph_worker(replica: PoolReplica) -> GraphWorker:
    """`dynamo.vllm` takes the options of `vllm serve`, the model by a flag, and finds its role by another."""
    if needed := launch.environment(replica.plan):
        message = f"a worker of Dynamo is not given the variables of vLLM that weights on the host need ({needed})"
        raise InputError(message, where="settings", hint="Export it to vllm or kubernetes.")
    _, _, model, *rest = launch.command(replica.plan)
    role = () if replica.role == BOTH else (GRAPH_ROLE, replica.role)
    return GraphWorker(
        command=("python3", "-m", DYNAMO_MODULE),
        args=("--model", model, *rest, *role, *role_words(replica.role)),
        runtime=DYNAMO_RUNTIME,
        version=DYNAMO_HAS,
    )
