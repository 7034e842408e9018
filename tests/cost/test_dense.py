"""Matrix products, mixtures and streams: the limits they tend to, and their cliffs."""

from __future__ import annotations

import numpy as np
import pytest
from tests.cost.machines import CHIPS, machine, seconds

from gnomon import catalog
from gnomon.cost.moe import padded_rows


@pytest.mark.parametrize(
    ("chip", "dtype"),
    [(chip, dtype) for chip in CHIPS for dtype in ("bf16", "fp8") if dtype in catalog.chip(chip).rates_flops],
)
def test_large_gemms_reach_most_of_the_peak(chip: str, dtype: str) -> None:
    on = machine(chip)
    time = float(seconds(on, "gemm", dtype, m=16384, n=16384, k=16384)[0])
    assert 0.5 < 2 * 16384**3 / time / on.chip.rate(dtype) < 1


@pytest.mark.parametrize("chip", CHIPS)
def test_few_rows_only_stream_the_weights(chip: str) -> None:
    on = machine(chip)
    times = seconds(on, "gemm", m=[1, 8, 16], n=28672, k=4096)
    weights = 28672 * 4096 * 2 / on.chip.memory_bandwidth_bytes_s
    assert np.all((times > weights) & (times < 1.5 * weights))
    if "fp8" in on.chip.rates_flops:
        narrow = seconds(on, "gemm", "fp8", m=1, n=28672, k=4096)
        assert 0.5 * weights < narrow[0] < 0.8 * times[0]


def test_a_batch_is_so_many_gemms_at_most() -> None:
    one, four = seconds(machine(), "gemm", m=512, n=2048, k=2048, batch=[1, 4])
    assert one < four < 4 * one


def test_nothing_to_multiply_takes_no_time() -> None:
    assert (
        machine().seconds("gemm", "bf16", {name: np.array([x]) for name, x in (("m", 0.0), ("n", 9.0), ("k", 9.0))})[0]
        == 0
    )


EXPERTS = {"hidden": 2048, "inter": 768, "experts": 128, "topk": 8}


def test_mixtures_stream_the_experts_they_visit() -> None:
    on = machine()
    one, few, all_of_them = seconds(on, "moe", tokens=[1, 16, 512], **EXPERTS)
    expert = 3 * 2048 * 768 * 2 / on.chip.memory_bandwidth_bytes_s
    assert 8 * expert < one < 16 * expert + 40e-6
    assert 128 * expert < all_of_them < 2 * 128 * expert
    assert one < few < all_of_them


def test_mixtures_of_many_tokens_compute() -> None:
    on = machine()
    time = float(seconds(on, "moe", tokens=65536, **EXPERTS)[0])
    assert 0.25 < 6 * 65536 * 8 * 2048 * 768 / time / on.chip.rate("bf16") < 0.95


def test_padded_rows() -> None:
    pairs, visited = np.array([8.0, 1024.0, 1e6]), np.array([8.0, 128.0, 128.0])
    assert padded_rows(pairs, visited, 16).tolist() == [128, 2048, 1e6 + 128 * 8]
    assert np.all(padded_rows(pairs, visited, 64) >= pairs)


def test_streams_reach_most_of_the_bandwidth() -> None:
    on = machine()
    time = float(seconds(on, "elementwise", bytes_read=4e9, bytes_written=4e9)[0])
    assert 0.6 < 8e9 / time / on.chip.memory_bandwidth_bytes_s <= 1
    # What was just written is still in L2.
    small = float(seconds(on, "elementwise", bytes_read=4e6, bytes_written=4e6)[0])
    assert small < 8e6 / 8e9 * time + 4e-6
    assert seconds(on, "elementwise", bytes_read=0, bytes_written=0)[0] == 0
