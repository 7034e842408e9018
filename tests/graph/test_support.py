"""What cannot be priced yet is refused by every engine with one line that says why, and never priced."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.graph.shapes import dense, sparse

from gnomon import catalog
from gnomon.api.plan import plan_serving
from gnomon.api.simulate_training import simulate_training
from gnomon.errors import InputError
from gnomon.graph import lower
from gnomon.graph.support import check_priced, unpriced
from gnomon.graph.trained import check_trained
from gnomon.load import model as load_model
from gnomon.load import parse_pool
from gnomon.load.deployments import deploy
from gnomon.spec import AttentionMixer, Linear, Model, Strategy

WHY = {
    "bert-base": "attention in both directions",
    "whisper-small": "cross-attention",
    "t5-large": "cross-attention",
    "llama-3.2-11b-vision": "cross-attention",
    "dit-xl-2-256": "no head that predicts tokens",
}
PRICED = [
    "llama-3.1-405b",
    "mixtral-8x7b",
    "qwen2.5-72b",
    "phi-4",
    "olmo-2-32b",
    "granite-3.3-8b",
    "glm-4.5",
    "opt-13b",
]


def _feature(**changes: object) -> Model:
    model = dense()
    mixer = replace(model.blocks[0].attention, **changes)  # type: ignore[arg-type]
    return replace(model, blocks=(replace(model.blocks[0], mixer=mixer),))


@pytest.mark.parametrize("name", WHY)
def test_why_not(name: str) -> None:
    assert unpriced(load_model(name)) == WHY[name]


@pytest.mark.parametrize("name", WHY)
def test_serving_refuses(name: str) -> None:
    model = load_model(name)
    with pytest.raises(InputError, match="cannot be priced yet"):
        deploy(model, parse_pool("H200:8"))
    with pytest.raises(InputError, match="cannot be priced yet"):
        lower(model, Strategy(), "bf16", "bf16")


def test_commands_refuse_before_they_search() -> None:
    with pytest.raises(InputError, match="whisper-small cannot be priced yet"):
        plan_serving("whisper-small", fleet="H100:8", rate=1, input=100, output=10)
    with pytest.raises(InputError, match=r"llama-3\.2-11b-vision has layers that attend to images"):
        simulate_training("llama-3.2-11b-vision", on="H100:8", seq=128, global_batch=8)


@pytest.mark.parametrize("name", PRICED)
def test_dense_and_moe_decoders_are_priced(name: str) -> None:
    check_priced(load_model(name))


def test_most_of_the_catalog_is_priced() -> None:
    names = catalog.model_names()
    refused = {name: why for name in names if (why := unpriced(load_model(name)))}
    assert set(refused.values()) == set(WHY.values())
    assert len(refused) < len(names) / 8


@pytest.mark.parametrize(
    "model",
    [
        replace(dense(), blocks=(replace(dense().blocks[0], norms=3),)),
        replace(dense(), blocks=(replace(dense().blocks[0], extras=(Linear(name="x", inputs=1, outputs=1),)),)),
        replace(dense(), towers=load_model("whisper-small").towers),
        replace(dense(), blocks=(replace(dense().blocks[0], cross=load_model("whisper-small").blocks[0].cross),)),
    ],
)
def test_one_feature_is_enough(model: Model) -> None:
    """To keep a model from being trained."""
    with pytest.raises(InputError, match="cannot be priced in training yet"):
        check_trained(model)
    check_trained(dense())
    check_trained(sparse())


def test_layers_without_positions_do_not_turn() -> None:
    still = _feature(rotary_dim=0)
    assert "attention.rope" in {op.name for op in lower(dense(), Strategy(), "bf16", "bf16").ops}
    assert "attention.rope" not in {op.name for op in lower(still, Strategy(), "bf16", "bf16").ops}
    assert isinstance(still.blocks[0].mixer, AttentionMixer)
