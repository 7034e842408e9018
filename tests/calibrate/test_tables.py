"""Tables of operators that are broken, of something else, or that plainly do not fit; and very long ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from tests.calibrate.test_fit import gemm_rows, write

import gnomon
from gnomon import catalog
from gnomon.calibrate import measured, table
from gnomon.calibrate.fit import some
from gnomon.calibrate.table import read_rows
from gnomon.cost.kernels import kernel_model
from gnomon.errors import CalibrationError, GnomonError

H200 = catalog.chip("H200")


def streams(count: int = 40) -> list[dict[str, Any]]:
    """Rows that fit."""
    model = kernel_model("elementwise")
    start = {name: first for name, (first, _, _) in model.ranges.items()}
    sizes = 10 ** np.random.default_rng(2).uniform(6, 9, (count, 2))
    shape = {"bytes_read": sizes[:, 0], "bytes_written": sizes[:, 1]}
    times = model.seconds(shape, "bf16", H200, start) * 1e6
    row = {"op": "elementwise", "dtype": "bf16"}
    return [
        row | {"bytes_read": read, "bytes_written": wrote, "time_us": time}
        for (read, wrote), time in zip(sizes, times, strict=True)
    ]


def beside(**cells: Any) -> dict[str, Any]:
    return {"op": "sustained", "dtype": "bf16", "kernel": "gemm", "time_us": 10, "watts": 400} | cells


@pytest.mark.parametrize("factor", [1e-3, 1e3])
def test_a_family_that_does_not_fit_is_left_out_by_name(tmp_path: Path, factor: float) -> None:
    """As far off when every product is a thousand times too slow as when it is too quick."""
    wrong = [row | {"time_us": factor * row["time_us"]} for row in gemm_rows()]
    path = write(tmp_path / "t.csv", [*wrong, *streams()])
    found: Any = gnomon.calibrate(source=path, on="H200", profile=tmp_path / "p.yaml")
    assert list(found.families) == ["elementwise.bf16"]
    assert "a profile of 1 family of operators" in found.title
    (note,) = found.notes
    assert note.startswith("gemm.bf16 is left out: off by ")
    kept = yaml.safe_load((tmp_path / "p.yaml").read_text())
    assert kept["notes"] == [note]
    assert "shipped with Gnomon" in kept["families"]["gemm.bf16"]["source"]


def test_where_nothing_fits_nothing_is_written(tmp_path: Path, own_history: Path) -> None:
    path = write(tmp_path / "t.csv", [row | {"time_us": 1e3 * row["time_us"]} for row in gemm_rows()])
    with pytest.raises(CalibrationError, match=r"gemm\.bf16 is left out: off by .* on shapes set aside") as refused:
        gnomon.calibrate(source=path, on="H200", profile=tmp_path / "p.yaml")
    assert str(path) in str(refused.value)
    assert not (tmp_path / "p.yaml").exists()
    assert not own_history.exists()


@pytest.mark.heavy
def test_a_family_of_one_shape_leaves_the_others(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", [*gemm_rows()[:1] * 20, *streams()])
    found: Any = gnomon.calibrate(source=path, on="H200", profile=tmp_path / "p.yaml")
    assert found.notes == ("gemm.bf16 is left out: all rows of gemm in bf16 are of one shape: no error can be told",)
    with pytest.raises(CalibrationError, match=r"are of one shape: no error can be told\. Vary n, k\."):
        gnomon.calibrate(source=path, on="H200", profile=tmp_path / "q.yaml", families=["gemm"])


def test_long_tables_are_drawn_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "ENOUGH_ROWS", 30)
    path = write(tmp_path / "t.csv", streams(100))
    found: Any = gnomon.calibrate(source=path, on="H200", profile=tmp_path / "p.yaml")
    assert found.families["elementwise.bf16"]["rows"] == 30
    assert found.notes == ("elementwise.bf16 is fitted to 30 of its 100 rows, drawn evenly",)
    drawn = some(10_000, 1000)
    assert np.unique(drawn).size == 1000
    assert np.array_equal(drawn, some(10_000, 1000))
    assert np.histogram(drawn, 10, (0, 10_000))[0] == pytest.approx(100, rel=0.35)


HEADERS = {
    "a foreign table": (
        "a,b,c\n1,2,3\n",
        "has no column op or dtype or time_us (it holds a, b, c). Known columns: ",
    ),
    "empty": ("", "has no column op"),
    "no format": ("op,m,n,k,time_us\n" + "gemm,1,2,3,4\n" * 20, "has no column dtype (it holds op, m,"),
    "no time": ("op,dtype,m,n,k\n" + "gemm,bf16,1,2,3\n" * 20, "has no column time_us"),
    "a column twice": ("op,dtype,m,m,n,k,time_us\n" + "gemm,bf16,1,2,2,3,4\n" * 20, "the column 'm' is given twice"),
    "no size": ("op,dtype,m,time_us\n" + "gemm,bf16,1,2\n" * 20, "rows of gemm need a column n and a column k"),
    "no kernel": ("op,dtype,time_us\nlaunch,bf16,5\n", "line 2, column kernel: a row of launch says not of which"),
    "empty format": ("op,dtype,m,n,k,time_us\ngemm,,1,2,3,4\n", "line 2, column dtype: unknown number format ''"),
}


@pytest.mark.parametrize("name", HEADERS)
def test_headers(tmp_path: Path, name: str) -> None:
    text, reason = HEADERS[name]
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(GnomonError) as refused:
        gnomon.calibrate(source=path, on="H200", profile=tmp_path / "p.yaml")
    assert reason in str(refused.value)
    assert str(path) in str(refused.value)


LAUNCH, COPY, SAMPLED = ({"op": op, "dtype": "bf16", "kernel": "x"} for op in ("launch", "host_copy", "sampling"))
SUSTAINED = beside(flops=1e9, bytes=1e6, burst_us=9)
CELLS = {
    **{f"launch {v}": (LAUNCH | {"time_us": v}, f"launch has time_us '{v}'") for v in ("", "0", "nan", "-3", "x")},
    "a graph of nothing": (LAUNCH | {"kernel": "graph", "time_us": 5, "batch": 0}, "launch has batch '0'"),
    "copy in no time": (COPY | {"time_us": 0, "bytes": 5}, "host_copy has time_us '0'"),
    "copy of no bytes": (COPY | {"time_us": 1, "bytes": ""}, "host_copy has bytes ''"),
    "sampling of no bytes": (SAMPLED | {"time_us": 1, "bytes_read": 0}, "sampling has bytes_read '0'"),
    "sampling nan": (SAMPLED | {"time_us": "nan", "bytes_read": 4}, "sampling has time_us 'nan'"),
    **{f"watts {v}": (SUSTAINED | {"watts": v}, f"sustained has watts '{v}'") for v in ("0", "-1", "nan", "1e15")},
    **{f"burst {v}": (SUSTAINED | {"burst_us": v}, f"has burst_us '{v}'") for v in ("0", "-3", "nan", "x")},
    "sustained in no time": (SUSTAINED | {"time_us": 0}, "sustained has time_us '0'"),
    "pauses without a share": (SUSTAINED | {"duty": 0.5}, "sustained has busy ''"),
    "flops nan": (SUSTAINED | {"flops": "nan"}, "sustained has flops 'nan'"),
}


@pytest.mark.parametrize("name", CELLS)
def test_cells_of_what_is_no_operator(tmp_path: Path, name: str) -> None:
    row, reason = CELLS[name]
    path = write(tmp_path / "t.csv", [*streams(), row])
    with pytest.raises(CalibrationError) as refused:
        gnomon.calibrate(source=path, on="H200", profile=tmp_path / "p.yaml")
    assert reason in str(refused.value)
    assert not (tmp_path / "p.yaml").exists()


def test_rows_beside_operators_are_read(tmp_path: Path) -> None:
    rows = [LAUNCH | {"kernel": "graph", "time_us": 6, "batch": 500}, LAUNCH | {"time_us": 4}]
    rows += [COPY | {"time_us": time, "bytes": size} for time, size in ((9, 4096), (100, 10**6))]
    rows += [SAMPLED | {"time_us": 3, "bytes_read": 2**20}]
    assert measured.figures(read_rows(write(tmp_path / "t.csv", rows)), "") == {
        "launch": {"graph_of_500_us": 6.0, "x_us": 4.0},
        "host_copy": {"x_bytes_s": 1e10, "x_us": 9.0},
        "sampling": {"x_us_per_mib": 3.0},
    }


def test_more_rows_than_are_kept_are_refused_by_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.csv"
    path.write_text("op,dtype,bytes_read,bytes_written,time_us\n" + "elementwise,bf16,1,2,3\n" * 11)
    monkeypatch.setattr(table, "MAX_ROWS", 11)
    assert len(read_rows(path)) == 11
    monkeypatch.setattr(table, "MAX_ROWS", 10)
    with pytest.raises(CalibrationError, match=r"t\.csv: has more than 10 rows"):
        read_rows(path)
