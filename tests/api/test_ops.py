"""Operator tables: the rows come back in order with their times; broken ones name the line and the column."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gnomon
from gnomon import catalog
from gnomon.cost.machine import Machine
from gnomon.cost.rows import pairs
from gnomon.errors import InputError
from gnomon.load import operators as load_operators
from gnomon.load.operators import csv_text as table
from gnomon.load.profiles import profile_for
from gnomon.planning.operators.price import ADDED

ROWS: list[dict[str, Any]] = [
    {"op": "gemm", "dtype": "bf16", "m": 128, "n": 4096, "k": 4096},
    {"op": "attention_decode", "dtype": "bf16", "batch": 8, "heads": 32, "kv_heads": 8, "kv_len": 900, "head_dim": 128},
    {"op": "gemm", "dtype": "fp8", "m": 128, "n": 4096, "k": 4096},
    {"op": "moe", "dtype": "bf16", "tokens": 64, "hidden": 2048, "inter": 768, "experts": 128, "topk": 8},
    {"op": "elementwise", "dtype": "bf16", "bytes_read": 1e6, "bytes_written": 0},
    {"op": "gemm", "dtype": "bf16", "m": 1, "n": 64, "k": 64},
    {"op": "all_reduce", "dtype": "bf16", "bytes": 1 << 20, "ranks": 4},
    {"op": "all_gather", "dtype": "bf16", "bytes": 1 << 20, "ranks": 8},
    {"op": "all_reduce", "dtype": "bf16", "bytes": 1 << 20, "ranks": 8},
    {"op": "gemm", "dtype": "bfloat16", "m": 128, "n": 4096, "k": 4096, "batch": 4},
    {"op": "attention_prefill", "dtype": "bf16", "batch": 1, "heads": 32, "kv_heads": 8, "q_len": 512, "kv_len": 900}
    | {"head_dim": 128},
]


def price(*rows: dict[str, Any], on: str = "H100:8") -> list[dict[str, Any]]:
    return gnomon.ops(rows, on=on)


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_rows_come_back_in_order_with_their_times() -> None:
    given = [dict(row) for row in ROWS]
    priced = price(*ROWS)
    assert [{key: row[key] for key in row if key not in ADDED} for row in priced] == given
    assert given == ROWS
    for row in priced:
        assert 0 < row["low_us"] < row["time_us"] < row["high_us"] < 1e4
    kinds = [row["provenance"].partition(":")[0] for row in priced]
    assert set(kinds) == {"fitted"}


def as_columns(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Where a row has no such size, a 1 that nobody reads."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: np.array([row.get(name, 1) for row in rows]) for name in names}


def test_columns_are_priced_as_rows_are() -> None:
    table = as_columns(ROWS)
    found, rows = gnomon.ops(table, on="H100:8"), price(*ROWS)
    for name in ("time_us", "low_us", "high_us"):
        assert found[name].tolist() == pytest.approx([row[name] for row in rows], rel=1e-4, abs=1e-4)
    assert found["provenance"].tolist() == [row["provenance"] for row in rows]
    assert all((found[name] == table[name]).all() for name in table)


def test_one_value_stands_for_a_whole_column() -> None:
    rows = np.array([1.0, 64.0, 4096.0])
    found = gnomon.ops({"op": "gemm", "dtype": "bf16", "m": rows, "n": 4096, "k": 4096}, on="H200")
    each = [gnomon.ops([ROWS[0] | {"m": m}], on="H200")[0]["time_us"] for m in rows]
    assert found["time_us"].tolist() == pytest.approx(each, abs=1e-4)
    many = gnomon.ops({"op": "gemm", "dtype": "bf16", "m": rows, "n": 4096, "k": 4096, "batch": 4}, on="H200")
    assert (many["time_us"] > found["time_us"]).all()


@pytest.mark.parametrize("sustained", [0, 1])
@pytest.mark.parametrize("name", ["int4-weights", "mxfp4-weights", "nvfp4-weights", "fp8-weights", "fp8-blocks"])
def test_formats_of_weights_are_taken(name: str, sustained: int) -> None:
    few = {"op": "gemm", "m": 1, "n": 28672, "k": 8192, "sustained": sustained}
    wide, narrow = (gnomon.ops([few | {"dtype": dtype}], on="H200")[0] for dtype in ("bf16", name))
    assert 0.2 < narrow["time_us"] / wide["time_us"] < 0.8


def test_four_bits_are_widened_where_the_chip_has_no_rate_for_them() -> None:
    row = {"op": "moe", "tokens": 64, "hidden": 2048, "inter": 768, "experts": 128, "topk": 8}
    plain, said = (gnomon.ops([row | {"dtype": dtype}], on="H100")[0] for dtype in ("mxfp4", "mxfp4-weights"))
    assert plain["time_us"] == said["time_us"]
    assert plain["provenance"] == f"{said['provenance']}, as mxfp4-weights"
    with pytest.raises(InputError, match=r"column dtype: int4-weights do not run on MI300X: .*NVIDIA"):
        gnomon.ops([row | {"dtype": "int4-weights"}], on="MI300X")
    with pytest.raises(InputError, match=r"Or fp8-weights"):
        gnomon.ops([row | {"dtype": "fp8"}], on="A100")


GEMM_COLUMNS: dict[str, Any] = {"op": "gemm", "dtype": "bf16", "m": [4, 8], "n": 64, "k": 64}
BAD_COLUMNS: dict[str, tuple[dict[str, Any], str]] = {
    "operator": ({"op": ["gemm", "gem"]}, r"row 1, column op: unknown operator 'gem'"),
    "format": ({"dtype": ["bf16", "bf61"]}, r"row 1, column dtype: unknown number format 'bf61'"),
    "size": ({"m": [4, -3]}, r"row 1, column m: '-3' is not a whole number of at least 1"),
    "part": ({"k": [4, 2.5]}, r"row 1, column k: '2.5' is not a whole number"),
    "word": ({"k": ["4", "four"]}, r"row 1, column k: 'four' is not a number"),
    "length": ({"m": [1, 2, 3], "k": [1, 2]}, r"column k: has the shape \(2,\), where 3 rows are"),
}


@pytest.mark.parametrize("name", BAD_COLUMNS)
def test_broken_columns_are_refused(name: str) -> None:
    given, message = BAD_COLUMNS[name]
    with pytest.raises(InputError, match=message):
        gnomon.ops(GEMM_COLUMNS | given, on="H200")


def test_columns_that_are_not_there() -> None:
    with pytest.raises(InputError, match=r"row 0, column k: is missing"):
        gnomon.ops({name: GEMM_COLUMNS[name] for name in ("op", "dtype", "m", "n")}, on="H200")
    with pytest.raises(InputError, match=r"table: has no column 'dtype'"):
        gnomon.ops({"op": "gemm"}, on="H200")
    with pytest.raises(InputError, match=r"out: columns are not written"):
        gnomon.ops(GEMM_COLUMNS, on="H200", out="x.csv")  # type: ignore[call-overload]


def test_convolutions_and_whole_sequences_in_a_table() -> None:
    conv = {"op": "conv", "dtype": "tf32", "m": 3136, "n": 64, "k": 12.25, "batch": 1, "bytes": 1e6}
    whole = ROWS[-1] | {"op": "attention_forward"}
    for row in (conv, whole):
        assert price(row, on="H200")[0]["time_us"] > 0
    with pytest.raises(InputError, match="more than the keys"):
        price(whole | {"q_len": 1000}, on="H200")


def test_a_row_is_priced_the_same_alone() -> None:
    assert [price(row)[0] for row in ROWS] == price(*ROWS)


def test_a_step_is_made_of_the_same_operators() -> None:
    """An operator of a prediction, looked up in a table."""
    step = gnomon.predict("llama-3.1-8b", on="H200", batch=32, context=1023)
    lines = {line.op: line for line in step.breakdown}
    up, cached = price(
        {"op": "gemm", "dtype": "bf16", "m": 32, "n": 28672, "k": 4096},
        ROWS[1] | {"batch": 32, "kv_len": 1024},
        on="H200",
    )
    assert lines["ffn.up"].time_s.value * 1e6 == pytest.approx(32 * up["time_us"], rel=1e-4)
    assert lines["attention.decode"].time_s.value * 1e6 == pytest.approx(32 * cached["time_us"], rel=1e-4)


def test_a_file_makes_the_round_trip(tmp_path: Path) -> None:
    source = write(tmp_path / "in.csv", table(ROWS))
    out = tmp_path / "out.csv"
    priced = gnomon.ops(source, on="H100:8", out=out)
    with out.open(newline="") as file:
        read = list(csv.DictReader(file))
    names = list(dict.fromkeys(name for row in ROWS for name in row))
    assert list(read[0]) == [*names, *ADDED]
    assert [{key: str(value or "") for key, value in row.items()} for row in priced] == read
    assert [float(row["time_us"]) for row in read] == [row["time_us"] for row in price(*ROWS)]
    again = tmp_path / "again.csv"
    gnomon.ops(out, on="H100:8", out=again)
    assert again.read_text() == out.read_text()


def test_columns_it_does_not_know_are_kept(tmp_path: Path) -> None:
    source = write(tmp_path / "in.csv", 'note,op,m,n,k,dtype\n"a, b",gemm,1,2,3,bf16\nüber,gemm,1,2,3,bf16\n')
    priced = gnomon.ops(source, on="H200")
    assert [row["note"] for row in priced] == ["a, b", "über"]


def test_no_rows(tmp_path: Path) -> None:
    assert price() == []
    out = tmp_path / "out.csv"
    assert gnomon.ops(write(tmp_path / "in.csv", "op,dtype,m,n,k\n"), on="H200", out=out) == []
    assert out.read_text().split() == [",".join(("op", "dtype", "m", "n", "k", *ADDED))]


def test_a_file_from_a_spreadsheet(tmp_path: Path) -> None:
    """A byte-order mark and carriage returns."""
    text = "\ufeffop,dtype,m,n,k\r\ngemm,bf16,1,2,3\r\n"
    assert len(gnomon.ops(write(tmp_path / "in.csv", text), on="H200")) == 1


FILES = {
    "empty": ("", "no column 'op'"),
    "no op": ("dtype,m\nbf16,1\n", "no column 'op'"),
    "no dtype": ("op,m\ngemm,1\n", "no column 'dtype'"),
    "no k": ("op,dtype,m,n\ngemm,bf16,1,2\n", "line 2, column k: is missing"),
    "blank k": ("op,dtype,m,n,k\ngemm,bf16,1,2,3\ngemm,bf16,1,2,\n", "line 3, column k: is missing"),
    "short row": ("op,dtype,m,n,k\ngemm,bf16,1,2\n", "line 2, column k: is missing"),
    "long row": ("op,dtype,m,n,k\ngemm,bf16,1,2,3,4\n", "line 2: .*more fields"),
    "words": ("op,dtype,m,n,k\ngemm,bf16,1,two,3\n", "line 2, column n: 'two' is not a number"),
    "negative": ("op,dtype,m,n,k\ngemm,bf16,-1,2,3\n", "line 2, column m: '-1'"),
    "zero": ("op,dtype,m,n,k\ngemm,bf16,0,2,3\n", "line 2, column m: '0'"),
    "nan": ("op,dtype,m,n,k\ngemm,bf16,nan,2,3\n", "line 2, column m: 'nan'"),
    "inf": ("op,dtype,m,n,k\ngemm,bf16,inf,2,3\n", "line 2, column m: 'inf'"),
    "unknown op": ("op,dtype,m,n,k\ngem,bf16,1,2,3\n", "line 2, column op: unknown operator 'gem'.*gemm"),
    "no name": ("op,dtype,m,n,k\n,bf16,1,2,3\n", "line 2, column op"),
    "unknown dtype": ("op,dtype,m,n,k\ngemm,bf61,1,2,3\n", "line 2, column dtype: .*bf61"),
    "dtype without a rate": ("op,dtype,m,n,k\ngemm,fp4,1,2,3\n", "line 2, column dtype: .*fp4"),
    "the same after a space": ("op,dtype,m,n,k\n gemm,fp4,1,2,3\n", "line 2, column dtype: .*fp4"),
    "of GEMMs alone": (
        "op,dtype,batch,heads,kv_heads,kv_len,head_dim\nattention_decode,int4-weights,8,32,8,900,128\n",
        "line 2, column dtype: 'int4-weights' is a GEMM format.*Use one of .*fp8",
    ),
    "binary": ("op,dtype\n\x00\n", "in.csv"),
    "after empty lines": ("op,dtype,m,n,k\n\n\ngemm,bf16,1,2,3\n\ngemm,bf16,1,2,x\n", "line 6, column k: 'x'"),
    "after a long cell": ('op,dtype,m,n,k,note\ngemm,bf16,1,2,3,"a\nb"\ngemm,bf16,1,2,x,\n', "line 4, column k: 'x'"),
}


@pytest.mark.parametrize("name", FILES)
def test_broken_files_name_the_place(tmp_path: Path, name: str) -> None:
    text, message = FILES[name]
    path = write(tmp_path / "in.csv", text)
    with pytest.raises(InputError, match=message) as caught:
        gnomon.ops(path, on="H200")
    assert "in.csv" in str(caught.value)


def test_a_file_that_is_not_there_or_no_text(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none.csv: no such file"):
        gnomon.ops(tmp_path / "none.csv", on="H200")
    (tmp_path / "bad.csv").write_bytes(b"op,dtype\n\xff\xfe\n")
    with pytest.raises(InputError, match=r"bad.csv: cannot be read"):
        gnomon.ops(tmp_path / "bad.csv", on="H200")
    with pytest.raises(InputError, match="folder"):
        gnomon.ops(tmp_path, on="H200")


GEMM = ROWS[0]
BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "nothing": (GEMM | {"m": None}, "row 0, column m: is missing"),
    "a list": (GEMM | {"m": [1]}, "row 0, column m"),
    "no batch": (GEMM | {"batch": 0}, "row 0, column batch"),
    "topk": (ROWS[3] | {"topk": 200}, "row 0, column topk"),
    "heads": (ROWS[1] | {"heads": 30}, "row 0, column kv_heads"),
    "more new than keys": (ROWS[10] | {"q_len": 901}, "row 0, column q_len"),
    "negative bytes": (ROWS[4] | {"bytes_read": -1}, "row 0, column bytes_read"),
    "half a rank": (ROWS[6] | {"ranks": 2.5}, "row 0, column ranks"),
    "beyond all numbers": (GEMM | {"m": 1e300, "n": 1e300}, "row 0"),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", BROKEN)
def test_broken_rows_name_the_place(name: str) -> None:
    row, message = BROKEN[name]
    with pytest.raises(InputError, match=message):
        price(row)


def test_collectives_run_inside_a_node() -> None:
    """`--on` names a chip; how many take part stands in the row."""
    alone, eight = (price(ROWS[8] | {"bytes": 1 << 26}, on=on)[0]["time_us"] for on in ("H100", "H100:8"))
    assert alone == eight
    two, many = (price(ROWS[8] | {"bytes": 1 << 26, "ranks": ranks}, on="H100")[0]["time_us"] for ranks in (16, 128))
    # Two nodes' adapters keep pace with the links inside them, sixteen nodes' do not.
    assert eight < two < 1.15 * eight
    assert many > 1.5 * eight


def test_bands_are_as_wide_as_the_evidence() -> None:
    own, transferred = (price(GEMM, on=on)[0] for on in ("H200", "H20"))
    assert transferred["high_us"] / transferred["low_us"] > own["high_us"] / own["low_us"] > 1
    for row in (own, transferred):
        assert math.sqrt(row["low_us"] * row["high_us"]) == pytest.approx(row["time_us"], rel=1e-3)


def test_more_rows_than_are_kept_are_refused_by_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(tmp_path / "in.csv", "op,dtype,m,n,k\n" + "gemm,bf16,1,2,3\n" * 11)
    monkeypatch.setattr(load_operators, "MAX_ROWS", 11)
    assert len(gnomon.ops(source, on="H200")) == 11
    monkeypatch.setattr(load_operators, "MAX_ROWS", 10)
    with pytest.raises(InputError, match=r"in\.csv: has more than 10 rows"):
        gnomon.ops(source, on="H200")


def test_a_hundred_thousand_rows_are_priced_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    seconds = Machine.seconds

    def counted(self: Machine, kind: str, *rest: Any, **more: Any) -> Any:
        calls.append(1)
        return seconds(self, kind, *rest, **more)

    monkeypatch.setattr(Machine, "seconds", counted)
    lines = (f"gemm,bf16,{i % 4096 + 1},4096,{i % 7 * 512 + 512}" for i in range(100_000))
    source = write(tmp_path / "in.csv", "op,dtype,m,n,k\n" + "\n".join(lines) + "\n")
    priced = gnomon.ops(source, on="H200")
    assert len(calls) == 1
    assert len(priced) == 100_000
    assert priced[99_999]["m"] == str(99_999 % 4096 + 1)


def test_table_is_plain_csv() -> None:
    text = table([{"a": 1, "b": "x,y"}, {"a": 2, "c": None}])
    assert list(csv.reader(io.StringIO(text))) == [["a", "b", "c"], ["1", "x,y", ""], ["2", "", ""]]


def test_out_is_a_file_like_any_other(tmp_path: Path) -> None:
    """Written whole, replacing what was there, readable by whom the user's files are."""
    plain, out = write(tmp_path / "plain.csv", ""), write(tmp_path / "out.csv", "old")
    gnomon.ops([GEMM], on="H200", out=out)
    assert out.read_text() == table(price(GEMM, on="H200"))
    assert out.stat().st_mode == plain.stat().st_mode
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["out.csv", "plain.csv"]


def test_out_in_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere"):
        gnomon.ops([GEMM], on="H200", out=tmp_path / "nowhere" / "out.csv")


PROMPT = ROWS[10] | {"q_len": 4096, "kv_len": 4096}


def micros(row: dict[str, Any], on: str = "H200") -> float:
    return float(price(row, on=on)[0]["time_us"])


def plain_pairs(queries: int, keys: int, causal: bool, window: int) -> int:
    """Counted one by one."""
    behind = (window - 1 if causal else window // 2) if window else keys
    ahead = 0 if causal else (window - 1 - window // 2 if window else keys)
    return sum(1 for i in range(keys - queries, keys) for j in range(keys) if -behind <= j - i <= ahead)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (7, 7), (5, 12), (1, 9), (12, 12)])
def test_pairs_are_those_counted_one_by_one(queries: int, keys: int, causal: bool) -> None:
    for window in (0, 1, 2, 3, 6, 7, 11, 40):
        given = {"q_len": queries, "kv_len": keys, "causal": causal, "window": window}
        found = pairs({name: np.array([float(value)]) for name, value in given.items()})
        assert found[0] == plain_pairs(queries, keys, causal, window), window


@pytest.mark.parametrize("op", ["attention_prefill", "attention_forward", "attention_backward"])
def test_masks_decide_what_attention_takes(op: str) -> None:
    whole = PROMPT | {"op": op}
    assert micros(whole) == micros(whole | {"causal": 1, "window": ""}) == micros(whole | {"causal": "True"})
    assert micros(whole | {"window": 4096}) == micros(whole)
    both = micros(whole | {"causal": 0})
    assert 1.6 * micros(whole) < both < 2.2 * micros(whole)
    narrow = [micros(whole | {"window": window}) for window in (64, 512, 2048)]
    assert narrow == sorted(narrow)
    assert narrow[1] < 0.5 * micros(whole)


def test_a_window_spares_a_decode_its_cache() -> None:
    decode = ROWS[1] | {"kv_len": 8192}
    # A window begins inside a tile of keys, whose others are read too; its kernel masks every tile, and is planned.
    c = profile_for(catalog.chip("H200")).family("attention_decode", "bf16").coefficients
    most = micros(decode | {"kv_len": 1152}) * c["masked"] + c["window_us"]
    assert micros(decode | {"kv_len": 1024}) < micros(decode | {"window": 1024}) <= most < 0.5 * micros(decode)
    assert micros(decode | {"window": 8192}) == micros(decode)
    several = decode | {"q_len": 4}
    assert micros(decode) < micros(several) < 1.1 * micros(decode)
    # Of so many new tokens the arithmetic takes longer than the cache: two products over all pairs.
    crowd = micros(decode | {"q_len": 512})
    assert crowd >= 4 * 8 * 512 * 8192 * 32 * 128 / 989e12 * 1e6


def test_engines_have_kernels_of_their_own() -> None:
    gemm = GEMM | {"m": 8192, "n": 8192, "k": 8192}
    assert micros(gemm) == micros(gemm | {"engine": "vllm"}) == micros(gemm | {"engine": "nccl"})
    assert micros(gemm | {"engine": "torch"}) == micros(gemm | {"engine": "megatron"}) != micros(gemm)
    small = ROWS[8] | {"bytes": 4096}
    own, left = (micros(small | {"engine": engine}) for engine in ("vllm", "nccl"))
    assert own < 0.5 * left
    assert micros(small) == left == micros(small | {"engine": "torch"})
    assert micros(small | {"engine": "vllm@0.24.0"}) == own


def test_sustained_work_keeps_within_the_power_limit() -> None:
    """A bf16 product on an H200: 727, 781 and 788 TFLOP/s in three runs of bursts, 665 for seconds on end."""
    gemm = GEMM | {"m": 8192, "n": 8192, "k": 8192, "engine": "torch"}
    burst, on_end = (2 * 8192**3 / micros(gemm | {"sustained": given}) / 1e6 for given in (0, 1))
    assert 727 < burst < 788
    assert on_end == pytest.approx(665, rel=0.05)
    for row in (ROWS[1], ROWS[4], ROWS[6]):
        assert micros(row | {"sustained": True}) == micros(row)
    told = price(gemm | {"sustained": "true"}, gemm | {"sustained": ""}, on="A100")
    assert "not measured" in told[0]["provenance"]
    assert "clock" not in told[1]["provenance"]


def test_nodes_that_a_group_spans() -> None:
    ring = ROWS[7] | {"bytes": 1 << 28}
    assert micros(ring) == micros(ring | {"nodes": 1}) == micros(ring, on="H200:64")
    spread = [micros(ring | {"nodes": nodes}) for nodes in (1, 2, 4, 8)]
    assert spread == sorted(spread)
    assert spread[-1] > 5 * spread[0]
    assert micros(ring | {"ranks": 16}) == micros(ring | {"ranks": 16, "nodes": 2})
    # Three ranks of a large cluster still stand in one node.
    assert micros(ring | {"ranks": 3}, on="H200:64") == micros(ring | {"ranks": 3}) < micros(ring)


EVERY = [
    *ROWS,
    PROMPT | {"causal": 0, "window": 100},
    PROMPT | {"window": 1000},
    ROWS[1] | {"q_len": 3, "window": 500},
    ROWS[8] | {"engine": "vllm"},
    ROWS[8] | {"engine": "torch", "nodes": 4},
    ROWS[8] | {"op": "broadcast", "ranks": 32},
    ROWS[8] | {"op": "all_to_all", "ranks": 16},
    ROWS[8] | {"op": "send_recv", "ranks": 2, "nodes": 2},
    GEMM | {"sustained": 1, "engine": "megatron", "m": 9000},
    GEMM | {"sustained": "false"},
    {"op": "conv", "dtype": "bf16", "m": 3136, "n": 64, "k": 576, "batch": 1, "bytes": 1e6},
    ROWS[10] | {"op": "attention_backward"},
]


@pytest.mark.parametrize("blank", [None, "", math.nan])
def test_files_rows_and_columns_give_equal_numbers(tmp_path: Path, blank: Any) -> None:
    """Whatever stands where an operator has no such size."""
    rows = price(*EVERY)
    read = gnomon.ops(write(tmp_path / "in.csv", table(EVERY)), on="H100:8")
    names = dict.fromkeys(name for row in EVERY for name in row)
    columns = {name: np.array([row.get(name, blank) for row in EVERY], dtype=object) for name in names}
    found = gnomon.ops(columns, on="H100:8")
    for name in ADDED:
        assert [row[name] for row in rows] == [row[name] for row in read] == found[name].tolist()


def test_no_columns() -> None:
    found = gnomon.ops({"op": np.array([]), "dtype": "bf16", "m": np.array([])}, on="H200")
    assert all(len(found[name]) == 0 for name in ADDED)


MORE_BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "causal": (PROMPT | {"causal": 2}, "row 0, column causal: '2' is not 0 or 1"),
    "causal word": (PROMPT | {"causal": "maybe"}, "row 0, column causal: 'maybe' is not a number"),
    "truth elsewhere": (GEMM | {"m": "true"}, "row 0, column m: 'true' is not a number"),
    "window": (PROMPT | {"window": -1}, "row 0, column window: '-1' is not a whole number of at least 0"),
    "half a window": (PROMPT | {"window": 0.5}, "row 0, column window: '0.5'"),
    "decode": (ROWS[1] | {"q_len": 901}, "row 0, column q_len: new tokens are more"),
    "engine": (GEMM | {"engine": "vlm"}, "row 0, column engine: unknown engine 'vlm'. Near: vllm"),
    "version": (GEMM | {"engine": "vllm@9"}, "row 0, column engine: unknown version of vllm '9'"),
    "sustained": (GEMM | {"sustained": "long"}, "row 0, column sustained: 'long' is not 0 or 1, true or false"),
    "sustained 2": (GEMM | {"sustained": 2}, "row 0, column sustained: '2' is not"),
    "few nodes": (ROWS[8] | {"ranks": 64, "nodes": 4}, "column nodes: 4 nodes are too few.* 8 hold 64 ranks"),
    "many nodes": (ROWS[8] | {"nodes": 9}, "column nodes: 9 nodes are more than the ranks"),
    "uneven nodes": (ROWS[8] | {"nodes": 3}, "column nodes: 3 nodes do not hold equal numbers of ranks"),
    "many ranks": (ROWS[8] | {"ranks": 1e9}, "column ranks: '1000000000' is more than 10,000,000"),
}


@pytest.mark.parametrize("name", MORE_BROKEN)
def test_broken_options_name_the_place(name: str) -> None:
    row, message = MORE_BROKEN[name]
    with pytest.raises(InputError, match=message):
        price(row)
    with pytest.raises(InputError, match=message.split(":")[0]):
        gnomon.ops(row, on="H100:8")


MOE, FP8 = ROWS[3], ROWS[2]


def test_what_is_said_of_experts_counts() -> None:
    """Rows that say nothing are priced as before, whoever stands beside them."""
    said: list[dict[str, float]] = [{}, {"visited": 20}, {"skew": 1.2}, {"skew": 0}, {"skew": 1.2, "visited": 20}]
    said += [{"absent": 512}, {"matrices": 2}, {"matrices": 3}]
    alone = [price(MOE | each)[0]["time_us"] for each in said]
    assert [row["time_us"] for row in price(*(MOE | each for each in said))] == alone
    names = ("skew", "visited", "absent", "matrices")
    columns = {name: np.array([each.get(name, math.nan) for each in said]) for name in names}
    assert gnomon.ops(MOE | columns, on="H100:8")["time_us"].tolist() == alone
    plain, few, skewed, dealt, both, absent, ungated, gated = alone
    assert few < 0.5 * plain
    assert skewed < plain < dealt
    assert both < 0.5 * skewed
    assert absent > plain
    assert ungated < plain == gated


def test_narrowing_activations_takes_longer_where_a_fit_knows_it() -> None:
    plain, narrowed = (micros(FP8 | {"quantised": given}, on="H100") for given in (0, "true"))
    assert plain == micros(FP8, on="H100") < 0.9 * narrowed
    with pytest.raises(InputError, match=r"row 0, column quantised: .*H200.* is not fitted"):
        price(FP8 | {"quantised": 1}, on="H200")
    with pytest.raises(InputError, match="row 0, column quantised: activations of bf16 GEMMs are not quantised"):
        price(GEMM | {"quantised": 1})


CONV = {"op": "conv", "dtype": "bf16", "m": 3136, "n": 64, "k": 576, "batch": 1, "bytes": 1e6}
SAID: dict[str, tuple[dict[str, Any], str]] = {
    "skew": (MOE | {"skew": -1}, "column skew: '-1' is not a number of at least 0"),
    "much skew": (MOE | {"skew": 4}, "column skew: '4' is more than 3"),
    "few visited": (MOE | {"visited": 7}, "column visited: fewer than a single token chooses"),
    "many visited": (MOE | {"visited": 129}, "column visited: more than there are experts"),
    "more than chosen": (MOE | {"tokens": 1, "visited": 9}, "column visited: more than there are experts, or choices"),
    "matrices": (MOE | {"matrices": 4}, "column matrices: '4' is not 2 or 3"),
    "absent": (MOE | {"absent": -1}, "column absent: '-1' is not a number of at least 0"),
    "quantised": (FP8 | {"quantised": 2}, "column quantised: '2' is not 0 or 1"),
    "both gradients": (CONV | {"by_input": 1, "by_weight": 1}, "column by_weight: one gradient at a time"),
    "across": (GEMM | {"across": 3}, "column across: '3' is not 0, 1 or 2"),
    **{
        f"{name} elsewhere": (ROWS[1] | {name: 1}, f"column {name}: does not apply to attention_decode, only to moe")
        for name in ("skew", "visited", "absent", "matrices")
    },
    "quantised elsewhere": (MOE | {"quantised": 1}, "column quantised: does not apply to moe, only to gemm"),
}


@pytest.mark.parametrize("name", SAID)
def test_what_is_said_is_checked_and_refused_where_it_means_nothing(name: str) -> None:
    row, message = SAID[name]
    with pytest.raises(InputError, match=f"row 0, {message}"):
        price(row)
    with pytest.raises(InputError, match=f"row 0, {message}"):
        gnomon.ops(row, on="H100:8")


def test_a_word_for_nothing_is_no_number_in_a_row() -> None:
    with pytest.raises(InputError, match="row 0, column skew: 'nan' is not a number"):
        price(MOE | {"skew": "nan"})
    assert micros(MOE | {"skew": math.nan, "matrices": math.nan}) == micros(MOE)


def test_gradients_and_turned_tensors_take_their_time() -> None:
    plain = micros(CONV)
    assert micros(CONV | {"turned": 1e6}) > plain
    assert micros(CONV | {"by_weight": 1}) != plain == micros(CONV | {"by_weight": "", "turned": 0})


@pytest.mark.parametrize("taken", ADDED)
def test_figures_that_results_would_replace_are_refused(tmp_path: Path, taken: str) -> None:
    message = f"has a column '{taken}', which the results would replace.*measured_us"
    with pytest.raises(InputError, match=f"row 1: {message}"):
        price(GEMM, GEMM | {taken: 5.0})
    with pytest.raises(InputError, match=f"table: {message}"):
        gnomon.ops(GEMM | {taken: 5.0}, on="H200")
    path = write(tmp_path / "in.csv", f"op,dtype,m,n,k,{taken}\ngemm,bf16,1,2,3,17\n")
    with pytest.raises(InputError, match=f"in.csv: {message}"):
        gnomon.ops(path, on="H200")


def test_a_column_twice_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "in.csv", "op,dtype,m,n,k,m\ngemm,bf16,1,2,3,4\n")
    with pytest.raises(InputError, match=r"in.csv: has the column 'm' twice"):
        gnomon.ops(path, on="H200")


def test_frameworks_with_a_profile_of_their_own() -> None:
    sglang, trtllm, vllm = (price(GEMM | {"engine": name}, on="H100")[0] for name in ("sglang", "trtllm", "vllm"))
    assert len({row["time_us"] for row in (sglang, trtllm, vllm)}) == 3
    assert "sglang" in sglang["provenance"]
    assert "trtllm" in trtllm["provenance"]
    assert price(ROWS[4] | {"engine": "sglang"}, on="H100")[0]["provenance"].endswith(", none of sglang")
    with pytest.raises(InputError, match=r"column engine: no profile has sglang's kernels on H200.*H100-SXM-80GB"):
        price(GEMM | {"engine": "sglang"}, on="H200")
    with pytest.raises(
        InputError,
        match=r"unknown engine 'zorp'.*Known: vllm, sglang, trtllm, .*megatron, torch, .*, nccl",
    ):
        price(GEMM | {"engine": "zorp"})
    with pytest.raises(InputError, match=r"column engine: unknown version of sglang '9'"):
        price(GEMM | {"engine": "sglang@9"}, on="H100")


def test_no_band_ends_below_what_the_data_sheet_allows() -> None:
    """A stranger's coefficients spread so much that draws would: the peak of its arithmetic, and of its memory."""
    large = GEMM | {"m": 16384, "n": 16384, "k": 16384}
    row = price(large, on="MI300X")[0]
    assert row["low_us"] >= 2 * 16384**3 / catalog.chip("MI300X").rate("bf16") * 1e6 * (1 - 1e-6)
    assert row["low_us"] > row["time_us"] ** 2 / row["high_us"] * (1 + 1e-6), "the band would end lower"
    stream = {"op": "elementwise", "dtype": "bf16", "bytes_read": 1e10, "bytes_written": 1e10}
    for chip in ("H20", "TPU-v7x"):
        found, sheet = price(stream, on=chip)[0], catalog.chip(chip)
        assert found["low_us"] >= (2e10 - sheet.l2_bytes) / sheet.memory_bandwidth_bytes_s * 1e6 * (1 - 1e-6)
    fits = {"op": "elementwise", "dtype": "bf16", "bytes_read": 1e6, "bytes_written": 1e6}
    assert price(fits, on="H20")[0]["low_us"] > 0
