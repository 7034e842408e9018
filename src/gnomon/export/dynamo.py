"""A DynamoGraphDeployment: Dynamo's frontend, which routes requests, and a component of workers for each pool.

Fields are those of `nvidia.com/v1beta1` as Dynamo 1.3.1's operator has them, and router modes those of its frontend.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gnomon.engines.operations import POOL_VARIABLE, Operations
from gnomon.engines.shell import comment
from gnomon.export import kubernetes
from gnomon.export.base import DYNAMO, Rendered, header, operated, require_load
from gnomon.export.kubernetes_pools import LONGEST_MODEL, started
from gnomon.export.pools import (
    NamedPool,
    check_pools,
    headline,
    named_pools,
    pooled_engine,
    pools_left_out,
    require_one_node,
    router_line,
)
from gnomon.load.plan import plan_to_yaml
from gnomon.spec import Plan
from gnomon.spec.plan import BOTH

NAME = DYNAMO
VERSION = "1.3.1"
REGISTRY = "nvcr.io/nvidia/ai-dynamo"
MAIN = "main"
"""What the operator calls the container that is Dynamo's."""
MODE = "DYN_ROUTER_MODE"
MODES = {"random": "random", "round-robin": "round-robin", "least-requests": "least-loaded", "prefix-aware": "kv"}
NEAREST = {"least-kv": "kv", "weighted": "random"}
BY_PREFIX = {"DYN_ROUTER_USE_KV_EVENTS": "false"}
"""With the mode `kv`: the router keeps its own list of what it sent where."""
TOKEN = "hf-token-secret"


def render(plan: Plan, warnings: Sequence[str] = ()) -> Rendered:
    import yaml

    require_load(plan, NAME)
    engine = pooled_engine(plan)
    require_one_node(plan, engine)
    pools = named_pools(plan)
    name = kubernetes.object_name(plan.model, engine.NAME, LONGEST_MODEL)
    graph = {
        "apiVersion": "nvidia.com/v1beta1",
        "kind": "DynamoGraphDeployment",
        "metadata": {"name": name},
        "spec": {"components": [_frontend(plan, engine, pools[0]), *(_workers(engine, each) for each in pools)]},
    }
    left_out = _left_out(plan, engine, pools)
    text: str = yaml.safe_dump(graph, sort_keys=False, allow_unicode=True, width=120)
    head = [headline(plan, engine), router_line(plan), *map(comment, header(warnings, left_out))]
    return Rendered(
        files={"dynamo.yaml": "\n".join([*head, text]), "plan.yaml": plan_to_yaml(plan)},
        command="kubectl apply -f dynamo.yaml",
        engine=engine.NAME,
        version=engine.version_of(pools[0].plan),
        not_expressed=tuple(left_out),
    )


def words(plan: Plan) -> list[str]:
    return operated(plan).command(plan)


def check(plan: Plan) -> None:
    check_pools(plan)


def _left_out(plan: Plan, engine: Operations, pools: Sequence[NamedPool]) -> list[str]:
    lines = pools_left_out(plan, engine)
    for each in pools:
        lines += kubernetes.mounted_or_selected(each.plan, engine.container(each.plan).weights)
    held, own = engine.graph_worker(pools[0].replica()).version, engine.version_of(pools[0].plan)
    if held != own:
        lines.append(
            f"{engine.TITLE} {own}: the image of Dynamo {VERSION} has {held}; build one with {own}, or plan anew"
        )
    if plan.router not in MODES:
        mode = NEAREST[plan.router]
        lines.append(f"the router {plan.router}: Dynamo's frontend does not have it, and has {mode} in its place")
    return list(dict.fromkeys(lines))


def _image(engine: Operations, each: NamedPool) -> str:
    return f"{REGISTRY}/{engine.graph_worker(each.replica()).runtime}:{VERSION}"


def _frontend(plan: Plan, engine: Operations, first: NamedPool) -> dict[str, Any]:
    mode = MODES.get(plan.router) or NEAREST[plan.router]
    environment = {MODE: mode, **(BY_PREFIX if mode == "kv" else {})}
    container = {
        "name": MAIN,
        "image": _image(engine, first),
        "env": [{"name": name, "value": value} for name, value in environment.items()],
    }
    return {
        "name": "frontend",
        "type": "frontend",
        "replicas": 1,
        "podTemplate": {"spec": {"containers": [container]}},
    }


def _workers(engine: Operations, each: NamedPool) -> dict[str, Any]:
    worker = engine.graph_worker(each.replica(reached=True))
    command, args = started((*worker.command, *worker.args), worker.files, len(worker.command))
    container = {
        "name": MAIN,
        "image": _image(engine, each),
        "command": command,
        "args": args,
        "env": [{"name": POOL_VARIABLE, "value": str(each.place)}],
        "envFrom": [{"secretRef": {"name": TOKEN, "optional": True}}],
        "resources": {"limits": {engine.container(each.plan).resource: each.plan.ranks}},
    }
    pod = kubernetes.pod_of(each.pool.chip, container)
    del pod["volumes"]  # the operator gives every component shared memory of its own
    return {
        "name": each.name,
        "type": "worker" if each.pool.role == BOTH else each.pool.role,
        "replicas": each.pool.replicas,
        "podTemplate": {"spec": pod},
    }
