"""Quantised checkpoints: which matrices are in which format, from the configs that tools write."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from gnomon import load
from gnomon.errors import InputError
from gnomon.load import parse_pool
from gnomon.load.deployments import deploy
from gnomon.load.fields import Fields
from gnomon.load.hf import shapes
from gnomon.load.quantised import patterns
from gnomon.load.quantised.patterns import Patterns
from gnomon.spec import Format, Model

LLAMA = "llama-3.1-8b"
BODY = 32 * (4096 * (4096 + 2048) + 4096 * 4096 + 3 * 4096 * 14336)
"""Numbers in the matrices of Llama-3.1-8B's layers."""
REST = 8_030_261_248 - BODY
MATRICES = {"q", "k", "v", "out", "gate", "up", "down"}

FP8_BLOCK = {
    "activation_scheme": "dynamic",
    "fmt": "e4m3",
    "quant_method": "fp8",
    "weight_block_size": [128, 128],
}
FP8_DYNAMIC = {
    "config_groups": {
        "group_0": {
            "input_activations": {"dynamic": True, "num_bits": 8, "strategy": "token", "type": "float"},
            "targets": ["Linear"],
            "weights": {"num_bits": 8, "strategy": "channel", "symmetric": True, "type": "float"},
        }
    },
    "format": "float-quantized",
    "ignore": ["lm_head"],
    "quant_method": "compressed-tensors",
}
W4A16 = {
    "config_groups": {
        "group_0": {
            "input_activations": None,
            "targets": ["Linear"],
            "weights": {"num_bits": 4, "strategy": "group", "group_size": 128, "symmetric": True, "type": "int"},
        }
    },
    "format": "pack-quantized",
    "ignore": ["lm_head"],
    "quant_method": "compressed-tensors",
}
NVFP4 = {
    "config_groups": {
        "group_0": {
            "input_activations": {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16},
            "targets": ["Linear"],
            "weights": {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16},
        }
    },
    "format": "nvfp4-pack-quantized",
    "ignore": ["lm_head"],
    "quant_method": "compressed-tensors",
}
GPTQ = {"bits": 4, "desc_act": True, "group_size": 128, "quant_method": "gptq", "sym": True}
AWQ = {"bits": 4, "group_size": 128, "quant_method": "awq", "version": "gemm", "zero_point": True}
NF4 = {
    "_load_in_4bit": True,
    "bnb_4bit_quant_type": "nf4",
    "bnb_4bit_use_double_quant": True,
    "load_in_4bit": True,
    "quant_method": "bitsandbytes",
}
INT8 = {"load_in_8bit": True, "quant_method": "bitsandbytes"}
MODELOPT = {"quant_algo": "FP8", "exclude_modules": ["lm_head"], "quant_method": "modelopt"}


def _model(name: str, quantisation: dict[str, Any]) -> Model:
    config = load.config_of(name)
    config.pop("quantization_config", None)
    return shapes(Fields(config | {"quantization_config": quantisation}, "config.json"))


def _roles(model: Model, place: int = -1) -> set[str]:
    return {role for role, _ in model.blocks[place].formats}


def _format(model: Model) -> Format:
    return model.blocks[0].formats[0][1]


@pytest.mark.parametrize(
    ("config", "name", "bits_a_value"),
    [
        (FP8_BLOCK, "fp8", 8 + 32 / 128**2),
        (FP8_DYNAMIC, "fp8", 8.005),
        (W4A16, "int4", 4 + 16 / 128),
        (NVFP4, "nvfp4", 4 + 8 / 16),
        (GPTQ, "int4", 4 + 20 / 128),
        (AWQ, "int4", 4 + 20 / 128),
        (NF4, "nf4", 4 + 8.125 / 64),
        (INT8, "int8", 8.01),
        (MODELOPT, "fp8", 8),
        ({"quant_method": "fbgemm_fp8", "modules_to_not_convert": ["lm_head"]}, "fp8", 8.01),
        ({"quant_method": "fp8", "activation_scheme": "static"}, "fp8", 8),
    ],
)
def test_every_matrix_of_a_layer(config: dict[str, Any], name: str, bits_a_value: float) -> None:
    model = _model(LLAMA, config)
    assert (model.dtype, model.kept_dtype) == (name, "bf16")
    assert _roles(model) == MATRICES
    assert len(model.blocks) == 1
    stored = model.weight_bytes()
    assert stored["bf16"] == 2 * REST
    assert stored[name] == pytest.approx(BODY * bits_a_value / 8, rel=2e-3)
    assert model.parameters == 8_030_261_248


def test_inputs_that_are_narrowed_too() -> None:
    assert _format(_model(LLAMA, FP8_DYNAMIC)).activations == "fp8"
    assert _format(_model(LLAMA, W4A16)).activations == ""
    assert _format(_model(LLAMA, INT8)).activations == "int8"


def test_what_is_left_out_by_name_glob_and_expression() -> None:
    ways = (["self_attn"], ["*self_attn*"], ["re:.*self_attn.*"], ["model.layers.*.self_attn"])
    for left_out in ways:
        model = _model(LLAMA, FP8_DYNAMIC | {"ignore": [*left_out, "lm_head"]})
        assert _roles(model) == {"gate", "up", "down"}, left_out
    model = _model(LLAMA, FP8_DYNAMIC | {"ignore": [r"re:.*mlp\.(gate|up)_proj.*", "lm_head"]})
    assert _roles(model) == MATRICES - {"gate", "up"}


def test_what_is_left_out_in_some_layers_only() -> None:
    left_out = ["lm_head", *(f"model.layers.{layer}.mlp.down_proj" for layer in (0, 1, 31))]
    model = _model(LLAMA, FP8_DYNAMIC | {"ignore": left_out})
    assert [(block.count, "down" in _roles(model, i)) for i, block in enumerate(model.blocks)] == [
        (2, False),
        (29, True),
        (1, False),
    ]
    assert model.layers == 32


def test_a_head_that_is_not_left_out_is_quantised() -> None:
    assert _model(LLAMA, FP8_DYNAMIC).head_format is None
    assert _model(LLAMA, FP8_DYNAMIC | {"ignore": []}).head_format is not None
    assert _model("llama-3.2-1b", FP8_DYNAMIC | {"ignore": []}).head_format is None, "it is the embedding"
    assert _model(LLAMA, GPTQ | {"lm_head": True}).head_format is not None


def test_two_formats_in_one_model() -> None:
    groups = {
        "attention": W4A16["config_groups"]["group_0"] | {"targets": ["re:.*self_attn.*"]},  # type: ignore[index]
        "rest": FP8_DYNAMIC["config_groups"]["group_0"] | {"targets": ["Linear"]},  # type: ignore[index]
    }
    model = _model(LLAMA, FP8_DYNAMIC | {"config_groups": groups})
    assert {role: format.name for role, format in model.blocks[0].formats} == {
        **dict.fromkeys(("q", "k", "v", "out"), "int4"),
        **dict.fromkeys(("gate", "up", "down"), "fp8"),
    }
    assert model.dtype == "fp8"


def test_experts_and_what_stays_wide() -> None:
    model = _model("qwen3-30b-a3b", FP8_BLOCK | {"modules_to_not_convert": ["lm_head", "model.layers.0.mlp.gate"]})
    assert _roles(model) == {"q", "k", "v", "out", "expert_gate", "expert_up", "expert_down"}
    oss = load.model("gpt-oss-20b")
    assert _roles(oss) == {"expert_gate", "expert_up", "expert_down"}
    assert oss.dtype == "mxfp4"
    thinking = {
        "config_groups": {"g": W4A16["config_groups"]["group_0"]},  # type: ignore[index]
        "ignore": [
            "lm_head",
            "re:.*self_attn.*",
            "re:.*shared_experts.*",
            r"re:.*mlp\.(gate|up|gate_up|down)_proj.*",
        ],
        "quant_method": "compressed-tensors",
    }
    kimi = _model("kimi-k2", thinking)
    assert [sorted(_roles(kimi, place)) for place in (0, 1)] == [[], ["expert_down", "expert_gate", "expert_up"]]


def test_vision_towers() -> None:
    left_out = _model("qwen2.5-vl-7b", AWQ | {"modules_to_not_convert": ["visual"]})
    assert left_out.dtype == "int4"
    assert not any(block.formats for block in left_out.towers[0].blocks)
    whole = _model("qwen2.5-vl-7b", NF4)
    assert all(block.formats for block in whole.towers[0].blocks)
    skipped = _model("qwen2.5-vl-7b", NF4 | {"llm_int8_skip_modules": ["lm_head", "visual"]})
    assert not any(block.formats for block in skipped.towers[0].blocks)


def test_a_file_beside_the_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(load.config_of(LLAMA)))
    assert load.model(tmp_path).dtype == "bf16"
    beside = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "exclude_modules": ["lm_head"]}}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(beside))
    assert load.model(tmp_path).dtype == "nvfp4"


def test_a_config_that_leaves_everything_out_quantises_nothing() -> None:
    assert _model(LLAMA, FP8_DYNAMIC | {"ignore": ["model", "lm_head"]}).dtype == "bf16"


def test_blocks_at_the_edge_have_a_scale_of_their_own() -> None:
    format = Format(name="fp8", bits=8, block=(128, 128), scale_bits=32)
    assert format.bytes(129, 128) == 129 * 128 + 2 * 4
    assert Format(name="int4", bits=4, block=(1, 0), scale_bits=16).bytes(10, 64) == 10 * 32 + 10 * 2


def _grouped(method: str, size: int) -> dict[str, Any]:
    if method == "compressed-tensors":
        config = copy.deepcopy(W4A16)
        config["config_groups"]["group_0"]["weights"]["group_size"] = size  # type: ignore[index]
        return config
    if method == "modelopt":
        return {"quant_algo": "W4A16_AWQ", "quant_method": method, "group_size": size}
    return (AWQ if method == "awq" else GPTQ) | {"group_size": size}


@pytest.mark.parametrize("method", ["awq", "gptq", "compressed-tensors", "modelopt"])
def test_groups_fill_the_rows(method: str) -> None:
    for size in (32, 64, 128, 256, 1024, -1):
        assert _model(LLAMA, _grouped(method, size)).dtype == "int4"
    for size in (33, 96, 100, 129, 4096, 10_000):
        with pytest.raises(InputError, match=rf"groups of {size} weights do not divide the [\d,]+ of a row"):
            _model(LLAMA, _grouped(method, size))
    for size in (1, 7, 16, 31):
        with pytest.raises(InputError, match=rf"group_size: scales of {size} weights are not priced"):
            _model(LLAMA, _grouped(method, size))


def test_what_engines_make_of_them() -> None:
    """Weights are priced in the formats they have, matrix by matrix; training is in what is not quantised."""
    pool = parse_pool("H200")
    _engine, deployment = deploy(_model(LLAMA, FP8_DYNAMIC), pool)
    assert (deployment.dtype, deployment.kv_dtype) == ("fp8", "bf16")

    def products(config: dict[str, Any], on: str = "H200") -> dict[str, str]:
        engine, deployment = deploy(_model(LLAMA, config), parse_pool(on))
        return {op.name: op.dtype for op in engine.graph(deployment).ops if op.kind == "gemm"}

    partly = products(FP8_DYNAMIC | {"ignore": ["lm_head", "re:.*self_attn.*"]})
    assert (partly["attention.qkv"], partly["ffn.up"], partly["head.logits"]) == ("bf16", "fp8", "bf16")
    assert products(W4A16)["ffn.down"] == "int4-weights"
    assert products(NVFP4)["ffn.down"] == "nvfp4-weights"
    assert products(NVFP4, "B200")["ffn.down"] == "nvfp4"
    assert products(FP8_DYNAMIC, "A100")["ffn.down"] == "fp8-weights"
    _, wide = deploy(_model(LLAMA, NVFP4), pool, dtype="bf16")
    assert (wide.dtype, wide.model.dtype, wide.model.blocks[0].formats) == ("bf16", "bf16", ())
    assert _model(LLAMA, W4A16).working_dtype == "bf16"


def test_patterns() -> None:
    found = Patterns(["lm_head", "a.*.c", "re:x.*z$", "mlp.gate"], "ignore", 10)
    assert "lm_head" in found
    assert "model.lm_head" in found
    assert "a.b.c" in found
    assert "a.b.c.d" in found
    assert "xyz" in found
    assert "xyza" not in found
    assert "model.layers.0.mlp.gate" in found
    assert "model.layers.0.mlp.gate_proj" not in found
    assert not found.numbered
    assert Patterns(["model.layers.3.mlp"], "ignore", 10).numbered


@pytest.mark.heavy
def test_long_lists_are_looked_up_and_not_gone_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names are found in a set, runs of a name at a time; only globs are tried one by one."""
    tried: list[str] = []
    looked: list[str] = []
    runs, match = patterns._runs, patterns.fnmatchcase
    monkeypatch.setattr(patterns, "_runs", lambda name: (looked.append(name), runs(name))[1])
    monkeypatch.setattr(patterns, "fnmatchcase", lambda name, glob: (tried.append(glob), match(name, glob))[1])
    left_out = ["lm_head", *(f"model.layers.{layer}.mlp.experts.{i}" for layer in range(60) for i in range(500))]
    assert _model("deepseek-v3", FP8_DYNAMIC | {"ignore": left_out}).dtype == "fp8"
    assert tried == []
    assert 0 < len(looked) < 10_000
    globs = ["lm_head", *(f"model.layers.{layer}.self_attn*" for layer in range(60))]
    looked.clear()
    model = _model("deepseek-v3", FP8_DYNAMIC | {"ignore": globs})
    assert [block.count for block in model.blocks] == [3, 57, 1]
    assert 0 < len(looked) < 10_000
    assert 0 < len(tried) <= 3 * 60 * len(looked)
