"""Servers, routers and workers of exported pools, as the programs' own parsers read them: vLLM, vllm-router, SGLang,
sglang-router and Dynamo.

Each needs its package; SGLang may be an unpacked wheel that `GNOMON_SGLANG` names.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import yaml
from tests.export.pooled import Started, check_graph, container_words, pooled_plans, routed, run_pools
from tests.oracles.sglang_source import source

import gnomon
from gnomon.spec import Plan
from gnomon.spec.plan import BOTH, DECODE, PREFILL, ROUTERS

pytestmark = pytest.mark.oracle
PLANS, SEED, ROUTED = 18, 3, 4
READS_SGLANG = """
import argparse, json, sys
from sglang.srt.server_args import ServerArgs
parser = argparse.ArgumentParser(allow_abbrev=False)
ServerArgs.add_cli_args(parser)
for words in json.load(sys.stdin):
    read = vars(parser.parse_args(words))
    print(json.dumps({name: read[name] for name in (
        "tp_size", "port", "disaggregation_mode", "disaggregation_transfer_backend", "disaggregation_bootstrap_port")}))
"""


@pytest.fixture(scope="module")
def plans() -> list[Plan]:
    return pooled_plans(SEED, PLANS)


def of(plans: list[Plan], engine: str) -> list[Plan]:
    return [plan for plan in plans if plan.engine.name == engine]


@pytest.fixture(scope="module")
def started(plans: list[Plan], tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[Started]]:
    """What the script of each plan starts, by its place."""
    return {
        place: run_pools(gnomon.export(plan).files["launch.sh"], tmp_path_factory.mktemp(f"plan{place}"))
        for place, plan in enumerate(plans)
    }


def servers_of(
    plans: list[Plan], started: dict[int, list[Started]], engine: str
) -> Iterator[tuple[Plan, Started, Started]]:
    """A plan, one of its servers and its router."""
    for place, plan in enumerate(plans):
        if plan.engine.name == engine:
            (router,) = [one for one in started[place] if "GNOMON_POOL" not in one.environment]
            yield from ((plan, one, router) for one in started[place] if one is not router)


def test_vllm_reads_the_role_of_every_server(plans: list[Plan], started: dict[int, list[Started]]) -> None:
    pytest.importorskip("vllm", reason="vLLM is not installed; run `make test-oracles`")
    import vllm.platforms
    from vllm.platforms.cpu import CpuPlatform

    vllm.platforms._current_platform = CpuPlatform()
    from vllm.config import KVTransferConfig
    from vllm.entrypoints.openai.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = make_arg_parser(FlexibleArgumentParser())
    for plan, one, _ in servers_of(plans, started, "vllm"):
        read, pool = parser.parse_args(list(one.words[2:])), plan.pools[one.pool]
        assert read.tensor_parallel_size == pool.strategy.tp
        config = read.kv_transfer_config
        if pool.role == BOTH:
            assert config is None
            continue
        config = config if isinstance(config, KVTransferConfig) else KVTransferConfig(**config)
        assert (config.is_kv_producer, config.is_kv_consumer) == (pool.role == PREFILL, pool.role == DECODE)


@pytest.mark.parametrize("router", ROUTERS)
def test_vllm_router_reads_every_server(router: str, plans: list[Plan], tmp_path: Path) -> None:
    launch = pytest.importorskip("vllm_router.launch_router", reason="vllm_router is not installed")
    for place, plan in enumerate(of(plans, "vllm")[:ROUTED]):
        found = _router(replace(plan, router=router), tmp_path / str(place))
        if found.words[0] != "vllm-router":
            continue
        read = launch.parse_router_args(list(found.words[1:]))
        read._validate_router_args()
        assert read.vllm_pd_disaggregation == plan.disaggregated
        check_told(found, read)


@pytest.mark.parametrize("router", ROUTERS)
def test_sglang_router_reads_every_server(router: str, plans: list[Plan], tmp_path: Path) -> None:
    launch = pytest.importorskip("sglang_router.launch_router", reason="sglang_router is not installed")
    for place, plan in enumerate(of(plans, "sglang")[:ROUTED]):
        found = _router(replace(plan, router=router), tmp_path / str(place))
        if found.words[0] != "python":
            continue
        read = launch.parse_router_args(list(found.words[3:]))
        assert read.pd_disaggregation == plan.disaggregated
        assert all(port for _, port in read.prefill_urls)
        check_told(found, read)


def _router(plan: Plan, folder: Path) -> Started:
    started = run_pools(gnomon.export(plan).files["launch.sh"], folder)
    (found,) = [one for one in started if "GNOMON_POOL" not in one.environment]
    return found


def check_told(router: Started, read: Any) -> None:
    """What the router's own parser found are the servers that our reader of its words finds."""
    told = [(PREFILL, url) for url, _ in read.prefill_urls] + [(DECODE, url) for url in read.decode_urls]
    told += [(BOTH, url) for url in read.worker_urls]
    assert sorted((role, url.removeprefix("http://")) for role, url in told) == sorted(routed(router))


def test_sglang_reads_the_role_of_every_server(plans: list[Plan], started: dict[int, list[Started]]) -> None:
    root = source()
    if root is None:
        pytest.skip("SGLang is not installed; GNOMON_SGLANG may name an unpacked wheel")
    found = list(servers_of(plans, started, "sglang"))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, "-c", READS_SGLANG],
        input=json.dumps([one.words[3:] for _, one, _ in found]),
        env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    if "ModuleNotFoundError" in done.stderr:
        pytest.skip(f"SGLang cannot be imported: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    for line, (plan, one, router) in zip(done.stdout.splitlines()[-len(found) :], found, strict=True):
        read, pool = json.loads(line), plan.pools[one.pool]
        assert read["tp_size"] == pool.strategy.tp
        assert read["disaggregation_mode"] == {BOTH: "null"}.get(pool.role, pool.role)
        assert pool.role == BOTH or read["disaggregation_transfer_backend"] == "nixl"
        if pool.role == PREFILL:
            assert f":{read['port']} {read['disaggregation_bootstrap_port']}" in " ".join(router.words)


def test_kubernetes_takes_every_object(plans: list[Plan]) -> None:
    schema = pytest.importorskip("kubernetes_validate", reason="not installed; run `make test-oracles`")
    for plan in plans:
        documents = list(yaml.safe_load_all(gnomon.export(plan, "kubernetes").files["deployment.yaml"]))
        for document in documents:
            schema.validate(document, "1.32", strict=True)
    documents[0]["spec"]["service"] = "none"
    with pytest.raises(schema.ValidationError):
        schema.validate(documents[0], "1.32", strict=True)


GROUPS = {"vllm": "DynamoVllmArgGroup", "sglang": "DynamoSGLangArgGroup", "trtllm": "DynamoTrtllmArgGroup"}


@pytest.mark.parametrize("engine", GROUPS)
def test_dynamo_reads_every_worker(engine: str, plans: list[Plan], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("dynamo._core", reason="Dynamo (ai-dynamo, ai-dynamo-runtime) is not installed")
    if importlib.util.find_spec("tensorrt_llm") is None:  # whose defaults the options take, and nothing else
        for name in ("tensorrt_llm", "tensorrt_llm.llmapi"):
            monkeypatch.setitem(sys.modules, name, MagicMock())
    group = getattr(pytest.importorskip(f"dynamo.{engine}.backend_args"), GROUPS[engine])
    parser = argparse.ArgumentParser(allow_abbrev=False)
    group().add_arguments(parser)
    for plan in of(plans, engine):
        _, workers = check_graph(yaml.safe_load(gnomon.export(plan, "dynamo").files["dynamo.yaml"]))
        for worker, pool in zip(workers, plan.pools, strict=True):
            words, files = container_words(worker["podTemplate"]["spec"]["containers"][0])
            read, rest = parser.parse_known_args(words[3:])
            if engine == "trtllm":
                assert not rest
                assert (read.tensor_parallel_size, read.max_seq_len) == (pool.strategy.tp, _longest(pool))
                assert read.extra_engine_args in files
            if engine != "sglang":  # whose role is one of SGLang's own options
                usual = (None, "agg")
                assert read.disaggregation_mode in (usual if pool.role == BOTH else (pool.role,))


def _longest(pool: Any) -> int:
    return int(pool.engine.settings["max_seq_len"])


def test_dynamos_frontend_reads_the_router(plans: list[Plan], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("dynamo._core", reason="Dynamo (ai-dynamo, ai-dynamo-runtime) is not installed")
    frontend = pytest.importorskip("dynamo.frontend.frontend_args")
    for router in ROUTERS:
        plan = replace(plans[0], router=router)
        found, _ = check_graph(yaml.safe_load(gnomon.export(plan, "dynamo").files["dynamo.yaml"]))
        for variable in found["podTemplate"]["spec"]["containers"][0]["env"]:
            monkeypatch.setenv(variable["name"], variable["value"])
        parser = argparse.ArgumentParser(allow_abbrev=False)
        frontend.FrontendArgGroup().add_arguments(parser)
        read = parser.parse_args([])
        assert read.router_mode == os.environ["DYN_ROUTER_MODE"]
        action = next(each for each in parser._actions if each.dest == "router_mode")
        assert read.router_mode in action.choices
        if read.router_mode == "kv":
            assert read.use_kv_events is False
        monkeypatch.undo()
