"""Published tables that are broken: found before anything is computed, with file, line and column."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from gnomon.accuracy import accuracy, deployment_rows, result, run_rows, truth
from gnomon.calibrate import truth as tables
from gnomon.errors import GnomonError

GEMM = dict.fromkeys(tables.NEEDED["gemm"], "1") | {"source": "x", "gpu": "H100", "dtype": "fp16"}
MOE = dict.fromkeys(tables.NEEDED["moe"], "1") | {"dtype": "fp16", "distribution": "balanced"}


def csv_of(*rows: dict[str, str]) -> bytes:
    return "\n".join([",".join(rows[0]), *(",".join(row.values()) for row in rows), ""]).encode()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Whole tables of a row or so; what comes after reading them fails."""
    for name in tables.TABLES:
        row = dict.fromkeys(tables.NEEDED.get(name, ("time_us",)), "1")
        tables.path(tmp_path, name).write_bytes(gzip.compress(csv_of({"gemm": GEMM, "moe": MOE}.get(name, row))))
    serving = dict.fromkeys(deployment_rows.NEEDED, "1")
    (tmp_path / truth.SERVING).write_bytes(gzip.compress(csv_of(serving)))
    (tmp_path / truth.TRAINING).write_bytes(csv_of(dict.fromkeys(run_rows.NEEDED, "1")))
    monkeypatch.setenv("GNOMON_TRUTH", str(tmp_path))

    def computed(_: Path) -> None:
        raise RuntimeError("tables were read")

    monkeypatch.setattr(result, "training_steps", computed)
    tables.tables.cache_clear()
    return tmp_path


def test_whole_tables_are_read(folder: Path) -> None:
    with pytest.raises(RuntimeError, match="tables were read"):
        accuracy(fresh=True)


BROKEN: dict[str, tuple[str, bytes, str]] = {
    "no rows": (truth.TRAINING, b"", f"{truth.TRAINING} line 1: has no column id"),
    "another table": (truth.TRAINING, b"a,b\n1,2\n", f"{truth.TRAINING} line 1: has no column id"),
    "a short row": (
        truth.TRAINING,
        csv_of(dict.fromkeys(run_rows.NEEDED, "1")) + b"1,2\n",
        f"{truth.TRAINING} line 3: has not as many fields",
    ),
    "no gzip": (truth.SERVING, b"id\n", "is not a whole gzip file"),
    "no column": ("kernels_attention.csv.gz", gzip.compress(b"time_us\n1\n"), "attention.csv.gz line 1: has no column"),
    "no times": (
        "kernels_collectives.csv.gz",
        gzip.compress(b"a\n1\n"),
        "collectives.csv.gz line 1: has no column",
    ),
    "no number": (
        "kernels_gemm.csv.gz",
        gzip.compress(csv_of(GEMM, GEMM | {"k": "wide"})),
        "kernels_gemm.csv.gz line 3, column k: 'wide' is not a number",
    ),
    "no time": (
        "kernels_gemm.csv.gz",
        gzip.compress(csv_of(GEMM, GEMM | {"time_us": "0"})),
        "kernels_gemm.csv.gz line 3, column time_us: '0' is not a number above 0",
    ),
    "no experts": (
        "kernels_moe.csv.gz",
        gzip.compress(csv_of(MOE, MOE | {"topk": "few"})),
        "kernels_moe.csv.gz line 3: a published row of experts",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_tables_are_found_first(folder: Path, name: str) -> None:
    file, content, message = BROKEN[name]
    (folder / file).write_bytes(content)
    with pytest.raises(GnomonError, match=message.replace(".", r"\.")):
        accuracy(fresh=True)


def test_a_chip_that_nobody_knows_is_found_first(folder: Path) -> None:
    with pytest.raises(GnomonError, match="unknown chip 'zorp'"):
        accuracy(fresh=True, chip="zorp")
