"""What training refuses of a model, and who says so."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.graph.shapes import dense

from gnomon.api.simulate_training import simulate_training
from gnomon.engines import training_engine
from gnomon.errors import InputError
from gnomon.graph.trained import check_trained
from gnomon.load import model as load_model
from gnomon.spec import Model, Recipe, Strategy, TrainingLoad

LOAD = TrainingLoad(seq=128, global_batch=8)
WHY = {"whisper-small": "a tower beside the decoder", "llama-3.2-11b-vision": "a tower beside the decoder"}
"""Where nothing is said of what goes through their towers."""
UNUSUAL = {
    "gpt-oss-20b": "attention sinks",
    "gemma-3-1b": "4 norms in a layer",
    "bert-base": "attention in both directions",
    "bloom-7.1b": "ALiBi",
    "nemotron-h-8b": "layers of the kind Mamba2",
    "qwen3-next-80b-a3b": "layers of the kind GatedDelta",
    "lfm2-1.2b": "layers of the kind ShortConvolution",
    "phi-2": "further parts before or after its layers",
    "opt-350m": "further parts before or after its layers",
    "deepseek-v3.2-exp": "latent attention over chosen tokens",
    "jamba-52b": "layers of the kind Mamba",
    "gemma-2-9b": "capped attention scores",
    "minimax-text-01": "layers of the kind LightningAttention",
    "dit-xl-2-256": "no head that predicts tokens",
}
"""Priced where an engine's kernels are known for them."""


def check(engine: str, model: Model, load: TrainingLoad = LOAD, strategy: Strategy | None = None) -> None:
    training_engine(engine).check(model, strategy or Strategy(), Recipe(), load, "bf16")


@pytest.mark.parametrize("engine", ["megatron", "torch"])
@pytest.mark.parametrize("name", WHY)
def test_every_engine_refuses(name: str, engine: str) -> None:
    with pytest.raises(InputError, match=f"cannot be priced in training yet: it has .*{WHY[name]}"):
        check(engine, load_model(name))


@pytest.mark.parametrize("engine", ["torch", "torchtitan", "deepspeed", "transformers", "megatron@3.0"])
@pytest.mark.parametrize("name", UNUSUAL)
def test_unusual_networks_are_refused_by_plain_engines(name: str, engine: str) -> None:
    check("megatron", load_model(name))
    with pytest.raises(InputError, match=f"{UNUSUAL[name]}.*Use the engine megatron"):
        check(engine, load_model(name))


@pytest.mark.parametrize("name", ["gemma-3-27b", "qwen2.5-vl-7b", "llama-4-scout"])
def test_text_trains_the_decoder_of_a_vision_language_model(name: str) -> None:
    """The tower is left out, and the answer says so; where layers attend to it, there is no decoder alone."""
    found = simulate_training(name, on="H100:8", seq=512, global_batch=8)
    assert "vision tower" in {one.option for one in found.not_modelled}
    alone = load_model(name).alone
    assert found.step.job.model.parameters == alone.parameters < load_model(name).parameters
    with pytest.raises(InputError, match=r"has layers that attend to images, and none are given. Use 1 or more"):
        simulate_training("llama-3.2-11b-vision", on="H100:8", seq=512, global_batch=8)


def test_states_are_not_cut_along_the_sequence() -> None:
    with pytest.raises(InputError, match="Mamba2, which are not priced with cp"):
        simulate_training("nemotron-h-8b", on="H100:8", seq=1024, global_batch=8, cp=2)


@pytest.mark.parametrize("name", ["deepseek-v3", "mixtral-8x7b", "falcon-7b", "gpt-neox-20b", "glm-4.5"])
def test_what_is_priced(name: str) -> None:
    model = replace(load_model(name), mtp=())
    check_trained(model)
    check("megatron", model)
    if name == "mixtral-8x7b":
        check("torch", model)
    else:
        with pytest.raises(InputError, match="the built-in runner"):
            check("torch", model)
    with pytest.raises(InputError, match=r"not priced under Megatron-LM 3\.0.*megatron@2026\.08"):
        check("megatron@3.0", model)


def test_windows_are_refused_where_they_cut() -> None:
    """By engines that have none, since it depends on how long sequences are, and where keys go round a ring."""
    model = dense()
    mixer = replace(model.blocks[0].attention, window=64)
    windowed = replace(model, blocks=(replace(model.blocks[0], mixer=mixer),))
    check("megatron", windowed)
    for engine in ("torch", "megatron@3.0"):
        with pytest.raises(InputError, match=r"64|windows"):
            check(engine, windowed)
        check(engine, windowed, TrainingLoad(seq=64, global_batch=8))
    with pytest.raises(InputError, match=r"ring attention.*Use a2a or allgather"):
        check("megatron", windowed, strategy=Strategy(cp=2))
