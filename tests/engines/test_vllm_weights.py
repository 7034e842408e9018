"""Weights of a rank: what is cut, what is copied, what is dealt out, and in which format."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gnomon.catalog import model_names
from gnomon.engines.vllm.weights import BY_INPUT, BY_OUTPUT, EXPERTS, KEYS, check_cuts, stages, weight_bytes
from gnomon.errors import InputError
from gnomon.load import model as load_model
from gnomon.spec import Model, Strategy
from gnomon.spec.narrowed import in_format

COPIED = {"router", "shared_score", "q_down", "kv_down", "index_q", "index_k", "index_weights", "fold", "unfold"}
"""Matrices that vLLM gives every rank whole."""
DECODERS = [
    name
    for name in model_names()
    if load_model(name).has_head and load_model(name).vocab and not load_model(name).towers
]


def bytes_of(model: Model, **degrees: int) -> float:
    return weight_bytes(model, Strategy(**degrees))


@pytest.mark.battery(8)
@pytest.mark.parametrize("name", DECODERS)
def test_one_rank_holds_the_checkpoint(name: str) -> None:
    """To the byte where nothing is padded or kept twice."""
    model = load_model(name)
    padding = 2 * (-model.vocab % 64) * (model.embedding_width or model.hidden) * (1 + (model.head_parameters > 0))
    twice = sum(
        block.count * 2 * block.mixer.heads * (block.mixer.nope_dim + block.mixer.value_dim) * block.mixer.kv_rank
        for block in model.blocks
        if "kv_up" in dict(block.formats)
    )
    width = 2 if model.working_dtype != "fp32" else 4
    found = weight_bytes(model, Strategy(), architecture="Hopper")
    assert found == pytest.approx(sum(model.weight_bytes().values()) + padding * width / 2 + twice, rel=1e-9)


@pytest.mark.battery(8)
@pytest.mark.parametrize("name", model_names())
def test_every_matrix_has_a_rule(name: str) -> None:
    """No role is copied to every rank unless it is meant to be."""
    roles = {t.role for b in load_model(name).blocks for t in b.tensors(64) if t.columns > 1}
    extras = {part.name for block in load_model(name).blocks for part in block.extras}
    assert roles - extras <= BY_OUTPUT | BY_INPUT | {*KEYS, *EXPERTS} | COPIED


@pytest.mark.parametrize(
    "name", ["llama-3.1-70b", "deepseek-v3", "qwen3-next-80b-a3b", "nemotron-h-8b", "gpt-oss-120b"]
)
def test_more_ranks_hold_less_each_and_no_less_together(name: str) -> None:
    model = load_model(name)
    sizes = {tp: bytes_of(model, tp=tp) for tp in (1, 2, 4, 8)}
    assert sizes[1] > sizes[2] > sizes[4] > sizes[8]
    for tp in (2, 4, 8):
        assert tp * sizes[tp] >= 0.9999 * sizes[1]


@pytest.mark.parametrize("pp", [2, 3, 5])
@pytest.mark.parametrize("name", ["llama-3.1-8b", "llama-3.2-1b", "qwen3-30b-a3b"])
def test_stages_add_up(name: str, pp: int) -> None:
    """All stages together hold the model, and an embedding that is also the head twice."""
    model = load_model(name)
    parts = [weight_bytes(model, Strategy(pp=pp), stage) for stage in stages(model, pp)]
    again = 2 * model.vocab * model.hidden if model.tied_embeddings else 0
    assert sum(parts) == bytes_of(model) + again


def test_latent_attention_by_hand() -> None:
    """DeepSeek-V2-Lite on four ranks: what folds is whole, what unfolds and leads out is cut."""
    model = load_model("deepseek-v2-lite")
    attention = 2048 * 3072 // 4 + 2048 * 576 + 512 + 4096 * 512 // 4 + 2048 * 2048 // 4
    dense, norms = 3 * 2048 * 10944 // 4, 2 * 2048
    mixture = 64 * 2048 + 64 * 3 * 2048 * 1408 // 4 + 3 * 2048 * 2816 // 4
    ends = 2 * 102400 * 2048 // 4 + 2048
    assert bytes_of(model, tp=4) == 2 * (27 * (attention + norms) + dense + 26 * mixture + ends)


def test_experts_are_dealt_out() -> None:
    model = load_model("qwen3-30b-a3b")
    expert = 48 * 3 * 2048 * 768 * 2
    whole = bytes_of(model)
    assert bytes_of(model, dp=8, ep=8) == whole - (128 - 16) * expert
    assert bytes_of(model, tp=8, ep=8) == bytes_of(model, tp=8)
    # Without expert parallelism ranks of data parallelism cut every expert among them.
    assert bytes_of(model, dp=8) == whole - 128 * expert * 7 / 8


def test_padding_of_mxfp4_follows_the_kernel() -> None:
    model = load_model("gpt-oss-20b")
    sizes = {name: weight_bytes(model, Strategy(), architecture=name) for name in ("Hopper", "Ampere", "Blackwell")}
    assert sizes["Hopper"] == pytest.approx(sum(model.weight_bytes().values()), rel=2e-3)
    experts = 24 * 32 * 3 * (4 + 8 / 32) / 8
    assert sizes["Ampere"] - sizes["Hopper"] == pytest.approx(experts * (2944 * 3072 - 2880 * 2880), rel=1e-6)
    assert sizes["Blackwell"] - sizes["Hopper"] == pytest.approx(experts * (3072 * 3072 - 2880 * 2880), rel=1e-6)


def test_a_vocabulary_that_does_not_divide_is_padded() -> None:
    model = in_format(load_model("gpt2"), "bf16")
    odd = replace(model, vocab=50257)
    assert bytes_of(replace(model, vocab=50304)) == bytes_of(odd)
    assert bytes_of(odd) - 2 * odd.parameters == 2 * (50304 - 50257) * odd.hidden


@pytest.mark.parametrize("name", ["llama-3.1-8b", "qwen3-30b-a3b", "deepseek-v2-lite", "jamba-52b"])
def test_narrower_formats_weigh_less(name: str) -> None:
    model = load_model(name)
    sizes = [bytes_of(in_format(model, dtype)) for dtype in ("bf16", "int8", "fp8", "nvfp4", "mxfp4", "int4")]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < 0.36 * sizes[0]


@pytest.mark.parametrize(
    ("name", "degrees", "message"),
    [
        ("llama-3.1-8b", {"tp": 3}, r"tp: .*32 attention heads, which 3 does not divide.*works is 2"),
        ("llama-3.1-8b", {"pp": 33}, "pp: .* 32 layers for 33 stages"),
        ("qwen3-30b-a3b", {"tp": 2, "ep": 4}, "ep: experts cannot be spread over 4 ranks"),
        ("qwen3-30b-a3b", {"dp": 3, "ep": 3}, "ep: experts cannot be spread over 3 ranks"),
        ("qwen3-next-80b-a3b", {"tp": 32}, "16"),
        ("llama-3.1-8b", {"cp": 0}, "cp: 0 is not a number of chips"),
    ],
)
def test_cuts_that_cannot_be(name: str, degrees: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_cuts(load_model(name), Strategy(**degrees))
