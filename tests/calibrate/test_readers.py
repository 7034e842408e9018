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
from gnomon.errors import CalibrationError, InputError, MissingExtraError
from gnomon.load.profiles import forget_profiles, profile_of

MEASURED = Path(__file__).parents[2] / "measurements/h200-2026-11-15"
H200 = catalog.chip("H200")


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setenv("GNOMON_HOME", str(tmp_path / "home"))
    forget_profiles()
    yield
    forget_profiles()


def _file(path: Path, data: Any) -> Path:
    path.write_text(json.dumps(data))
    return path


def test_paths_that_lead_nowhere(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        gnomon.calibrate(source=tmp_path / "none.csv", on="H200")
    (tmp_path / "a.xlsx").write_text("x")
    with pytest.raises(InputError, match=r"'\.xlsx' files hold no measurements"):
        gnomon.calibrate(source=tmp_path / "a.xlsx", on="H200")
    (tmp_path / "folder").mkdir()
    with pytest.raises(CalibrationError, match="holds no table of operators"):
        gnomon.calibrate(source=tmp_path / "folder", on="H200")


def test_a_whole_disk_is_no_folder_of_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "MOST_FOLDERS", 5)
    for number in range(6):
        (tmp_path / "disk" / str(number) / "gemm_perf.parquet").mkdir(parents=True)
    with pytest.raises(InputError, match="holds more than 5 folders"):
        gnomon.calibrate(source=tmp_path / "disk", on="H200")
    with pytest.raises(InputError, match="cannot be read: embedded null"):
        gnomon.calibrate(source="a\0b.csv", on="H200")


def test_a_file_that_is_no_profile_is_not_overwritten(tmp_path: Path) -> None:
    from tests.calibrate.test_fit import write
    from tests.calibrate.test_tables import streams

    table, target = write(tmp_path / "t.csv", streams()), tmp_path / "p.yaml"
    for text in ("precious", "schema: gnomon.chip/1\n", "note: gnomon.profile/1\n"):
        target.write_text(text)
        with pytest.raises(InputError, match="is not a Gnomon profile") as refused:
            gnomon.calibrate(source=table, on="H200", profile=target)
        assert refused.value.where == "--profile"
        assert target.read_text() == text
    target.write_text("")
    gnomon.calibrate(source=table, on="H200", profile=target)
    first = target.read_text()
    assert first.startswith("schema: gnomon.profile/1")
    gnomon.calibrate(source=write(tmp_path / "u.csv", streams(60)), on="H200", profile=target)
    assert target.read_text() != first


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
    from gnomon.load.overheads import forget_own

    forget_own()
    with pytest.raises(CalibrationError, match="written by a newer Gnomon"):
        gnomon.predict("llama-3.2-3b", on="H200", batch=8, context=256)
    forget_own()


def _products(framework: str, version: str, count: int, efficiency: float = 1.0) -> list[dict[str, Any]]:
    model = kernel_model("gemm")
    start = {name: first for name, (first, _, _) in model.ranges.items()}
    sizes = np.random.default_rng(3).integers(1, 64, (count, 3)) * 128.0
    shape = {name: sizes[:, i] for i, name in enumerate("mnk")}
    times = model.seconds(shape, "bf16", H200, start) * efficiency
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


def test_a_framework_that_does_not_fit_leaves_the_others(tmp_path: Path) -> None:
    folder = tmp_path / "h200"
    _parquet(folder / "vllm" / "gemm_perf.parquet", _products("VLLM", "0.24.0", 60))
    _parquet(folder / "sglang" / "gemm_perf.parquet", _products("SGLang", "0.5.14", 60, 1e4))
    found: Any = gnomon.calibrate(source=folder)
    assert found.profile.endswith("h200-sxm-141gb.yaml")
    assert any(note.startswith("sglang is left out: gemm.bf16 is left out: off by") for note in found.notes)
    assert not (tmp_path / "home/profiles/h200-sxm-141gb.sglang.yaml").exists()


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


def test_a_column_twice_in_parquet(tmp_path: Path) -> None:
    """A writer may name two columns the same, though no database does."""
    rows = [row | {"zz_width": 7, "zz_depth": 7} for row in _products("vllm", "1", 20)]
    path = _parquet(tmp_path / "gemm_perf.parquet", rows)
    path.write_bytes(path.read_bytes().replace(b"zz_width", b"zz_depth"))
    with pytest.raises(CalibrationError, match="the column 'zz_depth' is given twice"):
        gnomon.calibrate(source=path, on="H200")


def test_columns_of_several_are_no_column_twice() -> None:
    nested = [("root", 3), ("a", 1), ("list", 1), ("m", None), ("b", 2), ("m", None), ("n", None), ("m", None)]
    parquet._check_names(nested, "t")
    with pytest.raises(CalibrationError, match="the column 'm' is given twice"):
        parquet._check_names([*nested, ("M", None)], "t")


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
