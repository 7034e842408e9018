"""Loads as questions: what is asked reaches the simulation, or the answer says that it does not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gnomon
from gnomon.errors import InputError
from gnomon.load.answers import answer_from_dict
from gnomon.load.plan import plan_from_dict
from gnomon.planning.serving import unread
from gnomon.planning.serving.unread import NOT_READ, unread_columns
from gnomon.spec import Requests, ServingLoad
from gnomon.spec.workload import RequestTrace

ASKED: dict[str, Any] = {"model": "llama-3.2-1b", "on": "H100", "input": 200, "output": 20, "requests": 120}
DESCRIBED: dict[str, Any] = {
    "arrivals": "gamma:cv=2", "prefix": "groups=4,tokens=64,zipf=1", "turns": 2, "think": "2s", "adapters": "8,zipf=1",
    "priorities": "0=0.75,1=0.25", "rate": 20.0, "input": "lognormal:mean=200,cv=1", "output": "uniform:low=5,high=30",
}  # fmt: skip


def _kept(folder: Path, answer: Any) -> str:
    path = folder / "answer.json"
    path.write_text(json.dumps(answer.to_dict()))
    return str(path)


def served(**more: Any) -> Any:
    return gnomon.simulate_serving(**(ASKED | more))


@pytest.mark.parametrize("clients", [1, 3, 500])
def test_a_closed_loop_never_has_more_requests_than_clients(clients: int) -> None:
    answer = served(concurrency=clients)
    run, most = answer.run, min(clients, 120)
    under_way = [
        np.count_nonzero((run.requests.arrival_s <= at) & (run.finish_s > at)) for at in run.requests.arrival_s
    ]
    assert max(under_way) == most
    assert answer.inputs["concurrency"] == clients and answer.inputs["rate"] is None and not answer.overloaded
    assert f"120 requests of {clients} client" in answer.title
    low, high = answer.bands["output_tokens_per_s"]["mean"]
    assert low < answer.output_tokens_per_s < high


def test_a_closed_loop_has_no_rate(tmp_path: Path) -> None:
    for more in ({"rate": 4.0}, {"rate": 4.0, "arrivals": "constant"}):
        with pytest.raises(InputError, match="--rate: clients of a closed loop send when they have an answer"):
            served(concurrency=2, **more)
    with pytest.raises(InputError, match="--concurrency: '0' is not a positive whole number"):
        served(concurrency=0)
    path = tmp_path / "lengths.csv"
    path.write_text("input_tokens,output_tokens\n" + "50,5\n70,7\n" * 10)
    answer = served(concurrency=2, trace=path.as_posix(), input=None, output=None)
    assert answer.requests == 120 and answer.not_modelled == ()
    path.write_text("arrival_s,input_tokens,output_tokens\n0,50,5\n")
    answer = served(concurrency=2, trace=path.as_posix(), input=None, output=None)
    assert [one.option for one in answer.not_modelled] == ["arrival times of --trace"]


@pytest.mark.heavy
def test_a_described_load_is_served_and_what_has_no_effect_is_listed() -> None:
    answer = served(**DESCRIBED)
    found = answer.run.requests
    assert len(found) == 120 and found.input_tokens.std() > 0
    options = [one.option for one in answer.not_modelled]
    expected = {
        "prefixes": "--prefix groups=4,tokens=64,zipf=1", "adapter": "--adapters 8,zipf=1",
        "priority": "--priorities 0=0.75,1=0.25", "follows": "--turns 2",
    }  # fmt: skip
    assert options == [expected[name] for name in NOT_READ]
    given = {name: value for name, value in DESCRIBED.items() if name != "think"} | {"think_s": 2.0}
    assert {name: answer.inputs[name] for name in given} == given
    assert served(**DESCRIBED).to_dict() == answer.to_dict()
    assert answer_from_dict(answer.to_dict()).inputs == answer.inputs  # type: ignore[attr-defined]
    assert "think_s" not in served(rate=4.0).inputs


def test_a_column_that_is_read_is_no_longer_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    load = ServingLoad(trace="x.csv")
    column = np.zeros(2, np.int64)
    stream = Requests(np.zeros(2), column + 1, column + 1, adapter=column, priority=column)
    trace = RequestTrace(requests=stream, timed=False, file="x.csv", spot_of=str)
    assert [one.option for one in unread_columns(stream, load, trace)] == ["column adapter", "column priority"]
    plain = replace(trace, requests=Requests(np.zeros(2), column + 1, column + 1))
    assert not unread_columns(stream, load, plain), "what a technique adds for a scheduler of its own"
    monkeypatch.setattr(unread, "NOT_READ", ("adapter",))
    assert [one.option for one in unread_columns(stream, load, trace)] == ["column adapter"]


@pytest.mark.heavy
def test_a_seed_acts_where_something_is_drawn() -> None:
    for more in ({"input": "uniform:low=1,high=99"}, {"adapters": 3}, {"rate": 5.0}):
        assert not [one for one in served(seed=3, **more).not_modelled if "--seed" in one.option]
    for fixed in ({}, {"rate": 5.0, "arrivals": "constant"}, {"concurrency": 4}, {"turns": 2}):
        assert [one for one in served(seed=3, **fixed).not_modelled if one.option == "--seed 3"], fixed


@pytest.mark.slow
def test_plans_take_described_loads_and_keep_them() -> None:
    asked = {name: value for name, value in DESCRIBED.items() if name not in ("rate", "think")}
    answer = gnomon.plan_serving(
        "llama-3.2-1b", fleet="H100:1", rate=20.0, think=2.0, slo="ttft_p90=2s", dtypes=["bf16"], requests=1000,
        settings={"max_num_seqs": 256, "max_num_batched_tokens": 8192}, **asked,
    )  # fmt: skip
    load = answer.best.plan.load
    assert isinstance(load, ServingLoad) and load.turns == 2 and load.think_s == 2.0
    assert {str(load.arrivals), str(load.prefix), str(load.input_tokens)} <= set(map(str, asked.values()))
    assert plan_from_dict(answer.best.to_dict()["plan"]).load == load
    options = [one.option for one in answer.not_modelled]
    assert "--adapters 8,zipf=1" in options and "--turns 2" in options
    assert "lognormal:mean=200,cv=1 in and uniform:low=5,high=30 out at 20/s" in answer.title


@pytest.mark.heavy
def test_lengths_of_a_file_are_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lengths.txt").write_text("100\n300\n")
    monkeypatch.chdir(tmp_path)
    answer = served(input="file:lengths.txt", rate=20.0)
    assert set(answer.run.requests.input_tokens.tolist()) == {100, 300}
    planned = gnomon.plan_serving(
        "llama-3.2-1b", fleet="H100:1", rate=20.0, slo="ttft_p90=2s", dtypes=["bf16"], input="file:lengths.txt",
        output=9, settings={"max_num_seqs": 256, "max_num_batched_tokens": 8192},
    )  # fmt: skip
    load = planned.best.plan.load
    assert isinstance(load, ServingLoad) and str(load.input_tokens) == f"file:{tmp_path / 'lengths.txt'}"
    stored = answer_from_dict(planned.to_dict())  # the file is not opened again to show it
    assert "in flight on a replica" in str(gnomon.explain(_kept(tmp_path, stored)).to_dict())
    with pytest.raises(InputError, match=r"nowhere\.txt: no such file"):
        served(input="file:nowhere.txt")
