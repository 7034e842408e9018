"""Streams: what L2 holds, and rows that one thread block takes."""

from __future__ import annotations

import numpy as np
import pytest
from tests.cost.machines import machine

from gnomon.cost.elementwise import LONGEST, seconds
from gnomon.graph.sizes import TOKENS
from gnomon.graph.streams import streamed
from gnomon.graph.style import Stream
from gnomon.spec import Batch

H200 = machine("H200").chip
C = {"memory": 0.8, "cached": 1.2, "launch_us": 1.7, "block_gb_s": 64.0}


def took(moved: float, row_bytes: float = 0.0, **beside: float) -> float:
    shape = {"bytes_read": moved / 2, "bytes_written": moved / 2, "row_bytes": row_bytes} | beside
    return float(seconds({name: np.array([value]) for name, value in shape.items()}, "bf16", H200, C)[0])


def test_one_row_takes_what_one_block_needs() -> None:
    """Measured on an H200: a norm of one row of 28,672 channels takes 5.0 us, of 2,048 channels 1.9."""
    assert took(8 * 28672, 8 * 28672) == pytest.approx(5.0e-6, rel=0.1)
    assert took(8 * 2048, 8 * 2048) == pytest.approx(1.9e-6, rel=0.1)
    assert took(8 * 28672) < 2e-6


def test_many_rows_take_what_memory_needs() -> None:
    assert took(2e9, 32768) == pytest.approx(2e9 / (0.8 * H200.memory_bandwidth_bytes_s) + 1.7e-6, rel=0.02)


def test_no_row_is_longer_than_kernels_leave_whole() -> None:
    assert took(1e10, 1e10) == pytest.approx(took(1e10, LONGEST))


def test_what_fits_in_l2_is_quicker_unless_it_is_no_use() -> None:
    small = 0.3 * H200.l2_bytes
    assert took(small) < took(small, cached=0.0)
    assert took(100 * H200.l2_bytes) == pytest.approx(took(100 * H200.l2_bytes, cached=0.0), rel=0.01)


def test_serving_engines_norms_take_a_row_a_block() -> None:
    shape = streamed("norm", Stream(2, 2, 0, 0), 8192.0, TOKENS, by_row=True).shape(Batch.decode(8, 100))
    assert shape["row_bytes"] == pytest.approx(4 * 4096 * 2)
