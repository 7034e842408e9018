"""Measurements that others wrote are read for what they are; what is something else is refused with the reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import gnomon
from gnomon import catalog
from gnomon.calibrate.readers import parquet
from gnomon.cost.kernels import kernel_model
from gnomon.cost.profile import forget_profiles, profile_of
from gnomon.errors import CalibrationError, GnomonError, InputError, MissingExtraError

MEASURED = Path(__file__).parents[2] / "measurements/h200-2026-11-15"
H200 = catalog.chip("H200")
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


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setenv("GNOMON_HOME", str(tmp_path / "home"))
    forget_profiles()
    yield
    forget_profiles()


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


REFUSED: dict[str, tuple[Any, str]] = {
    "something else": ({"a": 1}, "is none of these"),
    "a list": ([1], "holds a list, not a JSON object"),
    "failed requests": (VLLM | {"failed": 3}, "3 requests failed"),
    "no time": (VLLM | {"median_ttft_ms": None}, "median_ttft_ms is 'None'"),
    "a time of zero": (VLLM | {"median_tpot_ms": 0}, "median_tpot_ms is '0'"),
    "another AIPerf": (AIPERF | {"schema_version": "2.0"}, "AIPerf's schema 2.0 is not read"),
    "a cancelled run": (AIPERF | {"was_cancelled": True}, "cancelled"),
    "no statistics": (AIPERF | {"inter_token_latency": 3.0}, "has no inter_token_latency"),
    "an unknown model": (VLLM | {"model_id": "acme/Secret-9T"}, "'acme/Secret-9T' is no model we know"),
    "newer steps": ({"schema": "gnomon.engine-rows/7"}, "written by a newer Gnomon (gnomon.engine-rows/7, not /1)"),
    "other steps": ({"schema": "gnomon.plan/1"}, "schema is 'gnomon.plan/1'"),
    "half the steps": ({"schema": "gnomon.engine-rows/1", "engine": "vllm"}, "has no date"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_files_are_refused(tmp_path: Path, name: str) -> None:
    data, reason = REFUSED[name]
    with pytest.raises(GnomonError) as refused:
        gnomon.calibrate(source=_file(tmp_path / "r.json", data), on="H200")
    assert reason in str(refused.value)
    assert not (tmp_path / "home" / "checks").exists()


def test_paths_that_lead_nowhere(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        gnomon.calibrate(source=tmp_path / "none.csv", on="H200")
    (tmp_path / "a.xlsx").write_text("x")
    with pytest.raises(InputError, match=r"'\.xlsx' files hold no measurements"):
        gnomon.calibrate(source=tmp_path / "a.xlsx", on="H200")
    (tmp_path / "folder").mkdir()
    with pytest.raises(CalibrationError, match="holds no table of operators"):
        gnomon.calibrate(source=tmp_path / "folder", on="H200")


def test_steps_of_an_engine_become_the_users_own_overheads(tmp_path: Path) -> None:
    data = json.loads((MEASURED / "engine.json").read_text())
    small = ["llama-3.2-3b"]
    rows = [row for row in data["rows"] if row.get("model") in small or row["kind"] == "frontend"]
    slower = [row | {"time_s": row["time_s"] * 1.5} if row["kind"] == "decode" else row for row in rows]
    data |= {"models": {name: data["models"][name] for name in small}, "rows": slower}
    before = gnomon.predict("llama-3.2-3b", on="H200", batch=8, context=256).time_s.value
    found: Any = gnomon.calibrate(source=_file(tmp_path / "engine.json", data))
    assert list(found.figures) == ["dense"]
    after = gnomon.predict("llama-3.2-3b", on="H200", batch=8, context=256)
    assert after.time_s.value > 1.2 * before
    moe = gnomon.predict("qwen3-30b-a3b", on="H200", batch=8, context=256)
    assert "your own host" not in json.dumps(moe.to_dict())
    Path(found.profile).write_text(yaml.safe_dump({"schema": "gnomon.overheads/2"}))
    from gnomon.engines.own import forget_own

    forget_own()
    with pytest.raises(CalibrationError, match="written by a newer Gnomon"):
        gnomon.predict("llama-3.2-3b", on="H200", batch=8, context=256)
    forget_own()


def _products(framework: str, version: str, count: int, pace: float = 1.0) -> list[dict[str, Any]]:
    model = kernel_model("gemm")
    start = {name: first for name, (first, _, _) in model.ranges.items()}
    sizes = np.random.default_rng(3).integers(1, 64, (count, 3)) * 128.0
    shape = {name: sizes[:, i] for i, name in enumerate("mnk")}
    times = model.seconds(shape, "bf16", H200, start) * pace
    fixed = {"framework": framework, "version": version, "device": "NVIDIA H200", "op_name": "gemm"}
    return [
        fixed | {"gemm_dtype": "bfloat16", "m": int(m), "n": int(n), "k": int(k), "latency": float(t) * 1e3}
        for (m, n, k), t in zip(sizes, times, strict=True)
    ]


def _parquet(path: Path, rows: list[dict[str, Any]]) -> Path:
    duckdb = pytest.importorskip("duckdb")
    path.parent.mkdir(parents=True, exist_ok=True)
    text = path.with_suffix(".json")
    text.write_text("\n".join(json.dumps(row) for row in rows))
    with duckdb.connect() as engine:
        engine.execute(
            f"copy (select * from read_json('{text}', format='newline_delimited')) to '{path}' (format parquet)"
        )
    text.unlink()
    return path


def test_parquet_tables_become_profiles_by_framework(tmp_path: Path) -> None:
    folder = tmp_path / "h200"
    _parquet(
        folder / "vllm" / "gemm_perf.parquet", _products("VLLM", "0.19.0", 60, 3.0) + _products("VLLM", "0.24.0", 60)
    )
    _parquet(folder / "sglang" / "gemm_perf.parquet", _products("SGLang", "0.5.14", 60, 1.1))
    found: Any = gnomon.calibrate(source=folder)
    assert found.chip == H200.name
    assert found.rows == {"read": 60}
    assert "sglang 0.5.14, as published" in found.notes
    assert any("vllm: " in note for note in found.notes)
    vllm = yaml.safe_load((tmp_path / "home/profiles/h200-sxm-141gb.yaml").read_text())
    assert vllm["versions"] == {"vllm": "0.24.0"}
    assert "left out 60 rows of vllm (version 0.19.0)" in vllm["notes"]
    assert vllm["families"]["gemm.bf16"]["held_out"]["mean"] < 0.05
    own = profile_of(H200.name, "sglang")
    assert own is not None
    assert "gemm.bf16.sglang" in own.families
    with pytest.raises(InputError, match="was measured on NVIDIA H200, not on A100"):
        gnomon.calibrate(source=folder, on="A100-SXM-80GB")
    with pytest.raises(InputError, match="holds several frameworks"):
        gnomon.calibrate(source=folder, profile=tmp_path / "p.yaml")


def test_broken_parquet(tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    path = tmp_path / "gemm_perf.parquet"
    path.write_bytes(b"PAR1 not really")
    with pytest.raises(CalibrationError, match="is no Parquet table"):
        gnomon.calibrate(source=path, on="H200")
    rows = [{name: value for name, value in row.items() if name != "k"} for row in _products("vllm", "1", 20)]
    _parquet(path, rows)
    with pytest.raises(CalibrationError, match="a row cannot be read \\('k'\\)"):
        gnomon.calibrate(source=path, on="H200")


def test_parquet_needs_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "duckdb", None)
    (tmp_path / "gemm_perf.parquet").write_bytes(b"PAR1")
    with pytest.raises(MissingExtraError, match="duckdb"):
        gnomon.calibrate(source=tmp_path / "gemm_perf.parquet", on="H200")


def test_rows_of_every_table() -> None:
    head = {"num_heads": 32, "num_key_value_heads": 0, "head_dim": 128, "kv_cache_dtype": "fp8", "batch_size": 4}
    decode = parquet.TABLES["generation_attention_perf"](head | {"isl": 1, "step": 1023})
    assert decode == {
        "op": "attention_decode", "dtype": "fp8", "batch": 4, "heads": 32, "kv_heads": 32, "head_dim": 128,
        "q_len": 1, "kv_len": 1024, "causal": 1,
    }  # fmt: skip
    prompt = parquet.TABLES["context_attention_perf"](head | {"isl": 512})
    assert prompt is not None
    assert (prompt["q_len"], prompt["kv_len"]) == (512, 512)
    assert parquet.TABLES["context_attention_perf"](head | {"isl": 512, "window_size": 128}) is None
    experts = {"moe_dtype": "fp8", "num_tokens": 8, "hidden_size": 64, "inter_size": 256, "topk": 2, "num_experts": 8}
    split = experts | {"moe_tp_size": 4, "moe_ep_size": 1, "distribution": "balanced"}
    row = parquet.TABLES["moe_perf"](split)
    assert row is not None
    assert row["inter"] == 64
    assert parquet.TABLES["moe_perf"](split | {"moe_ep_size": 2}) is None
    assert parquet._order("1.3.0rc10") < parquet._order("1.3.0") < parquet._order("1.10")


def test_a_table_of_the_hosts_own_time_is_named() -> None:
    draw = np.random.default_rng(0)
    waited = [*draw.uniform(55, 70, 60), *draw.uniform(100, 5000, 140)]
    assert parquet.host_us(waited) == pytest.approx(55, abs=1)
    assert parquet.host_us([time / 20 for time in waited]) == 0.0
    assert parquet.host_us([*draw.uniform(50, 5000, 200)]) == 0.0
    rows = {("vllm", "1"): [{"op": "gemm", "dtype": "fp8-blocks", "time_us": time} for time in waited]}
    found = parquet._framework("vllm", "1", rows, {}, "NVIDIA H100")
    assert found.rows == ()
    assert found.left_out == {"gemm in fp8-blocks, never under 55 us: the host's time": 200}
