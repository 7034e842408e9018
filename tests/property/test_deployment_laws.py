"""Laws of whole deployments: what ranks hold, what memory is at least, and what a chip's name does not change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.graph.shapes import lowered, matrices, weights

import gnomon
from gnomon.api.known import new_chip
from gnomon.graph.dtypes import width
from gnomon.graph.lower import obstacle
from gnomon.load import model as load_model
from gnomon.spec import AttentionMixer, Block, DenseFfn, Model, MoeFfn

DEGREES = (1, 2, 4, 8)


@st.composite
def models(draw: st.DrawFn) -> Model:
    """Decoders of one to three kinds of layers."""
    blocks = tuple(draw(layers()) for _ in range(draw(st.integers(1, 3))))
    hidden, vocab = draw(st.integers(1, 40)) * 16, draw(st.integers(2, 5000))
    return Model(name="drawn", family="llama", hidden=hidden, vocab=vocab, blocks=blocks, max_context=4096)


@st.composite
def layers(draw: st.DrawFn) -> Block:
    kv_heads = draw(st.sampled_from([1, 2, 4, 8]))
    mixer = AttentionMixer(
        heads=8, kv_heads=kv_heads, head_dim=draw(st.sampled_from([4, 16])), qk_norm=draw(st.booleans())
    )
    inner = 8 * draw(st.integers(1, 30))
    experts = draw(st.integers(2, 16))
    ffn: DenseFfn | MoeFfn = DenseFfn(inner=inner)
    if draw(st.booleans()):
        shared = 8 * draw(st.integers(0, 4))
        ffn = MoeFfn(experts=experts, topk=draw(st.integers(1, experts)), inner=inner, shared_inner=shared)
    return Block(mixer=mixer, ffn=ffn, count=draw(st.integers(1, 5)))


def copies(model: Model, tp: int) -> int:
    """What every rank holds of its own: key-value heads beyond their number, routers, and what pads the vocabulary."""
    count = (-model.vocab % tp) * model.hidden
    for block in model.blocks:
        assert isinstance(block.mixer, AttentionMixer)
        count += block.count * max(0, tp - block.mixer.kv_heads) * 2 * block.mixer.head_dim * model.hidden
        if isinstance(block.ffn, MoeFfn):
            count += block.count * (tp - 1) * block.ffn.experts * model.hidden
    return count


@given(model=models(), tp=st.sampled_from(DEGREES))
@settings(max_examples=examples(100))
def test_ranks_together_hold_the_model_and_the_stated_copies(model: Model, tp: int) -> None:
    assert not obstacle(model, tp)
    assert tp * weights(lowered(model, tp)) == matrices(model) + copies(model, tp)


MODELS = ("llama-3.2-1b", "qwen3-8b", "mistral-7b", "gemma-7b", "qwen3-30b-a3b", "olmoe-7b")


@pytest.mark.parametrize("tp", DEGREES)
@pytest.mark.parametrize("name", MODELS)
def test_memory_is_at_least_the_weights_and_the_cache(name: str, tp: int) -> None:
    """Of one rank: its share of all parameters, and every token of every sequence."""
    model, batch, context = load_model(name), 16, 1000
    found = gnomon.predict(name, on=f"H200:{tp}", tp=tp, batch=batch, context=context)
    share = model.parameters * width("bf16") / tp
    cache = batch * context * model.kv_bytes_per_token(width("bf16"), tp)
    assert found.memory_bytes.low >= share + cache
    parts = gnomon.fit(name, on=f"H200:{tp}", tp=tp).parts
    assert parts["weights"] >= share
    assert sum(parts.values()) <= 141e9 * 1.05


NAMES = ("chip", "title", "source", "sources", "reference", "on", "command", "file", "option", "why")


def without_names(answer: Any) -> Any:
    """An answer less the texts that say which chip it is of."""
    if isinstance(answer, dict):
        return {key: without_names(value) for key, value in answer.items() if key not in NAMES and key != "inputs"}
    if isinstance(answer, list):
        return [without_names(value) for value in answer]
    return answer


LIKE = ("H100", "H200", "A100-SXM-80GB", "MI300X", "RTX-4090", "TPU-v5p")


@pytest.mark.battery(6)
@pytest.mark.parametrize("like", LIKE)
def test_a_chip_file_of_the_same_figures_gives_the_same_answer(tmp_path: Path, like: str) -> None:
    """To the byte, bands included, whatever its name is; but that vLLM itself looks for `a100` in a chip's name."""
    file = tmp_path / "mine.yaml"
    new_chip(f"My-own{like[:4].lower()}", like=like, out=str(file))
    words: dict[str, Any] = {"settings": {"max_model_len": 4096}}

    def answers(chip: str) -> str:
        steps = [
            gnomon.predict("llama-3.2-3b", on=chip, batch=8, context=500, **words),
            gnomon.predict("llama-3.2-3b", on=chip, phase="prefill", tokens=700, **words),
        ]
        room = gnomon.fit("llama-3.2-3b", on=f"{chip}:2", tp=2, **words)
        load = {"rate": 2, "input": 256, "output": 32, "requests": 30}
        served = gnomon.simulate_serving("llama-3.2-3b", on=chip, **load, **words)
        trained = gnomon.simulate_training("llama-3.2-1b", on=f"{chip}:4", seq=1024, global_batch=8, tp=2)
        table = [
            {"op": "gemm", "dtype": "bf16", "m": 4096, "n": 4096, "k": 4096, "sustained": 1},
            {"op": "all_reduce", "dtype": "bf16", "bytes": 1 << 24, "ranks": 4},
        ]
        rows = [{**row, "provenance": ""} for row in gnomon.ops(table, on=chip)]
        found = [each.to_dict() for each in (*steps, room, served, trained)]
        return json.dumps(without_names([*found, rows]), sort_keys=True)

    assert answers(str(file)) == answers(like)
