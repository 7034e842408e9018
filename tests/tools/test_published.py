"""The A100's profile: which published rows it rests on, and that they give what is shipped."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from gnomon import catalog
from gnomon.cost.machine import Machine
from gnomon.errors import CalibrationError
from gnomon.load.profiles import profile_for
from gnomon.spec import Pool
from tools import published, ship

GEMM = {"source": "vidur", "gpu": published.CHIP, "dtype": "fp16", "m": 64, "n": 128, "k": 256, "time_us": 40.0}
ADD = {"source": "vidur", "gpu": published.CHIP, "op": "add", "model": "a", "tokens": 8, "width": 4, "time_us": 9.0}
ATTENTION = {
    "gpu": published.CHIP, "framework": "vllm", "phase": "decode", "attn_type": "gqa/mha", "window_size": 0,
    "batch_size": 2, "isl": 1, "kv_len": 512, "num_heads": 8, "num_key_value_heads": 2, "head_dim": 128,
    "time_us": 30.0,
}  # fmt: skip
MOE = {
    "gpu": published.CHIP, "framework": "vllm", "dtype": "bfloat16", "distribution": "power_law_1.01", "moe_ep_size": 1,
    "num_tokens": 4, "hidden_size": 64, "inter_size": 32, "num_experts": 8, "topk": 2, "moe_tp_size": 4,
    "time_us": 50.0,
}  # fmt: skip


def write(folder: Path, name: str, *rows: dict[str, Any]) -> Path:
    with gzip.open(folder / f"kernels_{name}.csv.gz", "wt", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return folder


def test_products_are_vidurs_above_its_rounding(tmp_path: Path) -> None:
    rows = [GEMM, GEMM | {"time_us": 60.0}, GEMM | {"time_us": 50.0}, GEMM | {"m": 8, "time_us": 19.0}]
    others = [GEMM | {"source": "aiconfigurator-0.12.0"}, GEMM | {"gpu": "A100-PCIE-80GB"}, GEMM | {"dtype": "fp32"}]
    folder = write(tmp_path, "gemm", *rows, *(row | {"m": 1024} for row in others))
    assert published.gemms(folder) == {(64, 128, 256): 50.0}


def test_no_size_outweighs_the_others(tmp_path: Path) -> None:
    many = [GEMM | {"n": 1024 + i} for i in range(2 * published.AN_OCTAVE)]
    kept = published.gemms(write(tmp_path, "gemm", *many, GEMM | {"m": 4096}))
    assert len(kept) == published.AN_OCTAVE + 1
    assert kept == published.gemms(write(tmp_path, "gemm", GEMM | {"m": 4096}, *reversed(many)))


def test_decodes_have_grouped_heads_and_a_context(tmp_path: Path) -> None:
    other = [{"num_heads": 2}, {"kv_len": 64}, {"attn_type": "mla"}, {"window_size": 128}, {"framework": "trtllm"}]
    folder = write(tmp_path, "attention", ATTENTION, *(ATTENTION | change for change in other))
    assert published.attention(folder, "decode", "vllm") == {(2, 1, 512, 8, 2, 128): 30.0}


def test_a_cut_of_the_experts_is_a_smaller_width(tmp_path: Path) -> None:
    folder = write(tmp_path, "moe", MOE, MOE | {"moe_ep_size": 2, "num_tokens": 9}, MOE | {"distribution": "balanced"})
    assert published.experts(folder) == {(4, 64, 8, 8, 2, 1.01): 50.0}


def test_streams_are_counted_in_bytes(tmp_path: Path) -> None:
    norm = ADD | {"source": "neusight", "gpu": "A100-PCIE-80GB", "op": "ln", "tokens": 16, "time_us": 100.0}
    left = [
        ADD | {"model": "microsoft/phi-2", "tokens": 99},
        ADD | {"op": "mlp_act"},
        ADD | {"time_us": 2.0, "width": 9},
    ]
    found = published.streams(write(tmp_path, "elementwise", ADD, norm, *left))
    assert found == {(128, 64): 9.0, (256, 256): pytest.approx(100.0 * 1.935 / 2.039)}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"source": "vidur", "gpu": "x", "time_us": 1.0}, "kernels_gemm.csv.gz: has no column dtype"),
        ({key: value for key, value in GEMM.items() if key != "k"}, "has no m, n, k"),
        (GEMM | {"time_us": "soon"}, "soon"),
    ],
)
def test_tables_that_are_not_what_they_were(tmp_path: Path, row: dict[str, Any], said: str) -> None:
    with pytest.raises(CalibrationError, match=said):
        published.gemms(write(tmp_path, "gemm", row))


def test_a_line_cut_short(tmp_path: Path) -> None:
    write(tmp_path, "gemm", GEMM)
    path = tmp_path / "kernels_gemm.csv.gz"
    path.write_bytes(path.read_bytes() + gzip.compress(b"vidur,A100"))
    with pytest.raises(CalibrationError, match=r"line 3: has not as many fields"):
        published.gemms(tmp_path)


def test_without_the_tables_the_profile_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GNOMON_TRUTH", str(tmp_path))
    monkeypatch.setattr(published, "write", lambda *_: pytest.fail("the profile was written"))
    published.main()
    assert capsys.readouterr().out.startswith("kept A100-SXM-80GB: the published tables are not here")


@pytest.mark.slow
def test_the_shipped_profile_comes_from_the_tables() -> None:
    """`make profiles` gives what is shipped, to what another machine's rounding may change."""
    folder = published.tables()
    if folder is None:
        pytest.skip("the published tables are not here; GNOMON_TRUTH can name their folder")
    shipped = yaml.safe_load((ship.PROFILES / "a100-sxm-80gb.yaml").read_text())
    made = published.profile(folder)
    assert {key: made[key] for key in ("versions", "notes")} == {key: shipped[key] for key in ("versions", "notes")}
    assert made["power"] == pytest.approx(shipped["power"], rel=0.02)
    assert set(made["families"]) == set(shipped["families"])
    for key, family in made["families"].items():
        assert family["rows"] == shipped["families"][key]["rows"]
        assert family["source"] == shipped["families"][key]["source"]
        assert family["spread"] == pytest.approx(shipped["families"][key]["spread"], rel=0.05)


SIDES = np.array([1024.0, 2048.0, 4096.0, 8192.0, 16384.0, 32768.0])


def test_large_products_run_at_a_rate_that_lasts() -> None:
    """Below the best of any shape that a search on random data found (271 TFLOP/s), above two thirds of the peak."""
    chip = catalog.chip("A100")
    m, n, k = (side.ravel() for side in np.meshgrid(SIDES, SIDES, SIDES))
    large = m * n * k >= 4096.0**3
    shape = {"m": m[large], "n": n[large], "k": k[large]}
    seconds = Machine(Pool(chip=chip, count=1, per_node=1), profile_for(chip)).seconds("gemm", "bf16", shape)
    rate = 2 * shape["m"] * shape["n"] * shape["k"] / seconds
    assert rate.max() < 271.2e12
    assert rate.min() > 0.65 * chip.rate("bf16")
    half = Machine(Pool(chip=chip, count=1, per_node=1), profile_for(chip)).seconds("gemm", "fp16", shape)
    assert half.tolist() == seconds.tolist()
