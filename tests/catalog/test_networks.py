"""One battery for every model: its parameters as published, to the last one, and every name found."""

from __future__ import annotations

import json

import pytest

from gnomon import catalog, load
from gnomon.errors import UnknownNameError

PUBLISHED = {
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "qwen3-30b-a3b": 30_532_122_624,
}
PAPERS = {"gpt3-175b": 175, "gpt-22b": 22, "gpt-1008b": 1008} | {
    f"gpt-{size}b": size for size in (1.7, 3.6, 7.5, 18.4, 39.1, 76.1, 145.6, 310.1, 529.6)
}
"""Billions of parameters as the papers round them."""
NAMES = pytest.mark.parametrize("name", catalog.model_names())
SHAPES = pytest.mark.parametrize("name", PAPERS)


def test_every_model_has_its_published_size() -> None:
    assert set(PUBLISHED) | set(PAPERS) == set(catalog.model_names())
    assert not set(PUBLISHED) & set(PAPERS)


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_as_published(name: str) -> None:
    assert load.model(name).parameters == PUBLISHED[name]


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
    assert {"model_type", "bos_token_id", "eos_token_id"} <= set(config)
    if name in PAPERS:
        assert config["architectures"] == ["GPT2LMHeadModel"]
        assert {"layer_norm_epsilon", "activation_function"} <= set(config)
        return
    assert config["architectures"][0].endswith("ForCausalLM")
    assert config["torch_dtype"] == "bfloat16"
    assert config["rope_theta"] > 0
    assert {"rms_norm_eps", "hidden_act"} <= set(config)


def test_active_parameters_of_the_mixture() -> None:
    assert 3.2e9 < load.model("qwen3-30b-a3b").active_parameters < 3.4e9
    assert load.model("llama-3.1-8b").active_parameters == PUBLISHED["llama-3.1-8b"]


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
