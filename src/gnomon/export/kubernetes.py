"""A Deployment with one pod a replica and a Service in front of them, from the same `vllm serve` command."""

from __future__ import annotations

import re
from typing import Any

from gnomon.engines.vllm import launch
from gnomon.errors import InputError
from gnomon.export.base import Rendered, in_other_words, require_load
from gnomon.export.vllm import require_vllm
from gnomon.load.chips import chip as find_chip
from gnomon.load.plan import plan_to_yaml
from gnomon.spec import Plan

NAME = "kubernetes"
SUMMARY = "deployment.yaml with a Deployment and a Service"

PORT = launch.FIRST_PORT
_LONGEST_NAME = 50
"""A Kubernetes name may have 63 characters; pods add a hash to it."""
_STARTUP_PROBES = 180
"""Ten seconds each: half an hour to load the weights and capture graphs."""


def render(plan: Plan) -> Rendered:
    import yaml

    require_load(plan, NAME)
    require_vllm(plan)
    _require_one_node(plan)
    version = launch.version_of(plan)
    words = [*launch.command(plan), "--port", str(PORT)]
    name = _object_name(plan.model)
    documents = [_deployment(plan, name, words, version), _service(name)]
    text: str = yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=True, width=120)
    return Rendered(
        files={"deployment.yaml": text, "plan.yaml": plan_to_yaml(plan)},
        command="kubectl apply -f deployment.yaml",
        engine="vllm",
        version=version,
        not_expressed=tuple(_not_expressed(plan, words)),
    )


def _require_one_node(plan: Plan) -> None:
    """A Deployment's replica is a pod, and a pod is on one node."""
    ranks, per_node = plan.strategy.ranks, launch.pool_of(plan).per_node
    if ranks > per_node:
        raise InputError(
            f"a replica of {ranks} chips does not fit on one node of {per_node}, and a Deployment has a pod a replica",
            where="strategy",
            hint="Export it to vllm and start it on every node, or plan replicas within a node.",
        )


def _not_expressed(plan: Plan, words: list[str]) -> list[str]:
    kept = [line for line in launch.not_expressed(in_other_words(plan)) if not line.startswith("spreading requests")]
    if plan.replicas > 1:
        kept.append("balancing by load: a Service picks a pod for each connection, not by the length of its queue")
    if not _product(plan.chip):
        kept.append(f"the chip {plan.chip}: add a node selector of your cluster for it")
    if words[2].startswith(("/", ".", "~")):
        kept.append(f"the model's folder {words[2]}: mount it into the pod")
    return kept


def _deployment(plan: Plan, name: str, words: list[str], version: str) -> dict[str, Any]:
    product = _product(plan.chip)
    pod: dict[str, Any] = {"nodeSelector": {"nvidia.com/gpu.product": product}} if product else {}
    pod |= {
        "containers": [_container(plan, words, version)],
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


def _container(plan: Plan, words: list[str], version: str) -> dict[str, Any]:
    token = {"secretKeyRef": {"name": "huggingface", "key": "token", "optional": True}}
    return {
        "name": "vllm",
        "image": f"vllm/vllm-openai:v{version}",
        "command": ["vllm", "serve"],
        "args": [_literal(word) for word in words[2:]],
        "env": [{"name": "HF_TOKEN", "valueFrom": token}],
        "ports": [{"containerPort": PORT}],
        "resources": {"limits": {"nvidia.com/gpu": plan.strategy.ranks}},
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
