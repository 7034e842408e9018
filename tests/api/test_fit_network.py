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
    """1,500 frames of Whisper take more room than its longest answer."""
    answer, model = fit("whisper-large-v3", on="L4"), load_model("whisper-large-v3")
    each = 1500 * model.source_bytes_per_token(2.0) + 448 * model.kv_bytes_per_token(2.0)
    room = answer.parts["kv"] + answer.parts["source"]
    assert answer.max_batch == int(room // each)


def test_the_most_that_passes_at_once() -> None:
    """One more sample would not fit, and the prediction says so."""
    most = fit("dit-xl-2-512", on="L4").max_batch
    assert predict("dit-xl-2-512", on="L4", batch=most).fits
    assert not predict("dit-xl-2-512", on="L4", batch=most + 1).fits


def test_what_does_not_fit() -> None:
    large = fit("qwen2.5-vl-72b", on="H100")
    assert not large.fits and large.changes[0].what == "4 GPUs, TP 4"
    assert fit("qwen2.5-vl-72b", on="H100:4").fits
    alone = fit("llama-3.2-90b-vision", on="H100")
    assert not alone.fits and not alone.changes and alone.max_batch == 0


def test_refused() -> None:
    with pytest.raises(InputError, match="does not run on vllm"):
        fit("t5-large", on="H100", engine="vllm")
    with pytest.raises(InputError, match="not between 1 and 512"):
        fit("bert-base", on="H100", context=1000)
    with pytest.raises(InputError, match="2 chips for one network"):
        fit("dit-xl-2-256", on="H100:2")
