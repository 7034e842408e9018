"""Broken configs of all families: each is read or answers with one clear line, in a moment, and runs no code."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gnomon import catalog, load
from gnomon.errors import InputError
from gnomon.load.fields import Fields
from gnomon.load.hf import shapes
from gnomon.spec import Model

Config = dict[str, Any]
DROP = object()


def _changed(name: str, changes: dict[str, Any]) -> Config:
    """A catalog config with fields changed; a dot leads into a nested one."""
    config = json.loads(json.dumps(load.config_of(name)))
    for key, value in changes.items():
        *path, last = key.split(".")
        holder = config
        for step in path:
            holder = holder.setdefault(step, {})
        if value is DROP:
            holder.pop(last, None)
        else:
            holder[last] = value
    return config


def _groups(**weights: Any) -> Config:
    group = {"weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128} | weights}
    return {"quant_method": "compressed-tensors", "config_groups": {"g": group | {"targets": ["Linear"]}}}


HAND: dict[str, tuple[str, dict[str, Any], str]] = {
    "llama-two-formats": (
        "llama-3.2-1b",
        {"dtype": "float16"},
        "field dtype: 'float16' and the torch_dtype",
    ),
    "llama-activation": ("llama-3.2-1b", {"hidden_act": "nonsense"}, "field hidden_act: unknown activation 'nonsense'"),
    "gpt-activation": ("gpt2", {"activation_function": "gelo"}, "field activation_function: unknown activation 'gelo'"),
    "gemma-activation": (
        "gemma-3-27b",
        {"text_config.hidden_activation": "x"},
        "field text_config.hidden_activation: unknown activation 'x'",
    ),
    "llama-window": ("llama-3.2-1b", {"sliding_window": -5}, "field sliding_window: -5 is not a whole number"),
    "llama-type": (
        "llama-3.2-1b",
        {"model_type": "gpt2"},
        "model_type: 'gpt2' is not the model type of LlamaFor",
    ),
    "mixtral-type": (
        "mixtral-8x7b",
        {"model_type": "llama"},
        "model_type: 'llama' is not the model type of Mixtral",
    ),
    "opt-no-width": ("opt-6.7b", {"ffn_dim": DROP}, "field ffn_dim: is missing"),
    "opt-negative": ("opt-6.7b", {"word_embed_proj_dim": -1}, "field word_embed_proj_dim: -1"),
    "opt-bias-word": ("opt-6.7b", {"enable_bias": "yes"}, "'yes' is not true or false"),
    "bloom-uneven": ("bloom-7.1b", {"n_embed": 4097}, "4097 is not a multiple of 32 heads"),
    "bloom-no-layers": ("bloom-7.1b", {"n_layer": 0}, "field n_layer: 0"),
    "falcon-three-norms": ("falcon-40b", {"num_ln_in_parallel_attn": 3}, "3 is not 1 or 2 norms"),
    "falcon-groups": ("falcon-40b", {"num_kv_heads": 7}, "128 heads cannot share 7 key-value heads"),
    "neox-turn": ("pythia-1b", {"rotary_pct": -0.5}, "field rotary_pct: -0.5 is not a number above zero"),
    "gptj-no-head": ("gpt-j-6b", {"n_head": None}, "field n_head: is missing"),
    "mpt-one-query": ("mpt-7b", {"attn_config.attn_type": "multiquery_attention"}, "'multiquery_attention'"),
    "mpt-normed": ("mpt-7b", {"attn_config.qk_ln": True}, "a norm of queries and keys is not supported"),
    "mpt-config-text": ("mpt-7b", {"attn_config": "none"}, "field attn_config: 'none' is not a mapping"),
    "llama4-topk": ("llama-4-scout", {"text_config.num_experts_per_tok": 17}, "17 experts per token of only 16"),
    "llama4-places": ("llama-4-scout", {"text_config.no_rope_layers": [1, 0]}, "names 2 layers of 48"),
    "llama4-patches": ("llama-4-scout", {"vision_config.patch_size": 0}, "field vision_config.patch_size: 0"),
    "llama4-moe-layers": ("llama-4-scout", {"text_config.moe_layers": ["x"]}, "'x' is not a layer index"),
    "mistral-window": ("mistral-7b-v0.1", {"sliding_window": 0}, "field sliding_window: 0"),
    "mixtral-no-experts": ("mixtral-8x7b", {"num_local_experts": DROP}, "field num_local_experts: is missing"),
    "qwen2-moe-shared": (
        "qwen2-57b-a14b",
        {"shared_expert_intermediate_size": "wide"},
        "field shared_expert_intermediate_size: 'wide'",
    ),
    "qwen3-step": ("qwen3-30b-a3b", {"decoder_sparse_step": 0}, "field decoder_sparse_step: 0"),
    "gemma-cap": ("gemma-2-9b", {"attn_logit_softcapping": -50}, "-50 is not a number above zero"),
    "gemma-kinds": ("gemma-3-1b", {"layer_types": ["sliding_attention"]}, "names 1 layers of 26"),
    "gemma-kind": ("gemma-3-1b", {"layer_types": ["round"] * 26}, "unknown kind of layer 'round'"),
    "gemma-kind-number": ("gemma-3-1b", {"layer_types": [3] * 26}, "unknown kind of layer '3'"),
    "gemma-no-text": ("gemma-3-4b", {"text_config": DROP}, "field text_config.hidden_size: is missing"),
    "gemma-no-vision": ("gemma-3-4b", {"vision_config": None}, "field vision_config.hidden_size: is missing"),
    "phi-turn": ("phi-2", {"partial_rotary_factor": 1.5}, "1.5 is more than 1"),
    "phi-moe-bias": ("phi-3.5-moe", {"lm_head_bias": 1}, "field lm_head_bias: 1 is not true or false"),
    "oss-topk": ("gpt-oss-20b", {"num_experts_per_tok": 33}, "33 experts per token of only 32"),
    "deepseek-rank": ("deepseek-v3", {"kv_lora_rank": 0}, "field kv_lora_rank: 0"),
    "deepseek-groups": ("deepseek-v3", {"n_group": 3}, "field n_group: 256 experts cannot share 3 groups evenly"),
    "deepseek-chosen": ("deepseek-v3", {"topk_group": 9}, "field topk_group: 9 groups per token of only 8"),
    "deepseek-kinds": ("deepseek-v3", {"mlp_layer_types": []}, "field mlp_layer_types: names 0 layers of 61"),
    "mamba-groups": ("mamba-codestral-7b", {"n_groups": 3}, "field n_groups: 128 heads cannot share 3 groups evenly"),
    "nemotron-groups": ("nemotron-h-8b", {"n_groups": 3}, "field n_groups: 128 heads cannot share 3 groups evenly"),
    "granite-groups": ("granite-4.0-h-small", {"mamba_n_groups": 3}, "field mamba_n_groups: 128 heads cannot share 3"),
    "granite-kinds": ("granite-4.0-h-small", {"layer_types": []}, "field layer_types: names 0 layers of 40"),
    "next-heads": (
        "qwen3-next-80b-a3b",
        {"linear_num_key_heads": 3},
        "field linear_num_key_heads: 32 value heads cannot share 3 key heads evenly",
    ),
    "next-kinds": ("qwen3-next-80b-a3b", {"layer_types": []}, "field layer_types: names 0 layers of 48"),
    "gemma-no-kinds": ("gemma-3-1b", {"layer_types": []}, "field layer_types: names 0 layers of 26"),
    "oss-no-kinds": ("gpt-oss-20b", {"layer_types": []}, "field layer_types: names 0 layers of 24"),
    "lfm2-no-kinds": ("lfm2-1.2b", {"layer_types": []}, "field layer_types: names 0 layers of 16"),
    "lfm2-nothing": ("lfm2-1.2b", {"block_ff_dim": 1}, "field block_ff_dim: 1 becomes a feed-forward of 0"),
    "lfm2-endless": (
        "lfm2-1.2b",
        {"block_ffn_dim_multiplier": 1e308},
        "field block_ffn_dim_multiplier: 1e+308 is more than 1000",
    ),
    "lfm2-wide": ("lfm2-1.2b", {"block_ff_dim": 2**31, "block_ffn_dim_multiplier": 2}, "field block_ff_dim: "),
    "dit-wide": ("dit-xl-2-256", {"sample_size": 2**31}, "field sample_size: 2147483648 is more than 32768"),
    **{
        f"{name}-merge": (name, {f"{field}spatial_merge_size": 10**6}, f"field {field}spatial_merge_size: 1000000 is")
        for name, field in (
            ("qwen2-vl-7b", "vision_config."),
            ("qwen3-vl-8b", "vision_config."),
            ("mistral-small-3.1-24b", ""),
        )
    },
    "deepseek-no-rope": ("deepseek-v3", {"qk_rope_head_dim": DROP}, "field qk_rope_head_dim: is missing"),
    "deepseek-drafts": ("deepseek-v3", {"num_nextn_predict_layers": 10**6}, "1000000 is more than 64"),
    "deepseek-freq": ("deepseek-v3", {"moe_layer_freq": [1, 1]}, "field moe_layer_freq: [1, 1]"),
    "deepseek-index": ("deepseek-v3.2-exp", {"index_topk": DROP}, "field index_topk: is missing"),
    "glm-experts": ("glm-4.5", {"n_shared_experts": -1}, "field n_shared_experts: -1"),
    "minimax-kinds": ("minimax-text-01", {"attn_type_list": [2] * 80}, "is not a 0 or 1 for each of 80 layers"),
    "minimax-none": ("minimax-text-01", {"attn_type_list": DROP}, "field layer_types: is missing"),
    "cohere-pattern": ("command-r7b", {"sliding_window_pattern": 0}, "field sliding_window_pattern: 0"),
    "stablelm-heads": ("stablelm-2-12b", {"num_key_value_heads": 5}, "32 heads cannot share 5"),
    "mamba-rank": ("mamba-2.8b", {"time_step_rank": "much"}, "field time_step_rank: 'much'"),
    "mamba-heads": ("mamba-codestral-7b", {"num_heads": 100}, "100 heads of 64 channels are not the 8192"),
    "jamba-offset": ("jamba-52b", {"attn_layer_offset": 8}, "8 is not below the period of 8"),
    "jamba-period": ("jamba-52b", {"expert_layer_period": 0}, "field expert_layer_period: 0"),
    "nemotron-letter": ("nemotron-h-8b", {"hybrid_override_pattern": "M-X"}, "'X' is not a kind of layer"),
    "nemotron-long": ("nemotron-h-8b", {"hybrid_override_pattern": "M" * 20_000}, "names 20000 layers"),
    "nemotron-empty": ("nemotron-h-8b", {"hybrid_override_pattern": ""}, "field hybrid_override_pattern"),
    "next-delta": ("qwen3-next-80b-a3b", {"linear_num_value_heads": DROP}, "linear_num_value_heads: is missing"),
    "lfm2-layers": ("lfm2-1.2b", {"full_attn_idxs": [-1]}, "-1 is not a layer index"),
    "lfm2-multiplier": ("lfm2-1.2b", {"block_ffn_dim_multiplier": 1e400}, "field block_ffn_dim_multiplier"),
    "granite-kind": ("granite-4.0-h-small", {"layer_types": ["conv"] * 40}, "unknown kind of layer 'conv'"),
    "granite-few": ("granite-4.0-h-small", {"layer_types": ["mamba"]}, "names 1 layers of 40"),
    "bert-decoder": ("bert-base", {"is_decoder": True}, "an encoder used as a decoder is not supported"),
    "bert-types": ("bert-base", {"type_vocab_size": 0}, "field type_vocab_size: 0"),
    "bert-tagger": ("bert-base", {"architectures": ["BertForTokens"]}, "'BertForTokens' is not supported. Near: Bert"),
    "modernbert-every": ("modernbert-base", {"global_attn_every_n_layers": 0}, "global_attn_every_n_layers: 0"),
    "t5-activation": ("t5-large", {"feed_forward_proj": "a-b-c"}, "'a-b-c' is not supported"),
    "t5-decoder": ("t5-large", {"num_decoder_layers": -3}, "field num_decoder_layers: -3"),
    "whisper-heads": ("whisper-small", {"encoder_attention_heads": 7}, "768 is not a multiple of 7 heads"),
    "whisper-bins": ("whisper-small", {"num_mel_bins": "80"}, "field num_mel_bins: '80'"),
    "mllama-cross": ("llama-3.2-11b-vision", {"text_config.cross_attention_layers": "all"}, "'all' is not a list"),
    "qwen-vl-vision": ("qwen2-vl-7b", {"vision_config": [1]}, "field vision_config: [1] is not a mapping"),
    "qwen-vl-depth": ("qwen2.5-vl-7b", {"vision_config.depth": 10**7}, "10000000 is more than 10000"),
    "dit-norm": ("dit-xl-2-256", {"norm_type": "ada_norm_single"}, "'ada_norm_single' is not supported"),
    "dit-patch": ("dit-xl-2-256", {"patch_size": 64}, "64 is more than the whole sample"),
    "dit-class": ("dit-xl-2-256", {"_class_name": "UNet2DConditionModel"}, "'UNet2DConditionModel' is not supported"),
    "dbrx-heads": ("dbrx-132b", {"attn_config.kv_n_heads": 5}, "48 heads cannot share 5"),
    "type-number": ("llama-3.1-8b", {"architectures": DROP, "model_type": 7}, "field model_type: 7 is not a text"),
    "type-control": (
        "llama-3.1-8b",
        {"architectures": DROP, "model_type": "a\nb"},
        "has characters that are not printed",
    ),
    "remote-code": (
        "llama-3.1-8b",
        {"architectures": ["MyForCausalLM"], "auto_map": {"AutoModel": "modeling_my.My"}},
        "Its remote code is never run",
    ),
    "quant-number": ("llama-3.1-8b", {"quantization_config": 4}, "field quantization_config: 4 is not a mapping"),
    "quant-method": ("llama-3.1-8b", {"quantization_config": {"quant_method": "aqlm"}}, "way to quantise 'aqlm'"),
    "quant-bits": (
        "llama-3.1-8b",
        {"quantization_config": {"quant_method": "gptq", "bits": 5}},
        "5 bits are not supported",
    ),
    "quant-group": (
        "llama-3.1-8b",
        {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 0}},
        "field quantization_config.group_size: 0",
    ),
    "quant-block": (
        "llama-3.1-8b",
        {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128]}},
        "[128] is not rows and columns",
    ),
    "quant-list": (
        "llama-3.1-8b",
        {"quantization_config": {"quant_method": "fp8", "modules_to_not_convert": [1]}},
        "1 is not the name of a module",
    ),
    "quant-no-groups": (
        "llama-3.1-8b",
        {"quantization_config": {"quant_method": "compressed-tensors"}},
        "field quantization_config.config_groups: holds 0 groups",
    ),
    "quant-targets": (
        "llama-3.1-8b",
        {"quantization_config": {"quant_method": "compressed-tensors", "config_groups": {"g": {"targets": 3}}}},
        "field quantization_config.config_groups.g.targets: 3 is not a list",
    ),
    "quant-strategy": ("llama-3.1-8b", {"quantization_config": _groups(strategy="hex")}, "unknown strategy 'hex'"),
    "quant-format": ("llama-3.1-8b", {"quantization_config": _groups(num_bits=7)}, "int of 7 bits is not supported"),
    "quant-nibble": (
        "llama-3.1-8b",
        {"quantization_config": _groups(type="float", group_size=7)},
        "7 values per scale are not supported",
    ),
    "quant-algorithm": (
        "llama-3.1-8b",
        {"quantization_config": {"quant_method": "modelopt", "quant_algo": "W1A1"}},
        "unknown algorithm 'W1A1'",
    ),
    "quant-expression": (
        "llama-3.1-8b",
        {"quantization_config": _groups() | {"ignore": ["re:(a+)+$"]}},
        "the expression '(a+)+$' is not supported",
    ),
    "quant-lookahead": (
        "llama-3.1-8b",
        {"quantization_config": _groups() | {"ignore": ["re:(?!x).*"]}},
        "is not supported",
    ),
    "quant-slow": (
        "llama-3.1-8b",
        {"quantization_config": _groups() | {"ignore": ["re:.*.*.*.*.*.*.*.*x"]}},
        "would take too long",
    ),
    "quant-bracket": (
        "llama-3.1-8b",
        {"quantization_config": _groups() | {"ignore": ["re:(a"]}},
        "the expression '(a' is not supported",
    ),
    "quant-nf5": (
        "llama-3.1-8b",
        {"quantization_config": {"load_in_4bit": True, "bnb_4bit_quant_type": "nf5"}},
        "unknown 4-bit type 'nf5'",
    ),
}


@pytest.mark.battery(8)
@pytest.mark.parametrize("case", HAND)
def test_broken_by_hand(tmp_path: Path, case: str) -> None:
    name, changes, said = HAND[case]
    path = tmp_path / "config.json"
    path.write_text(json.dumps(_changed(name, changes)))
    with pytest.raises(InputError) as caught:
        load.model(path)
    text = str(caught.value)
    assert said in text
    assert "config.json" in text
    assert "\n" not in text
    assert len(text) < 700


def test_there_are_many_of_them() -> None:
    assert len(HAND) >= 80


def _families() -> dict[str, str]:
    """One model of each family of the catalog."""
    found: dict[str, str] = {}
    for name in catalog.model_names():
        found.setdefault(load.model(name).family, name)
    return found


BROKEN: dict[str, Any] = {
    "dropped": DROP,
    "null": None,
    "text": "many",
    "negative": -1,
    "zero": 0,
    "huge": 10**15,
    "half": 0.5,
    "endless": float("inf"),
    "true": True,
    "list": [1, "x", None],
    "mapping": {"a": {"b": []}},
}


def _fields(config: Config, path: str = "") -> Iterator[str]:
    for key, value in config.items():
        yield path + key
        if isinstance(value, dict):
            yield from _fields(value, f"{path}{key}.")


@pytest.mark.battery(6)
@pytest.mark.parametrize(("family", "name"), _families().items(), ids=list(_families()))
def test_broken_by_machine(family: str, name: str) -> None:
    """Every field of a config, broken in every way. What is still read must still be counted."""
    refused = 0
    for field in _fields(load.config_of(name)):
        for broken in BROKEN.values():
            config = _changed(name, {field: broken})
            try:
                found = shapes(Fields(config, "config.json"))
            except InputError as error:
                refused += 1
                text = str(error)
                assert text.startswith("config.json"), text
                assert "\n" not in text
                assert len(text) < 700
            else:
                assert isinstance(found, Model)
                assert found.parameters > 0, field
                assert found.layers > 0, field
                assert sum(found.weight_bytes().values()) > 0
    assert refused > 50, "most of what is broken is refused"


def test_no_code_is_run(tmp_path: Path) -> None:
    """A config that points to code beside it, in all the places where libraries look for it."""
    sign = tmp_path / "ran"
    code = f"open({str(sign)!r}, 'w').write('x')\n"
    for file in ("modeling_llama.py", "configuration_llama.py", "__init__.py", "conftest.py"):
        (tmp_path / file).write_text(code)
    config = load.config_of("llama-3.1-8b") | {
        "auto_map": {"AutoConfig": "configuration_llama.C", "AutoModelForCausalLM": "modeling_llama.M"},
        "trust_remote_code": True,
        "custom_generate": "modeling_llama.py",
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert load.model(tmp_path).parameters == 8_030_261_248
    (tmp_path / "shapes.yaml").write_text("schema: gnomon.model/1\nname: !!python/object/apply:os.system [touch ran]\n")
    with pytest.raises(InputError):
        load.model(tmp_path / "shapes.yaml")
    assert not sign.exists()
    assert not {"transformers", "torch", "modeling_llama"} & set(sys.modules)
