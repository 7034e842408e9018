"""Records of server loads as rows, and the figures fitted to them, on an engine whose costs are known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gnomon import catalog
from gnomon.calibrate import engine_fit, overheads
from gnomon.calibrate.http_fit import fit_http, requests_of
from gnomon.calibrate.readers.engine_steps import check_steps
from gnomon.calibrate.server_rows import server_rows, steps_of
from gnomon.engines.vllm.overheads import HTTP, Overheads, _table
from gnomon.errors import CalibrationError
from gnomon.load import model as load_model
from gnomon.sim.serving import simulate

LARGEST = 512
STEP_S, REQUEST_US, OUTPUT_US, EGRESS_US, EACH_US = 4e-4, 350.0, 20.0, 800.0, 30.0


def _load(name: str, steps: list[tuple[int, int, int]], seconds: list[float], **about: Any) -> dict[str, Any]:
    """A load whose steps had these outputs, prompts and prompt tokens, and ended so long after one another."""
    outputs, prompts, tokens = (list(column) for column in zip(*steps, strict=True))
    ends = np.cumsum(seconds)
    made = np.repeat(ends, prompts)
    left = EGRESS_US + EACH_US * np.repeat(outputs, prompts)
    count = sum(prompts)
    cpu = 1e-6 * (REQUEST_US * count + OUTPUT_US * sum(outputs)) + STEP_S * len(steps)
    return {
        "name": name, **about, "requests": count, "wall_s": float(ends[-1]), "front_cpu_s": cpu,
        "each": {
            "arrival_us": [0] * count, "queued_us": [0] * count, "scheduled_us": [0] * count,
            "made_us": np.round(made * 1e6).astype(int).tolist(), "first_us": left.astype(int).tolist(),
            "finish_us": [0] * count, "input_tokens": 64, "output_tokens": 16,
        },
        "steps": {
            "core_us": np.round(np.array(seconds) * 1e6).astype(int).tolist(), "outputs": outputs, "prompts": prompts,
            "prompt_tokens": tokens,
        },
    }  # fmt: skip


def _launch_s(sequences: int, prompts: int, tokens: int) -> float:
    eager = sequences - prompts + tokens > LARGEST
    return (14e-3 if eager else 5e-3) + 2e-5 * sequences + 1e-4 * prompts


@pytest.fixture(scope="module")
def loads() -> list[dict[str, Any]]:
    """Runs of like steps; a step's outputs come when the next one is launched."""
    found = []
    for sequences in (20, 40, 80, 200, 400):
        for prompts in (1, 4, 9, 18):
            steps = [(sequences, prompts, 64 * prompts)] * 12
            seconds = [_launch_s(*steps[0])] * 12
            found.append(_load("rate", steps, seconds, rate_per_s=100.0))
    found.append(_load("burst", [(4, 4, 512), *[(4, 0, 0)] * 15], [9e-3, *[2e-3] * 15], count=4))
    return found


def test_steps_are_paired_with_the_one_that_was_launched_meanwhile() -> None:
    load = _load("rate", [(1, 1, 64), (2, 1, 64), (3, 1, 700), (3, 0, 0)], [1.0, 2.0, 3.0, 4.0])
    assert steps_of(load).tolist() == [[2.0, 2, 1, 64, 3, 1, 700], [3.0, 3, 1, 700, 3, 0, 0]]


def test_rows_say_what_steps_took_by_what_was_in_them(loads: list[dict[str, Any]]) -> None:
    rows = server_rows("m", loads, LARGEST)
    launches = [row for row in rows if row["kind"] == "launch"]
    assert launches
    for row in launches:
        assert row["time_s"] == pytest.approx(_launch_s(row["sequences"], row["prompts"], row["tokens"]), rel=0.2)
    decode = [row for row in rows if row["kind"] == "decode"]
    assert [(row["sequences"], row["context"], row["time_s"]) for row in decode] == [(4, 72.0, pytest.approx(2e-3))]


def test_the_front_ends_work_is_found_again(loads: list[dict[str, Any]]) -> None:
    found = overheads.fit_front(server_rows("m", loads, LARGEST))
    wanted = {"request_us": REQUEST_US, "output_us": OUTPUT_US, "egress_us": EGRESS_US, "egress_sequence_us": EACH_US}
    assert found == pytest.approx(wanted, rel=0.02)
    assert overheads.fit_front([row for row in server_rows("m", loads, LARGEST) if row["kind"] != "front"]) == {}


def test_launches_of_a_busy_engine_are_found_again(loads: list[dict[str, Any]]) -> None:
    model = load_model("qwen3-0.6b")
    priced = {"m": engine_fit.priced_model(model, catalog.chip("H200"), 4096)}
    rows = [row for row in server_rows("m", loads, LARGEST) if row["kind"] == "launch"]
    truth = {"captured_base_us": 5000.0, "captured_layer_us": 0.0, "eager_base_us": 14000.0, "eager_layer_us": 0.0}
    truth |= {"launch_sequence_us": 20.0, "launch_prompt_us": 100.0}
    assert np.abs(overheads._busy_errors(rows, priced, truth)).max() < 0.12
    wrong = np.abs(overheads._busy_errors(rows, priced, truth | {"eager_base_us": 20000.0}))
    assert wrong.max() > 0.2


def test_rows_are_checked_before_they_are_fitted(loads: list[dict[str, Any]]) -> None:
    data: dict[str, Any] = {
        "schema": "gnomon.engine-rows/1", "engine": "vllm", "date": "d", "versions": {"vllm": "0.24.0"}, "host": "h",
        "max_model_len": 4096, "models": {"m": {"a": 1}}, "rows": server_rows("m", loads, LARGEST),
    }  # fmt: skip
    check_steps(data, "here", ("vllm",))
    for kind, change in (
        ("launch", {"prompts": -1}),
        ("front", {"cpu_s": float("nan")}),
        ("egress", {"sequences": 1.5}),
        ("burst", {"ttft_s": "soon"}),
    ):
        at = next(i for i, row in enumerate(data["rows"]) if row["kind"] == kind)
        rows = [*data["rows"][:at], data["rows"][at] | change, *data["rows"][at + 1 :]]
        with pytest.raises(CalibrationError, match=f"row {at + 1}: {next(iter(change))} is"):
            check_steps(data | {"rows": rows}, "here", ("vllm",))


def test_http_figures_are_found_again() -> None:
    dense = _table()["figures"]["dense"]
    known = Overheads(figures=dense, source="")
    cost, limits, layers = engine_fit.priced_model(load_model("qwen3-0.6b"), catalog.chip("H200"), 4096)
    host = cost.under(known.host(layers, cost.host.captured))
    way = dense["egress_sequence_us"] + 25.0
    truth = {"request_us": 900.0, "output_us": 50.0, "ingress_us": 2500.0, "egress_sequence_us": way}
    served = replace(limits, **replace(known, http=truth).latencies(front_end=HTTP))
    loads = []
    for count, output in ((1, 1), (32, 1), (256, 1), (256, 16)):
        sizes = {"input_tokens": 128, "output_tokens": output}
        loads.append({"name": "burst", "requests": count, "each": {"arrival_us": [0] * count, **sizes}})
    arrivals = np.cumsum(np.random.default_rng(0).exponential(1 / 1500, 8000))
    each = {"arrival_us": np.round(arrivals * 1e6).astype(int).tolist(), "input_tokens": 64, "output_tokens": 16}
    loads.append({"name": "rate", "rate_per_s": 1500.0, "requests": 8000, "each": each})
    for load in loads:
        run = simulate(requests_of(load), host, served)
        load["each"]["first_us"] = np.round(run.ttft_s * 1e6).astype(int).tolist()  # type: ignore[index]
        load["wall_s"] = run.makespan_s
    found = fit_http(loads, known, host, limits)
    assert found["request_us"] == pytest.approx(900.0, rel=0.1)
    assert found["ingress_us"] + found["request_us"] == pytest.approx(3400.0, rel=0.1)
    assert found["output_us"] == pytest.approx(50.0, rel=0.15)
