"""A StatefulSet and a headless Service for each pool, whose pods have fixed names, and a router in front of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gnomon.engines.operations import OWN_ADDRESS, Address, Operations, PoolServer, RouterServer, shell_words
from gnomon.engines.shell import comment
from gnomon.export import kubernetes
from gnomon.export.base import Rendered, header
from gnomon.export.pools import (
    NamedPool,
    address_of,
    headline,
    named_pools,
    pooled_engine,
    pools_left_out,
    require_one_node,
    router_line,
)
from gnomon.export.routers import router_of
from gnomon.load.plan import plan_to_yaml
from gnomon.spec import Plan

ROLE = "role"
"""The label with a pool's role."""
LONGEST_MODEL = 32
"""Letters of a model in a name, beside the engine, the pool, and the hash or the number that Kubernetes adds."""


def render(plan: Plan, warnings: Sequence[str] = ()) -> Rendered:
    import yaml

    engine = pooled_engine(plan)
    require_one_node(plan, engine)
    name = kubernetes.object_name(plan.model, engine.NAME, LONGEST_MODEL)
    documents, addresses, left_out = [], list[Address](), pools_left_out(plan, engine)
    for each in named_pools(plan):
        server = engine.pool_server(each.replica(reached=True))
        documents += _pool(engine, each, server, f"{name}-{each.name}")
        addresses += _addresses(each, server, f"{name}-{each.name}")
        left_out += kubernetes.mounted_or_selected(each.plan, engine.container(each.plan).weights)
    router = router_of(plan, engine, addresses, reached=True)
    left_out = list(dict.fromkeys([*left_out, *router.left_out, *_network(plan)]))
    documents += _router(router, name)
    text: str = yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=True, width=120)
    head = [headline(plan, engine), router_line(plan), *map(comment, header(warnings, left_out))]
    return Rendered(
        files={"deployment.yaml": "\n".join([*head, text]), "plan.yaml": plan_to_yaml(plan)},
        command="kubectl apply -f deployment.yaml",
        engine=engine.NAME,
        version=engine.version_of(plan.of_pool(plan.each_pool[0])),
        not_expressed=tuple(left_out),
    )


def _network(plan: Plan) -> list[str]:
    """KV caches go over TCP where pods have nothing else."""
    if not plan.disaggregated:
        return []
    return ["the network of KV caches: give the pods the RDMA devices of your cluster, or they are sent over TCP"]


def _addresses(each: NamedPool, server: PoolServer, name: str) -> list[Address]:
    """Pods of a StatefulSet by the names that its headless Service gives them."""
    return [address_of(each, server, f"{name}-{number}.{name}") for number in range(each.pool.replicas)]


def _pool(engine: Operations, each: NamedPool, server: PoolServer, name: str) -> list[dict[str, Any]]:
    container = kubernetes.container_of(engine.container(each.plan), engine.NAME, each.plan.ranks)
    command, args = started(server.words, server.files, server.program)
    container |= {"command": command, "args": args, "ports": [{"containerPort": server.port}]}
    known = container["env"]
    container["env"] = [*known, *(one for one in environment_of(each.environment(server)) if one not in known)]
    labels = {"app": name, ROLE: each.pool.role}
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"app": name},
            "ports": [{"port": server.port}],
        },
    }
    pods = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, "labels": dict(labels)},
        "spec": {
            "serviceName": name,
            "replicas": each.pool.replicas,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": labels}, "spec": kubernetes.pod_of(each.plan.chip, container)},
        },
    }
    return [pods, service]


def started(words: Sequence[str], files: Mapping[str, str], program: int) -> tuple[list[str], list[str]]:
    """Command and arguments of a container, which first writes the files that its program reads."""
    if not files:
        return list(words[:program]), [kubernetes.literal(word) for word in words[program:]]
    written = [f"printf %s {shell_words([text])} > {shell_words([name])}" for name, text in files.items()]
    return ["sh", "-c"], [kubernetes.literal(" && ".join([*written, f"exec {shell_words(words)}"]))]


def environment_of(environment: Mapping[str, str]) -> list[dict[str, Any]]:
    own = {"fieldRef": {"fieldPath": "status.podIP"}}
    return [
        {"name": name, **({"valueFrom": own} if value == OWN_ADDRESS else {"value": value})}
        for name, value in environment.items()
    ]


def _router(router: RouterServer, name: str) -> list[dict[str, Any]]:
    labels = {"app": f"{name}-router", ROLE: "router"}
    command, args = started(router.words, router.files, 1)
    probe = {"httpGet": {"path": router.health, "port": router.port}, "periodSeconds": 10, "failureThreshold": 3}
    container = {
        "name": "router",
        "image": router.image,
        "command": command,
        "args": args,
        "ports": [{"containerPort": router.port}],
        "readinessProbe": probe,
    }
    pods = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": f"{name}-router", "labels": dict(labels)},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": labels["app"]}},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"app": labels["app"]}, "ports": [{"port": 80, "targetPort": router.port}]},
    }
    return [pods, service]
