"""What is trained together with a decoder: towers in the tokens of its text, frozen or not, and layers that predict
further tokens. FLOPs are compared with PyTorch's in tests/oracles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gnomon.engines.megatron.engine import Megatron
from gnomon.engines.training.layer_cost import tapes_of
from gnomon.engines.training.stages import PipelineShape, Stages, kind_names
from gnomon.errors import InputError
from gnomon.graph.layers import Cut
from gnomon.graph.tape import Tape
from gnomon.load import model as load_model
from gnomon.load.together import trained_network
from gnomon.spec import Batch, Model, TrainingLoad

SEQ = 8192
BATCH = Batch.prefill([1], SEQ)
NAMES = [
    "qwen2.5-vl-7b", "gemma-3-4b", "llama-4-scout", "llama-3.2-11b-vision", "mistral-small-3.1-24b", "t5-large",
    "whisper-small", "dit-xl-2-512", "wan-2.1-t2v-1.3b",
]  # fmt: skip


def network(name: str, **given: Any) -> Model:
    model = load_model(name)
    images = {"images": 1} if model.kind == "multimodal" else {}
    return trained_network(model, TrainingLoad(seq=SEQ, global_batch=1, **{**images, **given}))


def pieces(model: Model, **cut: Any) -> list[tuple[str, Tape, int]]:
    """Every tape with how often it comes."""
    stages, made = Stages(model), tapes_of(model, Cut(seq=SEQ, **cut), Megatron().traits(model))
    counts = np.bincount(stages.order, minlength=len(stages.kinds)).tolist()
    times = dict(zip(kind_names(len(counts)), counts, strict=True))
    return [(name, tape, times.get(name, 1)) for name, tape in made.items()]


def total(model: Model, figure: Any, **cut: Any) -> float:
    return float(sum(times * figure(tape) for _, tape, times in pieces(model, **cut)))


def flops(tape: Tape, backward: bool = False) -> float:
    ops = tape.backward_ops("none") if backward else tape.forward_ops()
    return float(sum(op.count * op.flops(BATCH)[0] for op in ops))


@pytest.mark.parametrize("name", NAMES)
def test_all_parameters_are_there(name: str) -> None:
    """Trained, or some of them frozen."""
    model = network(name)
    assert total(model, lambda tape: tape.parameters) == model.parameters
    assert total(model, lambda tape: tape.frozen_parameters) == 0


@pytest.mark.parametrize("name", NAMES)
def test_tensors_are_written_before_they_are_read(name: str) -> None:
    for _, tape, _ in pieces(network(name)):
        made = {"in"}
        for node in tape.nodes:
            assert set(node.reads) <= made, node.name
            made |= set(node.writes)
            assert set(node.keeps) <= made, node.name
        assert made <= {*tape.sizes}


@pytest.mark.parametrize("name", ["qwen2.5-vl-7b", "llama-3.2-11b-vision"])
def test_a_frozen_tower_runs_forward_alone(name: str) -> None:
    learning, frozen, both = (network(name, freeze=what) for what in ("", "vision", "vision,projector"))
    tower = learning.towers[0]
    tail = sum(node.parameters for node in _named(learning, "vision.tail"))
    assert total(frozen, lambda tape: tape.frozen_parameters) == tower.parameters - tail
    assert total(both, lambda tape: tape.frozen_parameters) == tower.parameters
    assert total(frozen, lambda tape: tape.parameters) == learning.parameters - tower.parameters + tail
    assert total(frozen, flops) == total(learning, flops)
    saved = [total(model, lambda tape: tape.saved_activation_bytes("none")) for model in (learning, frozen, both)]
    assert saved == sorted(saved, reverse=True)
    work = [total(model, lambda tape: flops(tape, True)) for model in (learning, frozen, both)]
    assert work == sorted(work, reverse=True)
    for origin, tape in zip(Stages(both).origins, (tape for _, tape, _ in pieces(both)[1:-1]), strict=True):
        if origin[0].tower is not None:
            assert not tape.backward_ops("none")
            assert not tape.saved_activation_bytes("none")


def _named(model: Model, prefix: str) -> list[Any]:
    return [node for node in pieces(model)[0][1].nodes if node.name.startswith(prefix)]


def test_a_frozen_projector_hands_gradients_on() -> None:
    """To the tower behind it, which learns."""
    nodes = _named(network("qwen2.5-vl-7b", freeze="projector"), "vision.tail")
    assert not any(node.wgrad for node in nodes)
    assert any(node.dgrad for node in nodes)


def test_towers_stand_on_the_first_stage_and_further_layers_on_the_last() -> None:
    """Other stages are those of the decoder alone."""
    pictured, text = network("qwen2.5-vl-7b"), load_model("qwen2.5-vl-7b").alone
    (mtp,) = {network("deepseek-v3", mtp_layers=2)}
    shape = PipelineShape(4, 1)
    plain = Stages(text).sizes(4)
    assert (Stages(pictured).sizes(4) - plain).tolist() == [32, 0, 0, 0]
    assert (Stages(mtp).sizes(4) - Stages(load_model("deepseek-v3")).sizes(4)).tolist()[:3] == [0, 0, 0]
    assert Stages(mtp).sizes(4).sum() == 61 + 2
    assert Stages(mtp).line(shape)[-1, -1] == 2
    assert Stages(pictured).line(shape).sum() == 28 + 32


def test_more_images_are_as_much_more_work() -> None:
    """In a tower; the text around them is as long."""
    one, three = (network("gemma-3-4b", images=count) for count in (1, 3))
    tower = [
        sum(times * flops(tape) for name, tape, times in pieces(model) if name == "layer") for model in (one, three)
    ]
    assert tower[1] == pytest.approx(3 * tower[0], rel=1e-12)
    assert [name for name, *_ in pieces(one)] == [name for name, *_ in pieces(three)]


def test_context_parallel_ranks_have_all_pictures() -> None:
    model = network("qwen2-vl-2b")
    alone, part = ({name: tape for name, tape, _ in pieces(model, cp=cp)} for cp in (1, 2))
    half = Batch.prefill([1], SEQ // 2)
    assert sum(op.count * op.flops(half)[0] for op in part["layer"].forward_ops()) == pytest.approx(
        flops(alone["layer"]), rel=1e-12
    )


@pytest.mark.parametrize("name", ["deepseek-v3", "glm-4.5", "llama-3.1-8b"])
def test_layers_that_predict_further_tokens(name: str) -> None:
    """Each is a layer of the decoder, two streams joined to one, a norm and the model's own matrix once more."""
    plain, model = load_model(name), network(name, mtp_layers=2)
    (block,) = model.mtp
    assert block.count == 2
    hidden, norm = plain.hidden, plain.norm_parameters
    own = block.parameters(hidden, norm) + 2 * hidden**2 + 3 * norm
    assert total(model, lambda tape: tape.parameters) == plain.parameters + 2 * own
    named = {name: tape for name, tape, _ in pieces(model)}
    further, before = named[list(named)[-2]], named[list(named)[-3]]
    joined = 2 * 2 * hidden**2 * SEQ
    assert flops(further) == pytest.approx(flops(before) + joined, rel=1e-12)
    logits = 2 * hidden * plain.vocab * SEQ
    assert flops(named["head"]) == pytest.approx(3 * logits, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("qwen2.5-vl-7b", {"freeze": "language"}, "unknown part 'language' to freeze"),
        ("qwen2.5-vl-7b", {"images": 0, "freeze": "vision"}, "has no effect without images"),
        ("qwen2.5-vl-7b", {"images": 9, "image": "1024x1024"}, "are 12,321 tokens of a sequence of 8,192"),
        ("qwen2.5-vl-7b", {"source": 7}, "does not apply"),
        ("llama-3.1-8b", {"images": 1}, "has no vision tower"),
        ("llama-3.1-8b", {"source": 8}, "attends to nothing beside its sequence"),
        ("whisper-small", {"source": 1501}, "is more than 1,500"),
        ("wan-2.1-t2v-1.3b", {"mtp_layers": 1}, "predicts no next token"),
    ],
)
def test_what_has_no_meaning_is_refused(name: str, given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        network(name, **given)


def test_what_is_left_out_is_said() -> None:
    told = {one.option for name in ("deepseek-v3", "wan-2.1-t2v-1.3b") for one in network(name).not_modelled}
    assert told == {"multi-token prediction", "autoencoder and text encoder"}
    assert not network("deepseek-v3", mtp_layers=1).not_modelled
