"""Pools of SGLang servers: what a role adds to `sglang.launch_server`, SGLang's router, and Dynamo's workers.

Options are those of SGLang 0.5.23 (`arg_groups/fields/disagg.py`), sglang-router 0.3.2 and Dynamo 1.3.1
(`dynamo.sglang`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gnomon.engines.operations import (
    Address,
    CommandNames,
    GraphWorker,
    PoolReplica,
    PoolServer,
    RouterServer,
    Routing,
)
from gnomon.engines.routers import NEAREST, POLICIES, STARTUP_S, router_left_out, routing
from gnomon.engines.sglang import launch
from gnomon.spec import Plan
from gnomon.spec.plan import BOTH, LAYERWISE, PREFILL

TRANSFER = "nixl"
BOOTSTRAP_PORT = 8998
"""SGLang's default, of a prefill server."""
ROUTER = "sglang_router.launch_router"
ROUTER_PORT = 20100
"""Not SGLang Router's default, which is the first server's."""
DYNAMO_MODULE, DYNAMO_RUNTIME, DYNAMO_HAS = "dynamo.sglang", "sglang-runtime", "0.5.14"


def role_words(role: str, bootstrap_port: int) -> tuple[str, ...]:
    """How a server of a role sends or takes KV caches; decode servers ask prefill servers at their bootstrap port."""
    if role == BOTH:
        return ()
    words = "--disaggregation-mode", role, "--disaggregation-transfer-backend", TRANSFER
    return (*words, "--disaggregation-bootstrap-port", str(bootstrap_port)) if role == PREFILL else words


def pool_server(replica: PoolReplica) -> PoolServer:
    port, bootstrap = launch.FIRST_PORT + replica.slot, BOOTSTRAP_PORT + replica.slot
    host = ("--host", "0.0.0.0") if replica.reached else ()
    words = (*launch.command(replica.plan), *role_words(replica.role, bootstrap), *host, "--port", str(port))
    return PoolServer(
        words=words,
        program=len(launch.PROGRAM),
        port=port,
        handover_port=bootstrap if replica.role == PREFILL else 0,
    )


def pools_not_expressed(plan: Plan) -> list[str]:
    if plan.kv_transfer == LAYERWISE:
        return ["KV caches sent layer by layer: SGLang sends those of a chunk of the prompt after it"]
    return []


def router_policies(plan: Plan) -> Mapping[str, str]:
    return POLICIES


def router(plan: Plan, addresses: Sequence[Address], reached: bool) -> RouterServer:
    policy = POLICIES.get(plan.router) or NEAREST[plan.router]
    host = "0.0.0.0" if reached else "127.0.0.1"
    words = ["python", "-m", ROUTER, *_servers(plan, addresses), "--policy", policy, "--host", host]
    words += ["--port", str(ROUTER_PORT), "--worker-startup-timeout-secs", str(STARTUP_S)]
    return RouterServer(
        words=tuple(words),
        port=ROUTER_PORT,
        image=f"{launch.IMAGE}:v{launch.version_of(plan)}",
        health="/health",
        left_out=router_left_out(plan, "SGLang's router", policy) if plan.router not in POLICIES else (),
    )


def _servers(plan: Plan, addresses: Sequence[Address]) -> list[str]:
    if not plan.disaggregated:
        return ["--worker-urls", *(each.url for each in addresses)]
    words = ["--pd-disaggregation"]
    for each in addresses:
        words += [f"--{each.role}", each.url, *([str(each.handover_port)] if each.handover_port else [])]
    return words


def routed_by(words: Sequence[str], names: CommandNames) -> Routing | None:
    return routing(words) if ROUTER in words else None


def graph_worker(replica: PoolReplica) -> GraphWorker:
    words = launch.command(replica.plan)[len(launch.PROGRAM) :]
    return GraphWorker(
        command=("python3", "-m", DYNAMO_MODULE),
        args=(*words, *role_words(replica.role, BOOTSTRAP_PORT), "--host", "0.0.0.0"),
        runtime=DYNAMO_RUNTIME,
        version=DYNAMO_HAS,
    )
