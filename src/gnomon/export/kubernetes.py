"""A Deployment with one pod a replica and a Service in front of them, from the same `vllm serve` command."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from gnomon.engines.shell import comment
from gnomon.engines.vllm import launch
from gnomon.engines.vllm.platforms import Platform, not_run, platform_of
from gnomon.errors import InputError
from gnomon.export.base import Rendered, header, in_other_words, require_load
from gnomon.export.vllm import check, require_vllm
from gnomon.load.chips import chip as find_chip
from gnomon.load.plan import plan_pool, plan_to_yaml
from gnomon.spec import Plan

__all__ = ["NAME", "check", "render", "words"]
NAME = "kubernetes"

PORT = launch.FIRST_PORT
_LONGEST_NAME = 50
"""A Kubernetes name may have 63 characters; pods add a hash to it."""
_STARTUP_PROBES = 180
"""Ten seconds each: half an hour to load the weights and capture graphs."""


def render(plan: Plan, warnings: Sequence[str] = ()) -> Rendered:
    import yaml

    require_load(plan, NAME)
    require_vllm(plan)
    platform = _platform(plan)
    _require_one_node(plan)
    version = launch.version_of(plan)
    said = [*words(plan), "--port", str(PORT)]
    name = _object_name(plan.model)
    documents = [_deployment(plan, name, said, f"{platform.image}:v{version}", platform.resource), _service(name)]
    text: str = yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=True, width=120)
    left_out = _not_expressed(plan, said)
    head = [launch.headline(plan), *map(comment, header(warnings, left_out))]
    return Rendered(
        files={"deployment.yaml": "\n".join([*head, text]), "plan.yaml": plan_to_yaml(plan)},
        command="kubectl apply -f deployment.yaml",
        engine="vllm",
        version=version,
        not_expressed=tuple(left_out),
    )


def words(plan: Plan) -> list[str]:
    return launch.command(plan)


def _platform(plan: Plan) -> Platform:
    """The device resource of the chips, and the image for them. Raises InputError where there is none."""
    chip = plan_pool(plan).chip
    platform = platform_of(chip)
    if platform is None:
        hint = "Plan it for a chip that vLLM runs on: gnomon chips."
        raise InputError(f"there is no image for it: {not_run(chip)}", where="chip", hint=hint)
    if not platform.image:
        raise InputError(
            f"no image of vLLM {launch.version_of(plan)} is published for {chip.name} (the platform {platform.name})",
            where="chip",
            hint="Export it to vllm, and start launch.sh where vLLM was built for it.",
        )
    return platform


def _require_one_node(plan: Plan) -> None:
    """A Deployment's replica is a pod, and a pod is on one node."""
    where = launch.layout(plan)
    if where.nodes_each > 1:
        raise InputError(
            f"a replica of {where.ranks} chips does not fit on one node of {where.per_node}, and a Deployment has one "
            "pod per replica",
            where="strategy",
            hint="Export it to vllm, whose launch.sh starts it on every node, or plan replicas within a node.",
        )


def _not_expressed(plan: Plan, words: list[str]) -> list[str]:
    kept = [line for line in launch.not_expressed(in_other_words(plan)) if not line.startswith("the router:")]
    if plan.replicas > 1:
        kept.append(_routing(plan))
    if not _product(plan.chip):
        kept.append(f"the chip {plan.chip}: add a node selector of your cluster for it")
    if words[2].startswith(("/", ".", "~")):
        kept.append(f"the model's folder {words[2]}: mount it into the pod")
    return kept


def _routing(plan: Plan) -> str:
    """A Service assigns connections, and a client may send many requests over one."""
    if plan.router == "random":
        return "one connection per request: a Service picks a pod at random for each connection, not for each request"
    return f"the router {plan.router}: a Service picks a pod at random; put a gateway that routes so in front of it"


def _deployment(plan: Plan, name: str, words: list[str], image: str, resource: str) -> dict[str, Any]:
    product = _product(plan.chip)
    pod: dict[str, Any] = {"nodeSelector": {"nvidia.com/gpu.product": product}} if product else {}
    pod |= {
        "containers": [_container(words, image, {resource: plan.ranks})],
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
    }
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


def _container(words: list[str], image: str, chips: dict[str, int]) -> dict[str, Any]:
    token = {"secretKeyRef": {"name": "huggingface", "key": "token", "optional": True}}
    return {
        "name": "vllm",
        "image": image,
        "command": ["vllm", "serve"],
        "args": [_literal(word) for word in words[2:]],
        "env": [{"name": "HF_TOKEN", "valueFrom": token}],
        "ports": [{"containerPort": PORT}],
        "resources": {"limits": chips},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
        "startupProbe": _probe(_STARTUP_PROBES),
        "readinessProbe": _probe(3),
        "livenessProbe": _probe(6),
    }


def _probe(failures: int) -> dict[str, Any]:
    return {"httpGet": {"path": "/health", "port": PORT}, "periodSeconds": 10, "failureThreshold": failures}


def _service(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"app": name}, "ports": [{"port": 80, "targetPort": PORT}]},
    }


def _literal(word: str) -> str:
    """Kubernetes replaces $(NAME) in arguments; a doubled dollar stays one."""
    return word.replace("$(", "$$(")


def _object_name(model: str) -> str:
    name = re.sub(r"[^a-z0-9]+", "-", model.lower()).strip("-")[:_LONGEST_NAME].strip("-")
    return f"vllm-{name}" if name else "vllm"


def _product(chip: str) -> str:
    """The name NVIDIA's device labels give the chip, or nothing."""
    aliases = find_chip(chip).aliases
    labels = [alias for alias in aliases if alias.startswith("NVIDIA-")]
    return labels[0] if labels else ""
