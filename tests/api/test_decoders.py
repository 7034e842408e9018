"""Every decoder of the catalog has a price: finite, above the roofline, and rising with the work."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest

from gnomon import catalog
from gnomon.api.predict import predict
from gnomon.cost.machine import COLLECTIVES, Machine
from gnomon.graph import Graph, lower
from gnomon.graph.support import unpriced
from gnomon.load import model as load_model
from gnomon.load import parse_pool
from gnomon.load.profiles import profile_for
from gnomon.spec import Batch, Strategy

DECODERS = [name for name in catalog.model_names() if not unpriced(load_model(name))]
POOL = parse_pool("H200")
MACHINE = Machine(POOL, profile_for(POOL.chip))


@cache
def graph_of(name: str) -> Graph:
    return lower(load_model(name), Strategy(), "bf16", "bf16")


def seconds(name: str, batch: Batch) -> float:
    return sum(float(MACHINE.op_seconds(op, batch).sum()) for op in graph_of(name).ops)


@pytest.mark.battery(6)
@pytest.mark.parametrize("name", DECODERS)
def test_every_operator_has_a_price(name: str) -> None:
    """Elementwise operators are left out of the roofline: what was just written is still in L2."""
    chip = POOL.chip
    for batch in (Batch.decode(32, 2000), Batch.prefill(2, 1000, 3000), Batch.step([100, 2000], [(512, 0)])):
        for op in graph_of(name).ops:
            took = float(MACHINE.op_seconds(op, batch)[0])
            flops, moved = (float(op.count * figure(batch)[0]) for figure in (op.flops, op.bytes))
            assert math.isfinite(took), op
            assert took >= 0, op
            assert (took > 0) == (moved > 0 or flops > 0), op
            if op.kind not in COLLECTIVES and op.kind != "elementwise":
                assert took >= flops / chip.matrix_rate("fp8") * (1 - 1e-9), op
                assert took >= moved / chip.memory_bandwidth_bytes_s * (1 - 1e-9), op


@pytest.mark.battery(6)
@pytest.mark.parametrize("name", DECODERS)
def test_more_is_never_quicker(name: str) -> None:
    """More sequences, and more tokens of a prompt; a longer context too, but where chunks of attention begin anew."""
    grown = [seconds(name, Batch.decode(n, 3000)) for n in (1, 8, 64, 512)]
    grown_prompts = [seconds(name, Batch.prefill(1, tokens)) for tokens in (10, 200, 1500, 6000)]
    contexts = [seconds(name, Batch.decode(16, context)) for context in (10, 200, 1500, 6000)]
    for rising in (grown, grown_prompts, contexts):
        assert np.all(np.diff(rising) >= -1e-3 * np.array(rising[1:])), rising


@pytest.mark.parametrize("name", ["gpt-oss-120b", "gemma-3-27b", "mistral-7b-v0.1", "jamba-52b", "kimi-k2"])
def test_a_prediction_answers(name: str) -> None:
    answer = predict(name, on="H200:8", tp=8, dtype="bf16", phase="decode", batch=16, context=1000)
    assert 1e-3 < answer.time_s.value < 0.2
    assert answer.time_s.low < answer.time_s.value < answer.time_s.high


def test_deepseek_v3_on_eight_h200() -> None:
    """By hand: of 671 GB in eight bits each rank streams what 64 tokens visit, 87% of the experts, in some 20 ms at
    4 TB/s; its latents are 64 x 4,097 x 576 x 2 bytes in each of 61 layers, 18.4 GB, in 4 to 7 ms."""
    answer = predict("deepseek-v3", on="H200:8", tp=8, phase="decode", batch=64, context=4096)
    assert 0.024 < answer.time_s.value < 0.040
    lines = {line.op: line for line in answer.breakdown}
    assert 0.15 < lines["attention.decode"].time_s.value / answer.time_s.value < 0.3
    assert lines["attention.decode"].bytes == pytest.approx(18.4e9, rel=0.05)
    assert lines["attention.decode"].time_s.provenance == "fitted"
