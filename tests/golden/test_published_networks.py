"""Encoders beside published latencies: NVIDIA's TensorRT demo of BERT on an A100 40GB in FP16, averages in milliseconds
(github.com/NVIDIA/TensorRT, demo/BERT/README.md). TensorRT fuses more than torch.compile does, and no engine's host is
in its times: kernels alone are nearest to it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gnomon import predict

MS = {
    ("bert-large", 128): {1: 1.64, 2: 2.05, 4: 2.97, 8: 4.51, 16: 7.75, 32: 13.85, 64: 26.20, 128: 51.61},
    ("bert-large", 384): {1: 3.12, 2: 4.15, 4: 5.96, 8: 11.53, 16: 21.92, 32: 43.01, 64: 83.63, 128: 163.70},
    ("bert-base", 128): {1: 0.67, 2: 0.83, 4: 1.02, 8: 1.38, 16: 2.18, 32: 4.10, 64: 8.05, 128: 16.14},
    ("bert-base", 384): {1: 1.31, 2: 1.64, 4: 2.31, 8: 3.62, 16: 6.72, 32: 13.51, 64: 26.11, 128: 51.26},
}
"""By model and tokens of a sequence, then by batch."""


ONE_STEP = {"max_num_batched_tokens": 65536}
WAYS: dict[str, tuple[dict[str, Any], bool]] = {
    "kernels": ({"settings": ONE_STEP}, False),
    "graph": ({"engine": "torch", "settings": {"launch": "graph"}}, True),
    "eager": ({"engine": "torch"}, True),
    "step": ({"settings": ONE_STEP}, True),
}
"""How the same passes are predicted, and whether the host's time is counted."""


def _error(name: str, tokens: int, batch: int, way: str) -> float:
    words, hosted = WAYS[way]
    answer = predict(name, on="A100-SXM-40GB", phase="prefill", tokens=tokens, batch=batch, dtype="fp16", **words)
    seconds = sum(one.time_s.value for one in answer.breakdown if hosted or one.kind != "host")
    return seconds * 1e3 / MS[name, tokens][batch] - 1


@pytest.mark.parametrize(("name", "tokens"), MS)
def test_bert(name: str, tokens: int) -> None:
    """Between a sixth too quick and a fifth too slow, most of them a tenth too slow."""
    errors = [_error(name, tokens, batch, "kernels") for batch in MS[name, tokens]]
    assert min(errors) > -0.18 and max(errors) < 0.25
    assert -0.05 < float(np.median(errors)) < 0.2


@pytest.mark.parametrize(
    ("way", "least", "most", "median"),
    [
        ("kernels", -0.176, 0.194, 0.101),
        ("graph", 0.135, 0.975, 0.465),
        ("eager", 0.355, 3.478, 0.805),
        ("step", 0.10, 7.76, 1.35),
    ],
)
def test_what_is_said_of_bert(way: str, least: float, most: float, median: float) -> None:
    """The table of docs/networks.md, by engine and launch."""
    errors = [_error(*size, batch, way) for size, row in MS.items() for batch in row]
    assert (min(errors), max(errors), float(np.median(errors))) == pytest.approx((least, most, median), abs=0.006)


def test_the_example_of_bert() -> None:
    """As docs/networks.md has it, with the settings of the comparison and without them."""
    step = {"phase": "prefill", "tokens": 384, "batch": 32}
    said = predict("bert-large", on="A100-SXM-40GB", dtype="fp16", settings=ONE_STEP, **step)
    plain = predict("bert-large", on="A100-SXM-40GB", **step)
    assert said.time_s.value * 1e3 == pytest.approx(48.2, abs=0.05)
    assert plain.time_s.value * 1e3 == pytest.approx(120, abs=0.5) and "in 7 steps" in plain.title


@pytest.mark.parametrize(("name", "published"), [("dit-xl-2-256", 118.64), ("dit-xl-2-512", 524.60)])
def test_the_work_of_dit(name: str, published: float) -> None:
    """Peebles and Xie (2023), table 4 and 6: "Gflops", where a product and its sum count once."""
    answer = predict(name, on="H100")
    assert sum(one.flops for one in answer.breakdown) / 2e9 == pytest.approx(published, rel=1e-3)
