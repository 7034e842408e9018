"""FLOPs beside those PyTorch counts while transformers runs small networks on a CPU: equal to the last one.

Its attention and its scans multiply whole squares and mask them; Gnomon counts what is causal. The difference is
worked out here, so that what remains must be equal.
"""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; run `make test-oracles`")
transformers = pytest.importorskip("transformers")

from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from gnomon.graph import Attention, lower  # noqa: E402
from gnomon.graph.mixer_ops import Scan, chunks_of  # noqa: E402
from gnomon.load.fields import Fields  # noqa: E402
from gnomon.load.hf import shapes  # noqa: E402
from gnomon.spec import Batch, Model, MoeFfn, Strategy  # noqa: E402

pytestmark = pytest.mark.oracle

SEQUENCES, NEW = 2, 128
BATCH = Batch.prefill(SEQUENCES, NEW)
SMALL: dict[str, Any] = {
    "hidden_size": 96,
    "intermediate_size": 160,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "vocab_size": 320,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}
GROUPED = {"num_key_value_heads": 2, "head_dim": 16}
CHOSEN = {"num_experts_per_tok": 3, "moe_intermediate_size": 40}
NETWORKS: dict[str, dict[str, Any]] = {
    "dense": {"model_type": "llama"},
    "grouped": {"model_type": "qwen3"} | GROUPED,
    "windows": {
        "model_type": "gemma3_text",
        "sliding_window": 32,
        "layer_types": ["sliding_attention", "full_attention"],
    }
    | GROUPED,
    "sinks": {"model_type": "gpt_oss", "num_local_experts": 6, "num_experts_per_tok": 2, "sliding_window": 32}
    | GROUPED,
    "side by side": {"model_type": "gpt_neox"},
    "mixtral": {"model_type": "mixtral", "num_local_experts": 6, "num_experts_per_tok": 2} | GROUPED,
    "qwen3 experts": {"model_type": "qwen3_moe", "num_experts": 8} | GROUPED | CHOSEN,
    "latents": {
        "model_type": "deepseek_v3",
        "q_lora_rank": 24,
        "kv_lora_rank": 32,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8,
        "v_head_dim": 12,
        "n_routed_experts": 8,
        "n_shared_experts": 1,
        "n_group": 2,
        "topk_group": 1,
        "first_k_dense_replace": 1,
    }
    | CHOSEN,
    "delta": {
        "model_type": "qwen3_next",
        "layer_types": ["linear_attention", "full_attention"],
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 24,
        "num_experts": 8,
        "shared_expert_intermediate_size": 48,
    }
    | GROUPED
    | CHOSEN,
    "lightning": {"model_type": "minimax", "layer_types": ["linear_attention", "full_attention"], "block_size": 32}
    | {"num_local_experts": 6, "num_experts_per_tok": 2}
    | GROUPED,
    "short convolutions": {"model_type": "lfm2", "layer_types": ["conv", "full_attention"], "block_ff_dim": 160},
    "mamba": {"model_type": "mamba", "intermediate_size": 192, "state_size": 8, "time_step_rank": 6},
    "mamba2": {
        "model_type": "mamba2",
        "num_heads": 12,
        "head_dim": 16,
        "state_size": 16,
        "n_groups": 2,
        "expand": 2,
        "chunk_size": 32,
    },
}


def network(name: str) -> tuple[Any, dict[str, Any]]:
    given = SMALL | NETWORKS[name]
    kind = given.pop("model_type")
    config = transformers.AutoConfig.for_model(kind, **given)
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    torch.manual_seed(0)
    built = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    return built.float().eval(), config.to_dict() | {"architectures": [type(built).__name__]}


def theirs(built: Any) -> float:
    """All that is counted but the convolutions, which stream here, and the angles of positions, which are a product of
    one column."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        built(torch.zeros(SEQUENCES, NEW, dtype=torch.long) + torch.arange(NEW), logits_to_keep=1, use_cache=False)
    counts = counter.get_flop_counts()
    convolved = sum(flops for op, flops in counts["Global"].items() if "convolution" in str(op))
    turned = sum(sum(by_op.values()) for module, by_op in counts.items() if module.endswith("rotary_emb"))
    return float(counter.get_total_flops() - convolved - turned)


def whole_squares(op: Any) -> float:
    """What is multiplied beyond the causal part where a square is multiplied whole."""
    if isinstance(op, Attention):
        pairs = SEQUENCES * NEW * NEW - float(op.shape(BATCH)["pairs"][0])
        return 2.0 * pairs * op.heads * (op.head_dim + op.values)
    return _of_scan(op) if isinstance(op, Scan) else 0.0


def _of_scan(op: Scan) -> float:
    _, chunks, pairs = (float(figure[0]) for figure in chunks_of(op.shape(BATCH)))
    more = 2.0 * (chunks * op.chunk**2 - pairs) * op.heads
    if op.mixer == "lightning":
        return more * (op.state_dim + op.head_dim)
    if op.mixer == "gated_delta":
        # In the place of an inverse and its products with keys and values stands a solver, which is not counted.
        inverse = chunks * op.heads * op.chunk**3 / 3
        solved = 2.0 * chunks * op.chunk**2 * op.heads * (op.state_dim + op.head_dim)
        return more * (3 * op.state_dim + 2 * op.head_dim) - inverse - solved
    # Elementwise products that are then summed are not counted; the first Mamba's last step is a product.
    seen = 1 / 3 if op.mixer == "mamba" else 0.0
    return (seen - 1) * float(op.flops(BATCH)[0])


@pytest.mark.parametrize("name", NETWORKS)
def test_flops(name: str) -> None:
    built, config = network(name)
    model = shapes(Fields(config, "config.json"))
    graph = lower(model, Strategy(), "bf16", "bf16")
    prompts = [op for op in graph.ops if getattr(op, "phase", "prefill") == "prefill"]
    ours = sum(op.count * (float(op.flops(BATCH)[0]) + whole_squares(op)) for op in prompts)
    assert ours + scored(model) == pytest.approx(theirs(built), rel=1e-14)


def scored(model: Model) -> float:
    """The score that weighs shared experts is one column, which streams here."""
    layers = sum(b.count for b in model.blocks if isinstance(b.ffn, MoeFfn) and b.ffn.shared_gate)
    return 2.0 * layers * SEQUENCES * NEW * model.hidden
