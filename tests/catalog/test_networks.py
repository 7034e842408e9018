"""One battery for every model: its parameters as counted elsewhere, to the last one, and every name found."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from gnomon import catalog, load
from gnomon.errors import UnknownNameError
from gnomon.load.shapes import model_from_dict, model_to_dict
from gnomon.spec import AttentionMixer, Block, LatentAttention, MoeFfn

STORED = json.loads((Path(__file__).parent / "parameter_counts.json").read_text())
COUNTS = STORED["counted"] | {name: entry["parameters"] for name, entry in STORED["published"].items()}
PAPERS = {"gpt3-175b": 175, "gpt-22b": 22, "gpt-1008b": 1008} | {
    f"gpt-{size}b": size for size in (1.7, 3.6, 7.5, 18.4, 39.1, 76.1, 145.6, 310.1, 529.6)
}
"""Billions of parameters as the papers round them."""
HUB = {
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "llama-4-scout": 108_641_793_536,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen2.5-vl-7b": 8_292_166_656,
    "gemma-3-27b": 27_432_406_640,
    "gpt-oss-20b": 20_914_757_184,
    "mixtral-8x7b": 46_702_792_704,
    "phi-4": 14_659_507_200,
    "jamba-52b": 51_570_323_328,
    "whisper-large-v3": 1_543_490_560,
    "granite-4.0-h-small": 32_207_337_984,
    "t5-11b": 11_307_321_344,
}
"""Totals the model hub shows of the published weights: a second witness beside the counted networks."""
NAMES = pytest.mark.parametrize("name", catalog.model_names())
SHAPES = pytest.mark.parametrize("name", PAPERS)


def test_every_model_has_its_count() -> None:
    assert set(COUNTS) == set(catalog.model_names())
    assert len(catalog.model_names()) >= 150


@pytest.mark.parametrize("name", COUNTS)
def test_parameters_to_the_last_one(name: str) -> None:
    assert load.model(name).parameters == COUNTS[name]


@pytest.mark.parametrize("name", HUB)
def test_parameters_as_published(name: str) -> None:
    assert load.model(name).parameters == HUB[name]


@SHAPES
def test_parameters_as_the_papers_count_them(name: str) -> None:
    """Narayanan et al. 2021, section 5.1; it leaves out the last norm."""
    model = load.model(name)
    layers, h, v, s = model.layers, model.hidden, model.vocab, model.learned_positions
    formula = 12 * layers * h**2 * (1 + 13 / (12 * h) + (v + s) / (12 * layers * h))
    assert model.parameters == pytest.approx(formula + 2 * h, rel=1e-12)
    assert model.parameters / 1e9 == pytest.approx(PAPERS[name], rel=0.01, abs=0.06)
    assert (v, s, model.dtype) == (51200, 2048, "fp16")


@NAMES
def test_every_name_finds_it(name: str) -> None:
    entry = catalog.model_entry(name)
    for spelled in (name, entry.title, entry.hub_id, entry.hub_id.lower(), *entry.aliases):
        assert catalog.model_entry(spelled) is entry
    assert catalog.model_title(entry.hub_id) == entry.title
    assert entry.source


@NAMES
def test_the_config_is_one_an_engine_accepts(name: str) -> None:
    config = json.loads(catalog.model_config_path(name).read_text())
    assert config == load.config_of(name)
    if "_class_name" in config:
        return
    assert {"architectures", "model_type", "bos_token_id", "eos_token_id"} <= set(config)
    text = config.get("text_config", config)
    assert "torch_dtype" in config or "dtype" in text
    if any(
        block.mixer.rotary_dim is None for block in load.model(name).blocks if isinstance(block.mixer, AttentionMixer)
    ):
        assert _has_positions(config, text, load.model(name).learned_positions)


def _has_positions(config: dict[str, object], text: dict[str, object], learned: int) -> bool:
    """Where nothing is said, the published files rely on the default of their config class."""
    named = {"rope_theta", "rotary_emb_base", "rope_parameters", "global_rope_theta", "attn_config"}
    return bool(learned) or bool(named & set(text)) or config["model_type"] in ("gemma3", "falcon", "qwen3_5_moe")


@NAMES
def test_shapes_survive_a_round_trip(name: str) -> None:
    model = load.model(name)
    again = model_from_dict(json.loads(json.dumps(model_to_dict(model))), "model.yaml")
    assert (
        dataclasses.replace(again, family=model.family, hub_id=model.hub_id, source=model.source, not_modelled=())
        == model
    )


@NAMES
def test_bytes_follow_from_parameters(name: str) -> None:
    """What is not quantised takes its format's bytes exactly; what is takes less."""
    model, wide = load.model(name), {"fp32": 4, "bf16": 2, "fp16": 2}
    stored = sum(model.weight_bytes().values())
    whole = model.parameters * wide[model.working_dtype]
    assert stored == whole if model.dtype == model.working_dtype else 0.2 * whole < stored < 0.6 * whole
    assert 0 < model.active_parameters <= model.parameters
    assert (model.active_parameters < model.parameters) == model.is_moe


@pytest.mark.parametrize(
    ("name", "size_gb"),
    [("gpt-oss-20b", 13.76), ("gpt-oss-120b", 65.25), ("deepseek-v3", 673.15), ("llama-3.1-8b", 16.06)],
)
def test_bytes_of_published_checkpoints(name: str, size_gb: float) -> None:
    """gpt-oss: the total of its safetensors index; DeepSeek: its index less the drafting layer and its copies."""
    assert sum(load.model(name).weight_bytes().values()) / 1e9 == pytest.approx(size_gb, rel=0.005)


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("qwen3-30b-a3b", 3.35),
        ("deepseek-v3", 37.6),
        ("mixtral-8x7b", 12.9),
        ("gpt-oss-120b", 5.7),
        ("llama-4-scout", 18.1),
        ("kimi-k2", 32.9),
        ("qwen3-next-80b-a3b", 3.9),
    ],
)
def test_active_parameters_of_mixtures(name: str, billions: float) -> None:
    """As their publishers say, with embedding and head; Llama 4's tower is counted here and not there."""
    assert load.model(name).active_parameters / 1e9 == pytest.approx(billions, rel=0.03)


def test_drafting_layers_are_counted_apart() -> None:
    assert load.model("deepseek-v3").mtp_parameters / 1e9 == pytest.approx(11.6, rel=0.01)
    assert load.model("kimi-k2").mtp_parameters == 0


def test_order_of_layers_is_kept() -> None:
    gemma = load.model("gemma-3-27b")
    windows = [block.attention.window for block in gemma.blocks for _ in range(block.count)]
    assert windows == ([1024] * 5 + [None]) * 10 + [1024] * 2
    kinds = [type(block.ffn).__name__ for block in load.model("llama-4-maverick").blocks]
    assert kinds[:4] == ["DenseFfn", "MoeFfn", "DenseFfn", "MoeFfn"]
    nemotron = load.model("nemotron-h-8b").blocks
    assert [(block.mixer is None, block.ffn is None) for block in nemotron[:3]] == [
        (False, True),
        (True, False),
        (False, True),
    ]


def _first(name: str) -> Block:
    return load.model(name).blocks[-1]


def test_families_differ_where_they_should() -> None:
    latent = _first("deepseek-v3").mixer
    assert isinstance(latent, LatentAttention)
    assert (latent.kv_rank, latent.rope_dim, latent.cache_values()) == (512, 64, 576)
    chosen = _first("deepseek-v3.2-exp").mixer
    assert isinstance(chosen, LatentAttention)
    assert chosen.indexer is not None
    ffn = _first("deepseek-v3").ffn
    assert isinstance(ffn, MoeFfn)
    assert (ffn.experts, ffn.topk, ffn.shared_inner, ffn.router, ffn.groups) == (256, 8, 2048, "sigmoid", 8)
    assert [block.count for block in load.model("deepseek-v3").blocks] == [3, 58]
    assert _first("gemma-2-9b").attention.logit_cap == 50
    assert _first("gpt-oss-20b").attention.sinks
    assert _first("bloom-7.1b").attention.alibi
    assert _first("command-r-plus").parallel
    assert _first("olmo-2-7b").norm_after
    assert _first("bert-base").attention.causal is False
    assert _first("t5-large").cross is not None
    assert load.model("opt-350m").embedding_width == 512
    assert [tower.name for tower in load.model("whisper-small").towers] == ["encoder"]


@pytest.mark.parametrize(
    ("name", "bytes_a_token"),
    [("llama-3.1-8b", 131_072), ("deepseek-v3", 70_272), ("mamba-2.8b", 0), ("jamba-52b", 16_384), ("bert-base", 0)],
)
def test_cache_of_a_token(name: str, bytes_a_token: int) -> None:
    assert load.model(name).kv_bytes_per_token(2) == bytes_a_token


@pytest.mark.parametrize(("name", "layers", "width"), [("whisper-small", 12, 768), ("llama-3.2-11b-vision", 8, 1024)])
def test_cache_of_what_a_tower_made(name: str, layers: int, width: int) -> None:
    assert load.model(name).source_bytes_per_token(2) == layers * 2 * width * 2
    assert load.model("llama-3.1-8b").source_bytes_per_token(2) == 0


def test_states_are_kept_where_there_is_no_cache() -> None:
    model = load.model("mamba-codestral-7b")
    per_layer = 128 * 64 * 128 + (8192 + 2 * 8 * 128) * 4
    assert model.state_bytes_per_sequence(2) == 64 * per_layer * 2
    assert load.model("llama-3.1-8b").state_bytes_per_sequence(2) == 0


@pytest.mark.parametrize(
    ("spelled", "name"),
    [("GPT 1T", "gpt-1008b"), ("GPT 530B", "gpt-529.6b"), ("gpt-3", "gpt3-175b"), ("GPT 1.7B", "gpt-1.7b")],
)
def test_names_that_papers_use(spelled: str, name: str) -> None:
    assert catalog.model_entry(spelled).name == name


def test_no_name_means_two_models() -> None:
    names: list[str] = []
    for name in catalog.model_names():
        entry = catalog.model_entry(name)
        names += {text.casefold() for text in (entry.name, entry.title, entry.hub_id, *entry.aliases)}
    assert len(names) == len(set(names))


def test_an_unknown_model_names_the_nearest() -> None:
    lists = f"`gnomon models` lists {len(catalog.model_names())};"
    with pytest.raises(UnknownNameError, match=rf"Near: llama-3.1-8b.*{lists}"):
        catalog.model_entry("llama-3.1-9b")
    assert catalog.model_title("my-own") == "my-own"
