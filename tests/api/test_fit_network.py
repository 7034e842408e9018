"""Memory of networks that are no plain decoders."""

from __future__ import annotations

import pytest

from gnomon import fit, predict
from gnomon.errors import InputError
from gnomon.load import model as load_model


@pytest.mark.parametrize("name", ["bert-large", "dit-xl-2-512", "t5-large", "whisper-large-v3", "qwen2.5-vl-7b"])
def test_weights_are_all_of_its_parameters(name: str) -> None:
    answer, model = fit(name, on="H200"), load_model(name)
    assert answer.fits
    assert answer.parts["weights"] == pytest.approx(2.0 * model.parameters, rel=1e-3)
    assert sum(answer.parts.values()) <= answer.usable_bytes * (1 + 1e-9)
    assert answer.max_batch > 0
    assert 0 < answer.max_context <= model.max_context


def test_a_tower_takes_room_from_the_cache() -> None:
    name = "qwen2.5-vl-7b"
    both, alone = fit(name, on="A100"), fit(load_model(name).alone, on="A100")
    tower = 2.0 * load_model(name).towers[0].parameters
    grown = both.parts["activations"] - alone.parts["activations"]
    assert both.parts["kv"] == pytest.approx(alone.parts["kv"] - tower - grown)
    assert both.kv_tokens < alone.kv_tokens


def test_every_sequence_keeps_its_source() -> None:
    """1,500 frames of Whisper take 94 blocks, its longest answer 28."""
    answer, model = fit("whisper-large-v3", on="L4"), load_model("whisper-large-v3")
    assert answer.max_batch == answer.kv_blocks // (94 + 28)
    block = 16 * model.kv_bytes_per_token(2.0)
    assert answer.kv_blocks == int(answer.parts["kv"] // block) - 1


def test_layers_with_windows_hold_less() -> None:
    """Gemma 3 27B: 10 layers see everything and 52 see 1,024 tokens, in six groups of up to 10; a block has 16 tokens
    of 8 KiB in each of 10 layers. A sequence is let in with room for a step of 8,192 tokens."""
    answer = fit("gemma-3-27b", on="H100", context=8192)
    each = 512 + 6 * (512 + 1)
    assert answer.kv_blocks == int(answer.parts["kv"] // (10 * 16 * 8192)) - 1
    assert answer.max_batch == answer.kv_blocks // each
    assert answer.kv_tokens == int(answer.kv_blocks / each * 8192)
    longest = fit("gemma-3-27b", on="H100", context=131072)
    assert longest.fits and longest.max_batch == longest.kv_blocks // (8192 + 6 * (-(-(1023 + 8192) // 16) + 1))


def test_states_hold_the_same_at_any_length() -> None:
    """Qwen3.5's linear layers keep a state, and pages of its attention layers are as large as one."""
    answer = fit("qwen3.5-397b-a17b", on="H200:8")
    assert answer.fits and answer.max_context == load_model("qwen3.5-397b-a17b").max_context
    assert answer.block_tokens > 16
    assert fit("qwen3.5-397b-a17b", on="H200:8", context=1024).max_batch > 10 * answer.max_batch


def test_the_longest_sequence_may_be_set() -> None:
    said, asked = fit("gemma-3-27b", on="H100", settings={"max_model_len": 8192}), fit("gemma-3-27b", on="H100")
    assert said.inputs["context"] == 8192 and said.max_batch == fit("gemma-3-27b", on="H100", context=8192).max_batch
    assert said.max_batch > asked.max_batch and asked.inputs["context"] == 131072


def test_close_to_the_edge() -> None:
    """What is said of decoders is said of these: how far the edge is, and whether it can be told from it."""
    answer = fit("qwen2.5-vl-7b", on="H100")
    assert answer.slack_bytes > 0 and not answer.close
    assert answer.margin_bytes == pytest.approx(
        answer.parts["kv"] - (128000 / 16 + 1) * 16 * load_model("qwen2.5-vl-7b").kv_bytes_per_token(2.0), rel=1e-3
    )


def test_weights_in_a_narrower_format() -> None:
    """The decoder's matrices are narrowed, the tower's are not; the cache stays in 16 bits."""
    wide, narrow = fit("qwen2.5-vl-7b", on="H100"), fit("qwen2.5-vl-7b", on="H100", dtype="fp8")
    assert 0.5 < narrow.parts["weights"] / wide.parts["weights"] < 0.7
    assert narrow.inputs["kv_dtype"] == "bf16"
    stepped = predict("qwen2.5-vl-7b", on="H100", dtype="fp8", phase="decode", context=100)
    assert stepped.memory_parts["weights"] == narrow.parts["weights"]


@pytest.mark.parametrize("degrees", [{"pp": 2}, {"dp": 2}, {"ep": 8}, {"dp": 8, "ep": 8}, {"pp": 2, "dp": 2, "tp": 2}])
def test_degrees_cut_it_as_they_cut_its_decoder(degrees: dict[str, int]) -> None:
    """All eight chips are taken, and the tower is all that a decoder alone does not hold."""
    both = fit("llama-4-scout", on="H200:8", context=8192, **degrees)
    alone = fit(load_model("llama-4-scout").alone, on="H200:8", context=8192, **degrees)
    assert {name: both.inputs.get(name, 1) for name in degrees} == degrees
    assert both.inputs["tp"] * both.inputs.get("pp", 1) * both.inputs.get("dp", 1) == 8
    tower = 2.0 * load_model("llama-4-scout").towers[0].parameters
    assert 0 <= both.parts["weights"] - alone.parts["weights"] <= tower


def test_the_most_that_passes_at_once() -> None:
    """One more sample would not fit, and the prediction says so."""
    most = fit("dit-xl-2-512", on="L4").max_batch
    assert predict("dit-xl-2-512", on="L4", batch=most).fits
    assert not predict("dit-xl-2-512", on="L4", batch=most + 1).fits


def test_what_does_not_fit() -> None:
    large = fit("qwen2.5-vl-72b", on="H100")
    assert not large.fits and {"4 GPUs, TP 4", "2 GPUs, TP 2, fp8 weights"} <= {one.what for one in large.changes}
    assert fit("qwen2.5-vl-72b", on="H100:2", dtype="fp8").fits
    assert fit("qwen2.5-vl-72b", on="H100:4").fits
    alone = fit("llama-3.2-90b-vision", on="H100")
    assert not alone.fits and not alone.changes and alone.max_batch == 0


def test_refused() -> None:
    with pytest.raises(InputError, match="does not run on vllm"):
        fit("t5-large", on="H100", engine="vllm")
    with pytest.raises(InputError, match="not between 1 and 512"):
        fit("bert-base", on="H100", context=1000)
    with pytest.raises(InputError, match="cut by --tp alone"):
        fit("bert-base", on="H100:2", ep=2)
    with pytest.raises(InputError, match="experts over 2 ranks"):
        fit("t5-large", on="H100", ep=2)
    with pytest.raises(InputError, match="unknown setting of torch"):
        fit("t5-large", on="H100", settings={"max_model_len": 8})
    with pytest.raises(InputError, match="2 chips for one network"):
        fit("dit-xl-2-256", on="H100:2")
