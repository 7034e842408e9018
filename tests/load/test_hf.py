"""Configs to shapes: parameter counts that were published, and the families' differences."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon import load
from gnomon.errors import InputError
from gnomon.load.families import read_family
from gnomon.load.fields import Fields
from gnomon.spec import DenseFfn, MoeFfn

SMALL: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 1000,
    "max_position_embeddings": 2048,
}
QWEN2_7B = {
    "architectures": ["Qwen2ForCausalLM"],
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "max_position_embeddings": 32768,
    "max_window_layers": 28,
    "num_attention_heads": 28,
    "num_hidden_layers": 28,
    "num_key_value_heads": 4,
    "sliding_window": 131072,
    "use_sliding_window": False,
    "vocab_size": 152064,
}
MISTRAL_7B = {
    "architectures": ["MistralForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 32768,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "sliding_window": 4096,
    "vocab_size": 32000,
}
LLAVA_7B = {
    "architectures": ["LlavaForConditionalGeneration"],
    "text_config": {"model_type": "llama", "max_position_embeddings": 4096, "vocab_size": 32064},
    "vision_config": {
        "model_type": "clip_vision_model",
        "hidden_size": 1024,
        "image_size": 336,
        "intermediate_size": 4096,
        "num_attention_heads": 16,
        "num_hidden_layers": 24,
        "patch_size": 14,
    },
}
BART_LARGE = {
    "architectures": ["BartForConditionalGeneration"],
    "d_model": 1024,
    "decoder_attention_heads": 16,
    "decoder_ffn_dim": 4096,
    "decoder_layers": 12,
    "encoder_attention_heads": 16,
    "encoder_ffn_dim": 4096,
    "encoder_layers": 12,
    "max_position_embeddings": 1024,
    "vocab_size": 50265,
}
QWEN3_0_6B = {
    "architectures": ["Qwen3ForCausalLM"],
    "hidden_size": 1024,
    "head_dim": 128,
    "intermediate_size": 3072,
    "max_position_embeddings": 40960,
    "num_attention_heads": 16,
    "num_hidden_layers": 28,
    "num_key_value_heads": 8,
    "tie_word_embeddings": True,
    "vocab_size": 151936,
}

GPT2 = {
    "architectures": ["GPT2LMHeadModel"],
    "activation_function": "gelu_new",
    "n_ctx": 1024,
    "n_embd": 768,
    "n_head": 12,
    "n_inner": None,
    "n_layer": 12,
    "n_positions": 1024,
    "vocab_size": 50257,
}
GPT2_XL = GPT2 | {"n_embd": 1600, "n_head": 25, "n_layer": 48}


def _model(config: dict[str, Any]) -> Any:
    return read_family(Fields(config, "config.json"))


@pytest.mark.parametrize(
    ("config", "parameters"),
    [
        (QWEN2_7B, 7_615_616_512),
        (MISTRAL_7B, 7_241_732_096),
        (QWEN3_0_6B, 596_049_920),
        (GPT2, 124_439_808),
        (GPT2_XL, 1_557_611_200),
        (LLAVA_7B, 7_063_427_072),
        (BART_LARGE, 406_291_456),
    ],
    ids=["qwen2-7b", "mistral-7b", "qwen3-0.6b", "gpt2", "gpt2-xl", "llava-1.5-7b", "bart-large"],
)
def test_published_parameter_counts(config: dict[str, Any], parameters: int) -> None:
    assert _model(config).parameters == parameters


def test_families_differ_where_they_should() -> None:
    assert _model(QWEN2_7B).blocks[0].mixer.qkv_bias
    assert not _model(QWEN2_7B).blocks[0].mixer.out_bias
    assert _model(QWEN2_7B).blocks[0].mixer.window is None
    assert _model(MISTRAL_7B).blocks[0].mixer.window == 4096
    assert _model(QWEN3_0_6B).blocks[0].mixer.qk_norm
    assert _model(QWEN3_0_6B).tied_embeddings


def test_gpt2_is_built_otherwise() -> None:
    found = _model(GPT2)
    mixer, ffn = found.blocks[0].mixer, found.blocks[0].ffn
    assert (mixer.heads, mixer.kv_heads, mixer.head_dim, mixer.qkv_bias, mixer.out_bias) == (12, 12, 64, True, True)
    assert (ffn.inner, ffn.gated, ffn.bias) == (3072, False, True)
    assert found.norm_bias
    assert (found.max_context, found.learned_positions, found.tied_embeddings) == (1024, 1024, True)
    assert _model(GPT2 | {"n_inner": 2048}).blocks[0].ffn.inner == 2048
    untied = _model(GPT2 | {"tie_word_embeddings": False})
    assert untied.parameters - found.parameters == 50257 * 768
    by_type = {key: value for key, value in GPT2.items() if key != "architectures"} | {"model_type": "gpt2"}
    assert _model(by_type) == found


def test_layers_that_differ_become_blocks() -> None:
    sliding = _model(QWEN2_7B | {"use_sliding_window": True, "max_window_layers": 20})
    assert [(block.count, block.mixer.window) for block in sliding.blocks] == [(20, None), (8, 131072)]
    config = load.config_of("qwen3-30b-a3b") | {"mlp_only_layers": [0], "num_hidden_layers": 4}
    kinds = [(type(block.ffn), block.count) for block in _model(config).blocks]
    assert kinds == [(DenseFfn, 1), (MoeFfn, 3)]
    every_second = _model(config | {"mlp_only_layers": [], "decoder_sparse_step": 2})
    assert [type(block.ffn) for block in every_second.blocks] == [DenseFfn, MoeFfn] * 2


def test_defaults_of_the_format() -> None:
    found = _model({key: value for key, value in SMALL.items() if key != "num_key_value_heads"} | {"head_dim": None})
    assert (found.blocks[0].mixer.kv_heads, found.blocks[0].mixer.head_dim, found.dtype) == (8, 8, "bf16")
    assert _model(SMALL | {"dtype": "float16"}).dtype == "fp16"
    assert _model(SMALL | {"torch_dtype": "torch.float32"}).dtype == "fp32"
    assert _model({key: value for key, value in SMALL.items() if key != "architectures"}).family == "llama"


def test_a_folder_a_file_and_a_hub_cache(tmp_path: Path) -> None:
    folder = tmp_path / "my-model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(SMALL))
    (tmp_path / "other.json").write_text(json.dumps(SMALL))
    cached = tmp_path / "models--meta-llama--Tiny" / "snapshots" / "0123"
    cached.mkdir(parents=True)
    (cached / "config.json").write_text(json.dumps(SMALL))
    assert load.model(str(folder)).name == "my-model"
    assert load.model(folder / "config.json").source == str(folder / "config.json")
    assert load.model(tmp_path / "other.json").name == "other"
    assert load.model(cached).name == "Tiny"
    assert load.config_of(folder) == SMALL


def test_a_script_without_its_function(tmp_path: Path) -> None:
    script = tmp_path / "net.py"
    script.write_text("def build(): ...")
    with pytest.raises(InputError, match=r"net.py: is Python.*net.py:FUNCTION"):
        load.model(str(script))


def test_a_catalog_name_wins_over_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "llama-3.1-8b").mkdir()
    (tmp_path / "llama-3.1-8b" / "config.json").write_text(json.dumps(SMALL))
    monkeypatch.chdir(tmp_path)
    assert load.model("llama-3.1-8b").hidden == 4096
    assert load.model("./llama-3.1-8b").hidden == 64


@given(st.integers(1, 40), st.integers(0, 5), st.integers(0, 3), st.booleans())
def test_more_layers_are_more_parameters(layers: int, power: int, kv_power: int, tied: bool) -> None:
    heads = 2**power
    config = SMALL | {
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": 2 ** min(power, kv_power),
        "tie_word_embeddings": tied,
    }
    first, one, more = (_model(config | {"num_hidden_layers": count}) for count in (1, layers, layers + 1))
    assert one.layers == layers
    assert (more.parameters - one.parameters) * (layers - 1) == one.parameters - first.parameters


@pytest.mark.parametrize("key", ["n_shared_experts", "first_k_dense_replace", "num_nextn_predict_layers"])
def test_none_of_something_may_be_said(key: str) -> None:
    """Configs write 0 where they could leave a field out."""
    plain = {name: value for name, value in load.config_of("deepseek-v3").items() if name != key}
    assert read_family(Fields(plain | {key: 0}, "config.json")) == read_family(Fields(plain, "config.json"))
