"""Networks priced from their shapes beside the same networks traced: kernels, FLOPs and seconds on the device.

Tracing runs the published code on tensors without values, so what the shapes leave out shows here.
"""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import gnomon  # noqa: E402
from gnomon import load  # noqa: E402

pytestmark = pytest.mark.oracle
CHIP = "H200"


def _built(name: str) -> Any:
    said = dict(load.config_of(name))
    config = transformers.CONFIG_MAPPING[said["model_type"]].from_dict(said)
    with torch.device("meta"):
        return getattr(transformers, said["architectures"][0])._from_config(config, attn_implementation="sdpa").eval()


def _ids(*shape: int) -> Any:
    return torch.zeros(*shape, dtype=torch.long, device="meta")


def _compare(module: Any, inputs: dict[str, Any], dtype: str, ours: Any, device: float, kernels: float) -> None:
    traced = gnomon.trace(module, inputs, on=CHIP, dtype=dtype)
    seconds = sum(one.time_s.value for one in ours.breakdown if one.kind != "host")
    assert sum(one.flops for one in ours.breakdown) == pytest.approx(traced.flops, rel=2e-3)
    assert seconds == pytest.approx(sum(one.time_s.value for one in traced.operators), rel=device)
    assert sum(one.count for one in ours.breakdown if one.kind != "host") == pytest.approx(traced.kernels, rel=kernels)


@pytest.mark.parametrize(("name", "length"), [("bert-large", 384), ("modernbert-large", 1024)])
def test_encoders(name: str, length: int) -> None:
    ours = gnomon.predict(name, on=CHIP, phase="prefill", tokens=length, batch=8, engine="torch", dtype="bf16")
    _compare(_built(name), {"input_ids": _ids(8, length)}, "bf16", ours, 0.03, 0.05)


@pytest.mark.parametrize("name", ["t5-large", "flan-t5-xl"])
def test_t5(name: str) -> None:
    ours = gnomon.predict(name, on=CHIP, phase="prefill", tokens=4, batch=8, source=512, dtype="bf16")
    inputs = {"input_ids": _ids(8, 512), "decoder_input_ids": _ids(8, 4)}
    _compare(_built(name), inputs, "bf16", ours, 0.03, 0.15)


def test_whisper() -> None:
    ours = gnomon.predict("whisper-large-v3", on=CHIP, phase="prefill", tokens=4, batch=8, engine="torch")
    sound = torch.zeros(8, 128, 3000, device="meta")
    inputs = {"input_features": sound, "decoder_input_ids": _ids(8, 4)}
    _compare(_built("whisper-large-v3"), inputs, "fp16", ours, 0.03, 0.15)


def test_llama_vision() -> None:
    ours = gnomon.predict("llama-3.2-11b-vision", on=CHIP, phase="prefill", tokens=100)
    inputs = {
        "input_ids": _ids(1, 100),
        "pixel_values": torch.zeros(1, 1, 4, 3, 560, 560, device="meta"),
        "aspect_ratio_ids": torch.ones(1, 1, dtype=torch.long, device="meta"),
        "aspect_ratio_mask": torch.ones(1, 1, 4, device="meta"),
    }
    _compare(_built("llama-3.2-11b-vision"), inputs, "bf16", ours, 0.03, 0.15)


def test_dit() -> None:
    diffusers = pytest.importorskip("diffusers")
    said = {key: value for key, value in load.config_of("dit-xl-2-512").items() if key != "torch_dtype"}
    with torch.device("meta"):
        module = diffusers.DiTTransformer2DModel.from_config(said).eval()
    samples = torch.zeros(8, 4, 64, 64, device="meta")
    inputs = {"hidden_states": samples, "timestep": _ids(8), "class_labels": _ids(8)}
    _compare(module, inputs, "fp16", gnomon.predict("dit-xl-2-512", on=CHIP, batch=8), 0.03, 0.1)
