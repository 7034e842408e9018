"""Scripts and manifests with servers of several pools, as people write them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import gnomon
from gnomon.errors import InputError

SERVE = "vllm serve llama-3.1-8b --tensor-parallel-size"
SENDS = """--kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_producer"}'"""
TAKES = SENDS.replace("kv_producer", "kv_consumer")
APART = f"""#!/bin/bash
CUDA_VISIBLE_DEVICES=0,1 VLLM_NIXL_SIDE_CHANNEL_PORT=5600 {SERVE} 2 {SENDS} --port 8000 &
CUDA_VISIBLE_DEVICES=2,3 VLLM_NIXL_SIDE_CHANNEL_PORT=5601 {SERVE} 2 {SENDS} --port 8001 &
CUDA_VISIBLE_DEVICES=4,5,6,7 VLLM_NIXL_SIDE_CHANNEL_PORT=5602 {SERVE} 4 {TAKES} --port 8002 &
vllm-router --vllm-pd-disaggregation --prefill http://a:8000 --prefill http://a:8001 --decode http://a:8002 \\
  --policy round_robin &
wait
"""


def written(tmp_path: Path, text: str, name: str = "run.sh") -> Path:
    file = tmp_path / name
    file.write_text(text)
    return file


def test_prefill_and_decode_servers_are_pools(tmp_path: Path) -> None:
    found = gnomon.import_plan(written(tmp_path, APART), on="H100")
    pools = [(pool.role, pool.replicas, pool.strategy.tp, pool.chip) for pool in found.plan.pools]
    assert pools == [("prefill", 2, 2, "H100-SXM-80GB"), ("decode", 1, 4, "H100-SXM-80GB")]
    assert found.plan.router == "round-robin"
    assert not [one for one in found.ignored if one.affects]
    assert gnomon.import_plan(written(tmp_path, APART), on="H100:8").plan == found.plan


def test_chips_of_all_pools_are_asked_for_and_counted(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing says which chips"):
        gnomon.import_plan(written(tmp_path, APART))
    with pytest.raises(InputError, match="4 chips are not the 8 of all pools"):
        gnomon.import_plan(written(tmp_path, APART), on="H100:4")


def test_servers_that_differ_need_a_router(tmp_path: Path) -> None:
    text = f"{SERVE} 1 --port 8000 &\n{SERVE} 2 --port 8001 &\n"
    with pytest.raises(InputError, match="different degrees, TP 1 and TP 2"):
        gnomon.import_plan(written(tmp_path, text), on="H100")
    text += "vllm-router --worker-urls http://a:8000 http://a:8001 --policy=random &\n"
    found = gnomon.import_plan(written(tmp_path, text), on="H100").plan
    assert [(pool.role, pool.strategy.tp) for pool in found.pools] == [("both", 1), ("both", 2)]
    other = text.replace("llama-3.1-8b --tensor-parallel-size 2", "qwen3-8b --tensor-parallel-size 2")
    with pytest.raises(InputError, match="different models"):
        gnomon.import_plan(written(tmp_path, other), on="H100")


def test_roles_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    text = APART.replace(f"4 {TAKES}", "4")
    with pytest.raises(InputError, match="prefill, both do not serve together"):
        gnomon.import_plan(written(tmp_path, text), on="H100")


def test_one_half_alone_is_priced_as_a_whole_and_says_so() -> None:
    found = gnomon.import_plan(f"{SERVE} 2 {SENDS}", on="H100")
    assert not found.plan.pools
    assert [one.option for one in found.ignored if one.affects] == ["the role prefill"]


def test_other_uses_of_a_connector_are_not_modelled() -> None:
    for config in (
        '{"kv_connector":"LMCacheConnectorV1","kv_role":"kv_both"}',
        '{"kv_connector":"NixlConnector","kv_role":"kv_producer","kv_buffer_device":"cpu"}',
    ):
        found = gnomon.import_plan(f"{SERVE} 2 --kv-transfer-config '{config}'", on="H100")
        assert [one.option.split()[0] for one in found.ignored if one.affects] == ["--kv-transfer-config"]


GRAPH = """
apiVersion: nvidia.com/v1beta1
kind: DynamoGraphDeployment
metadata: {name: mine}
spec:
  components:
  - name: Frontend
    type: frontend
    replicas: 1
    podTemplate: {spec: {containers: [{name: main, image: x}]}}
  - name: Prefill
    type: prefill
    replicas: 3
    podTemplate:
      spec:
        nodeSelector: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}
        containers:
        - name: main
          image: nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.3.1
          command: [python3, -m, dynamo.vllm]
          args: [--model, llama-3.1-8b, --disaggregation-mode, prefill, --kv-transfer-config, SENDS]
          resources: {limits: {nvidia.com/gpu: "1"}}
  - name: Decode
    type: decode
    replicas: 2
    podTemplate:
      spec:
        nodeSelector: {nvidia.com/gpu.product: NVIDIA-L40S}
        containers:
        - name: main
          image: nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.3.1
          command: [python3, -m, dynamo.vllm]
          args: [--model, llama-3.1-8b, --disaggregation-mode, decode, --kv-transfer-config, TAKES]
          resources: {limits: {nvidia.com/gpu: "1"}}
""".replace("SENDS", SENDS.partition(" ")[2]).replace("TAKES", TAKES.partition(" ")[2])


def test_a_dynamo_graph_is_read(tmp_path: Path) -> None:
    found = gnomon.import_plan(written(tmp_path, GRAPH, "graph.yaml")).plan
    pools = [(pool.role, pool.replicas, pool.chip) for pool in found.pools]
    assert pools == [("prefill", 3, "H100-SXM-80GB"), ("decode", 2, "L40S")]


SGLANG = "python -m sglang.launch_server --model-path llama-3.1-8b --disaggregation-transfer-backend nixl"
SGLANG_APART = f"""#!/bin/bash
{SGLANG} --tp 2 --disaggregation-mode prefill --disaggregation-bootstrap-port 9001 --port 30001 &
{SGLANG} --tp 4 --disaggregation-mode decode --port 30002 &
python -m sglang_router.launch_router --pd-disaggregation --prefill http://127.0.0.1:30001 9001 \\
  --decode http://127.0.0.1:30002 --policy round_robin &
wait
"""
TRTLLM_APART = """#!/bin/bash
cat > options.yaml <<END
cache_transceiver_config: {backend: DEFAULT}
END
cat > servers.yaml <<END
context_servers: {num_instances: 1, urls: ["localhost:8001"], router: {type: load_balancing}}
generation_servers: {num_instances: 1, urls: ["localhost:8002"], router: {type: load_balancing}}
END
trtllm-serve llama-3.1-8b --tp_size 2 --extra_llm_api_options options.yaml --port 8001 &
trtllm-serve llama-3.1-8b --tp_size 4 --extra_llm_api_options options.yaml --port 8002 &
trtllm-serve disaggregated -c servers.yaml &
wait
"""


@pytest.mark.parametrize(("text", "router"), [(SGLANG_APART, "round-robin"), (TRTLLM_APART, "least-requests")])
def test_servers_of_other_engines_are_pools(text: str, router: str, tmp_path: Path) -> None:
    found = gnomon.import_plan(written(tmp_path, text), on="H100")
    pools = [(pool.role, pool.replicas, pool.strategy.tp) for pool in found.plan.pools]
    assert pools == [("prefill", 1, 2), ("decode", 1, 4)]
    assert found.plan.router == router
    assert not [one for one in found.ignored if one.affects]


def test_urls_of_the_disaggregated_server_say_the_roles(tmp_path: Path) -> None:
    names = {"context_servers": "generation_servers", "generation_servers": "context_servers"}
    turned = re.sub("|".join(names), lambda found: names[found[0]], TRTLLM_APART)
    pools = gnomon.import_plan(written(tmp_path, turned), on="H100").plan.pools
    assert {pool.role: pool.strategy.tp for pool in pools} == {"prefill": 4, "decode": 2}


BAD = [
    (SGLANG_APART.replace("mode decode", "mode prefill"), "prefill server is a decode server for its router"),
    (SGLANG_APART.replace("mode decode", "mode prefill").replace("--decode", "--prefill"), "role prefill do not serve"),
    (SGLANG_APART.replace("mode decode", "mode answers"), "unknown mode 'answers'"),
    (TRTLLM_APART.replace("--port 8002", "--port 8002 --server_role CONTEXT"), "is a decode server for its router"),
    (TRTLLM_APART.replace("--port 8002", "--port 8002 --server_role IMAGES"), "unknown role 'images'"),
    (TRTLLM_APART.replace('"localhost:8002"', '"localhost:8001"'), "is among context_servers and among generation"),
    (TRTLLM_APART.replace("--port 8002", "--port 8003"), "do not say what the server of port 8003 computes"),
    (TRTLLM_APART.replace("-c servers.yaml", ""), "names no file with its servers"),
    (TRTLLM_APART.replace("-c servers.yaml", "-c other.yaml"), "other.yaml: no such file"),
    (TRTLLM_APART.replace('urls: ["localhost:8002"], ', ""), "generation_servers has no urls"),
]


@pytest.mark.parametrize(("text", "why"), BAD)
def test_roles_that_contradict_are_refused(text: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=why) as raised:
        gnomon.import_plan(written(tmp_path, text), on="H100")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (f"{SGLANG} --disaggregation-mode decode", "the role decode"),
        ("trtllm-serve llama-3.1-8b --server_role GENERATION", "the role decode"),
        ("python3 -m dynamo.trtllm --model llama-3.1-8b --disaggregation-mode prefill", "the role prefill"),
        ("python3 -m dynamo.sglang --model-path llama-3.1-8b --disaggregation-mode prefill", "the role prefill"),
        (
            TRTLLM_APART.partition("trtllm-serve")[0] + "trtllm-serve llama-3.1-8b --config options.yaml",
            "cache_transceiver",
        ),
    ],
)
def test_one_half_alone_of_other_engines_says_so(command: str, option: str, tmp_path: Path) -> None:
    found = gnomon.import_plan(written(tmp_path, command), on="H100")
    assert not found.plan.pools
    (note,) = [one for one in found.ignored if one.affects]
    assert option in note.option


def test_dynamo_and_the_kv_transfer_have_to_agree() -> None:
    with pytest.raises(InputError, match="for decode, and its KV transfer is that of prefill"):
        gnomon.import_plan(
            f"python3 -m dynamo.vllm --model llama-3.1-8b --disaggregation-mode decode {SENDS}", on="H100"
        )


def test_a_policy_that_no_plan_has_is_said(tmp_path: Path) -> None:
    found = gnomon.import_plan(written(tmp_path, APART.replace("round_robin", "power_of_two")), on="H100")
    assert found.plan.router == "random"
    assert [one.option for one in found.ignored if one.affects] == ["the router's policy power_of_two"]
