"""What a replica sees of a load under each router."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gnomon.errors import InputError
from gnomon.load import draw
from gnomon.load.traces import trace_of
from gnomon.search.arrivals import DRAWN, MOST_DRAWN, MOST_OF_A_CYCLE, MOST_TOGETHER, Arrivals
from gnomon.spec import Requests, ServingLoad
from gnomon.spec.loads.arrivals import arrivals_of
from gnomon.spec.loads.lengths import lengths_of
from gnomon.spec.loads.popularity import Adapters, SharedPrefix

LOAD = ServingLoad(rate_per_s=8.0, input_tokens=100, output_tokens=10, seed=3)


def trace_file(folder: Path, rows: int) -> str:
    rng = np.random.default_rng(0)
    arrival = np.cumsum(rng.exponential(0.25, rows))
    lengths = rng.integers(1, 400, (rows, 2))
    lines = [f"{at},{i},{o}" for at, (i, o) in zip(arrival, lengths, strict=True)]
    file = folder / "trace.csv"
    file.write_text("\n".join(["arrival_s,input_tokens,output_tokens", *lines]))
    return str(file)


def traced(folder: Path, rows: int, router: str = "random", seed: int = 0) -> Arrivals:
    return of_trace(ServingLoad(trace=trace_file(folder, rows), requests=0, seed=seed), router)


def of_trace(load: ServingLoad, router: str = "random") -> Arrivals:
    return Arrivals(load, router, trace_of(load))


def test_one_replica_sees_the_load_itself() -> None:
    for router in ("random", "round-robin", "least-requests"):
        share = Arrivals(LOAD, router).of(1, 500).at_rate(8.0).shares[0]
        whole = draw(ServingLoad(rate_per_s=8.0, input_tokens=100, output_tokens=10, requests=500, seed=3))
        np.testing.assert_allclose(share.arrival_s, whole.arrival_s)


def test_round_robin_gives_one_of_three_every_third() -> None:
    arrivals = Arrivals(LOAD, "round-robin")
    one, three = arrivals.of(1, 600).shares[0], arrivals.of(3, 200).shares[0]
    np.testing.assert_allclose(three.arrival_s, one.arrival_s[::3])


@pytest.mark.parametrize("replicas", [2, MOST_DRAWN, MOST_DRAWN + 1, 5000])
@pytest.mark.parametrize(("router", "spread"), [("random", 1.0), ("round-robin", 0.0)])
def test_gaps_between_arrivals_are_those_of_the_router(replicas: int, router: str, spread: float) -> None:
    """Random assignment keeps a Poisson stream one: gaps vary by as much as they last. Of every R-th request they vary
    by the square root of R less."""
    share = Arrivals(LOAD, router).of(replicas, 4000).shares[0]
    gaps = np.diff(share.arrival_s)
    assert len(share) == 4000
    assert share.arrival_s[0] == 0.0
    assert gaps.mean() == pytest.approx(replicas, rel=0.05)
    assert gaps.std() / gaps.mean() == pytest.approx(spread or replicas**-0.5, rel=0.06)


def test_with_more_replicas_one_gets_a_part_of_what_one_of_fewer_gets(tmp_path: Path) -> None:
    """So that a plan with more replicas meets every goal that one with fewer meets."""
    arrivals = traced(tmp_path, 300)
    few, many = (arrivals.of(replicas, 400, span=1e6).shares[0] for replicas in (3, 5))
    rows = {(int(i), int(o)) for i, o in zip(few.input_tokens, few.output_tokens, strict=True)}
    assert all((int(i), int(o)) in rows for i, o in zip(many.input_tokens[:60], many.output_tokens[:60], strict=True))


@pytest.mark.parametrize("router", ["random", "round-robin"])
def test_a_trace_that_lasts_is_routed_whole(tmp_path: Path, router: str) -> None:
    arrivals = traced(tmp_path, 1500, router)
    routed = arrivals.of(3, 3000)
    assert routed.sample == (router == "random"), "another draw of the router would have dealt them out otherwise"
    assert not arrivals.of(1, 3000).sample
    assert arrivals.of(1, 1000).sample, "stretches are a sample"
    draws = 2 if router == "random" else 1
    assert (routed.draws, arrivals.of(3, 1000).draws) == ((2, 1) if router == "random" else (0, 0))
    assert routed.requests == 1500 * draws
    tokens = int(arrivals.whole.input_tokens.sum())
    for first in range(0, len(routed.shares), 3):
        assert sum(int(share.input_tokens.sum()) for share in routed.shares[first : first + 3]) == tokens
    assert len({float(share.arrival_s[1]) for share in routed.shares}) == 3 * draws, "another draw deals otherwise"
    assert arrivals.rate_per_s == pytest.approx(arrivals.whole.rate_per_s)


def test_of_a_long_trace_calm_and_busy_stretches_are_taken(tmp_path: Path) -> None:
    arrivals = traced(tmp_path, 12_000)
    stretches = arrivals.of(2, 2000).shares
    assert [len(clock_slowdown) for clock_slowdown in stretches] == [500] * 4
    loads = [int(s.input_tokens.sum() + s.output_tokens.sum()) / float(s.arrival_s[-1]) for s in stretches]
    assert loads == sorted(loads)
    assert len(set(loads)) == 4
    assert all(clock_slowdown.arrival_s[0] == 0.0 for clock_slowdown in stretches)
    assert [len(clock_slowdown) for clock_slowdown in arrivals.of(2, 600).shares] == [600]
    assert all(len(clock_slowdown) >= 1000 for clock_slowdown in arrivals.of(2, 2000, span=2000).shares)


@pytest.mark.parametrize("replicas", [1, 2, 7, 64, 65, 1000])
@pytest.mark.parametrize("router", ["random", "round-robin"])
def test_a_short_trace_goes_on_with_blocks_of_itself(tmp_path: Path, replicas: int, router: str) -> None:
    arrivals = traced(tmp_path, 120, router)
    routed = arrivals.of(replicas, 3000, span=500 * replicas)
    assert routed.sample
    share = routed.shares[0]
    assert len(share) == 3000
    assert (np.diff(share.arrival_s) >= 0).all()
    own = {(int(i), int(o)) for i, o in zip(arrivals.whole.input_tokens, arrivals.whole.output_tokens, strict=True)}
    assert {(int(i), int(o)) for i, o in zip(share.input_tokens, share.output_tokens, strict=True)} <= own
    assert share.rate_per_s == pytest.approx(1 / replicas, rel=0.1)
    assert share.input_tokens.mean() == pytest.approx(arrivals.whole.input_tokens.mean(), rel=0.1)


def test_the_first_lap_of_a_short_trace_is_the_trace(tmp_path: Path) -> None:
    arrivals = traced(tmp_path, 120)
    share = arrivals.of(1, 500, span=1000).shares[0]
    np.testing.assert_array_equal(share.input_tokens[:120], arrivals.whole.input_tokens)
    gaps, own = np.diff(share.arrival_s), np.diff(arrivals.whole.arrival_s) * arrivals.whole.rate_per_s
    np.testing.assert_allclose(gaps[:119], own)
    later = share.input_tokens[120:150]  # a block of thirty, from some place of the trace
    laps = np.concatenate([arrivals.whole.input_tokens] * 2)
    assert any((laps[at : at + 30] == later).all() for at in range(120))
    other = traced(tmp_path, 120, seed=1).of(1, 500, span=1000).shares[0]
    assert (other.input_tokens[120:] != share.input_tokens[120:]).any()


def test_by_least_requests_replicas_share_a_stream() -> None:
    arrivals = Arrivals(LOAD, "least-requests")
    assert [arrivals.together(replicas) for replicas in (1, 3, 8, 100)] == [1, 3, MOST_TOGETHER, MOST_TOGETHER]
    for replicas, rate in ((3, 1.0), (100, MOST_TOGETHER / 100)):
        assert arrivals.of(replicas, 4000).shares[0].rate_per_s == pytest.approx(rate, rel=0.06)


@pytest.mark.parametrize("router", ["random", "round-robin"])
@pytest.mark.parametrize("replicas", [1, 64, 1_000_000])
def test_few_requests_go_on_however_many_replicas_there_are(tmp_path: Path, replicas: int, router: str) -> None:
    """Shares of a handful of requests would say nothing of a steady state."""
    (share,) = traced(tmp_path, 5, router).of(replicas, 100).shares
    assert len(share) == 100


def test_rates() -> None:
    assert Arrivals(LOAD).rate_per_s == 8.0
    assert Arrivals(ServingLoad(input_tokens=1, output_tokens=1)).rate_per_s == 0.0
    routed = Arrivals(LOAD).of(1, 100)
    np.testing.assert_allclose(routed.at_rate(4.0).shares[0].arrival_s, routed.shares[0].arrival_s / 4)
    assert routed.first_part(0.25).requests == 25


def test_a_trace_of_one_moment_needs_a_rate(tmp_path: Path) -> None:
    (tmp_path / "burst.csv").write_text("arrival_s,input_tokens,output_tokens\n0,5,5\n0,6,6\n")
    arrivals = of_trace(ServingLoad(trace=str(tmp_path / "burst.csv"), requests=0))
    assert arrivals.rate_per_s == 0.0
    with pytest.raises(InputError, match="one moment"):
        arrivals.of(1, 10)


@pytest.mark.parametrize("router", ["random", "round-robin", "least-requests"])
@pytest.mark.parametrize("replicas", [1, 3, MOST_DRAWN + 1])
def test_a_trace_of_one_request_is_a_load_of_equal_ones(tmp_path: Path, router: str, replicas: int) -> None:
    arrivals = of_trace(ServingLoad(trace=trace_file(tmp_path, 1), rate_per_s=8.0, requests=0, seed=3), router)
    share = arrivals.of(replicas, 2000).shares[0]
    assert arrivals.rate_per_s == 8.0
    assert len(set(share.input_tokens.tolist())) == len(set(share.output_tokens.tolist())) == 1
    mean = replicas / arrivals.together(replicas)
    assert np.diff(share.arrival_s).mean() == pytest.approx(mean, rel=0.1)


DESCRIBED = ServingLoad(
    rate_per_s=8.0, input_tokens=100, output_tokens=lengths_of("uniform:low=1,high=50", "--output"), requests=6000,
    arrivals=arrivals_of("gamma:cv=3"), prefix=SharedPrefix(groups=5, tokens=64), turns=3, think_s=9.0,
    adapters=Adapters(count=7, zipf=1.0), priorities=((0, 0.5), (4, 0.5)),
)  # fmt: skip


@pytest.mark.parametrize("replicas", [1, 3, MOST_DRAWN + 1, 30_000])
@pytest.mark.parametrize("router", ["random", "round-robin", "least-requests"])
def test_a_request_keeps_its_columns_wherever_it_goes(router: str, replicas: int) -> None:
    """What differs between drawn requests goes to replicas with them, also beyond those that were drawn; turns are on
    their own."""
    arrivals = Arrivals(DESCRIBED, router)
    whole = arrivals.whole
    assert len(whole) == DRAWN and whole.prefixes is not None and whole.adapter is not None

    def rows(stream: Requests) -> set[tuple[int, ...]]:
        assert stream.prefixes is not None and stream.adapter is not None and stream.priority is not None
        columns = (stream.input_tokens, stream.output_tokens, stream.prefixes.node, stream.adapter, stream.priority)
        return set(zip(*(column.tolist() for column in columns), strict=True))

    there = rows(whole)
    routed = arrivals.of(replicas, 900).at_rate(8.0)
    assert routed.sample and routed.requests >= 900
    for share in routed.shares:
        assert share.follows is None and share.think_s is None
        assert share.prefixes is not None and share.prefixes.end is whole.prefixes.end
        assert rows(share) <= there and np.all(np.diff(share.arrival_s) >= 0)
        assert rows(routed.first_part(0.5).shares[0]) <= there


def test_bursts_reach_a_single_replica_as_they_are_described() -> None:
    described = ServingLoad(rate_per_s=8.0, input_tokens=100, output_tokens=10, arrivals=arrivals_of("gamma:cv=3"))
    gaps = np.diff(Arrivals(described).of(1, 20_000).at_rate(8.0).shares[0].arrival_s)
    assert gaps.mean() == pytest.approx(1 / 8, rel=0.01)
    assert gaps.std() / gaps.mean() == pytest.approx(3, rel=0.1)
    plain = Arrivals(replace(described, arrivals=arrivals_of("poisson"))).of(2, 500).shares[0]
    assert plain.same(Arrivals(replace(described, arrivals=None)).of(2, 500).shares[0])


def test_a_plan_sees_the_peak_and_the_trough_of_a_day() -> None:
    """Stretches of a whole day are taken, from its calm to its busy hours."""
    load = ServingLoad(rate_per_s=4.0, input_tokens=9, output_tokens=9, arrivals=arrivals_of("diurnal:ratio=9"))
    arrivals = Arrivals(load)
    assert len(arrivals.whole) == 4 * 86400
    rates = [share.rate_per_s for share in arrivals.of(1, 8000).at_rate(4.0).shares]
    assert len(rates) == 4 and rates[0] < 3 and rates[-1] > 6.5  # of 0.8 to 7.2 requests a second
    assert len(Arrivals(replace(load, rate_per_s=1000.0)).whole) == MOST_OF_A_CYCLE
