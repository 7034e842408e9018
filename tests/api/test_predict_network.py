"""Predictions of networks that are no plain decoders: every one of the catalog, what must hold, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.estimates import check_band

from gnomon import catalog, fit, predict
from gnomon.errors import InputError
from gnomon.graph.support import unpriced_step
from gnomon.load import chip as load_chip
from gnomon.load import model as load_model
from gnomon.load.deployments import engines_for
from gnomon.load.families import read_family
from gnomon.load.fields import Fields
from gnomon.planning.steps.network import KINDS
from gnomon.spec import Model, VisionPreprocessor
from gnomon.spec.answers import Prediction

NAMES = [name for name in catalog.model_names() if load_model(name).kind in KINDS]
CASES = {
    "encoder": [{"phase": "prefill", "tokens": 300, "batch": 4}],
    "diffusion": [{"phase": "forward", "batch": 2}, {"phase": "forward", "settings": {"launch": "graph"}}],
    "encoder-decoder": [{"phase": "prefill", "tokens": 4}, {"phase": "decode", "context": 100, "batch": 8}],
    "multimodal": [{"phase": "prefill", "tokens": 100}, {"phase": "decode", "context": 1000, "batch": 8}],
}
DECODERS_TO_COME = {
    "llama-4-scout",
    "llama-4-maverick",
    "gemma-3-4b",
    "gemma-3-12b",
    "gemma-3-27b",
    "qwen3.5-397b-a17b",
}
"""Towers whose decoders have mixers that may not be priced; their towers are, in tests/graph/test_networks.py."""


BART = {
    "architectures": ["BartForConditionalGeneration"], "d_model": 1024, "decoder_attention_heads": 16,
    "decoder_ffn_dim": 4096, "decoder_layers": 12, "encoder_attention_heads": 16, "encoder_ffn_dim": 4096,
    "encoder_layers": 12, "max_position_embeddings": 1024, "vocab_size": 50265,
}  # fmt: skip
LLAVA = {
    "architectures": ["LlavaForConditionalGeneration"], "text_config": {"model_type": "llama", "vocab_size": 32064},
    "vision_config": {
        "model_type": "clip_vision_model", "hidden_size": 1024, "image_size": 336, "intermediate_size": 4096,
        "num_attention_heads": 16, "num_hidden_layers": 24, "patch_size": 14,
    },
}  # fmt: skip


def default_engine(model: Model) -> str:
    serving, other = engines_for(None, model)
    return (other or serving).name


def _place(name: str) -> dict[str, Any]:
    """Where it runs: PyTorch uses one chip."""
    large = load_model(name).parameters > 60e9 and default_engine(load_model(name)) == "vllm"
    return {"on": "H200:8" if large else "H200"}


def _answers(name: str) -> list[Prediction]:
    return [predict(name, **_place(name), **case) for case in CASES[load_model(name).kind]]


@pytest.mark.parametrize("name", [name for name in NAMES if name not in DECODERS_TO_COME])
def test_every_one_of_the_catalog(name: str) -> None:
    """Finite, above the roofline of its work and of its weights, in its band, and adding up."""
    chip, model = load_chip("H200"), load_model(name)
    assert not unpriced_step(model)
    for answer in _answers(name):
        time = answer.time_s
        check_band(time)
        assert sum(one.time_s.value for one in answer.breakdown) == pytest.approx(time.value)
        flops = sum(one.flops for one in answer.breakdown)
        assert time.value >= flops / chip.matrix_rate("bf16")
        products = sum(one.bytes for one in answer.breakdown if one.kind == "gemm")
        assert time.value >= products / chip.memory_bandwidth_bytes_s
        assert answer.energy_j.value > 0 and answer.cost_usd.value > 0
        assert answer.memory_parts["weights"] > 0 and answer.memory_bytes.value < 2**38
        assert answer.to_dict()["inputs"]["kind"] == model.kind


@pytest.mark.parametrize("name", sorted(DECODERS_TO_COME))
def test_a_decoder_that_is_not_priced_says_so(name: str) -> None:
    """What its own decoder alone would say, and no figure without it."""
    model = load_model(name)
    try:
        predict(model.alone, on="H200:8", phase="prefill", tokens=100)
    except InputError as alone:
        with pytest.raises(InputError, match=str(alone)[:40].replace("(", r"\(")):
            predict(name, on="H200:8", phase="prefill", tokens=100)
    else:
        assert predict(name, on="H200:8", phase="prefill", tokens=100).time_s.value > 0


@pytest.mark.parametrize("name", ["qwen2.5-vl-7b", "mistral-small-3.1-24b"])
def test_without_pictures_it_is_its_decoder(name: str) -> None:
    alone = load_model(name).alone
    assert not alone.towers
    for words in ({"phase": "decode", "batch": 4, "context": 500}, {"phase": "prefill", "tokens": 700}):
        extra = {"images": 0} if words["phase"] == "prefill" else {}
        both = predict(name, on="H200", **words, **extra), predict(alone, on="H200", **words)
        assert both[0].time_s.value == pytest.approx(both[1].time_s.value, rel=1e-12)
        assert both[0].memory_bytes.value > both[1].memory_bytes.value


def test_a_picture_adds_its_tokens_and_its_tower() -> None:
    asked = predict("qwen3-vl-8b", on="H200", phase="prefill", tokens=100)
    assert asked.inputs["images"] == 1 and asked.inputs["image"] == "1024x1024"
    assert "1,024 tokens" in asked.title and "4,096 positions" in asked.title
    text = predict(load_model("qwen3-vl-8b").alone, on="H200", phase="prefill", tokens=1124)
    seconds = {
        name: sum(one.time_s.value for one in answer.breakdown if one.kind != "host")
        for name, answer in (("both", asked), ("text", text))
    }
    tower = sum(one.time_s.value for one in asked.breakdown if one.op.startswith("vision."))
    assert seconds["both"] == pytest.approx(seconds["text"] + tower)
    assert asked.time_s.value >= seconds["both"]


def test_steps_multiply() -> None:
    one, many = (predict("dit-xl-2-256", on="H100", batch=2, steps=steps) for steps in (1, 50))
    assert many.time_s.value == pytest.approx(50 * one.time_s.value)
    assert many.energy_j.value == pytest.approx(50 * one.energy_j.value)
    assert many.tokens_per_s == pytest.approx(one.tokens_per_s / 50)


def test_an_image_is_its_patches() -> None:
    pixels, patches = (
        predict("dit-xl-2-512", on="H100", **words) for words in ({"image": "768x512"}, {"tokens": 48 * 32})
    )
    assert pixels.time_s.value == patches.time_s.value
    assert "768x512 pixels (1,536 patches)" in pixels.title


def test_sequences_of_an_encoder_are_never_cut() -> None:
    """300 tokens per sequence and 8,192 a step: 27 sequences go together."""
    answer = predict("bert-base", on="H200", phase="prefill", tokens=300, batch=55)
    assert "in 3 steps" in answer.title


def test_a_longer_source_takes_longer() -> None:
    times = [
        predict("whisper-large-v3", on="H200", context=50, batch=64, source=source).time_s.value
        for source in (100, 700, 1500)
    ]
    assert times == sorted(times)
    assert predict("whisper-large-v3", on="H200", batch=64, context=50).time_s.value == times[-1]


@pytest.mark.heavy
@settings(max_examples=15, deadline=None)
@given(
    batch=st.integers(1, 60),
    more=st.integers(1, 60),
    tokens=st.integers(1, 512),
    kind=st.sampled_from(["vllm", "torch"]),
)
def test_more_sequences_are_never_quicker(batch: int, more: int, tokens: int, kind: str) -> None:
    few, many = (
        predict("bert-base", on="H200", phase="prefill", tokens=tokens, batch=n, engine=kind).time_s.value
        for n in (batch, batch + more)
    )
    assert few <= many * 1.01  # attention may skip a kernel that adds up splits


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"model": "bert-base", "phase": "decode"}, "has no decode: an encoder processes full sequences"),
        ({"model": "bert-base", "phase": "prefill"}, "needs the tokens"),
        ({"model": "bert-base", "tokens": 513}, "not between 1 and 512"),
        ({"model": "bert-base", "tokens": 5, "context": 3}, "has no KV cache"),
        ({"model": "bert-base", "tokens": 5, "images": 3}, "--images: 3 does not apply"),
        ({"model": "bert-base", "tokens": 5, "dtype": "fp8"}, "'fp8' is not priced"),
        ({"model": "bert-base", "tokens": 5, "on": "H200:5"}, "12 attention heads, which 5 does not divide"),
        ({"model": "dit-xl-2-256", "phase": "decode"}, "has no decode"),
        ({"model": "dit-xl-2-256", "engine": "vllm"}, "does not run on vllm"),
        ({"model": "dit-xl-2-256", "image": "100x100"}, "not a multiple of 16 pixels"),
        ({"model": "dit-xl-2-256", "image": "big"}, "not an image size"),
        ({"model": "dit-xl-2-256", "image": "256x256", "tokens": 4}, "together with --tokens"),
        ({"model": "dit-xl-2-256", "on": "H200:2"}, "2 chips for one network"),
        ({"model": "dit-xl-2-256", "settings": {"speed": 1}}, "unknown setting of torch"),
        ({"model": "dit-xl-2-256", "dtype": "fp8"}, "'fp8' is not priced for torch"),
        ({"model": "t5-large", "engine": "vllm", "phase": "prefill", "tokens": 3}, "vLLM has no T5"),
        ({"model": "whisper-small", "phase": "prefill", "tokens": 3, "source": 1501}, "between 1 and 1,500"),
        ({"model": "whisper-small", "phase": "forward"}, "has no forward"),
        ({"model": "whisper-small", "tokens": 3}, "a decode step makes 1 token"),
        ({"model": "qwen2-vl-7b", "images": 3}, "--images: 3 does not apply"),
        ({"model": "qwen2-vl-7b", "phase": "prefill", "tokens": 3, "images": -1}, "-1 is below 0"),
        (
            {"model": "mistral-small-3.1-24b", "phase": "prefill", "tokens": 3, "image": "2000x10"},
            "more than the maximum of 1540",
        ),
        ({"model": "qwen2-vl-7b", "phase": "prefill", "tokens": 32768}, "more than the maximum of 32,768"),
        ({"model": "llama-3.1-8b", "images": 1}, "--images: 1 does not apply to llama-3.1-8b"),
        (
            {"model": "llama-3.1-8b", "phase": "train", "tokens": 128, "steps": 2},
            "--steps: 2 does not apply to training",
        ),
    ],
)
def test_refused(words: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        predict(**{"on": "H200"} | words)


def test_a_larger_chip_format_and_a_stored_one() -> None:
    """What is stored in fp32 runs in 16 bits unless it is asked for."""
    usual, wide = (
        predict("modernbert-base", on="H200", phase="prefill", tokens=64, engine="torch", dtype=dtype)
        for dtype in (None, "fp32")
    )
    assert usual.inputs["dtype"] == "bf16" and wide.inputs["dtype"] == "fp32"
    assert wide.memory_parts["weights"] == 2 * usual.memory_parts["weights"]


def _with_tower(name: str, **changes: Any) -> Model:
    model = load_model(name)
    return replace(model, towers=(replace(model.towers[0], **changes),))


def test_a_tower_that_does_not_say_enough() -> None:
    """Shapes written by hand may leave out how pictures are cut."""
    for intake, told in (
        (VisionPreprocessor(), "does not say its patch"),
        (VisionPreprocessor(patch=14), "does not say its patch"),
        (VisionPreprocessor(patch=14, any_size=True, merge=0), "merge: 0 is not a positive whole number"),
    ):
        with pytest.raises(InputError, match=told):
            predict(_with_tower("qwen2-vl-7b", intake=intake), on="H200", phase="prefill", tokens=9)
    with pytest.raises(InputError, match="does not say its positions"):
        fit(_with_tower("whisper-small", intake=VisionPreprocessor()), on="H200")
    model = load_model("qwen2-vl-7b")
    with pytest.raises(InputError, match="several towers"):
        predict(replace(model, towers=model.towers * 2), on="H200", phase="prefill", tokens=9)
    other = replace(model.towers[0].blocks[0], mixer=load_model("mamba-2.8b").blocks[0].mixer)
    with pytest.raises(InputError, match="its vision part cannot be priced"):
        predict(_with_tower("qwen2-vl-7b", blocks=(other,)), on="H200", phase="prefill", tokens=9)


def test_a_tower_that_cannot_be_cut_names_a_degree_that_works() -> None:
    with pytest.raises(
        InputError, match=r"its vision part has 3420 .*nearest degree that works is 6|28 attention heads"
    ):
        predict("qwen2.5-vl-7b", on="H200:8", phase="prefill", tokens=9)


@pytest.mark.parametrize("chip", ["V100", "L4", "B200", "MI300X", "TPU-v5e"])
@pytest.mark.parametrize("name", ["bert-base", "dit-xl-2-256", "whisper-small", "t5-large"])
def test_on_other_chips(name: str, chip: str) -> None:
    for case in CASES[load_model(name).kind]:
        answer = predict(name, on=chip, **case)
        flops = sum(one.flops for one in answer.breakdown)
        assert answer.time_s.value >= flops / load_chip(chip).matrix_rate(answer.inputs["dtype"])


def test_what_no_catalog_has() -> None:
    """BART runs on PyTorch alone, LLaVA on vLLM with 576 tokens a picture."""
    bart = read_family(Fields(BART, "config.json"))
    assert default_engine(bart) == "torch"
    answer = predict(bart, on="H200", phase="prefill", tokens=4, batch=8)
    assert "1,024 source tokens (the maximum)" in answer.title
    llava = read_family(Fields(LLAVA, "config.json"))
    assert "576 tokens" in predict(llava, on="H200", phase="prefill", tokens=50).title


def test_default_engines() -> None:
    assert default_engine(load_model("bert-base")) == "vllm"
    assert default_engine(load_model("whisper-small")) == "vllm"
    assert default_engine(load_model("t5-large")) == "torch"
    assert default_engine(load_model("llama-3.2-11b-vision")) == "torch"
    assert default_engine(replace(load_model("dit-xl-2-256"), name="mine")) == "torch"


def test_windows_charge_what_a_running_sequence_holds() -> None:
    """Gemma 3 27B at 8,000 tokens: 501 blocks of the 10 layers that see all, and of each of six groups of windows one
    more than the 64 of 1,024 tokens; 10 layers of 16 tokens of 8 KiB a block."""
    answer = predict("gemma-3-27b", on="H100", batch=8, context=8000)
    assert answer.memory_parts["kv"] == 8 * (501 + 6 * 65) * 10 * 16 * 8192
    assert answer.fits
    plain = 8 * (10 * 8000 + 52 * 1024) * 8192
    assert plain < answer.memory_parts["kv"] < 1.1 * plain
    prompt = predict("gemma-3-27b", on="H100", phase="prefill", tokens=8001, images=0)
    assert prompt.memory_parts["kv"] == (501 + 6 * (501 + 1)) * 10 * 16 * 8192


def test_degrees_that_are_not_said_take_the_chips_that_others_leave() -> None:
    spread = predict("llama-4-scout", on="H100:8", ep=8)
    assert (spread.inputs["tp"], spread.inputs["ep"]) == (8, 8) and spread.parallel["experts"]["ranks"] == 8
    piped = predict("llama-4-scout", on="H100:8", pp=2, batch=8, context=1000)
    assert piped.inputs["tp"] == 4 and piped.parallel["pipeline"]["layers"] == [24, 24]


def test_data_parallel_ranks_share_a_batch() -> None:
    """As many chips, each with half of the sequences and half of the experts' ranks."""
    whole = predict("llama-4-scout", on="H100:8", dp=2, ep=8, batch=64, context=4000)
    half = predict("llama-4-scout", on="H100:4", tp=4, batch=32, context=4000)
    assert whole.memory_parts["kv"] == half.memory_parts["kv"]
    looked = {one.op: one.time_s.value for one in half.breakdown}
    assert {one.op: one.time_s.value for one in whole.breakdown}["attention.decode"] == looked["attention.decode"]
    assert whole.tokens_per_s == pytest.approx(64 / whole.time_s.value)
