"""The matrices of a graph are those of the model, whole or cut into ranks."""

from __future__ import annotations

import pytest
from tests.graph.shapes import dense, lowered, matrices, sparse, weights

from gnomon.graph import Collective, Elementwise, Gemm
from gnomon.load import model as load_model
from gnomon.spec import Model, MoeFfn

NAMES = ("llama-3.1-8b", "llama-3.1-70b", "qwen3-30b-a3b")
LLAMA_8B_MATRICES = 32 * (6144 * 4096 + 4096 * 4096 + 28672 * 4096 + 4096 * 14336) + 128256 * 4096
QWEN3_30B_MATRICES = 48 * (5120 * 2048 + 2048 * 4096 + 128 * 2048 + 128 * 3 * 2048 * 768) + 151936 * 2048


def copied(model: Model, tp: int) -> int:
    """What tensor parallelism stores more than once: key-value heads beyond their number, and routers."""
    count = 0
    for block in model.blocks:
        more = max(0, tp - block.mixer.kv_heads)
        count += block.count * more * 2 * block.mixer.head_dim * model.hidden
        if isinstance(block.ffn, MoeFfn):
            count += block.count * (tp - 1) * block.ffn.experts * model.hidden
    return count + (-model.vocab % tp) * model.hidden


@pytest.mark.parametrize(
    ("name", "matrices_by_hand"), [("llama-3.1-8b", LLAMA_8B_MATRICES), ("qwen3-30b-a3b", QWEN3_30B_MATRICES)]
)
def test_matrices_by_hand(name: str, matrices_by_hand: int) -> None:
    model = load_model(name)
    assert matrices(model) == matrices_by_hand
    assert weights(lowered(model)) == matrices_by_hand


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
@pytest.mark.parametrize("name", NAMES)
def test_ranks_together_hold_the_model(name: str, tp: int) -> None:
    model = load_model(name)
    assert tp * weights(lowered(model, tp)) == matrices(model) + copied(model, tp)


def test_kv_heads_are_copied_beyond_their_number() -> None:
    model = dense(heads=8, kv_heads=2)
    qkv = {tp: next(op for op in lowered(model, tp).ops if op.name == "attention.qkv") for tp in (1, 2, 4, 8)}
    # Heads are 4 wide: 8 / tp query heads, and keys and values of 2 / tp heads, never less than one.
    assert [getattr(op, "n", None) for op in qkv.values()] == [32 + 16, 16 + 8, 8 + 8, 4 + 8]


def test_an_odd_vocabulary_is_padded() -> None:
    model = dense(vocab=101)
    assert 8 * weights(lowered(model, 8)) == matrices(model) + 3 * 32


@pytest.mark.parametrize("shared", [0, 48])
@pytest.mark.parametrize("tp", [1, 2, 4])
def test_experts_shared_or_not(shared: int, tp: int) -> None:
    model = sparse(shared=shared)
    assert tp * weights(lowered(model, tp)) == matrices(model) + copied(model, tp)


def test_ungated_and_tied() -> None:
    from dataclasses import replace

    from gnomon.spec import DenseFfn

    model = dense()
    (block,) = model.blocks
    plain = replace(model, blocks=(replace(block, ffn=DenseFfn(inner=64, gated=False)),))
    assert weights(lowered(model)) - weights(lowered(plain)) == 3 * 64 * 32
    # A tied head is stored once with the embedding, and still multiplied by.
    tied = replace(model, tied_embeddings=True)
    assert weights(lowered(tied)) == weights(lowered(model)) == matrices(tied) + model.vocab * model.hidden


@pytest.mark.parametrize("name", NAMES)
def test_one_rank_exchanges_nothing(name: str) -> None:
    assert not [op for op in lowered(load_model(name)).ops if isinstance(op, Collective)]


@pytest.mark.parametrize("tp", [2, 8])
def test_what_ranks_exchange(tp: int) -> None:
    model = load_model("llama-3.1-70b")
    found = {op.name: op for op in lowered(model, tp).ops if isinstance(op, Collective)}
    assert {name: (op.op, op.count, op.bytes_per_row, op.ranks) for name, op in found.items()} == {
        "attention.all_reduce": ("all_reduce", 80, 8192 * 2.0, tp),
        "ffn.all_reduce": ("all_reduce", 80, 8192 * 2.0, tp),
        "embedding.all_reduce": ("all_reduce", 1, 8192 * 2.0, tp),
        "head.all_gather": ("all_gather", 1, 128256 * 2.0, tp),
    }


def test_eight_bits_narrow_the_blocks_only() -> None:
    wide, narrow = (lowered(load_model("llama-3.1-8b"), dtype=dtype) for dtype in ("bf16", "fp8"))
    formats = {op.name: op.dtype for op in narrow.ops if isinstance(op, Gemm)}
    assert formats.pop("head.logits") == "bf16"
    assert set(formats.values()) == {"fp8"}
    added = {op.name for op in narrow.ops} - {op.name for op in wide.ops}
    assert added == {f"{name}.quantise" for name in formats}
    assert all(isinstance(op, Elementwise) for op in narrow.ops if op.name in added)
    assert weights(wide) == weights(narrow)


def test_names_are_unique() -> None:
    for name in NAMES:
        names = [op.name for op in lowered(load_model(name), 2, "fp8").ops]
        assert len(names) == len(set(names))
