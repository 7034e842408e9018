"""Engines of static batches: what their steps have beside vLLM's, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest

import gnomon
from gnomon.errors import GnomonError, InputError

SMALL = "llama-3.2-1b"
STATIC = ("fastertransformer", "gptfast")


def decode(engine_name: str, **more: Any) -> Any:
    given: dict[str, Any] = {"on": "A100-SXM-80GB", "batch": 1, "context": 256} | more
    return gnomon.predict(given.pop("model", "llama-2-7b"), engine=engine_name, phase="decode", **given)


@pytest.mark.parametrize("name", STATIC)
def test_static_batches_have_steps_and_no_loads(name: str) -> None:
    found = decode(name)
    assert found.time_s.low < found.time_s.value < found.time_s.high
    assert any(one.option.endswith(name) and "memory" in one.why for one in found.not_modelled)
    with pytest.raises(InputError, match="loads are not simulated"):
        gnomon.simulate_serving(SMALL, on="H100", engine=name, rate=1.0, input=100, output=10, requests=5)
    with pytest.raises(InputError, match="loads are not simulated"):
        gnomon.plan_serving(SMALL, fleet="H100:1", engine=name, rate=1.0, input=100, output=10, slo="ttft_p90=1s")
    with pytest.raises(GnomonError, match="setting 'kv_offloading_size'"):
        decode(name, settings={"kv_offloading_size": 10})
    with pytest.raises(InputError, match="2 is not 1"):
        decode(name, on="A100-SXM-80GB:8", tp=8, cp=2)
    refused: tuple[tuple[dict[str, Any], str], ...] = (
        ({"on": "A100-SXM-80GB:2", "dp": 2}, "--dp"),
        ({"on": "H100", "dtype": "fp8"}, "--dtype"),
        ({"on": "H100", "kv_dtype": "fp8"}, "--kv-dtype"),
        ({"on": "H100:4", "tp": 4, "model": "mixtral-8x7b"}, "not priced for"),
    )
    for more, why in refused:
        with pytest.raises(InputError, match=why):
            decode(name, **more)


def test_fastertransformer_reads_packed_weights_in_decodes_and_writes_them_out_for_prompts() -> None:
    """Four bits make tokens sooner where the memory is slow, and a prompt later, a long one hardly."""
    both: tuple[list[str], ...] = [], ["int4-weights:group=0"]
    wide, narrow = (decode("fastertransformer", on="RTX-3090", techniques=names) for names in both)
    assert narrow.time_s.value < 0.8 * wide.time_s.value
    assert narrow.memory_parts["weights"] < 0.4 * wide.memory_parts["weights"]
    shares = []
    for tokens in (64, 4096):
        given: dict[str, Any] = {"on": "RTX-3090", "phase": "prefill", "tokens": tokens}
        plain, packed = (
            gnomon.predict("llama-2-7b", engine="fastertransformer", techniques=names, **given).time_s.value
            for names in both
        )
        shares.append(packed / plain)
    assert shares[0] > 1.2 > shares[1] > 1.0


def test_fastertransformer_takes_time_beside_its_kernels_per_layer_and_sum() -> None:
    alone, several = (decode("fastertransformer", **given) for given in ({}, {"on": "A100-SXM-80GB:2", "tp": 2}))
    beside = [row.time_s.value for one in (alone, several) for row in one.breakdown if row.kind == "host"]
    assert beside == [pytest.approx(32 * 54e-6), pytest.approx(32 * 62e-6)]


def test_gptfast_repeats_keys_for_the_heads_that_share_them() -> None:
    """A long context costs it more than vLLM, and its host nothing."""

    def attention(engine: str) -> float:
        found = gnomon.predict("llama-2-70b", on="H100:8", tp=8, engine=engine, phase="decode", batch=8, context=4000)
        return sum(float(row.time_s.value) for row in found.breakdown if row.kind.startswith("attention"))

    assert attention("gptfast") > 2 * attention("vllm")
    assert all(row.kind != "host" or row.time_s.value == 0 for row in decode("gptfast").breakdown)
