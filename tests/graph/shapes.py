"""Models made by hand, and what to count in their graphs."""

from __future__ import annotations

from gnomon.graph import Experts, Gemm, Graph
from gnomon.spec import AttentionMixer, Block, DenseFfn, Model, MoeFfn, Strategy
from gnomon.spec.recompute import MODULES, WAYS


def lowered(model: Model, tp: int = 1, dtype: str = "bf16", kv_dtype: str = "bf16") -> Graph:
    from gnomon.graph import lower

    return lower(model, Strategy(tp=tp), dtype, kv_dtype)


def dense(heads: int = 8, kv_heads: int = 8, inner: int = 64, vocab: int = 100, layers: int = 3) -> Model:
    mixer = AttentionMixer(heads=heads, kv_heads=kv_heads, head_dim=4)
    block = Block(mixer=mixer, ffn=DenseFfn(inner=inner), count=layers)
    return Model(name="small", family="llama", hidden=32, vocab=vocab, blocks=(block,), max_context=4096)


def sparse(experts: int = 8, topk: int = 2, inner: int = 16, shared: int = 0) -> Model:
    mixer = AttentionMixer(heads=8, kv_heads=2, head_dim=4, qk_norm=True)
    ffn = MoeFfn(experts=experts, topk=topk, inner=inner, shared_inner=shared)
    block = Block(mixer=mixer, ffn=ffn, count=5)
    return Model(name="sparse", family="qwen3_moe", hidden=32, vocab=96, blocks=(block,), max_context=4096)


def weights(graph: Graph) -> int:
    """Numbers in the matrices that one rank multiplies by, all experts included."""
    count = 0
    for op in graph.ops:
        if isinstance(op, Gemm):
            assert isinstance(op.n, int)
            assert isinstance(op.k, int)
            count += op.count * op.n * op.k
        elif isinstance(op, Experts):
            count += op.count * op.experts * 3 * op.hidden * op.inner
    return count


def matrices(model: Model) -> int:
    """Numbers in the matrices of a model: all its parameters but the embedding and the norms."""
    vectors = sum(block.count * 2 * block.mixer.head_dim * block.mixer.qk_norm for block in model.blocks)
    norms = (2 * model.layers + 1) * model.hidden
    return model.parameters - model.embedding_parameters - norms - vectors


EVERY_MODE = (*WAYS, *(f"modules={name}" for name in MODULES), f"modules={'+'.join(MODULES)}")
"""Every way to recompute a layer."""
