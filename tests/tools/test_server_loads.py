"""Loads of a server, what is noted of them, and how measured times are read again."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gnomon.calibrate import server_loads as recorded
from gnomon.engines.replay import MeasuredRun
from tools import http_loads, server_loads


@pytest.mark.parametrize("cv", [1.0, 3.0])
def test_arrivals_have_the_rate_and_the_spread_asked_for(cv: float) -> None:
    arrivals = recorded.renewal(50.0, 400.0, cv, 3)
    gaps = np.diff(arrivals)
    assert arrivals[0] == 0.0 and np.all(gaps >= 0.0)
    assert len(arrivals) / 400.0 == pytest.approx(50.0, rel=0.1)
    assert np.std(gaps) / np.mean(gaps) == pytest.approx(cv, rel=0.1)


def test_loads_at_shares_of_the_saturation_rate() -> None:
    found = list(server_loads.poisson(20.0, 30.0))
    assert [(load.name, load.about["rate_per_s"]) for load in found] == [
        ("poisson", 12.0), ("poisson", 17.0), ("gamma", 12.0), ("poisson", 6.0),
    ]  # fmt: skip
    assert all(set(load.requests.input_tokens) == {server_loads.LONG[0]} for load in found)


def test_prompts_arrive_beside_a_batch_that_outlasts_them() -> None:
    for load in server_loads.beside():
        count = int(load.about["count"])
        late = load.requests.arrival_s[count:]
        assert np.all(load.requests.arrival_s[:count] == 0.0) and np.all(late > 1.0)
        assert np.min(load.requests.output_tokens[:count]) > 100 * np.max(load.requests.output_tokens[count:])


def _output(at: float, prompts: int, decodes: int) -> Any:
    prefilled = [SimpleNamespace(prefill_stats=SimpleNamespace(num_computed_tokens=100)) for _ in range(prompts)]
    others = [SimpleNamespace(prefill_stats=None) for _ in range(decodes)]
    stats = SimpleNamespace(num_running_reqs=prompts + decodes, num_waiting_reqs=7)
    return SimpleNamespace(timestamp=at, outputs=prefilled + others, scheduler_stats=stats)


def test_steps_are_noted_and_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = [_output(10.0, 2, 0), _output(10.25, 1, 2)]
    given = list(waiting)

    async def get() -> Any:
        return waiting.pop(0)

    core = SimpleNamespace(get_output_async=get)
    log = recorded.StepLog(core)
    monkeypatch.setattr(recorded.time, "monotonic", lambda: 10.5)
    got = [asyncio.run(core.get_output_async()) for _ in range(2)]
    assert got == given
    assert log.columns(9.0) == {
        "core_us": [1_000_000, 250_000], "received_us": [500_000, 250_000], "outputs": [2, 3], "prompts": [2, 1],
        "prompt_tokens": [200, 100], "running": [2, 3], "waiting": [7, 7],
    }  # fmt: skip


def _load() -> dict[str, Any]:
    requests = recorded.arriving(np.array([0.0, 1.0]), 64, 11)
    run = MeasuredRun(
        requests=requests,
        queued_s=np.array([0.001, 1.002]),
        scheduled_s=np.array([0.003, 1.003]),
        made_s=np.array([0.013, 1.023]),
        first_token_s=np.array([0.014, 1.026]),
        finish_s=np.array([0.114, 1.226]),
    )
    each = recorded.request_columns(run)
    return {"name": "poisson", "requests": 2, "begin_s": 100.0, "wall_s": 1.226, "each": each}


def test_stages_of_a_request_are_counted_from_the_one_before() -> None:
    each = _load()["each"]
    assert each["queued_us"] == [1000, 2000] and each["scheduled_us"] == [2000, 1000]
    assert each["made_us"] == [10000, 20000] and each["first_us"] == [1000, 3000]
    assert (each["input_tokens"], each["output_tokens"]) == (64, 11)


def test_the_made_up_tokenizer_has_a_word_for_every_token(tmp_path: Path) -> None:
    http_loads.write_model(tmp_path, {"vocab_size": 12})
    words = json.loads((tmp_path / "tokenizer.json").read_text())["model"]["vocab"]
    assert sorted(words.values()) == list(range(12))
    command = http_loads.server_command(tmp_path, 2.0)
    assert command[command.index("--kv-cache-memory-bytes") + 1] == str(2 * 2**30)
