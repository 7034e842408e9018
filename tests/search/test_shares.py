"""Requests are dealt in turn, and all plans see the same draws."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gnomon.errors import InputError
from gnomon.load import draw
from gnomon.search.shares import MOST_DRAWN, Shares, at_rate, first_part
from gnomon.spec import ServingLoad

LOAD = ServingLoad(rate_per_s=8.0, input_tokens=100, output_tokens=10, seed=3)


def trace_file(folder: Path, count: int, name: str = "load.csv") -> str:
    rng = np.random.default_rng(0)
    rows = zip(
        np.cumsum(rng.exponential(0.5, count)), rng.integers(1, 900, count), rng.integers(1, 90, count), strict=True
    )
    lines = ["arrival_s,input_tokens,output_tokens", *(f"{a},{i},{o}" for a, i, o in rows)]
    (folder / name).write_text("\n".join(lines))
    return str(folder / name)


def test_one_replica_sees_every_request() -> None:
    share = at_rate(Shares(LOAD).of(1, 500)[0], 8.0)
    whole = draw(ServingLoad(rate_per_s=8.0, input_tokens=100, output_tokens=10, requests=500, seed=3))
    np.testing.assert_allclose(share.arrival_s, whole.arrival_s)


def test_replica_of_three_sees_every_third() -> None:
    shares = Shares(LOAD)
    one, three = shares.of(1, 600)[0], shares.of(3, 200)[0]
    np.testing.assert_allclose(three.arrival_s, one.arrival_s[::3])


@pytest.mark.parametrize("replicas", [MOST_DRAWN, MOST_DRAWN + 1, 5000])
def test_a_drawn_share_is_as_long_as_asked_at_any_size(replicas: int) -> None:
    share = Shares(LOAD).of(replicas, 400)[0]
    assert len(share) == 400
    assert share.rate_per_s == pytest.approx(1 / replicas, rel=0.05)
    assert share.arrival_s[0] == 0.0


def test_a_trace_is_dealt_whole(tmp_path: Path) -> None:
    shares = Shares(ServingLoad(trace=trace_file(tmp_path, 90), requests=0))
    dealt = shares.of(3, 1000)
    assert [len(share) for share in dealt] == [30, 30, 30]
    assert sum(int(share.input_tokens.sum()) for share in dealt) == int(shares.whole.input_tokens.sum())
    assert shares.rate_per_s == pytest.approx(shares.whole.rate_per_s)


def test_of_a_long_trace_calm_and_busy_stretches_are_taken(tmp_path: Path) -> None:
    shares = Shares(ServingLoad(trace=trace_file(tmp_path, 12_000), requests=0))
    stretches = shares.of(2, 2000)
    assert [len(stretch) for stretch in stretches] == [500] * 4
    paces = [int(s.input_tokens.sum() + s.output_tokens.sum()) / float(s.arrival_s[-1]) for s in stretches]
    assert paces == sorted(paces)
    assert len(set(paces)) == 4
    assert all(stretch.arrival_s[0] == 0.0 for stretch in stretches)
    assert [len(stretch) for stretch in shares.of(2, 600)] == [600]


def test_more_replicas_than_requests(tmp_path: Path) -> None:
    dealt = Shares(ServingLoad(trace=trace_file(tmp_path, 5), requests=0)).of(64, 100)
    assert [len(share) for share in dealt] == [1] * 5


def test_rates() -> None:
    assert Shares(LOAD).rate_per_s == 8.0
    assert Shares(ServingLoad(input_tokens=1, output_tokens=1)).rate_per_s == 0.0
    share = Shares(LOAD).of(1, 100)[0]
    np.testing.assert_allclose(at_rate(share, 4.0).arrival_s, share.arrival_s / 4)
    assert len(first_part(share, 0.25)) == 25


def test_a_trace_of_one_moment_needs_a_rate(tmp_path: Path) -> None:
    (tmp_path / "burst.csv").write_text("arrival_s,input_tokens,output_tokens\n0,5,5\n0,6,6\n")
    shares = Shares(ServingLoad(trace=str(tmp_path / "burst.csv"), requests=0))
    assert shares.rate_per_s == 0.0
    with pytest.raises(InputError, match="one moment"):
        shares.of(1, 10)
