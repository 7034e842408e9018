"""Containers of Kubernetes manifests and of compose files: their words, variables, chips and how many there are."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gnomon.engines.operations import Variable
from gnomon.errors import InputError
from gnomon.load.commands.config_maps import ConfigMaps, mounted_files
from gnomon.load.commands.found import StartedProcess
from gnomon.load.commands.shell import ShellReader
from gnomon.load.commands.variables import ShellVariables, environment_of
from gnomon.load.commands.written import WrittenFiles
from gnomon.spec.imported import IgnoredOption

RESOURCE = re.compile(r"(?:nvidia|amd)\.com/gpu|gpu\.intel\.com/(?:xe|i915)")
SELECTORS = (
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "cloud.google.com/gke-accelerator",
    "gpu.nvidia.com/model",
)
"""Labels of nodes that name their chips."""
SHARED = "-SHARED"
"""What NVIDIA's device plugin adds to the name of a chip that pods share."""
_REFERENCE = re.compile(r"\$(\$?)\(([A-Za-z_][\w.-]*)\)")
_SHELLS = re.compile(r"(?:.*/)?(?:ba|da|z|k)?sh")
_COMPOSED = re.compile(r"\$(\$|\{[^}]*\}|[A-Za-z_]\w*)")
MOST_REPLICAS = 1_000_000
SCALERS = ("HorizontalPodAutoscaler", "ScaledObject")
"""Kinds that scale others; the second one is KEDA's."""
GRAPH, GRAPH_VERSION = "DynamoGraphDeployment", "nvidia.com/v1beta1"


def is_manifest(fields: Mapping[str, Any]) -> bool:
    return "apiVersion" in fields and "kind" in fields


def is_compose(fields: Mapping[str, Any]) -> bool:
    return isinstance(fields.get("services"), Mapping)


def manifest_processes(
    document: Mapping[str, Any], where: str, used: ShellVariables, maps: ConfigMaps
) -> Iterator[StartedProcess]:
    """The containers of one document; none of kinds that have no pods."""
    if document.get("kind") == "List":
        for item in _sequence(document.get("items")):
            yield from manifest_processes(_mapping(item), where, used, maps)
        return
    spec = _mapping(document.get("spec"))
    if document.get("kind") == GRAPH:
        if document["apiVersion"] != GRAPH_VERSION:
            hint = f"The API that is read is {GRAPH_VERSION}."
            raise InputError(f"is of the API {document['apiVersion']}, which is not read", where=where, hint=hint)
        yield from _graph(spec, where, used, maps)
        return
    kind, count = document.get("kind"), _count(spec.get("replicas", 1), f"{where}, spec.replicas")
    count = _parallel(spec, where) if kind == "Job" else count
    unknown = "a DaemonSet has a pod on every node: how many, it does not say" if kind == "DaemonSet" else ""
    group = _mapping(spec.get("leaderWorkerTemplate"))
    if group:
        leader = _mapping(group.get("leaderTemplate") or group.get("workerTemplate"))
        nodes = _count(group.get("size", 1), f"{where}, spec.leaderWorkerTemplate.size")
        pods = [(_mapping(leader.get("spec")), nodes)]
    elif kind == "Pod":
        pods, count = [(spec, 1)], 1
    elif kind == "CronJob":
        pods = []
    else:
        predictor = _mapping(spec.get("predictor"))
        count = _count(predictor.get("minReplicas", 1), f"{where}, minReplicas") if predictor else count
        pods = [(predictor or _mapping(_mapping(spec.get("template")).get("spec")), 1)]
    name = str(_mapping(document.get("metadata")).get("name", ""))
    for pod, nodes in pods:
        for process in _containers(pod, where, used, maps):
            count_of = count * process.count
            yield replace(
                process,
                name=name,
                count=count_of,
                counted=True,
                nodes=nodes,
                chip=_chip(pod),
                unknown=unknown or process.unknown,
            )


def _parallel(spec: Mapping[str, Any], where: str) -> int:
    """Pods of a Job that run at a time."""
    count = _count(spec.get("parallelism", 1), f"{where}, spec.parallelism")
    ended = spec.get("completions")
    return count if ended is None else min(count, _count(ended, f"{where}, spec.completions"))


def scaled(documents: Sequence[Mapping[str, Any]], processes: Sequence[StartedProcess]) -> Iterator[IgnoredOption]:
    """Objects of a file that change the number of replicas of what it starts."""
    names = {process.name for process in processes}
    for document in documents:
        kind, spec = document.get("kind"), _mapping(document.get("spec"))
        if kind == "List":
            yield from scaled([_mapping(item) for item in _sequence(document.get("items"))], processes)
        name = str(_mapping(spec.get("scaleTargetRef")).get("name", ""))
        predictor = _mapping(spec.get("predictor"))
        if kind in SCALERS and name in names:
            option = f"{kind} of {name}"
        elif predictor.get("maxReplicas", predictor.get("minReplicas", 1)) != predictor.get("minReplicas", 1):
            option = f"maxReplicas {predictor['maxReplicas']}"
        else:
            continue
        yield IgnoredOption(option=option, why="not modelled: replicas that are scaled under load", affects=True)


def _graph(spec: Mapping[str, Any], where: str, used: ShellVariables, maps: ConfigMaps) -> Iterator[StartedProcess]:
    """The components of a graph of NVIDIA Dynamo, as its API v1beta1 has them."""
    for component in map(_mapping, _sequence(spec.get("components"))):
        spot = f"{where}, component {component.get('name', '?')}"
        pod = _mapping(_mapping(component.get("podTemplate")).get("spec"))
        count = _count(component.get("replicas", 1), f"{spot}, replicas")
        nodes = _count(_mapping(component.get("multinode")).get("nodeCount", 1), f"{spot}, nodeCount")
        for process in _containers(pod, spot, used, maps):
            yield replace(process, count=count * process.count, counted=True, nodes=nodes, chip=_chip(pod))


def _containers(pod: Mapping[str, Any], where: str, used: ShellVariables, maps: ConfigMaps) -> Iterator[StartedProcess]:
    inside = [_mapping(pod["model"])] if isinstance(pod.get("model"), Mapping) else []
    for container in (*map(_mapping, _sequence(pod.get("containers"))), *inside):
        name = f"{where}, container {container.get('name', '?')}"
        environment = _environment(container.get("env"))
        words = [
            _referenced(word, environment, used)
            for part in ("command", "args")
            for word in _words(container.get(part), f"{name}, {part}")
        ]
        process = StartedProcess(
            words=tuple(words),
            where=name,
            image=str(container.get("image") or ""),
            program=bool(container.get("command")),
            environment=environment,
            chips=_chips(_mapping(container.get("resources"))),
            files=mounted_files(pod, container, maps),
        )
        yield from _shelled(process, used)


def _shelled(process: StartedProcess, used: ShellVariables) -> Iterator[StartedProcess]:
    """What `sh -c TEXT` of a container runs; any other container as it is."""
    first = process.words[:1]
    if not first or not _SHELLS.fullmatch(first[0]):
        yield process
        return
    inner = ShellVariables.of(process.environment)
    inner.used, inner.defaults = used.used, used.defaults
    for one in ShellReader(process.where, inner, files=WrittenFiles(process.files)).processes(
        shlex.join(process.words)
    ):
        yield replace(
            process,
            words=one.words,
            count=one.count,
            tasks=one.tasks,
            unknown=one.unknown,
            branches=one.branches,
            files=one.files,
            environment={**process.environment, **one.environment},
        )


def _referenced(word: str, environment: Mapping[str, str], used: ShellVariables) -> str:
    """`$(NAME)` as Kubernetes fills it in from the container's own variables; `$$(NAME)` is meant as it is."""
    missing = False

    def filled(found: re.Match[str]) -> str:
        nonlocal missing
        value = environment.get(found[2])
        if found[1]:
            return f"$({found[2]})"
        if value is None or isinstance(value, Variable):
            missing = True
            return found[0]
        used.used[found[2]] = value
        return value

    text = _REFERENCE.sub(filled, word)
    return Variable(text) if missing else text


def _environment(given: Any) -> dict[str, str]:
    """Variables by name; one whose value stands elsewhere is not known."""
    found: dict[str, str] = {}
    for entry in map(_mapping, _sequence(given)):
        name = str(entry.get("name", ""))
        found[name] = str(entry["value"]) if entry.get("value") is not None else Variable(f"${name}")
    return found


def _chips(resources: Mapping[str, Any]) -> int:
    for part in ("limits", "requests"):
        for name, count in _mapping(resources.get(part)).items():
            if RESOURCE.fullmatch(str(name)) and re.fullmatch(r"\d{1,4}", str(count)):
                return int(str(count))
    return 0


def _chip(pod: Mapping[str, Any]) -> str:
    """The kind of chips of the nodes that a pod selects."""
    labels = {str(name): str(value) for name, value in _mapping(pod.get("nodeSelector")).items()}
    affinity = _mapping(_mapping(pod.get("affinity")).get("nodeAffinity"))
    required = _mapping(affinity.get("requiredDuringSchedulingIgnoredDuringExecution"))
    for term in map(_mapping, _sequence(required.get("nodeSelectorTerms"))):
        for rule in map(_mapping, _sequence(term.get("matchExpressions"))):
            values = _sequence(rule.get("values"))
            if rule.get("operator") == "In" and len(values) == 1:
                labels.setdefault(str(rule.get("key")), str(values[0]))
    return next((labels[name].removesuffix(SHARED) for name in SELECTORS if name in labels), "")


def compose_processes(fields: Mapping[str, Any], where: str, used: ShellVariables) -> Iterator[StartedProcess]:
    """The services of a compose file."""
    for name, service in fields["services"].items():
        given, spot = _mapping(service), f"{where}, service {name}"
        deploy = _mapping(given.get("deploy"))
        environment = _compose_environment(given.get("environment"))
        words = [
            _composed(word, used)
            for part in ("entrypoint", "command")
            for word in _words(given.get(part), f"{spot}, {part}")
        ]
        process = StartedProcess(
            words=tuple(words),
            where=spot,
            name=str(name),
            image=str(given.get("image") or ""),
            program=bool(given.get("entrypoint")),
            environment=environment,
            count=_count(deploy.get("replicas", given.get("scale", 1)), f"{spot}, replicas"),
            counted="replicas" in deploy or "scale" in given,
            chips=_devices(deploy),
        )
        for one in _shelled(process, used):
            yield replace(one, count=process.count * (one.count if one is not process else 1))


def _compose_environment(given: Any) -> dict[str, str]:
    if isinstance(given, Mapping):
        return {str(name): str(value) for name, value in given.items() if value is not None}
    return environment_of(map(str, _sequence(given)))


def _composed(word: str, used: ShellVariables) -> str:
    """`${NAME:-default}` has its default; any other variable comes from outside, and `$$` is a dollar."""
    missing = False

    def filled(found: re.Match[str]) -> str:
        nonlocal missing
        default = re.fullmatch(r"\{(\w+):?-([^$]*)\}", found[1])
        if found[1] == "$":
            return "$"
        if default:
            used.defaults[default[1]] = default[2]
            return default[2]
        missing = True
        return found[0]

    text = _COMPOSED.sub(filled, word)
    return Variable(text) if missing else text


def _devices(deploy: Mapping[str, Any]) -> int:
    reserved = _mapping(_mapping(deploy.get("resources")).get("reservations")).get("devices")
    for device in map(_mapping, _sequence(reserved)):
        if ids := _sequence(device.get("device_ids")):
            return len(ids)
        if re.fullmatch(r"\d{1,4}", str(device.get("count", ""))):
            return int(str(device["count"]))
    return 0


def _words(given: Any, where: str) -> list[str]:
    """A list of words, or a text that is split as a shell does it."""
    if isinstance(given, str):
        try:
            return shlex.split(given)
        except ValueError as error:
            raise InputError(f"cannot be read as a command: {str(error).lower()}", where=where) from None
    return [str(word) for word in _sequence(given)]


def _count(given: Any, where: str) -> int:
    if isinstance(given, bool) or not re.fullmatch(r"\d{1,7}", str(given)) or int(given) > MOST_REPLICAS:
        raise InputError(f"'{given}' is not a whole number of replicas", where=where)
    return int(given)


def _mapping(given: Any) -> Mapping[str, Any]:
    return given if isinstance(given, Mapping) else {}


def _sequence(given: Any) -> Sequence[Any]:
    return given if isinstance(given, list) else []
