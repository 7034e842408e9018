"""Operators of every mixer: FLOPs of every catalog decoder to the last one, and what ranks share."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.graph.mixers import active_matrices, mixed_flops, row_matrices
from tests.graph.shapes import dense, lowered

from gnomon import catalog
from gnomon.errors import InputError
from gnomon.graph import Collective, Gemm, Graph
from gnomon.graph.cuts import mixer_obstacle
from gnomon.graph.lower import obstacle
from gnomon.graph.mixer_ops import LatentDecode, Scan
from gnomon.graph.support import unpriced
from gnomon.load import model as load_model
from gnomon.spec import (
    Batch,
    DenseFfn,
    Embedding,
    GatedDelta,
    LatentAttention,
    LightningAttention,
    Linear,
    Mamba,
    Mamba2,
    Mixer,
    Model,
    Norm,
    ShortConvolution,
)

DECODERS = [name for name in catalog.model_names() if not unpriced(load_model(name))]
LATENT = LatentAttention(heads=8, kv_rank=16, nope_dim=8, rope_dim=4, value_dim=6, q_rank=12)
MIXERS: dict[str, Mixer] = {
    "latent": LATENT,
    "mamba": Mamba(inner=64, state=4, dt_rank=3, norms=True),
    "mamba2": Mamba2(heads=8, head_dim=8, state=16, groups=4, chunk=32),
    "delta": GatedDelta(key_heads=4, value_heads=8, key_dim=8, value_dim=16),
    "lightning": LightningAttention(heads=8, head_dim=8, block=32),
    "conv": ShortConvolution(width=32),
}


def with_mixer(mixer: Mixer | None) -> Model:
    return replace(dense(), blocks=(replace(dense().blocks[0], mixer=mixer),))


def flops(graph: Graph, batch: Batch) -> float:
    return float(graph.flops(batch)[0])


def names(model: Model, tp: int = 1) -> set[str]:
    return {op.name for op in lowered(model, tp).ops}


@pytest.mark.battery(10)
@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("context", [99, 20_000])
def test_flops_of_a_decode(name: str, context: int) -> None:
    """Twice the active matrices, and what the mixers do beside them."""
    model = load_model(name)
    mixed = sum(block.count * mixed_flops(block.mixer, context, 1, decode=True) for block in model.blocks)
    expected = 3 * (2 * active_matrices(model) + 2 * row_matrices(model) + mixed)
    assert flops(lowered(model), Batch.decode(3, context)) == pytest.approx(expected, rel=1e-13)


@pytest.mark.battery(8)
@pytest.mark.parametrize("name", DECODERS)
def test_flops_of_prompts(name: str) -> None:
    model, new = load_model(name), 700
    mixed = sum(block.count * mixed_flops(block.mixer, 0, new, decode=False) for block in model.blocks)
    expected = 2 * (2 * new * active_matrices(model) + 2 * row_matrices(model) + mixed)
    assert flops(lowered(model), Batch.prefill(2, new)) == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize("name", ["gemma-3-1b", "llama-4-scout", "deepseek-v3.2-exp", "mistral-7b-v0.1"])
def test_flops_of_a_prompt_behind_cached_tokens(name: str) -> None:
    model, new, cached = load_model(name), 900, 7800
    mixed = sum(block.count * mixed_flops(block.mixer, cached, new, decode=False) for block in model.blocks)
    expected = 2 * new * active_matrices(model) + 2 * row_matrices(model) + mixed
    assert flops(lowered(model), Batch.prefill(1, new, cached)) == pytest.approx(expected, rel=1e-13)


def test_cached_latents_are_unfolded_again() -> None:
    graph = lowered(with_mixer(LATENT))
    alone, behind = (flops(graph, Batch.prefill(1, 50, cached)) for cached in (0, 200))
    pairs = 2.0 * 50 * 200 * LATENT.heads * (8 + 4 + 6)
    unfolded = 2.0 * 200 * LATENT.heads * (8 + 6) * 16
    assert behind - alone == pytest.approx(3 * (pairs + unfolded))


@pytest.mark.parametrize("tp", [2, 4])
@pytest.mark.parametrize("name", MIXERS)
def test_ranks_share_the_work(name: str, tp: int) -> None:
    """All but what every rank has whole: the folding matrices of a latent."""
    whole, part = (lowered(with_mixer(MIXERS[name]), degree) for degree in (1, tp))
    for batch in (Batch.prefill(3, 200), Batch.decode(7, 300)):
        copied = 2.0 * (tp - 1) * batch.tokens[0] * 3 * 32 * (12 + 16 + 4) if name == "latent" else 0.0
        assert tp * flops(part, batch) == pytest.approx(flops(whole, batch) + copied, rel=1e-12)


@pytest.mark.parametrize("name", MIXERS)
def test_cut_where_ranks_divide(name: str) -> None:
    model = with_mixer(MIXERS[name])
    assert not obstacle(model, 4)
    assert "3 does not divide" in mixer_obstacle(MIXERS[name], 3)
    with pytest.raises(InputError, match="nearest degree that works is"):
        lowered(model, 3)


def test_groups_are_cut_or_single() -> None:
    space = Mamba2(heads=8, head_dim=8, state=16, groups=2)
    assert "groups" in obstacle(with_mixer(space), 4)
    single = replace(space, groups=1)
    assert not obstacle(with_mixer(single), 4)
    assert next(op for op in lowered(with_mixer(single), 4).ops if isinstance(op, Scan)).groups == 1
    assert "mamba.norm_all_reduce" in names(with_mixer(single), 4)
    assert "mamba.norm_all_reduce" not in names(with_mixer(replace(space, groups=4)), 4)


def test_a_latent_cache_is_read_once_for_all_heads() -> None:
    op = next(op for op in lowered(with_mixer(LATENT)).ops if isinstance(op, LatentDecode))
    batch = Batch.decode(5, 999)
    per_token = LATENT.cache_values() * 2
    assert op.bytes(batch)[0] == 5 * 1000 * per_token + 5 * 8 * (2 * 16 + 4) * 2
    assert replace(op, kv_dtype="fp8").bytes(batch)[0] == 5 * 1000 * per_token / 2 + 5 * 8 * (2 * 16 + 4) * 2


def test_decodes_read_and_write_their_state() -> None:
    for name, mixer in MIXERS.items():
        ops = [op for op in lowered(with_mixer(mixer)).ops if isinstance(op, Scan) and op.phase == "decode"]
        if name in ("latent", "conv"):
            assert not ops
            continue
        op, batch = ops[0], Batch.decode(5, 999)
        state = op.heads * op.head_dim * op.state_dim
        wide = replace(op, state_dtype="fp32")
        assert wide.bytes(batch)[0] - op.bytes(batch)[0] == 5 * 2 * state * (4 - 2)
        assert op.bytes(batch)[0] == op.bytes(Batch.decode(5, 10))[0]


def test_halves_side_by_side() -> None:
    block = replace(dense().blocks[0], parallel=True, norms=1)
    model = replace(dense(), blocks=(block,))
    assert "ffn.norm" not in names(model)
    assert {"attention.all_reduce", "ffn.all_reduce", "layer.add"} <= names(model, 2)
    falcon = replace(model, family="falcon")
    assert "attention.all_reduce" not in names(falcon, 2)
    assert "ffn.all_reduce" in names(falcon, 2)
    assert "ffn.norm" in names(replace(dense(), blocks=(replace(block, norms=2),)))


def test_one_half_alone() -> None:
    block = dense().blocks[0]
    without_ffn, without_mixer = (
        replace(dense(), blocks=(replace(block, **{half: None}),)) for half in ("ffn", "mixer")
    )
    assert not any(name.startswith("ffn") for name in names(without_ffn, 2))
    assert not any(name.startswith("attention") for name in names(without_mixer, 2))


def test_norms_around_halves() -> None:
    around = replace(dense(), blocks=(replace(dense().blocks[0], norms=4),))
    assert names(around) - names(dense()) == {"attention.post_norm", "ffn.post_norm"}


def test_parts_of_attention() -> None:
    plain, batch = dense().blocks[0].attention, Batch.prefill(1, 10)
    whole = flops(lowered(with_mixer(plain)), batch)
    tokens, layers, q, kv = 10, 3, 32, 32
    for mixer, more in (
        (replace(plain, output_gate=True), q),
        (replace(plain, shared_kv=True), -2 * kv),
        (replace(plain, tied_values=True), -kv),
        (replace(plain, sinks=True, alibi=True, qk_norm=True, logit_cap=30.0), 0),
    ):
        assert flops(lowered(with_mixer(mixer)), batch) - whole == 2 * tokens * layers * 32 * more
    assert "attention.cache_write" not in names(with_mixer(replace(plain, shared_kv=True)))
    assert "attention.gate" in names(with_mixer(replace(plain, output_gate=True)))


def test_further_parts_of_a_layer() -> None:
    extras = (Linear(name="up", inputs=32, outputs=5), Norm(name="n", width=7), Embedding(name="scale", width=32))
    model = replace(dense(), blocks=(replace(dense().blocks[0], extras=extras),))
    assert names(model) - names(dense()) == {"layer.up", "layer.n"}
    batch = Batch.decode(3, 5)
    assert flops(lowered(model), batch) - flops(lowered(dense()), batch) == 2 * 3 * 3 * 32 * 5


def test_latents_of_narrow_weights_are_folded_in_sixteen_bits() -> None:
    graph = lowered(with_mixer(LATENT), dtype="fp8")
    formats = {op.name: op.dtype for op in graph.ops if isinstance(op, Gemm)}
    assert formats["attention.kv_up"] == "fp8"
    assert formats["attention.fold"] == formats["attention.unfold"] == "bf16"


def test_steps_of_the_first_mamba_are_summed_over_ranks() -> None:
    ops = lowered(with_mixer(MIXERS["mamba"]), 2).ops
    step = next(op for op in ops if isinstance(op, Collective) and op.name == "mamba.step_all_reduce")
    assert step.bytes(Batch.decode(1, 0))[0] == 2 * (3 + 2 * 4)


def test_a_dense_half_stays_as_it_is() -> None:
    model = with_mixer(MIXERS["mamba2"])
    assert isinstance(model.blocks[0].ffn, DenseFfn)
    assert {"ffn.norm", "ffn.up", "ffn.down"} <= names(model)
