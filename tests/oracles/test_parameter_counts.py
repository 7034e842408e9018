"""Parameters counted on the networks that transformers builds, on torch's meta device: equal to the last one.

Every config of the catalog, and variants of families whose switches no catalog model turns on. Run by
`make test-oracles`; `python -m tests.oracles.test_parameter_counts` writes the counts down for the light tests.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from gnomon import catalog, load  # noqa: E402
from gnomon.load.families import FAMILIES  # noqa: E402
from gnomon.load.fields import Fields  # noqa: E402
from gnomon.load.hf import shapes  # noqa: E402

pytestmark = pytest.mark.oracle

COUNTS = Path(__file__).parents[1] / "catalog" / "parameter_counts.json"
STORED = json.loads(COUNTS.read_text())
CLASSES = {
    "MPTForCausalLM": "MptForCausalLM",
    "PhiMoEForCausalLM": "PhimoeForCausalLM",
    "MiniMaxText01ForCausalLM": "MiniMaxForCausalLM",
}
"""Names of classes that came with checkpoints, by the class transformers has taken in."""
TYPES = {"kimi_k2": "deepseek_v3", "minimax_text_01": "minimax"}
FULL, LINEAR = "full_attention", "linear_attention"

VARIANTS: dict[str, dict[str, Any]] = {
    "arcee": {},
    "bart": {"encoder_layers": 3, "encoder_ffn_dim": 96},
    "bert": {},
    "cohere2": {},
    "dots1": {"n_routed_experts": 8, "n_shared_experts": 2, "num_experts_per_tok": 2, "first_k_dense_replace": 1},
    "ernie4_5": {"use_bias": True},
    "ernie4_5_moe": {"moe_layer_start_index": 3},
    "exaone4": {},
    "falcon": {"alibi": True, "bias": True, "parallel_attn": False, "multi_query": False},
    "gemma3_text": {},
    "gpt_neox": {"attention_bias": False, "use_parallel_residual": False},
    "gpt_oss": {"attention_bias": False},
    "granitemoe": {"attention_bias": True},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"] * 16, "num_local_experts": 0},
    "granitemoeshared": {"shared_intermediate_size": 512},
    "jamba": {"num_experts": 1, "num_experts_per_tok": 1},
    "lfm2": {"conv_bias": True, "full_attn_idxs": [1, 3]},
    "lfm2_moe": {"layer_types": ["conv", FULL] * 16},
    "llama": {"attention_bias": True, "mlp_bias": True, "head_dim": 64},
    "llava": {},
    "mamba": {"use_bias": True, "use_conv_bias": False},
    "mamba2": {"use_bias": True},
    "ministral3": {},
    "modernbert": {"norm_bias": True, "mlp_bias": True, "attention_bias": True, "decoder_bias": False},
    "nemotron": {"num_key_value_heads": 8, "mlp_bias": True},
    "nemotron_h": {"moe_latent_size": 512, "use_bias": True},
    "olmo": {},
    "opt": {"enable_bias": False, "layer_norm_elementwise_affine": False},
    "phi": {"qk_layernorm": True, "num_key_value_heads": 8},
    "qwen2_moe": {"mlp_only_layers": [0, 2], "decoder_sparse_step": 2},
    "qwen3": {"attention_bias": True},
    "qwen3_5": {},
    "qwen3_next": {"mlp_only_layers": [0], "layer_types": [FULL, LINEAR] * 24},
    "qwen3_vl_moe": {},
    "roberta": {},
    "stablelm": {"use_qkv_bias": True, "qk_layernorm": True},
    "starcoder2": {"use_bias": False},
    "t5": {"feed_forward_proj": "gated-gelu", "num_decoder_layers": 3},
    "whisper": {"encoder_layers": 3},
    "xlm-roberta": {},
}


def _parameters(network: Any) -> int:
    """Tied weights once; buffers are not parameters."""
    if hasattr(network, "tie_weights"):
        network.tie_weights()
    return sum(parameter.numel() for parameter in network.parameters())


def _built(config: dict[str, Any]) -> Any:
    config = {key: value for key, value in config.items() if key != "quantization_config"}
    if "_class_name" in config:
        diffusers = pytest.importorskip("diffusers")
        with torch.device("meta"):
            return getattr(diffusers, config["_class_name"]).from_config(config)
    if "attn_type_list" in config:
        config["layer_types"] = [FULL if kind else LINEAR for kind in config.pop("attn_type_list")]
    kind = TYPES.get(config["model_type"], config["model_type"])
    named = CLASSES.get(config["architectures"][0], config["architectures"][0])
    settings = transformers.CONFIG_MAPPING[kind].from_dict(config | {"model_type": kind})
    with torch.device("meta"):
        return getattr(transformers, named)(settings)


def _counted() -> dict[str, int]:
    known = [name for name in catalog.model_names() if name not in STORED["published"]]
    return {name: _parameters(_built(load.config_of(name))) for name in sorted(known)}


@pytest.mark.parametrize("name", sorted(STORED["counted"]))
def test_catalog(name: str) -> None:
    counted = _parameters(_built(load.config_of(name)))
    assert load.model(name).parameters == counted == STORED["counted"][name]


@pytest.mark.parametrize("family", VARIANTS)
def test_variants(family: str) -> None:
    settings = transformers.CONFIG_MAPPING[family](**VARIANTS[family])
    named = FAMILIES[family][1]
    with torch.device("meta"):
        counted = _parameters(getattr(transformers, named)(settings))
    config = {key: value for key, value in settings.to_dict().items() if key not in ("dtype", "torch_dtype")}
    assert shapes(Fields(config | {"architectures": [named]}, family)).parameters == counted


def test_many_architectures_are_compared() -> None:
    configs = [load.config_of(name) for name in STORED["counted"]]
    named = {config.get("_class_name") or config["architectures"][0] for config in configs}
    assert len(named) >= 50
    assert len(named | {FAMILIES[family][1] for family in VARIANTS}) >= 60


def test_what_was_stored_came_from_these_versions() -> None:
    assert transformers.__version__ == STORED["versions"]["transformers"]


if __name__ == "__main__":
    COUNTS.write_text(json.dumps(STORED | {"counted": _counted()}, indent=2) + "\n")
