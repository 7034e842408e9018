"""FLOPs of training beside those PyTorch counts while transformers runs small networks forward and backward on a CPU:
equal to the last one.

Its attention and its scans multiply whole squares and mask them; Gnomon counts what is seen. The difference is worked
out here, so that what remains must be equal. What kernels compute again inside a gradient PyTorch's autograd has saved.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; run `make test-oracles`")
transformers = pytest.importorskip("transformers")

from tests.oracles.test_flops import BATCH, NETWORKS, NEW, SEQUENCES, SMALL, whole_squares  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from gnomon.engines.megatron.style import fused  # noqa: E402
from gnomon.graph.core import CoreAttention  # noqa: E402
from gnomon.graph.layers import Cut, embedding, head, layer  # noqa: E402
from gnomon.graph.mixer_ops import Scan, chunks_of  # noqa: E402
from gnomon.graph.ops import Op  # noqa: E402
from gnomon.graph.tape import Tape  # noqa: E402
from gnomon.graph.trained import check_trained  # noqa: E402
from gnomon.load.fields import Fields  # noqa: E402
from gnomon.load.hf import shapes  # noqa: E402
from gnomon.spec import Model  # noqa: E402

pytestmark = pytest.mark.oracle

ENCODERS: dict[str, dict[str, Any]] = {
    "bert": {"model_type": "bert"},
    "windows in both directions": {"model_type": "modernbert", "local_attention": 32, "num_hidden_layers": 3}
    | dict.fromkeys(("pad_token_id", "cls_token_id", "sep_token_id", "bos_token_id", "eos_token_id"), 0),
}
MORE: dict[str, dict[str, Any]] = {
    "slopes": {"model_type": "bloom", "n_head": 8, "n_layer": 2},
    "hybrid": {
        "model_type": "nemotron_h",
        "layers_block_type": ["mamba", "mlp", "attention", "mlp"],
        "num_hidden_layers": 4,
        "mamba_num_heads": 12,
        "mamba_head_dim": 16,
        "ssm_state_size": 16,
        "n_groups": 2,
        "chunk_size": 32,
        "num_key_value_heads": 2,
        "head_dim": 16,
    },
    "latent experts": {
        "model_type": "nemotron_h",
        "layers_block_type": ["attention", "moe"],
        "num_hidden_layers": 2,
        "n_routed_experts": 6,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 40,
        "moe_shared_expert_intermediate_size": 48,
        "moe_latent_size": 32,
        "num_key_value_heads": 2,
        "head_dim": 16,
    },
    "capped scores": {"model_type": "gemma2", "sliding_window": 32, "head_dim": 16, "num_key_value_heads": 2},
    "a narrow embedding": {
        "model_type": "opt",
        "word_embed_proj_dim": 48,
        "ffn_dim": 160,
        "do_layer_norm_before": False,
    },
    "state spaces and experts": {
        "model_type": "jamba",
        "num_experts": 6,
        "num_experts_per_tok": 2,
        "mamba_d_state": 8,
        "mamba_expand": 2,
        "mamba_dt_rank": 6,
        "use_mamba_kernels": False,
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "expert_layer_period": 2,
        "expert_layer_offset": 1,
        "num_key_value_heads": 2,
    },
}
DECODERS = (
    "dense", "grouped", "windows", "sinks", "side by side", "mixtral", "qwen3 experts", "latents", "delta",
    "short convolutions", "mamba2",
    "mamba", "lightning",
)  # fmt: skip
TRAINED = {**{name: NETWORKS[name] for name in DECODERS}, **MORE, **ENCODERS}


def network(name: str) -> tuple[Any, Model]:
    given = SMALL | TRAINED[name]
    config = transformers.AutoConfig.for_model(given.pop("model_type"), **given)
    config._experts_implementation = "eager"
    torch.manual_seed(0)
    kind = transformers.AutoModelForMaskedLM if name in ENCODERS else transformers.AutoModelForCausalLM
    built = kind.from_config(config, attn_implementation="eager").float().train()
    found = shapes(Fields(config.to_dict() | {"architectures": [type(built).__name__]}, "config.json"))
    return built, replace(found, mtp=())  # which transformers does not train


def counted(counter: FlopCounterMode) -> float:
    """But for convolutions, which stream here, and the angles of positions."""
    counts = counter.get_flop_counts()
    convolved = sum(flops for op, flops in counts["Global"].items() if "convolution" in str(op))
    turned = sum(sum(by_op.values()) for module, by_op in counts.items() if module.endswith("rotary_emb"))
    return float(counter.get_total_flops() - convolved - turned)


def theirs(built: Any) -> tuple[float, float]:
    tokens = torch.zeros(SEQUENCES, NEW, dtype=torch.long) + torch.arange(NEW)
    with FlopCounterMode(display=False) as counter:
        result = built(tokens).logits
        there = counted(counter)
        result.sum().backward()
        back = counted(counter) - there
    return there, back


def tapes(model: Model) -> list[Tape]:
    cut, style = Cut(seq=NEW), fused()
    layers = [layer(model, block, cut, style) for block in model.blocks for _ in range(block.count)]
    return [embedding(model, cut, style), *layers, head(model, cut, style)]


def ours(ops: Iterable[Op], passes: int) -> float:
    """With squares multiplied whole, and without what is computed again."""
    total = 0.0
    for op in ops:
        again = op.recomputed_flops(BATCH)[0] if passes > 1 and isinstance(op, CoreAttention | Scan) else 0.0
        forward = replace(op, phase="prefill") if isinstance(op, Scan) else op
        total += op.count * (float(op.flops(BATCH)[0] - again) + passes * whole_squares(forward))
        if passes > 1 and isinstance(op, Scan) and op.mixer == "gated_delta":
            total += op.count * _solved(op)
        if passes > 1 and isinstance(op, Scan) and op.mixer == "lightning":
            # The state before the first block gets no gradient, and nothing reads the one after the last.
            total -= op.count * 6.0 * op.heads * op.chunk * op.state_dim * op.head_dim * SEQUENCES
    return total


def _solved(op: Scan) -> float:
    """The gradient of a solver is one product with what it solved for, that of an inverse two of its size. Autograd
    leaves out what nothing reads: gradients of the state before the first chunk and by way of the one after the last.
    """
    chunks = float(chunks_of(op.shape(BATCH))[1][0])
    solver = 2.0 * op.chunk**2 * (op.state_dim + op.head_dim) * chunks
    ends = 8.0 * op.chunk * op.state_dim * op.head_dim * SEQUENCES
    return op.heads * (solver - (4 - 2 / 3) * op.chunk**3 * chunks - ends)


@pytest.mark.parametrize("name", TRAINED)
def test_flops_of_training(name: str) -> None:
    built, model = network(name)
    check_trained(model)
    parts = tapes(model)
    there, back = theirs(built)
    assert sum(ours(tape.forward_ops(), 1) for tape in parts) == pytest.approx(there, rel=1e-12)
    assert sum(ours(tape.backward_ops("none"), 2) for tape in parts) == pytest.approx(back, rel=1e-12)
