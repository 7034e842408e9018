"""A model opened in words."""

from __future__ import annotations

import pytest

import gnomon
from gnomon.load.shapes import KINDS
from gnomon.report import render
from gnomon.report.shapes import _WORDS, layer_lines

OPENED = {
    "llama-3.1-8b": ["32 x  attention, 32 heads on 8 of 128 + feed-forward of 14,336", "8,030,261,248", "128.0 KiB"],
    "gemma-3-27b": [
        "order: 10 times (5 A, 1 B), then 2 A",
        "vision tower, 1,152 wide",
        "gnomon predict gemma-3-27b --on H100",
    ],
    "deepseek-v3": ["37.6B active per token", "11.6B more in MTP layers that draft", "GiB in fp8", "order: 3 A, 58 B"],
    "nemotron-h-8b": [
        "state space (Mamba-2), 128 heads of 64",
        "97.4 MiB per sequence under vLLM, in fp32 but for convolutions",
    ],
    "gpt-oss-20b": ["[mxfp4 in experts]", "12 times (1 A, 1 B)"],
    "qwen3-next-80b-a3b": ["linear attention (gated delta)", "10 of 512 experts of 512 and 512 shared"],
    "t5-large": ["cross-attention, 16 heads on 16 of 64", "encoder tower", "gnomon predict t5-large --on H100"],
}


@pytest.mark.parametrize("name", OPENED)
def test_one_model(name: str) -> None:
    text = render(gnomon.models(name))
    for said in OPENED[name]:
        assert said in text
    assert f"gnomon models show {name} --shapes" in text
    assert f"gnomon fit {name}" in text or f"gnomon predict {name}" in text


def test_every_model_can_be_opened() -> None:
    for name in (model["name"] for model in gnomon.models().models):
        assert render(gnomon.models(name))


def test_every_kind_of_half_has_words() -> None:
    parts = {"linear", "table", "convolution", "norm", "modulation"}
    assert set(_WORDS) == set(KINDS) - parts


def test_long_orders_are_cut() -> None:
    layers = [{"count": i + 1, "ffn": {"kind": "dense", "inner": 8 + i % 2}} for i in range(31)]
    assert layer_lines(layers)[-1].endswith("… (31 changes)")


def test_a_list_offers_what_works() -> None:
    text = render(gnomon.models(find="deepseek"))
    assert "deepseek-v3" in text
    assert "gnomon fit deepseek-v2-lite" in text
    assert "no model matches" in render(gnomon.models(find="nothing of that name"))
