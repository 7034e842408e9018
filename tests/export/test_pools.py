"""Exports of plans with several pools: what they start is the plan, pool by pool, behind a router that knows it all."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.export.pooled import (
    MANIFEST,
    OPTIONS,
    Started,
    by_kind,
    check_graph,
    container_words,
    hosts,
    nodes_said,
    pooled_plans,
    routed,
    run_pools,
)
from tests.export.read_back import our_parser
from tests.export.strict_kubernetes import check_fields

import gnomon
from gnomon.errors import DoesNotFitError, InputError
from gnomon.load.chips import chip as find_chip
from gnomon.load.plan import plan_pool
from gnomon.spec import EngineChoice, Plan, PlanPool, ServingLoad, Strategy
from gnomon.spec.plan import BOTH, DECODE, LAYERWISE, PREFILL

PLANS, SEED = 18, 11
SIDE_CHANNEL, BOOTSTRAP = "VLLM_NIXL_SIDE_CHANNEL_PORT", "--disaggregation-bootstrap-port"


@pytest.fixture(scope="module")
def plans() -> list[Plan]:
    return pooled_plans(SEED, PLANS)


def pool(**given: Any) -> PlanPool:
    usual: dict[str, Any] = {
        "chip": "H100", "replicas": 1, "strategy": Strategy(), "dtype": "bf16",
        "engine": EngineChoice(settings={"max_model_len": 8192}),
    }  # fmt: skip
    return PlanPool(**(usual | given))


def apart(**given: Any) -> Plan:
    pools = pool(role=PREFILL), pool(role=DECODE, replicas=2)
    return Plan.of_pools(pools, **({"model": "llama-3.1-8b"} | given))


def beside(**given: Any) -> Plan:
    pools = pool(weight=3.0), pool(chip="L40S", replicas=2)
    return Plan.of_pools(pools, **({"model": "llama-3.1-8b", "router": "weighted"} | given))


@pytest.mark.battery(8)
@pytest.mark.parametrize("place", range(PLANS))
def test_a_script_starts_every_pool_and_a_router(place: int, plans: list[Plan], tmp_path: Path) -> None:
    plan = plans[place]
    script = gnomon.export(plan).files["launch.sh"]
    started = run_pools(script, tmp_path)
    servers = [one for one in started if "GNOMON_POOL" in one.environment]
    (router,) = [one for one in started if one not in servers]
    assert router.node == 0
    assert Counter(one.pool for one in servers) == Counter(
        {number: each.replicas for number, each in enumerate(plan.pools)}
    )
    assert sum(len(one.devices) for one in servers) == plan.chips
    for node in range(nodes_said(script)):
        check_node(plan, [one for one in servers if one.node == node])
    addresses = hosts(nodes_said(script)) if nodes_said(script) > 1 else ["127.0.0.1"]
    told = Counter(routed(router))
    assert told == Counter(
        (plan.pools[one.pool].role, f"{addresses[one.node]}:{one.value('--port')}") for one in servers
    )
    check_transfers(plan, servers, router)


def check_node(plan: Plan, servers: list[Started]) -> None:
    """Servers of a node share neither chips nor ports, and are of one kind of chip."""
    used = [device for one in servers for device in one.devices]
    ports = [one.value("--port") for one in servers]
    handed = [one.value(BOOTSTRAP) for one in servers if BOOTSTRAP in one.words]
    handed += [one.environment[SIDE_CHANNEL] for one in servers if SIDE_CHANNEL in one.environment]
    for taken in (used, ports, handed):
        assert len(taken) == len(set(taken))
    assert max(used) < plan_pool(plan.of_pool(plan.pools[servers[0].pool]), 10**6).machine_chips
    assert len({find_chip(plan.pools[one.pool].chip).name for one in servers}) == 1
    assert all(len(one.devices) == plan.pools[one.pool].ranks for one in servers)


def check_transfers(plan: Plan, servers: list[Started], router: Started) -> None:
    """Every engine's own words for a role, and nothing of them where pools do both."""
    for one in servers:
        role, words = plan.pools[one.pool].role, one.words
        if words[0] == "vllm":
            kind = {PREFILL: "kv_producer", DECODE: "kv_consumer"}.get(role)
            config = json.loads(one.value("--kv-transfer-config")) if "--kv-transfer-config" in words else {}
            assert config == ({"kv_connector": "NixlConnector", "kv_role": kind} if kind else {})
            assert (SIDE_CHANNEL in one.environment) == (role != BOTH)
        elif words[0] == "python":
            assert (one.value("--disaggregation-mode") if "--disaggregation-mode" in words else BOTH) == role
            if role == PREFILL:
                url = words[words.index("--port") + 1]
                bootstrap = one.value(BOOTSTRAP)
                assert f":{url} {bootstrap}" in " ".join(router.words)
        else:
            options = yaml.safe_load(one.files[one.value("--extra_llm_api_options")]) or {}
            check_fields(options, OPTIONS, "options")
            assert ("cache_transceiver_config" in options) == (role != BOTH)
            assert options.get("disable_overlap_scheduler", False) == (role == PREFILL)


@pytest.mark.battery(8)
@pytest.mark.parametrize("place", range(PLANS))
def test_a_manifest_has_every_pool_and_a_router(place: int, plans: list[Plan]) -> None:
    plan = plans[place]
    documents = list(yaml.safe_load_all(gnomon.export(plan, "kubernetes").files["deployment.yaml"]))
    for document in documents:
        check_fields(document, MANIFEST[document["kind"]], document["kind"])
    sets, services = by_kind(documents, "StatefulSet"), by_kind(documents, "Service")
    names = [document["metadata"]["name"] for document in documents if document["kind"] != "Service"]
    assert len(names) == len(set(names))
    reached = {}
    for found, each in zip(sets, plan.pools, strict=True):
        spec, pod = found["spec"], found["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        ((resource, chips),) = container["resources"]["limits"].items()
        assert (spec["replicas"], chips, resource) == (each.replicas, each.ranks, "nvidia.com/gpu")
        assert pod["nodeSelector"]["nvidia.com/gpu.product"] in find_chip(each.chip).aliases
        assert spec["template"]["metadata"]["labels"] == {"app": found["metadata"]["name"], "role": each.role}
        assert spec["selector"]["matchLabels"]["app"] == found["metadata"]["name"] == spec["serviceName"]
        (service,) = [one for one in services if one["metadata"]["name"] == spec["serviceName"]]
        assert service["spec"]["selector"] == spec["selector"]["matchLabels"]
        (port,) = (one["containerPort"] for one in container["ports"])
        assert service["spec"]["ports"] == [{"port": port}]
        assert container["startupProbe"]["httpGet"]["port"] == port
        words, _ = container_words(container)
        assert words[words.index("--port") + 1] == str(port)
        for number in range(each.replicas):
            reached[f"{spec['serviceName']}-{number}.{spec['serviceName']}:{port}"] = each.role
    check_front(documents, reached)
    assert max(len(name) for name in names) + len("-0123456789") <= 63


def check_front(documents: list[Any], reached: dict[str, str]) -> None:
    """The router knows the pods by the names that Kubernetes gives them, and a Service knows the router."""
    (deployment,) = by_kind(documents, "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    words, files = container_words(container)
    told = routed(Started(node=0, words=tuple(words), environment={}, files=files))
    assert Counter(told) == Counter((role, place) for place, role in reached.items())
    (front,) = [one for one in by_kind(documents, "Service") if "clusterIP" not in one["spec"]]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert front["spec"]["selector"].items() <= labels.items()
    assert front["spec"]["ports"] == [{"port": 80, "targetPort": container["ports"][0]["containerPort"]}]


@pytest.mark.battery(8)
@pytest.mark.parametrize("place", range(PLANS))
def test_a_dynamo_graph_has_every_pool(place: int, plans: list[Plan]) -> None:
    plan = plans[place]
    written = gnomon.export(plan, "dynamo")
    frontend, workers = check_graph(yaml.safe_load(written.files["dynamo.yaml"]))
    (container,) = frontend["podTemplate"]["spec"]["containers"]
    modes = {"random": "random", "round-robin": "round-robin", "least-requests": "least-loaded", "prefix-aware": "kv"}
    if plan.router in modes:
        assert container["env"][0] == {"name": "DYN_ROUTER_MODE", "value": modes[plan.router]}
    assert (plan.router not in modes) == any(
        "Dynamo's frontend does not have it" in one for one in written.not_expressed
    )
    for worker, each in zip(workers, plan.pools, strict=True):
        (container,) = worker["podTemplate"]["spec"]["containers"]
        assert worker["replicas"] == each.replicas
        assert worker["type"] == {BOTH: "worker"}.get(each.role, each.role)
        assert container["resources"]["limits"] == {"nvidia.com/gpu": each.ranks}
        words, files = container_words(container)
        assert words[:3] == ["python3", "-m", f"dynamo.{plan.engine.name}"]
        given = words[words.index("--disaggregation-mode") + 1] if "--disaggregation-mode" in words else BOTH
        assert given == each.role
        for text in files.values():
            check_fields(yaml.safe_load(text) or {}, OPTIONS, "options")
    chips = sum(
        worker["replicas"] * worker["podTemplate"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]
        for worker in workers
    )
    assert chips == plan.chips


@pytest.mark.battery(8)
@pytest.mark.parametrize("place", range(0, PLANS, 3))
def test_degrees_and_settings_are_those_of_each_pool(place: int, plans: list[Plan], tmp_path: Path) -> None:
    plan, parse = plans[place], our_parser()
    for one in run_pools(gnomon.export(plan, "vllm").files["launch.sh"], tmp_path):
        if one.words[0] != "vllm":
            continue
        words = [word for word in one.words[2:] if "kv_connector" not in word and word != "--kv-transfer-config"]
        read, each = parse(words), plan.pools[one.pool]
        assert (read.tensor_parallel_size, read.max_model_len) == (
            each.strategy.tp, each.engine.settings["max_model_len"],
        )  # fmt: skip
        assert (read.quantization == "fp8") == (each.dtype == "fp8")


def test_pools_on_one_kind_of_chip_share_a_node() -> None:
    script = gnomon.export(apart()).files["launch.sh"]
    assert nodes_said(script) == 1
    assert [re.search(r"CUDA_VISIBLE_DEVICES=(\S+)", line)[1] for line in script.splitlines() if " vllm " in line] == [
        "0", "1", "2",
    ]  # fmt: skip
    assert nodes_said(gnomon.export(beside()).files["launch.sh"]) == 2


def test_side_channels_of_a_node_do_not_meet() -> None:
    """A data-parallel rank adds its number to the port of its server."""
    wide = pool(role=DECODE, strategy=Strategy(tp=2, dp=2))
    plan = Plan.of_pools((pool(role=PREFILL, strategy=Strategy(tp=2, dp=2)), wide), model="llama-3.1-8b")
    script = gnomon.export(plan).files["launch.sh"]
    first, second = (int(port) for port in re.findall(rf"{SIDE_CHANNEL}=(\d+)", script))
    assert second - first >= 2


@pytest.mark.parametrize(
    ("router", "policy"),
    [("random", "random"), ("round-robin", "round_robin"), ("prefix-aware", "cache_aware")],
)
def test_policies_of_the_engines_own_router(router: str, policy: str) -> None:
    for engine, setting in (("vllm", "max_model_len"), ("sglang", "context_length")):
        choice = EngineChoice(name=engine, settings={setting: 8192})
        plan = beside(router=router)
        plan = Plan.of_pools(
            tuple(replace(each, engine=choice) for each in plan.pools), model=plan.model, router=router
        )
        written = gnomon.export(plan)
        assert f"--policy {policy} " in written.files["launch.sh"]
        assert not [line for line in written.not_expressed if "router" in line]


@pytest.mark.parametrize(
    ("router", "method", "weights"),
    [("weighted", "random;", [" weight=300", "", ""]), ("least-requests", "least_conn;", ["", "", ""])],
)
def test_nginx_has_what_the_engines_router_does_not(router: str, method: str, weights: list[str]) -> None:
    pools = beside().pools
    if router == "weighted":
        weights = [weights[0], " weight=100", " weight=100"]
    script = gnomon.export(Plan.of_pools(pools, model="llama-3.1-8b", router=router)).files["launch.sh"]
    assert re.findall(r"max_fails=0( weight=\d+)?;", script) == weights
    assert f"upstream servers {{\n    {method}\n" in script


def test_what_no_router_has_is_said() -> None:
    for plan, words in (
        (apart(router="least-kv"), "the router least-kv: vllm-router does not have it, and has power_of_two"),
        (apart(router="weighted"), "the router weighted: vllm-router does not have it, and has random"),
        (beside(router="least-kv"), "the router least-kv"),
        (apart(kv_transfer=LAYERWISE), "KV caches sent layer by layer"),
    ):
        written = gnomon.export(plan)
        assert [line for line in written.not_expressed if line.startswith(words)], written.not_expressed
        assert words in written.files["launch.sh"]


def test_replicas_of_one_pool_get_the_router_that_the_plan_names() -> None:
    plan = Plan(model="llama-3.1-8b", chip="H100", replicas=2, strategy=Strategy(), dtype="bf16", engine=EngineChoice())
    plain, routed_plan = (gnomon.export(replace(plan, router=name)) for name in ("random", "round-robin"))
    assert "vllm-router" not in plain.files["launch.sh"]
    assert "the router" in " ".join(plain.not_expressed)
    assert "--policy round_robin" in routed_plan.files["launch.sh"]
    assert "the router" not in " ".join(routed_plan.not_expressed)
    documents = list(
        yaml.safe_load_all(gnomon.export(replace(plan, router="round-robin"), "kubernetes").files["deployment.yaml"])
    )
    assert {document["kind"] for document in documents} == {"StatefulSet", "Service", "Deployment"}
    assert yaml.safe_load(gnomon.export(plan, "dynamo").files["dynamo.yaml"])["kind"] == "DynamoGraphDeployment"


def test_pools_that_cannot_be_written_are_refused() -> None:
    mixed = (pool(role=PREFILL), pool(role=DECODE, engine=EngineChoice(name="sglang")))
    with pytest.raises(InputError, match="do not serve together in one export"):
        gnomon.export(Plan.of_pools(mixed, model="llama-3.1-8b"))
    wide = (pool(role=PREFILL, strategy=Strategy(tp=8, pp=2)), pool(role=DECODE))
    with pytest.raises(InputError, match="does not fit on one node of 8") as error:
        gnomon.export(Plan.of_pools(wide, model="llama-3.1-8b"))
    assert "pools[0].strategy" in str(error.value)
    many = (pool(role=PREFILL, replicas=5000), pool(role=DECODE))
    with pytest.raises(InputError, match="5,001 servers are more"):
        gnomon.export(Plan.of_pools(many, model="llama-3.1-8b"))


def test_a_pool_that_does_not_fit_is_named() -> None:
    small = pool(role=DECODE, chip="L4")
    with pytest.raises(DoesNotFitError) as error:
        gnomon.export(Plan.of_pools((pool(role=PREFILL, strategy=Strategy(tp=4)), small), model="llama-3.1-70b"))
    assert "pools[1]" in str(error.value)


def test_a_prefill_pool_needs_room_for_prompts_alone() -> None:
    """Answers are the decode pool's: only that one has to hold a prompt and all of its answer."""
    short, long = (EngineChoice(settings={"max_model_len": tokens}) for tokens in (1100, 2100))
    load = ServingLoad(rate_per_s=1.0, input_tokens=1000, output_tokens=1000, requests=100)
    pools = pool(role=PREFILL, engine=short), pool(role=DECODE, engine=long)
    assert gnomon.export(Plan.of_pools(pools, model="llama-3.1-8b", load=load)).files
    turned = pool(role=PREFILL, engine=long), pool(role=DECODE, engine=short)
    with pytest.raises(InputError, match="longer than max_model_len 1,100"):
        gnomon.export(Plan.of_pools(turned, model="llama-3.1-8b", load=load))


def test_launch_and_verify_say_what_to_export() -> None:
    load = ServingLoad(rate_per_s=1.0, input_tokens=100, output_tokens=10, requests=100)
    for call in (lambda: gnomon.launch(apart(load=load), dry_run=True), lambda: gnomon.verify(apart(load=load))):
        with pytest.raises(InputError, match="2 pools") as error:
            call()
        assert "gnomon export PLAN --to vllm" in error.value.hint
