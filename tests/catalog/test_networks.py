"""One battery for every model: its parameters as published, to the last one, and every name found."""

from __future__ import annotations

import json

import pytest

from gnomon import catalog, load
from gnomon.errors import UnknownNameError

PUBLISHED = {"llama-3.1-8b": 8_030_261_248, "llama-3.1-70b": 70_553_706_496, "qwen3-30b-a3b": 30_532_122_624}
NAMES = pytest.mark.parametrize("name", catalog.model_names())


@NAMES
def test_parameters_as_published(name: str) -> None:
    assert load.model(name).parameters == PUBLISHED[name]


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
    assert config["architectures"][0].endswith("ForCausalLM")
    assert config["torch_dtype"] == "bfloat16"
    assert config["rope_theta"] > 0
    assert {"model_type", "rms_norm_eps", "hidden_act", "bos_token_id", "eos_token_id"} <= set(config)


def test_active_parameters_of_the_mixture() -> None:
    assert 3.2e9 < load.model("qwen3-30b-a3b").active_parameters < 3.4e9
    assert load.model("llama-3.1-8b").active_parameters == PUBLISHED["llama-3.1-8b"]


def test_no_name_means_two_models() -> None:
    names: list[str] = []
    for name in catalog.model_names():
        entry = catalog.model_entry(name)
        names += {text.casefold() for text in (entry.name, entry.title, entry.hub_id, *entry.aliases)}
    assert len(names) == len(set(names))


def test_an_unknown_model_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"Near: llama-3.1-8b.*`gnomon models` lists 3"):
        catalog.model_entry("llama-3.1-9b")
    assert catalog.model_title("my-own") == "my-own"
