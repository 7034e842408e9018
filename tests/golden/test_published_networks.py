"""Encoders beside published latencies: NVIDIA's TensorRT demo of BERT on an A100 40GB in FP16, averages in milliseconds
(github.com/NVIDIA/TensorRT, demo/BERT/README.md). TensorRT fuses more than torch.compile does, and no engine's host is
in its times, so kernels alone are compared."""

from __future__ import annotations

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


def _errors(name: str, tokens: int) -> list[float]:
    found = []
    for batch, published in MS[name, tokens].items():
        answer = predict(
            name,
            on="A100-SXM-40GB",
            phase="prefill",
            tokens=tokens,
            batch=batch,
            dtype="fp16",
            settings={"max_num_batched_tokens": 65536},
        )
        kernels = sum(one.time_s.value for one in answer.breakdown if one.kind != "host")
        found.append(kernels * 1e3 / published - 1)
    return found


@pytest.mark.parametrize(("name", "tokens"), MS)
def test_bert(name: str, tokens: int) -> None:
    """Between an eighth too quick and a quarter too slow, most of them a tenth too slow."""
    errors = _errors(name, tokens)
    assert min(errors) > -0.15 and max(errors) < 0.25
    assert -0.05 < float(np.median(errors)) < 0.2


@pytest.mark.parametrize(("name", "published"), [("dit-xl-2-256", 118.64), ("dit-xl-2-512", 524.60)])
def test_the_work_of_dit(name: str, published: float) -> None:
    """Peebles and Xie (2023), table 4 and 6: "Gflops", where a product and its sum count once."""
    answer = predict(name, on="H100")
    assert sum(one.flops for one in answer.breakdown) / 2e9 == pytest.approx(published, rel=1e-3)
