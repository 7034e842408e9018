"""Tables that cannot be trusted are refused; a fit finds the coefficients a table was made with."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import gnomon
from gnomon import catalog
from gnomon.calibrate.fit import fit_family
from gnomon.calibrate.pooled import families
from gnomon.calibrate.power import loads
from gnomon.calibrate.table import read_rows
from gnomon.cost.kernels import MODELS
from gnomon.cost.rows import shape_of
from gnomon.errors import CalibrationError, GnomonError, InputError
from gnomon.load.profiles import forget_profiles
from tools import ship

MEASURED = Path(__file__).parents[2] / "measurements/h200-2026-11-15"
H200 = catalog.chip("H200")


def gemm_rows(count: int = 40) -> list[dict[str, Any]]:
    draw = np.random.default_rng(0)
    sizes = draw.integers(1, 64, (count, 3)) * 64
    return [
        {"op": "gemm", "dtype": "bf16", "m": m, "n": n, "k": k, "time_us": 5.0 + m * n * k / 3e8} for m, n, k in sizes
    ]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    file = io.StringIO()
    writer = csv.DictWriter(file, list(dict.fromkeys(name for row in rows for name in row)))
    writer.writeheader()
    writer.writerows(rows)
    path.write_text(file.getvalue())
    return path


@pytest.mark.parametrize("kind", ["gemm", "moe", "elementwise"])
def test_a_fit_finds_what_a_table_was_made_with(kind: str) -> None:
    model = MODELS[kind]
    truth = {name: low + 0.4 * (high - low) for name, (_, low, high) in model.ranges.items()}
    draw = np.random.default_rng(1)
    columns = {
        "gemm": {name: draw.integers(1, 200, 300) * 64.0 for name in ("m", "n", "k")},
        "moe": {
            "tokens": draw.integers(1, 4096, 300) * 1.0,
            "hidden": np.full(300, 2048.0),
            "inter": draw.integers(2, 20, 300) * 64.0,
            "experts": np.full(300, 64.0),
            "topk": np.full(300, 8.0),
        },
        "elementwise": {name: 10 ** draw.uniform(3, 9, 300) for name in ("bytes_read", "bytes_written")},
    }[kind]
    seconds = model.seconds(shape_of(kind, columns), "bf16", H200, truth)
    found = fit_family(kind, "bf16", columns | {"time_us": seconds * 1e6}, H200)
    assert np.median(np.abs(found.errors)) < 0.03


BROKEN = {
    "nan time": ({"time_us": "nan"}, "time_us"),
    "infinite time": ({"time_us": "inf"}, "time_us"),
    "no time": ({"time_us": ""}, "time_us"),
    "negative time": ({"time_us": "-1"}, "time_us"),
    "nan size": ({"m": "nan"}, "m 'nan'"),
    "zero size": ({"m": "0"}, "m '0'"),
    "huge size": ({"m": "1e308"}, "m '1e308'"),
    "a word": ({"m": "many"}, "m"),
    "unknown operator": ({"op": "gem"}, "line 5, column op"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_one_bad_cell_refuses_the_table(tmp_path: Path, name: str) -> None:
    change, message = BROKEN[name]
    rows = gemm_rows()
    rows[3] |= change
    with pytest.raises(CalibrationError, match=message):
        families(write(tmp_path / "kernels.csv", rows).parent, H200)


def test_few_rows_are_no_fit(tmp_path: Path) -> None:
    with pytest.raises(CalibrationError, match="too few"):
        families(write(tmp_path / "kernels.csv", gemm_rows(3)).parent, H200)


@pytest.mark.parametrize("content", [b"\x00\xff\xfe", b"", b"op,dtype\ngemm", b"op,dtype,m\ngemm,bf16,1,2,3\n"])
def test_files_that_are_no_table(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(GnomonError):
        gnomon.calibrate(source=path, on="H200", profile=tmp_path / "p.yaml")
    assert not (tmp_path / "p.yaml").exists()


def test_bad_power_rows_are_refused(tmp_path: Path) -> None:
    text = (MEASURED / "kernels.csv").read_text().replace("136.76", "-1")
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(CalibrationError, match="watts"):
        loads(read_rows(path), str(path))


@pytest.mark.slow
def test_a_users_profile_is_used_from_then_on(tmp_path: Path) -> None:
    def step() -> float:
        return gnomon.predict("llama-3.1-8b", on="H200", batch=8, context=512).time_s.value

    before = step()
    with (MEASURED / "kernels.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["op"] == "gemm" and row["dtype"] == "bf16"]
    slower = [row | {"time_us": str(1.3 * float(row["time_us"]))} for row in rows]
    answer = gnomon.calibrate(source=write(tmp_path / "slow.csv", slower), on="H200")
    assert step() > 1.1 * before
    Path(answer.profile).unlink()
    forget_profiles()
    assert step() == before


@pytest.mark.slow
def test_the_shipped_files_come_from_the_measurements() -> None:
    """`make profiles` gives what is shipped, to what another machine's rounding may change."""
    forget_profiles()
    shipped = yaml.safe_load((ship.PROFILES / "h200-sxm-141gb.yaml").read_text())
    made = ship.profile(MEASURED)
    assert set(made["families"]) == set(shipped["families"])
    for key, family in made["families"].items():
        assert family["rows"] == shipped["families"][key]["rows"]
        assert family["held_out"]["mean"] == pytest.approx(shipped["families"][key]["held_out"]["mean"], rel=0.05)
    figures = ship.overheads(MEASURED)["figures"]
    for kind, values in yaml.safe_load(ship.FILE.read_text())["figures"].items():
        assert figures[kind] == pytest.approx(values, rel=0.02)


def test_a_table_needs_its_chip(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--on"):
        gnomon.calibrate(source=write(tmp_path / "t.csv", gemm_rows()))
