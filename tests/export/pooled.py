"""Plans of several pools, and what their exports start: read from the processes of every node, and from every object
of a manifest."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import yaml
from tests.export.strict_kubernetes import CONTAINER, NAME, PROBE, check_fields

import gnomon
from gnomon.errors import GnomonError
from gnomon.spec import EngineChoice, Goal, Plan, PlanPool, Strategy
from gnomon.spec.plan import BOTH, DECODE, KV_TRANSFERS, PREFILL, ROUTERS

MODELS = ("llama-3.1-8b", "qwen3-8b", "llama-3.1-70b", "qwen3-30b-a3b")
CHIPS = ("H100", "H200", "A100-SXM-80GB", "L40S", "B200")
CONTEXT = {"vllm": "max_model_len", "sglang": "context_length", "trtllm": "max_seq_len"}
ENGINES = tuple(CONTEXT)
PROGRAMS = ("vllm", "vllm-router", "python", "trtllm-serve", "nginx")
VISIBLE = "CUDA_VISIBLE_DEVICES"
STAND_IN = """#!/bin/bash
mkdir "$SEEN/$$"
printf '%s\\0' "${0##*/}" "$@" > "$SEEN/$$/words"
env -0 > "$SEEN/$$/environment"
sleep 1.2
"""
"""Notes how it was called, and stays until the others have done so too."""


def pooled_plans(seed: int, count: int) -> list[Plan]:
    """So many plans of two or three pools that can be exported, of all engines in turn."""
    random, found = Random(seed), list[Plan]()
    while len(found) < count:
        plan = _drawn(random, ENGINES[len(found) % len(ENGINES)])
        try:
            gnomon.export(plan)
        except GnomonError:
            continue
        found.append(plan)
    return found


def _drawn(random: Random, engine: str) -> Plan:
    apart = random.random() < 0.6
    roles = random.choice(([PREFILL, DECODE], [PREFILL, DECODE, DECODE])) if apart else [BOTH] * random.choice((2, 3))
    dtype = random.choice(("bf16", "bf16", "fp8"))
    pools = tuple(
        PlanPool(
            role=role,
            chip=random.choice(CHIPS[:2] if random.random() < 0.6 else CHIPS),
            replicas=random.choice((1, 2, 3, 5)),
            weight=random.choice((1.0, 1.0, 2.5, 3.0)),
            strategy=Strategy(tp=random.choice((1, 2, 4, 8))),
            dtype=dtype,
            engine=EngineChoice(name=engine, settings={CONTEXT[engine]: random.choice((4096, 8192))}),
        )
        for role in roles
    )
    return Plan.of_pools(
        pools,
        model=random.choice(MODELS),
        router=random.choice(ROUTERS),
        kv_transfer=random.choice(KV_TRANSFERS) if apart else KV_TRANSFERS[0],
        goals=random.choice(((), (Goal("tpot", "p90", 0.05),))),
    )


@dataclass(frozen=True, kw_only=True)
class Started:
    """A process of a node, with the files that lay beside it."""

    node: int
    words: tuple[str, ...]
    environment: Mapping[str, str]
    files: Mapping[str, str]

    @property
    def devices(self) -> list[int]:
        return [int(at) for at in self.environment[VISIBLE].split(",")]

    @property
    def pool(self) -> int:
        return int(self.environment["GNOMON_POOL"])

    def value(self, flag: str) -> str:
        return self.words[self.words.index(flag) + 1]


def hosts(count: int) -> list[str]:
    return [f"10.0.0.{number + 1}" for number in range(count)]


def nodes_said(script: str) -> int:
    said = re.search(r"with NODE from 0 to (\d+)\.", script)
    return int(said[1]) + 1 if said else 1


def run_pools(script: str, folder: Path) -> list[Started]:
    """Run a script on every node with stand-ins for all programs."""
    count = nodes_said(script)
    with ThreadPoolExecutor(count) as pool:  # they mostly wait
        each = pool.map(lambda node: _run(script, folder / str(node), node, count), range(count))
    return [one for started in each for one in started]


def _run(script: str, folder: Path, node: int, count: int) -> list[Started]:
    seen, programs = folder / "seen", folder / "bin"
    seen.mkdir(parents=True)
    programs.mkdir()
    for name in PROGRAMS:
        (programs / name).write_text(STAND_IN)
        (programs / name).chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if name not in (VISIBLE, "GNOMON_POOL")}
    kept |= {"PATH": f"{programs}:{os.environ['PATH']}", "SEEN": str(seen), "HOSTS": " ".join(hosts(count))}
    arguments = [str(node)] if count > 1 else []
    done = subprocess.run(
        ["bash", "-c", script, "launch.sh", *arguments],
        env=kept, cwd=folder, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    beside = {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}
    found = []
    for place in sorted(seen.iterdir(), key=lambda path: int(path.name)):
        words, variables = ((place / name).read_text().split("\0")[:-1] for name in ("words", "environment"))
        environment = dict(line.split("=", 1) for line in variables)
        found.append(Started(node=node, words=tuple(words), environment=environment, files=beside))
    return found


def routed(router: Started) -> list[tuple[str, str]]:
    """The role and the address of every server that a router is told of."""
    words = router.words
    if words[0] == "nginx":
        found = re.findall(r"^\s*server (\S+) max_fails=0", router.files["nginx.conf"], re.MULTILINE)
        return [(BOTH, place) for place in found]
    if words[0] == "trtllm-serve":
        config = yaml.safe_load(router.files["disagg_config.yaml"])
        check_fields(config, DISAGGREGATED, "disagg_config.yaml")
        roles = {PREFILL: config["context_servers"], DECODE: config["generation_servers"]}
        assert all(part["num_instances"] == len(part["urls"]) for part in roles.values())
        return [(role, place) for role, part in roles.items() for place in part["urls"]]
    pairs = list(pairwise(words))
    found = [(flag[2:], url) for flag, url in pairs if flag in ("--prefill", "--decode")]
    if "--worker-urls" in words:
        found += [(BOTH, word) for word in words if word.startswith("http://")]
    return [(role, url.removeprefix("http://")) for role, url in found]


ROUTER = {"type": re.compile("round_robin|load_balancing|kv_cache_aware")}
SERVERS = {"num_instances": int, "urls": [re.compile(r"[\w.-]+:\d+")], "router": ROUTER}
DISAGGREGATED = {"hostname": str, "port": int, "context_servers": SERVERS, "generation_servers": SERVERS}
"""What `trtllm-serve disaggregated -c` reads of TensorRT-LLM 1.2 (`llmapi/disagg_utils.py`), as far as it is
written."""
OPTIONS = {
    "cache_transceiver_config?": {"backend": "DEFAULT"},
    "disable_overlap_scheduler?": bool,
    "kv_cache_config?": {"event_buffer_max_size?": int, "dtype?": str},
}
"""The fields of its LLM API that these plans need."""
POOLED_CONTAINER = {
    **CONTAINER,
    "env": [
        {
            "name": re.compile(r"[A-Z_0-9]+"),
            "value?": str,
            "valueFrom?": {
                "secretKeyRef?": {"name": NAME, "key": str, "optional": bool},
                "fieldRef?": {"fieldPath": "status.podIP"},
            },
        }
    ],
}
LABELS = {"app": NAME, "role": re.compile("both|prefill|decode|router")}
ROUTER_CONTAINER = {name: CONTAINER[name] for name in ("name", "image", "command", "args", "ports")} | {
    "readinessProbe": PROBE
}
POD = {
    "nodeSelector?": {re.compile(r"[a-z./]+"): str},
    "containers": [POOLED_CONTAINER],
    "volumes": [{"name": NAME, "emptyDir": {"medium": "Memory"}}],
}
MANIFEST: dict[str, Any] = {
    "StatefulSet": {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": NAME, "labels": LABELS},
        "spec": {
            "serviceName": NAME,
            "replicas": int,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": NAME}},
            "template": {"metadata": {"labels": LABELS}, "spec": POD},
        },
    },
    "Deployment": {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": NAME, "labels": LABELS},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": NAME}},
            "template": {"metadata": {"labels": LABELS}, "spec": {"containers": [ROUTER_CONTAINER]}},
        },
    },
    "Service": {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": NAME},
        "spec": {
            "clusterIP?": "None",
            "publishNotReadyAddresses?": True,
            "selector": {"app": NAME},
            "ports": [{"port": int, "targetPort?": int}],
        },
    },
}
WORKER = {name: CONTAINER[name] for name in ("name", "image", "command", "args", "resources")} | {
    "env": [{"name": "GNOMON_POOL", "value": str}],
    "envFrom": [{"secretRef": {"name": NAME, "optional": bool}}],
}
FRONTEND = {"name": "main", "image": str, "env": [{"name": re.compile("DYN_[A-Z_]+"), "value": str}]}
COMPONENT = {"name": re.compile("[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?"), "replicas": int}
"""As the CRD of Dynamo 1.3 has it (`dynamocomponentdeployment_types.go` of v1beta1)."""


def check_graph(graph: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[Mapping[str, Any]]]:
    """The frontend and the workers of a DynamoGraphDeployment, with no field that is unknown."""
    spec = {"components": list}
    outer = {"apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeployment", "metadata": {"name": NAME}}
    check_fields(dict(graph), {**outer, "spec": spec}, "graph")
    frontend, *workers = graph["spec"]["components"]
    pod = {"containers": [FRONTEND]}
    check_fields(frontend, {**COMPONENT, "type": "frontend", "podTemplate": {"spec": pod}}, "frontend")
    pod = {"nodeSelector?": POD["nodeSelector?"], "containers": [WORKER]}
    kinds = re.compile("worker|prefill|decode")
    for worker in workers:
        check_fields(worker, {**COMPONENT, "type": kinds, "podTemplate": {"spec": pod}}, "worker")
    names = [component["name"] for component in graph["spec"]["components"]]
    assert len(names) == len(set(names))
    return frontend, workers


def container_words(container: Mapping[str, Any]) -> tuple[list[str], dict[str, str]]:
    """The words of a container's program, and the files that it writes before."""
    words = [word.replace("$$(", "$(") for word in (*container.get("command", []), *container.get("args", []))]
    if words[:2] != ["sh", "-c"]:
        return words, {}
    *writes, last = _parts(words[2])
    files = {}
    for write in writes:
        printf, form, text, arrow, name = shlex.split(write)
        assert (printf, form, arrow) == ("printf", "%s", ">")
        files[name] = text
    return shlex.split(last)[1:], files


def _parts(text: str) -> Iterator[str]:
    """What `&&` joins outside of quotes."""
    current: list[str] = []
    for word in shlex.split(text):
        if word == "&&":
            yield shlex.join(current).replace("'>'", ">")
            current = []
        else:
            current.append(word)
    yield shlex.join(current)


def by_kind(documents: Sequence[Mapping[str, Any]], kind: str) -> list[Any]:
    return [document for document in documents if document["kind"] == kind]
