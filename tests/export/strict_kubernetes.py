"""The objects that an export writes, field by field: nothing unknown, nothing of another type, names as allowed."""

from __future__ import annotations

import re
from typing import Any

NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
RESOURCE = re.compile(r"[a-z0-9.-]+/[a-z0-9._-]+")
PROBE = {"httpGet": {"path": str, "port": int}, "periodSeconds": int, "failureThreshold": int}
CONTAINER = {
    "name": NAME,
    "image": str,
    "command": [str],
    "args": [str],
    "env": [{"name": str, "valueFrom": {"secretKeyRef": {"name": NAME, "key": str, "optional": bool}}}],
    "ports": [{"containerPort": int}],
    "resources": {"limits": {RESOURCE: int}},
    "volumeMounts": [{"name": NAME, "mountPath": str}],
    "startupProbe": PROBE,
    "readinessProbe": PROBE,
    "livenessProbe": PROBE,
}
DOCUMENTS: dict[str, Any] = {
    "Deployment": {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": NAME, "labels": {"app": NAME}},
        "spec": {
            "replicas": int,
            "selector": {"matchLabels": {"app": NAME}},
            "template": {
                "metadata": {"labels": {"app": NAME}},
                "spec": {
                    "nodeSelector?": {re.compile(r"[a-z./]+"): str},
                    "containers": [CONTAINER],
                    "volumes": [{"name": NAME, "emptyDir": {"medium": "Memory"}}],
                },
            },
        },
    },
    "Service": {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": NAME},
        "spec": {"selector": {"app": NAME}, "ports": [{"port": int, "targetPort": int}]},
    },
}


def check_documents(documents: list[Any]) -> None:
    assert [document["kind"] for document in documents] == ["Deployment", "Service"]
    for document in documents:
        check_fields(document, DOCUMENTS[document["kind"]], document["kind"])
    deployment, service = documents
    assert deployment["spec"]["selector"]["matchLabels"] == deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == deployment["spec"]["selector"]["matchLabels"]
    assert deployment["spec"]["replicas"] >= 1


def check_fields(value: Any, wanted: Any, where: str) -> None:
    """Raise AssertionError where a value is not of a schema: dicts name all fields, those with `?` may be missing."""
    if isinstance(wanted, dict):
        assert isinstance(value, dict), where
        _fields(value, wanted, where)
    elif isinstance(wanted, list):
        assert isinstance(value, list), where
        assert value, where
        for place, item in enumerate(value):
            check_fields(item, wanted[0], f"{where}[{place}]")
    elif isinstance(wanted, type):
        assert type(value) is wanted, f"{where}: {value!r}"
    elif isinstance(wanted, re.Pattern):
        assert isinstance(value, str), f"{where}: {value!r}"
        assert wanted.fullmatch(value), f"{where}: {value!r}"
    else:
        assert value == wanted, where


def _fields(value: dict[str, Any], wanted: dict[Any, Any], where: str) -> None:
    patterns = [(key, inner) for key, inner in wanted.items() if isinstance(key, re.Pattern)]
    for key, inner in value.items():
        fitting = wanted.get(key, wanted.get(f"{key}?"))
        if fitting is None:
            fitting = next((kind for pattern, kind in patterns if pattern.fullmatch(key)), None)
        assert fitting is not None, f"{where}.{key} is unknown"
        check_fields(inner, fitting, f"{where}.{key}")
    needed = [key for key in wanted if isinstance(key, str) and not key.endswith("?")]
    assert not [key for key in needed if key not in value], f"{where} lacks fields"
