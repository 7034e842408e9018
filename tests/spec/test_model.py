"""The nouns of a network: weights counted by hand in small numbers, and laws that hold for all of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.spec import (
    AttentionMixer,
    Block,
    ConvolutionLayer,
    CrossAttention,
    DenseFfn,
    Embedding,
    GatedDelta,
    Indexer,
    LatentAttention,
    LightningAttention,
    Linear,
    Mamba,
    Mamba2,
    Mixer,
    Model,
    MoeFfn,
    Norm,
    ShortConvolution,
    Tower,
)
from gnomon.spec.formats import NARROW, plain
from gnomon.spec.parts import part_tensors

H = 10
PLAIN = AttentionMixer(heads=4, kv_heads=2, head_dim=3)

MIXERS: dict[str, tuple[Mixer, int]] = {
    "attention": (PLAIN, 10 * 12 + 2 * 10 * 6 + 12 * 10),
    "biases": (replace(PLAIN, qkv_bias=True, out_bias=True), 360 + 12 + 6 + 6 + 10),
    "no-key-bias": (replace(PLAIN, qkv_bias=True, key_bias=False), 360 + 12 + 6),
    "norm": (replace(PLAIN, qk_norm=True), 360 + 6),
    "norm-whole": (replace(PLAIN, qk_norm=True, qk_norm_whole=True, qk_norm_bias=True), 360 + 2 * 18),
    "norm-bare": (replace(PLAIN, qk_norm=True, qk_norm_weight=False), 360),
    "sinks": (replace(PLAIN, sinks=True), 360 + 4),
    "gate": (replace(PLAIN, output_gate=True), 360 + 120),
    "distances": (replace(PLAIN, relative_buckets=8), 360 + 32),
    "shared": (replace(PLAIN, shared_kv=True, qk_norm=True), 240 + 3),
    "tied": (replace(PLAIN, tied_values=True), 300),
    "latent": (
        LatentAttention(heads=2, kv_rank=5, nope_dim=3, rope_dim=2, value_dim=4),
        10 * 10 + 10 * 7 + 5 + 5 * 14 + 8 * 10,
    ),
    "latent-queries": (
        LatentAttention(heads=2, kv_rank=5, nope_dim=3, rope_dim=2, value_dim=4, q_rank=6, bias=True),
        (10 * 6 + 6 + 6 + 6 * 10) + (10 * 7 + 7 + 5) + 5 * 14 + (80 + 10),
    ),
    "indexed": (
        LatentAttention(
            heads=2,
            kv_rank=5,
            nope_dim=3,
            rope_dim=2,
            value_dim=4,
            q_rank=6,
            indexer=Indexer(heads=2, head_dim=3, topk=9),
        ),
        (60 + 6 + 60) + (70 + 5) + 70 + 80 + (6 * 6 + 10 * 3 + 6 + 10 * 2),
    ),
    "cross": (
        CrossAttention(heads=4, kv_heads=2, head_dim=3, source_width=7, q_bias=True, value_bias=True, out_bias=True),
        120 + 2 * 7 * 6 + 120 + 12 + 6 + 10,
    ),
    "mamba": (
        Mamba(inner=20, state=3, dt_rank=2, conv=4),
        10 * 40 + 20 * 4 + 20 + 20 * 8 + (2 * 20 + 20) + 20 * 3 + 20 + 20 * 10,
    ),
    "mamba-normed": (Mamba(inner=20, state=3, dt_rank=2, norms=True, conv_bias=False), 1000 - 20 + 8),
    "mamba2": (
        Mamba2(heads=4, head_dim=5, state=3, groups=2),
        10 * (20 + 32 + 4) + 32 * 4 + 32 + 3 * 4 + 20 + 20 * 10,
    ),
    "delta": (
        GatedDelta(key_heads=2, value_heads=4, key_dim=3, value_dim=5),
        10 * (32 + 20) + 10 * 8 + 32 * 4 + 8 + 5 + 20 * 10,
    ),
    "lightning": (LightningAttention(heads=4, head_dim=3), 10 * 36 + 120 + 12 + 120),
    "short": (ShortConvolution(width=10, conv=3, bias=True), 300 + 30 + 30 + 10 + 100 + 10),
}


@pytest.mark.parametrize("name", MIXERS)
def test_mixers(name: str) -> None:
    mixer, parameters = MIXERS[name]
    assert mixer.parameters(H) == parameters


@pytest.mark.parametrize(
    ("ffn", "parameters", "active"),
    [
        (DenseFfn(inner=7), 210, 210),
        (DenseFfn(inner=7, gated=False, bias=True), 140 + 7 + 10, 157),
        (DenseFfn(inner=7, bias=True), 210 + 14 + 10, 234),
        (MoeFfn(experts=4, topk=2, inner=7), 4 * 220, 2 * 210 + 40),
        (MoeFfn(experts=4, topk=2, inner=7, shared_inner=3, shared_gate=True), 880 + 90 + 10, 460 + 100),
        (MoeFfn(experts=4, topk=1, inner=7, bias=True, router_bias=True), 880 + 4 * 24 + 4, 210 + 24 + 44),
        (MoeFfn(experts=4, topk=2, inner=7, gated=False, correction=True), 4 * 150 + 4, 2 * 140 + 44),
        (MoeFfn(experts=4, topk=2, inner=7, latent=5), 4 * 105 + 40 + 100, 2 * 105 + 140),
    ],
)
def test_feed_forwards(ffn: DenseFfn | MoeFfn, parameters: int, active: int) -> None:
    assert (ffn.parameters(H), ffn.active_parameters(H)) == (parameters, active)


def test_parts() -> None:
    parts = (
        Linear(name="a", inputs=3, outputs=4, bias=True),
        Embedding(name="b", rows=5, width=6),
        ConvolutionLayer(name="c", inputs=4, outputs=6, kernel=9, groups=2, bias=True),
        Norm(name="d", width=7, bias=True),
    )
    sizes = [sum(tensor.parameters for tensor in part_tensors([part])) for part in parts]
    assert sizes == [16, 30, 6 * 2 * 9 + 6, 14]


def test_blocks_count_their_norms() -> None:
    ffn = DenseFfn(inner=7)
    whole = Block(mixer=PLAIN, ffn=ffn, count=1)
    assert whole.stream_norms == 2
    assert replace(whole, norms=1, parallel=True).stream_norms == 1
    assert replace(whole, ffn=None).stream_norms == 1
    cross = CrossAttention(heads=1, kv_heads=1, head_dim=1, source_width=1)
    assert replace(whole, cross=cross).stream_norms == 3


def _model(**changes: object) -> Model:
    block = Block(mixer=PLAIN, ffn=DenseFfn(inner=7), count=3)
    plain = Model(name="m", family="f", hidden=H, vocab=100, blocks=(block,), max_context=64)
    return replace(plain, **changes)  # type: ignore[arg-type]


BODY = 3 * (360 + 210 + 20) + 10


@pytest.mark.parametrize(
    ("changes", "parameters"),
    [
        ({}, BODY + 2000),
        ({"tied_embeddings": True}, BODY + 1000),
        ({"has_head": False}, BODY + 1000),
        ({"norm_bias": True}, BODY + 2000 + 70),
        ({"norm_weight": False}, BODY + 2000 - 70),
        ({"final_norm": False}, BODY + 2000 - 10),
        ({"learned_positions": 64}, BODY + 2000 + 640),
        ({"embedding_width": 4}, BODY + 800),
        ({"stem": (Norm(name="n", width=10),), "tail": (Embedding(name="b", width=100),)}, BODY + 2110),
    ],
)
def test_ends(changes: dict[str, object], parameters: int) -> None:
    model = _model(**changes)
    assert model.parameters == model.active_parameters == parameters
    assert sum(model.weight_bytes().values()) == 2 * parameters


def test_towers_and_drafts() -> None:
    block = Block(mixer=replace(PLAIN, causal=False), ffn=DenseFfn(inner=7), count=2)
    tower = Tower(name="t", hidden=H, blocks=(block,), stem=(Embedding(name="p", rows=4, width=10),), norm_bias=True)
    assert tower.parameters == 2 * (570 + 40) + 20 + 40
    model = _model(towers=(tower,))
    assert model.parameters == BODY + 2000 + tower.parameters
    assert model.kv_bytes_per_token(2) == _model().kv_bytes_per_token(2)
    assert _model(mtp=(replace(block, count=1),)).parameters == BODY + 2000
    assert _model(mtp=(replace(block, count=1),)).mtp_parameters == 570 + 20 + 200 + 30


def test_caches() -> None:
    assert PLAIN.cache_values() == 12
    assert PLAIN.cache_values(tp=2) == 6
    assert PLAIN.cache_values(tp=4) == 6, "heads are copied where ranks exceed them"
    assert replace(PLAIN, causal=False).cache_values() == replace(PLAIN, shared_kv=True).cache_values() == 0
    latent = LatentAttention(heads=2, kv_rank=5, nope_dim=3, rope_dim=2, value_dim=4)
    assert latent.cache_values() == latent.cache_values(tp=2) == 7
    assert Mamba2(heads=4, head_dim=5, state=3, groups=2).state_values() == 60 + 32 * 4
    assert Mamba2(heads=4, head_dim=5, state=3, groups=2).state_values(tp=2) == 94


@pytest.mark.parametrize("name", MIXERS)
@given(st.integers(1, 64), st.integers(1, 64))
def test_wider_is_more(name: str, hidden: int, more: int) -> None:
    mixer, _ = MIXERS[name]
    assert mixer.parameters(hidden + more) > mixer.parameters(hidden) > 0


@given(st.integers(1, 32), st.integers(1, 8), st.integers(1, 16), st.integers(0, 16))
def test_active_experts_are_a_part(experts: int, topk: int, inner: int, shared: int) -> None:
    ffn = MoeFfn(experts=max(experts, topk), topk=topk, inner=inner, shared_inner=shared)
    assert ffn.active_parameters(H) <= ffn.parameters(H)
    assert (ffn.active_parameters(H) == ffn.parameters(H)) == (ffn.experts == ffn.topk)


def test_a_matrix_of_nothing_takes_nothing() -> None:
    for format in (*NARROW.values(), plain("bf16")):
        assert format.bytes(0, 64) == format.bytes(64, 0) == format.tensor_bits / 8
