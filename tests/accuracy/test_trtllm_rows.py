"""Rows of published TensorRT-LLM benchmarks as deployments."""

from __future__ import annotations

import pytest

from gnomon.accuracy.deployment_rows import NEEDED, Unfit
from gnomon.accuracy.deployments import READERS, compare
from gnomon.accuracy.trtllm_rows import FAMILY, GROUP, REQUESTS, case_of, tuned

SERVED = {
    "row_id": "inferencex-1", "source": "inferencex", "model": "openai/gpt-oss-120b", "weight_precision": "nvfp4/mxfp4",
    "gpu": "B200-SXM-180GB", "n_gpus": "2", "tp": "2", "pp": "1", "ep": "1", "dp": "1", "mode": "agg",
    "engine_family": FAMILY, "isl": "1024.0", "osl": "1024.0", "concurrency": "16.0", "ttft_ms": "50", "tpot_ms": "4.5",
    "tier": "A",
}  # fmt: skip
BENCHED = {
    "source": "trtllm_docs", "source_detail": "TensorRT-LLM docs perf-overview (PyTorch backend, max load)",
    "model": "Llama 3.3 70B", "weight_precision": "fp8", "gpu": "H100-SXM-80GB", "isl": "1000.0", "osl": "1000.0",
    "output_tok_s": "4200", "concurrency": "",
}  # fmt: skip


def row(*more: dict[str, str], **changes: str) -> dict[str, str]:
    found = dict.fromkeys(NEEDED, "") | SERVED
    for one in more:
        found |= one
    return found | changes


def test_a_closed_loop_is_started_as_its_script_says() -> None:
    case = case_of(row())
    assert (case.engine, case.group, case.model, case.clients, case.least) == ("trtllm", GROUP, "gpt-oss-120b", 16, 0.8)
    settings = case.options["settings"]
    assert (settings["max_num_tokens"], settings["stream_interval"]) == (20000, 20)
    assert settings["cuda_graph_max_batch_size"] == 16
    assert case.measured == {"TPOT": 0.0045, "TTFT": 0.05}


def test_first_tokens_that_a_script_delays_are_not_compared() -> None:
    llama = {"model": "meta-llama/Llama-3.1-70B", "weight_precision": "fp8"}
    assert set(case_of(row(llama)).measured) == {"TPOT"}
    assert set(case_of(row(llama, osl="8192.0")).measured) == {"TPOT", "TTFT"}


def test_maximum_load_has_the_published_number_of_requests() -> None:
    case = case_of(row(BENCHED))
    assert case.clients == REQUESTS[1000, 1000] == 3000
    assert case.measured == {"tokens/s": 4200.0}
    assert case.options["kv_dtype"] == "fp8"
    assert case.options["settings"]["served_by"] == "trtllm-bench"


def test_the_heuristic_of_the_benchmark() -> None:
    """`finetune_setting`: multiples of 32, 128 or 256 requests, of 256, 512 or 1,024 tokens, 64 and 2,048 at least."""
    few, tokens = tuned(row(BENCHED), "llama-3.3-70b", 20000, 2000)
    assert few % 32 == 0 and few >= 64 and tokens >= 2048
    many, _ = tuned(row(BENCHED, n_gpus="8"), "llama-3.3-70b", 128, 128)
    assert many == 4096


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"mode": "disagg"}, "disaggregated"),
        ({"tier": "B", "quality": "unknown"}, "tier B"),
        ({"dp": "2"}, "data-parallel"),
        ({"tp": "1"}, "plan unclear"),
        ({"source": "llm_inference_bench"}, "no engine"),
        ({"model": "nobody/nothing"}, "not in the catalog"),
        ({"isl": "200000"}, "maximum context"),
        ({"weight_precision": "fp8"}, "not published in it"),
    ],
)
def test_what_cannot_be_compared_says_why(changes: dict[str, str], why: str) -> None:
    with pytest.raises(Unfit, match=why):
        case_of(row(**changes))


def test_engines_of_earlier_backends_are_left_out() -> None:
    detail = "TensorRT-LLM docs perf-overview (in-flight batching, max load)"
    with pytest.raises(Unfit, match="TensorRT engines of 2024"):
        case_of(row(BENCHED, source_detail=detail))
    with pytest.raises(Unfit, match="data parallelism"):
        case_of(row(BENCHED, model="Qwen3 30B A3B", weight_precision="nvfp4"))


def test_a_row_is_compared_under_its_engine() -> None:
    rows = compare(READERS[FAMILY](row()))
    assert {one["what"] for one in rows} == {"TPOT", "TTFT"}
    assert all(one["predicted_as"].startswith("trtllm 1.2") for one in rows)
    (tpot,) = [one for one in rows if one["what"] == "TPOT"]
    assert 0.002 < tpot["predicted"] < 0.01
