"""Results of whole deployments stand beside their prediction; what is no such result is refused with the reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import gnomon
from gnomon.errors import GnomonError

VLLM: dict[str, Any] = {
    "date": "20261115-120000", "backend": "openai", "model_id": "meta-llama/Llama-3.1-8B", "num_prompts": 200,
    "request_rate": 4.0, "max_concurrency": None, "duration": 55.0, "completed": 200, "failed": 0,
    "total_input_tokens": 200 * 512, "total_output_tokens": 200 * 64, "output_throughput": 232.0,
    "median_ttft_ms": 30.0, "mean_ttft_ms": 31.0, "median_tpot_ms": 6.0, "mean_tpot_ms": 6.1,
}  # fmt: skip
AIPERF: dict[str, Any] = {
    "schema_version": "1.1",
    "aiperf_version": "0.12.0",
    "input_config": {"endpoint": {"model_names": ["meta-llama/Llama-3.1-8B"]}, "loadgen": {"concurrency": 16}},
    "request_count": {"unit": "requests", "avg": 256.0},
    "input_sequence_length": {"unit": "tokens", "avg": 512.0},
    "output_sequence_length": {"unit": "tokens", "avg": 128.0},
    "time_to_first_token": {"unit": "ms", "avg": 60.0, "p50": 50.0},
    "inter_token_latency": {"unit": "ms", "avg": 7.0, "p50": 6.5},
    "output_token_throughput": {"unit": "tokens/sec", "avg": 2000.0},
}


def _file(path: Path, data: Any) -> Path:
    path.write_text(json.dumps(data))
    return path


def test_a_result_at_a_rate_stands_beside_a_simulation(tmp_path: Path) -> None:
    found: Any = gnomon.calibrate(source=_file(tmp_path / "r.json", VLLM), on="H200")
    assert found.method == "simulated at the same rate"
    assert found.measured["ttft_s"] == 0.03
    assert set(found.errors) == {"ttft_s", "tpot_s", "output_tokens_per_s"}
    assert found.errors["tpot_s"] == pytest.approx(found.predicted["tpot_s"] / 0.006 - 1)
    assert 200 < found.predicted["output_tokens_per_s"] < 260
    assert json.loads(Path(found.kept).read_text())["errors"] == found.to_dict()["errors"]


def test_a_result_of_so_many_at_once_stands_beside_a_step(tmp_path: Path) -> None:
    found: Any = gnomon.calibrate(source=_file(tmp_path / "r.json", AIPERF), on="H200")
    assert found.method.startswith("one decode step of 16 sequences")
    assert found.measured["tpot_s"] == pytest.approx(6.5e-3)
    step = gnomon.predict("llama-3.1-8b", on="H200", batch=16, context=512 + 64)
    assert found.predicted == {"tpot_s": step.time_s.value}


AT_ONCE = VLLM | {"request_rate": "inf", "max_concurrency": 8}
DEEP = json.loads('{"a":' * 900 + "1" + "}" * 900)
REFUSED: dict[str, tuple[Any, str]] = {
    "something else": ({"a": 1}, "is none of these"),
    "a list": ([1], "holds a list, not a JSON object"),
    "failed requests": (VLLM | {"failed": 3}, "3 requests failed"),
    "no time": (VLLM | {"median_ttft_ms": None}, "median_ttft_ms is 'None'"),
    "a time of zero": (VLLM | {"median_tpot_ms": 0}, "median_tpot_ms is '0'"),
    "another AIPerf": (AIPERF | {"schema_version": "2.0"}, "AIPerf's schema 2.0 is not read"),
    "a cancelled run": (AIPERF | {"was_cancelled": True}, "cancelled"),
    "no statistics": (AIPERF | {"inter_token_latency": 3.0}, "has no inter_token_latency"),
    "an unknown model": (VLLM | {"model_id": "acme/Secret-9T"}, "'acme/Secret-9T' is not a known model"),
    **{
        f"{name} of {value}": (VLLM | {name: value}, f"{name} is '{shown}', not a number from")
        for name, value, shown in (
            ("completed", 0.5, "0.5"),
            ("completed", float("nan"), "nan"),
            ("completed", 10**18, "a very large number"),
            ("request_rate", -1, "-1"),
            ("request_rate", 1e300, "1e+300"),
            ("request_rate", "5", "5"),
            ("max_concurrency", 0.5, "0.5"),
            ("median_ttft_ms", 1e308, "1e+308"),
            ("median_tpot_ms", 5e-324, "5e-324"),
            ("total_input_tokens", 10**400, "a very large number"),
            ("total_output_tokens", 20, "0.1"),
            ("output_throughput", float("inf"), "inf"),
        )
    },
    "code for a model": (AT_ONCE | {"model_id": "net.py:build"}, "'net.py:build' is not a known model"),
    **{
        f"a time in {unit}": (AIPERF | {"time_to_first_token": {"p50": 50, "unit": unit}}, f"is in '{unit}', not in ms")
        for unit in ("furlongs", "MS", None, ["ms"])
    },
    "no unit": (AIPERF | {"inter_token_latency": {"p50": 5}}, "inter_token_latency is in 'None', not in ms or us"),
    "tokens a minute": (
        AIPERF | {"output_token_throughput": {"unit": "tokens/min", "avg": 2000.0}},
        "is in 'tokens/min', not in",
    ),
    "a first token after ages": (
        AIPERF | {"time_to_first_token": {"p50": 1e300, "unit": "ms"}},
        "time_to_first_token p50 is '1e+300'",
    ),
    "a first token before": (
        AIPERF | {"time_to_first_token": {"p50": -5, "unit": "ms"}},
        "time_to_first_token p50 is '-0.005'",
    ),
    "prompts of nan": (AIPERF | {"input_sequence_length": {"unit": "tokens", "avg": float("nan")}}, "avg is 'nan'"),
    "nothing answered": (AIPERF | {"output_sequence_length": {"unit": "tokens", "avg": 0.2}}, "avg is '0.2'"),
    "half a request": (AIPERF | {"request_count": {"unit": "requests", "avg": 0.5}}, "request_count avg is '0.5'"),
    "several rates": (AIPERF | {"input_config": {"request_rate": [1, 2]}}, "request_rate is '[1, 2]'"),
    "a deep configuration": (AIPERF | {"input_config": DEEP}, "MODEL: is empty"),
    "newer steps": ({"schema": "gnomon.engine-rows/7"}, "written by a newer Gnomon (gnomon.engine-rows/7, not /1)"),
    "other steps": ({"schema": "gnomon.plan/1"}, "schema is 'gnomon.plan/1'"),
    "half the steps": ({"schema": "gnomon.engine-rows/1", "engine": "vllm"}, "has no date"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_files_are_refused(tmp_path: Path, own_history: Path, name: str) -> None:
    data, reason = REFUSED[name]
    with pytest.raises(GnomonError) as refused:
        gnomon.calibrate(source=_file(tmp_path / "r.json", data), on="H200")
    assert reason in str(refused.value)
    assert not (own_history / "checks").exists()


def test_counts_need_no_unit(tmp_path: Path) -> None:
    data = AIPERF | {"request_count": {"avg": 256.0}, "input_sequence_length": {"avg": 512.0}}
    found: Any = gnomon.calibrate(source=_file(tmp_path / "r.json", data), on="H200")
    assert found.measured["input_tokens"] == 512.0


def test_a_rate_without_end_is_all_at_once(tmp_path: Path) -> None:
    data = VLLM | {"request_rate": float("inf"), "max_concurrency": 8}
    found: Any = gnomon.calibrate(source=_file(tmp_path / "r.json", data), on="H200")
    assert found.method.startswith("one decode step of 8 sequences")
