"""A load on one replica: repeatable, conserving, and in the shape other programs rely on."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gnomon
from gnomon.errors import DoesNotFitError, InputError
from gnomon.report import render
from gnomon.report.timeline import write_requests
from gnomon.sim.serving import Recorder
from gnomon.spec.answers import ServingReport

CHAT = str(Path(__file__).parents[2] / "examples/chat.csv")
LOAD: dict[str, Any] = {"rate": 8, "input": 512, "output": 64, "requests": 200}
_ANSWERS: dict[str | None, ServingReport] = {}


def serve(model: str = "llama-3.1-8b", **words: Any) -> ServingReport:
    """What several tests ask is simulated once."""
    base = {"on": "H200"} if "trace" in words else {"on": "H200"} | LOAD
    asked = base | words
    key = None if "record" in words else repr((model, sorted(asked.items())))
    if key not in _ANSWERS:
        _ANSWERS[key] = gnomon.simulate_serving(model, **asked)
    return _ANSWERS[key] if key else _ANSWERS.pop(key)


@pytest.mark.heavy
def test_the_same_seed_gives_the_same_answer() -> None:
    first, other = serve(seed=3), serve(seed=4)
    again = gnomon.simulate_serving("llama-3.1-8b", on="H200", seed=3, **LOAD)
    assert json.dumps(first.to_dict()) == json.dumps(again.to_dict())
    assert first.bands == again.bands
    assert first.run.finish_s.tolist() == again.run.finish_s.tolist()
    assert first.makespan_s != other.makespan_s


@pytest.mark.battery(2)
@pytest.mark.parametrize(
    "words", [{}, {"trace": CHAT}, {"on": "H200:2", "rate": 30}, {"settings": {"max_num_seqs": 8}}]
)
def test_tokens_are_conserved(words: dict[str, Any]) -> None:
    recorder = Recorder()
    report = serve(**words, record=recorder)
    stream = report.run.requests
    assert report.preemptions == 0
    prompts = sum(new for step in recorder.steps for new, _ in step.chunks)
    made = sum(step.decodes for step in recorder.steps) + report.requests
    assert prompts == report.run.totals.prefill_tokens == stream.input_tokens.sum()
    assert made == stream.output_tokens.sum()
    assert report.output_tokens_per_s == pytest.approx(made / report.makespan_s)
    assert report.total_tokens_per_s == pytest.approx((made + prompts) / report.makespan_s)


def test_watching_changes_nothing() -> None:
    plain, watched = serve(), serve(record=Recorder())
    np.testing.assert_allclose(plain.run.finish_s, watched.run.finish_s, rtol=1e-9)


def test_goodput_is_of_the_requests_within_all_limits() -> None:
    report = serve(rate=30, slo="ttft_p90=60ms,tpot_p50=9ms")
    run = report.run
    good = (run.ttft_s <= 0.06) & (run.tpot_s <= 0.009)
    assert 0 < good.sum() < len(good)
    assert report.goodput_share == pytest.approx(good.mean())
    assert report.goodput_rps == pytest.approx(good.sum() / report.makespan_s)
    met = {"ttft_p90": np.quantile(run.ttft_s, 0.9) <= 0.06, "tpot_p50": np.quantile(run.tpot_s, 0.5) <= 0.009}
    assert {one["goal"]: one["met"] for one in report.goals} == met
    assert report.inputs["slo"] == "ttft_p90=60ms,tpot_p50=9ms"
    assert "goodput" in render(report)
    plain = serve(rate=30)
    assert plain.goodput_rps is None and not plain.goals and "goodput" not in render(plain)


def test_a_request_of_one_token_has_no_tpot_to_miss() -> None:
    report = serve(output=1, slo={"tpot_p90": "1us"})
    assert report.goodput_share == 1.0 and report.goals[0]["met"]


def test_series_and_distributions() -> None:
    report = serve(series=True, prefix="groups=2,tokens=128")
    run, series = report.run, report.series
    width = series["bin_s"][0]
    assert {len(column) for name, column in series.items() if name != "bin_s"} == {200}
    assert width == pytest.approx(report.makespan_s / 200)
    assert sum(series["output_tokens_per_s"]) * width == pytest.approx(run.requests.output_tokens.sum())
    assert sum(series["power_w"]) * width == pytest.approx(report.energy_j)
    assert max(series["kv_blocks"]) <= report.peak_kv_blocks
    assert any(series["cache_hit_rate"])
    shares = np.linspace(0, 1, 101)
    for metric in ("ttft", "tpot", "e2e"):
        values = getattr(run, f"{metric}_s")
        np.testing.assert_allclose(report.distributions[f"{metric}_s"], np.quantile(values, shares))
    assert report.itl_s["p90"] == pytest.approx(report.distributions["itl_s"][90])
    plain = serve(prefix="groups=2,tokens=128")
    assert not plain.series and not plain.distributions
    assert plain.itl_s == report.itl_s and plain.step_shares == report.step_shares


@pytest.mark.heavy
def test_the_mean_itl_is_that_of_tpot_weighted_by_tokens() -> None:
    for report in (serve(output="uniform:low=1,high=90"), serve(turns=3, requests=90), serve(rate=None, concurrency=9)):
        run = report.run
        weights = run.requests.output_tokens - 1
        assert report.itl_s["mean"] == pytest.approx(np.nansum(run.tpot_s * weights) / weights.sum())


@pytest.mark.heavy
def test_rare_times_need_many_requests() -> None:
    few, many = (serve(requests=count, input=8, output=2) for count in (9_999, 10_000))
    assert "p99.9" not in few.ttft_s
    assert many.ttft_s["p99.9"] == pytest.approx(np.quantile(many.run.ttft_s, 0.999))


def test_columns_of_requests() -> None:
    report = serve(requests=60, turns=3, prefix="groups=4,tokens=128", adapters=3, priorities="0=0.5,1=0.5")
    file = io.StringIO()
    write_requests(report, file)
    first, *rows = csv.DictReader(file.getvalue().splitlines())
    assert list(first)[:5] == ["arrival_s", "input_tokens", "output_tokens", "first_token_s", "finish_s"]
    rows = [first, *rows]
    assert len(rows) == 60
    assert [float(row["scheduled_s"]) for row in rows] == report.run.scheduled_s.tolist()
    assert [int(row["cached_tokens"]) for row in rows] == report.run.cached_tokens.tolist()
    sessions: dict[str, list[dict[str, str]]] = {}
    for row in rows:
        sessions.setdefault(row["session"], []).append(row)
    assert {len(turns) for turns in sessions.values()} == {3}
    for turns in sessions.values():  # a session keeps what it has, and its turns follow one another
        assert len({(turn["prefix_group"], turn["adapter"], turn["priority"]) for turn in turns}) == 1
        for before, after in itertools.pairwise(turns):
            assert float(before["finish_s"]) <= float(after["arrival_s"])
    assert {row["prefix_group"] for row in rows} <= set("0123")


def test_columns_that_a_load_has_not() -> None:
    file = io.StringIO()
    write_requests(serve(), file)
    assert file.getvalue().splitlines()[0].endswith(",scheduled_s,cached_tokens")


def test_json() -> None:
    report = serve(trace=CHAT)
    answer = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert answer["schema"] == "gnomon.simulate.serve/1"
    wanted = {"requests", "makespan_s", "ttft_s", "tpot_s", "e2e_s", "output_tokens_per_s", "energy_j", "cost_usd"}
    assert wanted <= set(answer)
    for metric in ("ttft_s", "tpot_s", "e2e_s"):
        assert {"mean", "p50", "p90", "p99"} <= set(answer[metric])
        assert 0 < answer[metric]["p50"] <= answer[metric]["p90"] <= answer[metric]["p99"]
    assert answer["requests"] == 500
    assert "run" not in answer


def test_bands_hold_their_figures() -> None:
    report = serve(rate=20)
    for metric in ("ttft_s", "tpot_s", "e2e_s"):
        for statistic, value in getattr(report, metric).items():
            low, high = report.bands[metric][statistic]
            assert 0 < low < value < high
            # Before first tokens requests wait, which grows by more than steps do: 1.3 at 1 a second, 2.08 at 20.
            assert statistic in ("p95", "p99") or 1.01 < high / low < (2.5 if metric == "ttft_s" else 1.8)
    for name in ("energy_j", "power_w", "saturation_rps", "makespan_s", "cost_usd", "usd_per_mtok"):
        low, high = report.bands[name]["mean"]
        assert low < getattr(report, name) < high, name


def test_single_tokens_have_no_time_between_them() -> None:
    answer = json.loads(json.dumps(serve(output=1).to_dict(), allow_nan=False))
    assert set(answer["tpot_s"].values()) == {None}
    assert answer["ttft_s"]["p50"] == answer["e2e_s"]["p50"] > 0


def test_figures_follow_from_the_run() -> None:
    report = serve()
    run = report.run
    assert report.ttft_s["p50"] == pytest.approx(np.quantile(run.first_token_s - run.requests.arrival_s, 0.5))
    assert report.e2e_s["mean"] == pytest.approx(np.mean(run.finish_s - run.requests.arrival_s))
    assert report.cost_usd == pytest.approx(report.makespan_s / 3600 * gnomon.chips("H200").chips[0]["price_usd_h"])
    assert report.usd_per_mtok == pytest.approx(report.cost_usd / (200 * 64) * 1e6)
    assert 0 < report.busy_fraction <= 1
    assert 0 < report.peak_kv_blocks <= report.kv_blocks


def test_energy_lies_between_idle_and_the_limit() -> None:
    chip = gnomon.chips("H200").chips[0]
    watts = []
    for words in ({"rate": 0.5, "requests": 20}, {"rate": None}, {"on": "H200:4", "rate": 50}):
        report = serve(**words)
        watts.append(report.energy_j / report.makespan_s / int(report.inputs["tp"]))
    assert all(0.9 * chip["idle_w"] < each <= chip["tdp_w"] for each in watts)
    assert watts[0] < watts[1]


@pytest.mark.heavy
def test_more_load_is_slower() -> None:
    calm, busy, rushed = (serve(rate=rate, requests=400) for rate in (2, 20, 200))
    for metric in ("ttft_s", "tpot_s", "e2e_s"):
        times = [getattr(report, metric)["p50"] for report in (calm, busy, rushed)]
        assert times == sorted(times)
    assert calm.output_tokens_per_s < busy.output_tokens_per_s < rushed.output_tokens_per_s


@pytest.mark.heavy
def test_better_machines_are_quicker() -> None:
    base = serve(rate=20).tpot_s["mean"]
    assert serve(rate=20, on="H100").tpot_s["mean"] > base
    assert serve(rate=20, dtype="fp8").tpot_s["mean"] < base
    assert serve(rate=20, on="H200:2").tpot_s["mean"] < base


def test_an_idle_engine_serves_one_request_as_predicted() -> None:
    """A decode alone takes its predicted step; the first token, its prefill and the engine's latencies."""
    report = serve(rate=None, requests=1, input=1000, output=100)
    step = gnomon.predict("llama-3.1-8b", on="H200", batch=1, context=1050).time_s.value
    assert report.tpot_s["mean"] == pytest.approx(step, rel=0.01)
    prompt = gnomon.predict("llama-3.1-8b", on="H200", phase="prefill", batch=1, tokens=1000).time_s.value
    assert prompt < report.ttft_s["mean"] < prompt + 0.02


def test_all_requests_at_once() -> None:
    report = serve(rate=None)
    assert report.run.requests.arrival_s.max() == 0
    assert "at once" in report.title


def test_short_of_memory_some_start_again() -> None:
    report = serve(rate=None, input=2000, output=500, settings={"gpu_memory_utilization": 0.16, "max_model_len": 4096})
    assert report.preemptions > 0
    assert report.peak_kv_blocks <= report.kv_blocks
    assert report.run.totals.prefill_tokens > report.run.requests.input_tokens.sum()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"requests": 0}, "--requests"),
        ({"rate": 0}, "--rate"),
        ({"rate": -1}, "--rate"),
        ({"input": 0}, "--input"),
        ({"output": None}, "--output"),
        ({"seed": -1}, "--seed"),
        ({"tp": -1}, "tp"),
        ({"input": 200_000}, "131,?072"),
        ({"input": 5000, "settings": {"max_model_len": 4096}}, "4,?096"),
        ({"trace": CHAT, "input": 5}, "--input"),
        ({"trace": "nowhere.csv"}, "nowhere.csv"),
    ],
)
def test_refusals(words: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        serve(**words)


@pytest.mark.parametrize("limit", [None, 4096])
@pytest.mark.parametrize(("input", "output"), [(200_000, 100), (131_000, 100), (100, 131_000), (131_072, 1)])
def test_what_is_too_long_is_named_with_what_can_be_done(limit: int | None, input: int, output: int) -> None:
    """By the flags it came from; longer sequences are only proposed where the model has them, and then they work."""
    settings = {} if limit is None else {"max_model_len": limit}
    with pytest.raises(InputError) as caught:
        serve(input=input, output=output, settings=settings, requests=2)
    assert caught.value.where == "--input, --output"
    longer = re.search(r"--set max_model_len=(\d+)", caught.value.hint)
    assert bool(longer) == (limit is not None and input + output <= 131_072)
    if longer:
        assert serve(input=input, output=output, settings={"max_model_len": int(longer[1])}, requests=2).requests == 2


@pytest.mark.parametrize(("blank", "line"), [("", 4), ("\n", 5), ("\n\n", 6)])
def test_the_line_of_a_trace_that_is_too_long_is_named(tmp_path: Path, blank: str, line: int) -> None:
    path = tmp_path / "long.csv"
    path.write_text(f"arrival_s,input_tokens,output_tokens\n0,10,5\n{blank}1,20,5\n2,200000,5\n3,300000,5\n")
    for requests in (None, 3):
        with pytest.raises(InputError) as caught:
            serve(trace=str(path), requests=requests)
        assert caught.value.where == f"{path} line {line}"


def test_a_rate_of_one_request_is_told_to_say_nothing(tmp_path: Path) -> None:
    path = tmp_path / "one.csv"
    path.write_text("arrival_s,input_tokens,output_tokens\n0,100,10\n")
    alone, rated = serve(trace=str(path)), serve(trace=str(path), rate=3)
    assert rated.e2e_s == alone.e2e_s
    assert [one.option for one in rated.not_modelled] == ["--rate 3"]
    again = serve(trace=str(path), rate=3, requests=50)
    assert again.not_modelled == () and again.e2e_s == serve(input=100, output=10, rate=3, requests=50).e2e_s


FILLING = [(4.0, 512, 64, 20), (8.0, 512, 256, 60), (12.0, 1000, 250, 60), (1.0, 100, 10, 30), (20.0, 200, 400, 100)]


@pytest.mark.heavy
@pytest.mark.battery(6)
@pytest.mark.parametrize(("rate", "input", "output", "requests"), FILLING)
def test_a_run_that_is_still_filling_says_how_long_it_should_be(
    rate: float, input: int, output: int, requests: int
) -> None:
    asked = {"rate": rate, "input": input, "output": output}
    short = serve(**asked, requests=requests)
    assert short.settled is False
    text = render(short)
    longer = int(re.search(r"give --requests (\d+)", text)[1])  # type: ignore[index]
    assert requests < longer
    full = serve(**asked, requests=longer)
    assert full.settled is True
    assert "give --requests" not in render(full)
    assert full.e2e_s["mean"] > 0.99 * short.e2e_s["mean"], "an engine that fills is faster than a full one"


def test_what_arrives_at_once_has_no_steady_state() -> None:
    found = serve(rate=None)
    assert found.settled is None and "--requests" not in render(found)


OVERLOADED = [("L4", 20.0, 1000, 200), ("H200", 100.0, 1000, 500), ("H200:2", 80.0, 4000, 100), ("A100", 40.0, 2000, 9)]


@pytest.mark.battery(6)
@pytest.mark.parametrize(("on", "rate", "input", "output"), OVERLOADED)
def test_the_fleet_that_is_proposed_takes_the_load(on: str, rate: float, input: int, output: int) -> None:
    """So many replicas as the saturation rate that was just printed asks for, and some more."""
    load = {"rate": rate, "input": input, "output": output}
    found = serve(on=on, **load, requests=300, settings={"max_model_len": 8192})
    assert found.overloaded
    proposed = re.search(r"plan serve llama-3.1-8b --fleet [\w-]+:(\d+)", render(found))
    assert proposed, render(found)
    replicas = int(proposed[1]) // found.inputs["tp"]
    assert 0.5 * replicas * found.saturation_rps < rate < 0.95 * replicas * found.saturation_rps


def test_no_fleet_is_proposed_for_what_no_fleet_takes() -> None:
    found = serve(on="L4", rate=1e6, input=1000, output=100, requests=100, settings={"max_model_len": 8192})
    assert found.overloaded and "plan serve" not in render(found)


def test_what_does_not_fit_is_not_served() -> None:
    with pytest.raises(DoesNotFitError, match="gnomon fit"):
        serve("llama-3.1-70b")
