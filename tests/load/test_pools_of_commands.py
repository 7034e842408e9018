"""Scripts and manifests with servers of several pools, as people write them."""

from __future__ import annotations

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
