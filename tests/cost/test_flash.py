"""How FlashAttention-3 cuts a cache: parts, waves, and the plain-number form against the arrays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.cost.flash import MOST_SPLITS, in_turn, one_in_turn


def cut(blocks: float, tiles: float, sms: float = 132, split: float = 1.0) -> tuple[float, float]:
    return one_in_turn(((1.0, blocks),), tiles, tiles, sms, split)


def test_parts_fill_one_wave() -> None:
    assert cut(44, 119) == (40, 3)  # 132 parts of 40 tiles at most, on 132 processors
    assert cut(200, 10) == (20, 1)  # two waves of whole blocks
    assert cut(1, 10_000)[1] == MOST_SPLITS


def test_a_block_more_may_leave_a_wave_out() -> None:
    assert cut(50, 100) == (68, 3)
    assert cut(61, 100) == (50, 2)


def test_a_kernel_that_does_not_split() -> None:
    assert cut(1, 1000, split=0.0) == (1000, 1)


@given(blocks=st.integers(1, 2000), more=st.integers(1, 8), tiles=st.integers(1, 900), hidden=st.integers(0, 500),
       pack=st.sampled_from([0.0, 0.3, 1.0]), split=st.sampled_from([0.0, 0.6, 1.0]))  # fmt: skip
def test_one_equals_arrays(blocks: int, more: int, tiles: int, hidden: int, pack: float, split: float) -> None:
    one = one_in_turn(((pack, blocks), (1 - pack, blocks * more)), tiles, tiles + hidden, 132, split)
    cuts = ((pack, np.array([float(blocks)])), (1 - pack, np.array([float(blocks * more)])))
    many = in_turn(cuts, np.array([float(tiles)]), np.array([float(tiles + hidden)]), 132, split)
    assert one == pytest.approx([float(each[0]) for each in many], rel=1e-12)
