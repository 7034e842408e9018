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
@pytest.mark.parametrize(("dtype", "kernels"), [("bf16", 0.05), ("fp32", 0.15)])
def test_encoders(name: str, length: int, dtype: str, kernels: float) -> None:
    ours = gnomon.predict(name, on=CHIP, phase="prefill", tokens=length, batch=8, engine="torch", dtype=dtype)
    _compare(_built(name), {"input_ids": _ids(8, length)}, dtype, ours, 0.03, kernels)


@pytest.mark.parametrize("name", ["t5-large", "flan-t5-xl"])
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_t5(name: str, dtype: str) -> None:
    ours = gnomon.predict(name, on=CHIP, phase="prefill", tokens=4, batch=8, source=512, dtype=dtype)
    inputs = {"input_ids": _ids(8, 512), "decoder_input_ids": _ids(8, 4)}
    _compare(_built(name), inputs, dtype, ours, 0.03, 0.15)


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


def test_wan() -> None:
    """Of a video of 480 x 832 pixels and 81 frames. Its norms, shifts and sums run in fp32."""
    diffusers = pytest.importorskip("diffusers")
    said = {key: value for key, value in load.config_of("wan-2.1-t2v-14b").items() if key != "torch_dtype"}
    with torch.device("meta"):
        module = diffusers.WanTransformer3DModel.from_config(said).eval()
    video, text = torch.zeros(1, 16, 21, 60, 104, device="meta"), torch.zeros(1, 512, 4096, device="meta")
    inputs = {"hidden_states": video, "timestep": _ids(1), "encoder_hidden_states": text}
    ours = gnomon.predict("wan-2.1-t2v-14b", on=CHIP, tokens=21 * 30 * 52, engine="torch")
    _compare(module, inputs, "bf16", ours, 0.03, 0.3)


def test_dit() -> None:
    diffusers = pytest.importorskip("diffusers")
    said = {key: value for key, value in load.config_of("dit-xl-2-512").items() if key != "torch_dtype"}
    with torch.device("meta"):
        module = diffusers.DiTTransformer2DModel.from_config(said).eval()
    samples = torch.zeros(8, 4, 64, 64, device="meta")
    inputs = {"hidden_states": samples, "timestep": _ids(8), "class_labels": _ids(8)}
    _compare(module, inputs, "fp16", gnomon.predict("dit-xl-2-512", on=CHIP, batch=8), 0.03, 0.1)
