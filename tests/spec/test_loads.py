"""Drawn loads: statistics of every process, the same bytes for the same description, and descriptions that return."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.errors import InputError
from gnomon.load.plan import plan_from_dict
from gnomon.spec import EngineChoice, Plan, Requests, ServingLoad, Strategy
from gnomon.spec.drawing import draw
from gnomon.spec.loads.arrivals import PROCESSES, arrivals_of
from gnomon.spec.loads.lengths import lengths_of
from gnomon.spec.loads.popularity import Adapters, SharedPrefix, priorities_of, priorities_text, zipf_shares
from gnomon.spec.loads.sessions import timed
from gnomon.spec.plan_dict import plan_to_dict

COUNT = 200_000
RATE = 8.0
SURE = 4.5
"""Standard errors that a mean may be off: three in a million draws are farther."""
PLAIN = ServingLoad(rate_per_s=RATE, input_tokens=100, output_tokens=10, requests=COUNT)
ARRIVALS = (
    "poisson",
    "constant",
    "gamma:cv=3",
    "gamma:cv=0.25",
    "markov:ratio=8,high=2s,low=6s",
    "diurnal:ratio=5,period=60s",
)
LENGTHS = ("lognormal:mean=1024,cv=1", "lognormal:p50=700,p99=8000", "lognormal:mean=300,cv=0.3,max=400",
           "uniform:low=100,high=500")  # fmt: skip


def load_of(**more: Any) -> ServingLoad:
    """A drawn load of described parts."""
    readers = {
        "arrivals": arrivals_of,
        "input_tokens": lambda text: lengths_of(text, "--input"),
        "output_tokens": lambda text: lengths_of(text, "--output"),
        "prefix": lambda text: SharedPrefix.read(text, "--prefix"),
        "adapters": lambda text: Adapters.read(text, "--adapters"),
        "priorities": priorities_of,
    }
    return replace(PLAIN, **{name: readers.get(name, lambda value: value)(value) for name, value in more.items()})


EVERYTHING = load_of(
    arrivals="gamma:cv=2", input_tokens="lognormal:mean=500,cv=1", output_tokens="uniform:low=1,high=99",
    prefix="groups=8,tokens=256,zipf=1", turns=3, think_s=20.0, adapters="32,zipf=1.5", priorities="0=0.8,5=0.2",
    requests=5000,
)  # fmt: skip


@pytest.mark.parametrize("text", ARRIVALS)
def test_arrivals_have_the_rate_of_the_load(text: str) -> None:
    found = draw(load_of(arrivals=text)).arrival_s
    gaps = np.diff(found)
    assert found[0] == 0 and gaps.min() >= 0
    blocks = np.diff(found[::2000])  # long enough to be nearly independent of each other
    assert abs(blocks.mean() * RATE / 2000 - 1) <= SURE * blocks.std() / blocks.mean() / np.sqrt(blocks.size) + 1e-9


@pytest.mark.parametrize(("text", "cv"), [("poisson", 1), ("constant", 0), ("gamma:cv=3", 3), ("gamma:cv=0.25", 0.25)])
def test_gaps_vary_as_they_should(text: str, cv: float) -> None:
    gaps = np.diff(draw(load_of(arrivals=text)).arrival_s)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.05, abs=1e-9)


def test_two_rates_take_turns() -> None:
    """In windows far shorter than the times at a rate, counts have two modes, whose ratio is given."""
    found = draw(load_of(arrivals="markov:ratio=20,high=100s,low=300s")).arrival_s
    counts = np.histogram(found, np.arange(0, found[-1], 10.0))[0] / 10
    slow = RATE / (0.25 * 20 + 0.75)
    assert np.mean(np.abs(counts - slow) < 3 * np.sqrt(slow / 10)) == pytest.approx(0.72, abs=0.08)
    assert np.mean(np.abs(counts - 20 * slow) < 3 * np.sqrt(2 * slow)) == pytest.approx(0.22, abs=0.07)


def test_a_day_has_a_peak_and_a_trough() -> None:
    found = draw(load_of(arrivals="diurnal:ratio=4,period=100s")).arrival_s
    counts = np.histogram(found % 100, 50, (0, 100))[0]
    expected = 1 + 0.6 * np.sin(2 * np.pi * (np.arange(50) + 0.5) / 50)
    expected *= counts.sum() / expected.sum()
    assert np.all(np.abs(counts - expected) < SURE * np.sqrt(expected))
    assert counts.argmax() in range(8, 17) and counts.argmin() in range(33, 42)


@pytest.mark.parametrize("text", LENGTHS)
def test_lengths_have_the_mean_that_is_described(text: str) -> None:
    found = draw(load_of(input_tokens=text)).input_tokens
    lengths = lengths_of(text, "--input")
    assert not isinstance(lengths, int) and found.min() >= 1
    if "max" in text:
        assert found.max() == 400 and found.mean() < lengths.mean_tokens
        return
    assert abs(found.mean() - lengths.mean_tokens) < SURE * found.std() / np.sqrt(found.size) + 0.5


def test_lognormal_lengths_vary_as_described() -> None:
    by_mean = draw(load_of(input_tokens="lognormal:mean=1024,cv=1")).input_tokens
    assert by_mean.std() / by_mean.mean() == pytest.approx(1, rel=0.05)
    by_quantile = draw(load_of(input_tokens="lognormal:p50=700,p99=8000")).input_tokens
    assert np.quantile(by_quantile, [0.5, 0.99]) == pytest.approx([700, 8000], rel=0.04)
    uniform = draw(load_of(input_tokens="uniform:low=3,high=5")).input_tokens
    assert set(uniform.tolist()) == {3, 4, 5}


@pytest.mark.parametrize("zipf", [0, 1, 1.7])
def test_groups_and_adapters_are_as_popular_as_described(zipf: float) -> None:
    found = draw(load_of(prefix=f"groups=16,tokens=64,zipf={zipf}", adapters=f"16,zipf={zipf}"))
    assert found.prefixes is not None and found.adapter is not None
    shares = zipf_shares(16, zipf)
    assert shares.sum() == pytest.approx(1) and shares[0] / shares[3] == pytest.approx(4**zipf)
    for column in (found.prefixes.node, found.adapter):
        counts = np.bincount(column, minlength=16)
        assert np.all(np.abs(counts - COUNT * shares) < SURE * np.sqrt(COUNT * shares))
    both = np.corrcoef(found.prefixes.node, found.adapter)[0, 1]
    assert abs(both) < SURE / np.sqrt(COUNT)  # one is drawn without regard to the other
    assert set(found.input_tokens.tolist()) == {164} and set(found.prefixes.end.tolist()) == {64}


def test_priorities_have_their_shares() -> None:
    found = draw(load_of(priorities="0=70%,1=20%,9=10%")).priority
    assert found is not None
    for level, share in ((0, 0.7), (1, 0.2), (9, 0.1)):
        assert abs(np.mean(found == level) - share) < SURE * np.sqrt(share / COUNT)


def test_turns_contain_those_before_them() -> None:
    found = draw(EVERYTHING)
    tree, follows = found.prefixes, found.follows
    assert tree is not None and follows is not None and found.think_s is not None and found.adapter is not None
    assert len(found) == 5000 and np.all(np.diff(found.arrival_s) >= 0)
    later = np.flatnonzero(follows >= 0)
    before = follows[later]
    assert later.size == 5000 - 1667 and np.all(before < later)
    total = found.input_tokens + found.output_tokens
    assert np.array_equal(tree.end[tree.node[before]], total[before])  # the node of a turn that another one follows
    last = np.setdiff1d(np.arange(5000), before)
    own = np.where(np.isin(later, last), tree.node[later], tree.parent[tree.node[later]])
    assert np.array_equal(own, tree.node[before])
    assert np.all(found.input_tokens[later] > total[before])
    assert np.all(tree.parent < np.arange(tree.parent.size)) and np.all(tree.end[tree.node] <= total)
    assert np.all(found.arrival_s[later] >= found.arrival_s[before] + 20.0 - 1e-9)
    assert set(found.think_s[later].tolist()) == {20.0}
    for column in (found.adapter, found.priority):
        assert column is not None and np.array_equal(column[later], column[before])
    first = tree.node[np.flatnonzero(follows < 0)]
    assert set(tree.parent[first[tree.parent[first] >= 0]].tolist()) <= set(range(8))


@given(st.lists(st.integers(-1, 6), min_size=1, max_size=7), st.floats(0, 50))
def test_later_turns_stand_at_the_earliest_time_they_can_arrive(links: list[int], think: float) -> None:
    follows = np.array([min(link, place - 1) for place, link in enumerate(links)], np.int64)
    taken: set[int] = set()
    for place, link in enumerate(follows.tolist()):  # a turn is followed once
        if link in taken:
            follows[place] = -1
        taken.add(link)
    size, starts = len(links), np.arange(np.count_nonzero(follows < 0)) * 7.0
    think_s = np.where(follows < 0, 0.0, think)
    ones = np.ones(size, np.int64)
    found = timed(Requests(np.zeros(size), np.arange(size), ones, follows=follows, think_s=think_s), starts)
    at = {int(place): float(time) for place, time in zip(found.input_tokens, found.arrival_s, strict=True)}
    first = [place for place in range(size) if follows[place] < 0]
    for place in range(size):
        expected = starts[first.index(place)] if place in first else at[int(follows[place])] + think
        assert at[place] == pytest.approx(expected)
    assert found.follows is not None
    for place, link in enumerate(found.follows.tolist()):
        old = int(follows[found.input_tokens[place]])
        assert (int(found.input_tokens[link]) if link >= 0 else -1) == old


def same(one: Requests, other: Requests) -> bool:
    trees = [one.prefixes, other.prefixes]
    nodes = all(np.array_equal(trees[0].end, tree.end) for tree in trees if tree and trees[0])
    return one.same(other) and nodes and one.name == other.name


def test_the_same_description_gives_the_same_bytes() -> None:
    first, again = draw(EVERYTHING), draw(replace(EVERYTHING))
    assert same(first, again)
    assert not first.same(draw(replace(EVERYTHING, seed=1)))
    changed = draw(replace(EVERYTHING, adapters=None))
    assert changed.same(replace(first, adapter=None))  # parts have random numbers of their own


def test_what_was_drawn_before_is_drawn_today() -> None:
    """Equal requests at Poisson arrivals have the bytes they always had, also where other parts differ."""
    gaps = np.random.Generator(np.random.PCG64(0)).standard_exponential(COUNT) / RATE
    gaps[0] = 0.0
    for load in (
        PLAIN,
        load_of(arrivals="poisson"),
        load_of(input_tokens="uniform:low=1,high=9"),
        load_of(adapters="4"),
    ):
        assert np.array_equal(draw(load).arrival_s, np.cumsum(gaps))
    assert PLAIN.alike and load_of(arrivals="poisson").alike and not load_of(adapters="4").alike


def plan(load: ServingLoad) -> Plan:
    return Plan(
        model="llama-3.2-1b", chip="H100", replicas=1, strategy=Strategy(), dtype="bf16",
        engine=EngineChoice(name="vllm"), load=load,
    )  # fmt: skip


@pytest.mark.parametrize(
    "load",
    [PLAIN, EVERYTHING, *(load_of(arrivals=text) for text in ARRIVALS),
     *(load_of(input_tokens=text) for text in LENGTHS), load_of(output_tokens="file:lengths.txt"),
     load_of(prefix="groups=2,tokens=3"), load_of(adapters="count=7"),
     load_of(priorities="-1=0.3,4=0.7"), load_of(turns=2), load_of(turns=2, think_s=0.1)],
    ids=str,
)  # fmt: skip
def test_loads_come_back_from_plan_files(load: ServingLoad) -> None:
    written = plan_to_dict(plan(load))
    assert plan_from_dict(written).load == load
    assert all(isinstance(value, (str, int, float)) for value in written["load"].values())


@given(st.floats(0.01, 100), st.floats(1, 1e6), st.floats(1e-3, 1e8), st.floats(0, 1))
def test_descriptions_come_back_from_their_text(cv: float, ratio: float, dwell: float, share: float) -> None:
    for process in (f"gamma:cv={cv!r}", f"markov:ratio={ratio!r},high={dwell!r}s,low=1s"):
        made = arrivals_of(process)
        assert arrivals_of(made.text) == made
    if 0 < share < 1:
        made_shares = priorities_of(f"0={share!r},1={1 - share!r}")
        assert priorities_of(priorities_text(made_shares)) == made_shares


def test_every_process_is_asked() -> None:
    assert {text.partition(":")[0] for text in ARRIVALS} == set(PROCESSES)


WRONG = [
    ({"arrivals": "gama:cv=3"}, "--arrivals: unknown arrival process 'gama'. Near: gamma"),
    ({"arrivals": "gamma"}, "--arrivals: cv is missing. Write gamma:cv=…"),
    ({"arrivals": "gamma:cv=0"}, "--arrivals, cv: '0' is not between 0.01 and 100"),
    ({"arrivals": "gamma:cv=1,cv=2"}, "--arrivals: the parameter cv is given twice"),
    ({"arrivals": "gamma:burst=1"}, "--arrivals: unknown parameter 'burst'"),
    ({"arrivals": "gamma:cv"}, "--arrivals: 'cv' is not key=value"),
    ({"arrivals": "markov:ratio=2,high=60,low=60s"}, "--arrivals, high: '60' has no unit"),
    ({"arrivals": "markov:ratio=0.5,high=60s,low=60s"}, "--arrivals, ratio: '0.5' is not between 1"),
    ({"arrivals": "poisson", "rate_per_s": None}, "--arrivals: arrivals are drawn at a rate, and there is none"),
    ({"arrivals": "markov:ratio=2,high=1ms,low=1ms", "rate_per_s": 0.01, "requests": 300_000},
     "--arrivals: the rate would change"),
    ({"input_tokens": "normal:mean=5"}, "--input: unknown distribution of lengths 'normal'"),
    ({"input_tokens": "lognormal:mean=5"}, "--input: needs mean and cv, or p50 and p99"),
    ({"input_tokens": "lognormal:mean=5,cv=1,p50=5,p99=6"}, "--input: needs mean and cv, or p50 and p99"),
    ({"input_tokens": "lognormal:p50=9,p99=8"}, "--input: p99 8 is not above p50 9"),
    ({"input_tokens": "uniform:low=9,high=8"}, "--input: high 8 is below low 9"),
    ({"output_tokens": "uniform:low=0,high=8"}, "--output, low: '0' is not a positive whole number"),
    ({"output_tokens": "file:"}, "--output: has no name of a file"),
    ({"prefix": "groups=8"}, "--prefix: tokens is missing"),
    ({"prefix": "groups=8,tokens=9,zipf=11"}, "--prefix, zipf: '11' is not between 0 and 10"),
    ({"adapters": "0"}, "--adapters, count: '0' is not a positive whole number"),
    ({"adapters": "many"}, "--adapters, count: 'many' is not a count"),
    ({"priorities": "0=0.5"}, "--priorities: the shares add up to 0.5, not to 1"),
    ({"priorities": "a=1"}, "--priorities: 'a' is not a whole number"),
    ({"priorities": "0=0.5,0=0.5"}, "--priorities: the priority 0 is given twice"),
    ({"priorities": "0=-1,1=2"}, "--priorities: '-1' is not a count"),
    ({"turns": 0}, "--turns: '0' is not between 1 and 10,000"),
    ({"turns": 2, "think_s": -1.0}, "--think: '-1' is not between 0"),
    ({"think_s": 1.0}, "--think: only sessions of several turns"),
    ({"trace": "x.csv", "input_tokens": None, "output_tokens": None, "prefix": "groups=1,tokens=1"},
     "--prefix: a trace already"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "expected"), WRONG, ids=[expected for _, expected in WRONG])
def test_loads_that_cannot_be_are_refused(change: dict[str, Any], expected: str) -> None:
    described = {name: value for name, value in change.items() if value is not None}
    with pytest.raises(InputError) as caught:
        draw(replace(load_of(**described), **{name: None for name, value in change.items() if value is None}))
    assert expected in str(caught.value)
