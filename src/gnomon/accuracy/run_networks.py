"""Networks of published training runs: of the catalog by their name, of published shapes, or as a row's columns say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gnomon.accuracy.deployment_rows import Row, Unfit, whole
from gnomon.load import model
from gnomon.load.shapes import SCHEMA

KNOWN = {
    "Llama 3 8B": "llama-3-8b",
    "Llama 3 70B": "llama-3-70b",
    "Llama 3.1 8B": "llama-3.1-8b",
    "Llama 3.1 70B": "llama-3.1-70b",
    "Llama 3.1 405B": "llama-3.1-405b",
    "Llama 2 7B": "llama-2-7b",
    "Llama 2 13B": "llama-2-13b",
    "Llama 2 70B": "llama-2-70b",
    "Llama 4 Scout": "llama-4-scout",
    "GPT-3 175B": "gpt3-175b",
    "GPT-NeoX 20B": "gpt-neox-20b",
    "Qwen3 30B-A3B": "qwen3-30b-a3b",
    "Qwen3 30B A3B": "qwen3-30b-a3b",
    "Qwen3-30B-A3B": "qwen3-30b-a3b",
    "Qwen3-8B": "qwen3-8b",
    "Qwen3 235B-A22B": "qwen3-235b-a22b",
    "Qwen3 235B A22B": "qwen3-235b-a22b",
    "DeepSeek V3": "deepseek-v3",
    "DeepSeek-V3": "deepseek-v3",
    "GPT-OSS 120B": "gpt-oss-120b",
    "GPT-OSS-120B": "gpt-oss-120b",
    "Mixtral 8x22B": "mixtral-8x22b",
    "Mixtral 8x7B": "mixtral-8x7b",
    "Wan 2.1 14B": "wan-2.1-t2v-14b",
}
"""Networks of the catalog by the beginning of their name in the table; their shapes need not have been read."""
SINGLE_LAYER = "single layer"
"""In a model's name: one layer of it was timed, as part of the full network."""


@dataclass(frozen=True, slots=True)
class Plain:
    """A decoder of equal layers with two matrices in the feed-forward, four times as wide."""

    layers: int
    hidden: int
    heads: int
    vocab: int


BIGSCIENCE_VOCAB = 50_304
"""50,257 padded to a multiple of 128."""
SIZES = {
    "GPT-2 18B": Plain(40, 6144, 32, BIGSCIENCE_VOCAB),
    "GPT-2 24B": Plain(40, 7168, 32, BIGSCIENCE_VOCAB),
    "GPT-2 39B": Plain(48, 8192, 32, BIGSCIENCE_VOCAB),
    "GPT-2 52B": Plain(64, 8192, 32, BIGSCIENCE_VOCAB),
    "Nemotron-8B": Plain(32, 4096, 32, 256_000),
    "Nemotron-22B": Plain(40, 6144, 48, 256_000),
}
"""What the table leaves out. BigScience's by size (bigscience-workshop/bigscience, experiments/gpt2.md and its scripts'
MSIZE, where 25 is the one nearest to 24). Nemotron's from NeMo-Framework-Launcher, conf/training/nemotron: the TFLOP/s
and tokens per second that the table prints beside each other agree with them by Megatron-LM's formula to 0.1%."""
MOONLIGHT = {
    "model_type": "deepseek_v3", "hidden_size": 2048, "num_hidden_layers": 27, "num_attention_heads": 16,
    "num_key_value_heads": 16, "q_lora_rank": None, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128, "intermediate_size": 11264, "moe_intermediate_size": 1408,
    "n_routed_experts": 64, "num_experts_per_tok": 6, "n_shared_experts": 2, "first_k_dense_replace": 1,
    "moe_layer_freq": 1, "vocab_size": 163840, "max_position_embeddings": 8192, "tie_word_embeddings": False,
}  # fmt: skip
NEMOTRON_3_NANO = {
    "model_type": "nemotron_h", "hidden_size": 2688, "num_hidden_layers": 52,
    "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME", "num_attention_heads": 32,
    "num_key_value_heads": 2, "head_dim": 128, "mamba_num_heads": 64, "mamba_head_dim": 64, "ssm_state_size": 128,
    "n_groups": 8, "conv_kernel": 4, "chunk_size": 128, "intermediate_size": 1856, "moe_intermediate_size": 1856,
    "moe_shared_expert_intermediate_size": 3712, "n_routed_experts": 128, "n_shared_experts": 1,
    "num_experts_per_tok": 6, "vocab_size": 131072, "max_position_embeddings": 262144, "tie_word_embeddings": False,
}  # fmt: skip
CONFIGS: Mapping[str, Mapping[str, Any]] = {"Moonlight 16B": MOONLIGHT, "Nemotron 3 Nano 30B": NEMOTRON_3_NANO}
"""As the config.json of moonshotai/Moonlight-16B-A3B and nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-Base-BF16 have them."""
HEAD_DIMS = {"PaLM 540B": 256}
"""Where heads are not as wide as the channels divided among them (Chowdhery et al. 2022, table 1)."""
GATED = ("llama", "glm (GeGLU)", "gpt (parallel block, MQA, SwiGLU)")
PLAIN = ("gpt", *GATED)


def known(row: Row) -> str | None:
    """The catalog's name of its network, where sequences are no longer than it takes."""
    name = next((name for begin, name in KNOWN.items() if row["model"].startswith(begin)), None)
    if name is None or not row["seq_len"]:
        return name
    context = model(name).max_context
    return name if context is None or whole(row, "seq_len") <= context else None


def network_of(row: Row) -> str | Mapping[str, Any]:
    """A name of the catalog, a published config.json, or shapes; raises `Unfit` where there is none of them."""
    config = next((found for begin, found in CONFIGS.items() if row["model"].startswith(begin)), None)
    return known(row) or config or _shapes(row)


def _shapes(row: Row) -> dict[str, Any]:
    if row["moe"] or row["arch"] not in PLAIN:
        raise Unfit(f"network not in the catalog and not plain ({row['arch'] or 'no architecture given'})")
    hidden, heads, gated = whole(row, "hidden"), whole(row, "heads"), row["arch"] in GATED
    width = HEAD_DIMS.get(row["model"], hidden // heads)
    # Ranks that would share a key-value head have a copy each.
    kv_heads = max(whole(row, "kv_heads", heads), whole(row, "tp", 1))
    mixer = {"kind": "attention", "heads": heads, "kv_heads": kv_heads, "head_dim": width}
    ffn = {"kind": "dense", "inner": whole(row, "ffn", 4 * hidden), "gated": gated}
    # GPT's positions are learned or biases of scores: nothing is turned.
    mixer |= {} if gated else {"rotary_dim": 0}
    block = {"count": whole(row, "layers"), "mixer": mixer, "ffn": ffn}
    block |= {"parallel": True} if "parallel" in row["arch"] else {}
    seen = {"hidden": hidden, "vocab": whole(row, "vocab"), "max_context": whole(row, "seq_len")}
    return {"schema": SCHEMA, "tied_embeddings": not gated, "norm_bias": not gated, "blocks": [block]} | seen


def completed_sizes(row: Row) -> dict[str, str]:
    """Columns of shapes that the table leaves out and the network's name tells, and that they were not read."""
    found = SIZES.get(row["model"])
    if found is None or row["hidden"]:
        return {}
    columns = {name: str(getattr(found, name)) for name in ("layers", "hidden", "heads", "vocab")}
    return columns | {"fields_not_read": "; ".join((row["fields_not_read"], *columns))}
