"""Feed-forwards trained with 2:4 sparse weights: which GEMMs are, what prunes them, and bytes by hand."""

from __future__ import annotations

import pytest

import gnomon
from gnomon.engines.training.layer_cost import tapes_of
from gnomon.errors import InputError
from gnomon.graph.ops import Gemm

LOAD = {"model": "llama-3.2-1b", "on": "A100", "seq": 2048, "global_batch": 2}
PARAMETERS = 16 * 3 * 2048 * 8192


def test_gemms_of_feed_forwards_are_sparse_forward_and_by_input_alone() -> None:
    found = gnomon.simulate_training(**LOAD, techniques=["sparse-training"])
    layer = tapes_of(found.step.job.model, found.step.cut, found.step.traits)
    nodes = {node.name: node for node in layer["layer"].nodes}
    for name in ("ffn.up", "ffn.down"):
        ways = (nodes[name].forward, nodes[name].dgrad, nodes[name].wgrad)
        formats = [[op.dtype for op in ops if isinstance(op, Gemm)] for ops in ways]
        assert formats == [["bf16-sparse"], ["bf16-sparse"], ["bf16"]]
    assert [op.dtype for op in nodes["attention.qkv"].forward if isinstance(op, Gemm)] == ["bf16"]


def test_packed_weights_are_held_and_a_step_is_shorter() -> None:
    plain, sparse = (gnomon.simulate_training(**LOAD, techniques=words) for words in ((), ("sparse-training",)))
    held = [one.memory_parts[0]["weights"] for one in (plain, sparse)]
    assert held[1] - held[0] == pytest.approx(2 * 1.125 * PARAMETERS)
    assert sparse.step_time_s.value < plain.step_time_s.value
    assert sparse.step.figures.model_flops[0] == pytest.approx(plain.step.figures.model_flops[0])


def test_chips_without_sparse_tensor_cores_refuse_it() -> None:
    with pytest.raises(InputError, match="has no sparse rate in 16 bits"):
        gnomon.simulate_training(**(LOAD | {"on": "V100-SXM2-32GB"}), techniques=["sparse-training"])
