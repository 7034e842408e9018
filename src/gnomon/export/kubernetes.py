"""A Deployment with one pod a replica and a Service in front of them, from the engine's launch command."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from gnomon.engines.operations import Container, Operations
from gnomon.engines.shell import comment
from gnomon.errors import InputError
from gnomon.export.base import KUBERNETES, Rendered, header, in_other_words, operated, require_load
from gnomon.export.pools import check_pools, has_router
from gnomon.load.chips import chip as find_chip
from gnomon.load.plan import plan_to_yaml
from gnomon.spec import Plan

NAME = KUBERNETES
_LONGEST_NAME = 50
"""A Kubernetes name may have 63 characters; pods add a hash to it."""


def render(plan: Plan, warnings: Sequence[str] = ()) -> Rendered:
    import yaml

    require_load(plan, NAME)
    if has_router(plan):
        from gnomon.export import kubernetes_pools

        return kubernetes_pools.render(plan, warnings)
    engine = operated(plan)
    container = engine.container(plan)
    _require_one_node(plan, engine)
    name = object_name(plan.model, engine.NAME)
    documents = [_deployment(plan, name, container, engine.NAME), _service(name, container.port)]
    text: str = yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=True, width=120)
    left_out = _not_expressed(plan, engine, container.weights)
    head = [engine.headline(plan), *map(comment, header(warnings, left_out))]
    return Rendered(
        files={"deployment.yaml": "\n".join([*head, text]), "plan.yaml": plan_to_yaml(plan)},
        command="kubectl apply -f deployment.yaml",
        engine=engine.NAME,
        version=engine.version_of(plan),
        not_expressed=tuple(left_out),
    )


def words(plan: Plan) -> list[str]:
    return operated(plan).command(plan)


def check(plan: Plan) -> None:
    check_pools(plan)


def _require_one_node(plan: Plan, engine: Operations) -> None:
    """A Deployment's replica is a pod, and a pod is on one node."""
    where = engine.layout(plan)
    if where.nodes_each > 1:
        raise InputError(
            f"a replica of {where.ranks} chips does not fit on one node of {where.per_node}, and a Deployment has one "
            "pod per replica",
            where="strategy",
            hint=f"Export it to {engine.NAME}, whose launch.sh starts it on every node, or plan replicas within a "
            "node.",
        )


def _not_expressed(plan: Plan, engine: Operations, weights: str) -> list[str]:
    kept = [line for line in engine.not_expressed(in_other_words(plan)) if not line.startswith("the router:")]
    if plan.replicas > 1:
        kept.append(_routing(plan))
    return kept + mounted_or_selected(plan, weights)


def mounted_or_selected(plan: Plan, weights: str) -> list[str]:
    """What only the cluster's owner can add to a pod: a selector of nodes, and a folder of weights."""
    lines = []
    if not _product(plan.chip):
        lines.append(f"the chip {plan.chip}: add a node selector of your cluster for it")
    if weights.startswith(("/", ".", "~")):
        lines.append(f"the model's folder {weights}: mount it into the pod")
    return lines


def _routing(plan: Plan) -> str:
    """A Service assigns connections, and a client may send many requests over one."""
    if plan.router == "random":
        return "one connection per request: a Service picks a pod at random for each connection, not for each request"
    return f"the router {plan.router}: a Service picks a pod at random; put a gateway that routes so in front of it"


def _deployment(plan: Plan, name: str, container: Container, engine: str) -> dict[str, Any]:
    pod = pod_of(plan.chip, container_of(container, engine, plan.ranks))
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "replicas": plan.replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": pod},
        },
    }


def pod_of(chip: str, container: dict[str, Any]) -> dict[str, Any]:
    """A pod on nodes of a chip, with shared memory for its processes."""
    product = _product(chip)
    pod: dict[str, Any] = {"nodeSelector": {"nvidia.com/gpu.product": product}} if product else {}
    return pod | {"containers": [container], "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}]}


def container_of(container: Container, engine: str, chips: int) -> dict[str, Any]:
    token = {"secretKeyRef": {"name": "huggingface", "key": "token", "optional": True}}
    return {
        "name": engine,
        "image": container.image,
        "command": list(container.command),
        "args": [literal(word) for word in container.args],
        "env": [
            {"name": "HF_TOKEN", "valueFrom": token},
            *({"name": name, "value": value} for name, value in container.environment.items()),
        ],
        "ports": [{"containerPort": container.port}],
        "resources": {"limits": {container.resource: chips}},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
        "startupProbe": _probe(container, container.startup_probes),
        "readinessProbe": _probe(container, 3),
        "livenessProbe": _probe(container, 6),
    }


def _probe(container: Container, failures: int) -> dict[str, Any]:
    asked = {"path": container.health, "port": container.port}
    return {"httpGet": asked, "periodSeconds": 10, "failureThreshold": failures}


def _service(name: str, port: int) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"app": name}, "ports": [{"port": 80, "targetPort": port}]},
    }


def literal(word: str) -> str:
    """Kubernetes replaces $(NAME) in arguments; a doubled dollar stays one."""
    return word.replace("$(", "$$(")


def object_name(model: str, engine: str, longest: int = _LONGEST_NAME) -> str:
    name = re.sub(r"[^a-z0-9]+", "-", model.lower()).strip("-")[:longest].strip("-")
    return f"{engine}-{name}" if name else engine


def _product(chip: str) -> str:
    """The name NVIDIA's device labels give the chip, or nothing."""
    aliases = find_chip(chip).aliases
    labels = [alias for alias in aliases if alias.startswith("NVIDIA-")]
    return labels[0] if labels else ""
