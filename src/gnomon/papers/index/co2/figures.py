"""CO2 (Sun et al. 2024): eight A100s' speed against 128's, whose averages overlap with local steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import gnomon
from gnomon.papers.base import Ours
from gnomon.papers.machines import cluster
from gnomon.papers.shapes import network, plain_layers

NODE, NODES = 8, 16
SEQUENCES, TOKENS = 2, 2048
"""Of one GPU."""
GPT2_MEDIUM = network(
    "GPT-2 Medium", hidden=1024, vocab=50257, max_context=TOKENS, blocks=plain_layers(24, 1024, 16, 4096),
    learned_positions=TOKENS, norm_bias=True, tied_embeddings=True,
)  # fmt: skip
NETWORKS: dict[str, dict[str, Any]] = {
    "80 Gb/s TCP/IP": {"scaleout": {"name": "TCP/IP", "gb_s": 10, "latency_us": 30}, "adapters": 1},
    "800 Gb/s RDMA": {"scaleout": "RoCE 200", "adapters": 4},
}


def _step_s(nodes: int, links: Mapping[str, Any]) -> float:
    """A mean step of so many nodes, each GPU with the same sequences."""
    found = gnomon.simulate_training(
        GPT2_MEDIUM,
        on=cluster("A100-SXM-80GB", nodes * NODE, NODE, links=links),
        seq=TOKENS,
        global_batch=nodes * NODE * SEQUENCES,
        micro_batch=SEQUENCES,
        zero=0,
        dtype="bf16",
        engine="megatron@3.0",
        techniques=["local-steps"],
    )
    return found.step_time_s.value


def figures() -> Iterator[Ours]:
    for name, links in NETWORKS.items():
        yield f"128 A100 over {name}: scaling efficiency over 8", 100 * _step_s(1, links) / _step_s(NODES, links)
