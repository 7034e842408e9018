"""Traces and drawn loads: what was written is what is read, and a seed settles the rest."""

from __future__ import annotations

import dataclasses
import gzip
import re
import tracemalloc
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from gnomon import load
from gnomon.errors import InputError
from gnomon.load import files
from gnomon.load.recorded import lines, table
from gnomon.spec import Requests, ServingLoad

HEADER = "arrival_s,input_tokens,output_tokens\n"
STAMPED = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def _file(folder: Path, text: str, name: str = "load.csv") -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


def _same(one: Requests, other: Requests) -> bool:
    return all(
        np.array_equal(getattr(one, name), getattr(other, name))
        for name in ("arrival_s", "input_tokens", "output_tokens")
    )


def test_plain_and_packed_files_agree(tmp_path: Path) -> None:
    text = HEADER + "0.0,10,2\n1.5,20,3\n"
    plain, packed = load.requests(_file(tmp_path, text)), load.requests(_file(tmp_path, text, "load.csv.gz"))
    assert _same(plain, packed)
    assert plain.arrival_s.tolist() == [0.0, 1.5]
    assert plain.input_tokens.dtype == np.int64
    assert plain.name == packed.name == "load"


@pytest.mark.parametrize(
    "text",
    [
        "\ufeff" + HEADER + "0,10,2\n2,20,3\n",
        HEADER.replace("\n", "\r\n") + "0,10,2\r\n2,20,3\r\n",
        HEADER + "0,10,2\n\n2,20,3",
        HEADER + "0,10.0,2e0\n2,20,3\n",
        "output_tokens,Input_Tokens, arrival_s \n2,10,0\n3,20,2\n",
        '"arrival_s",input_tokens,output_tokens\n"0","10",2\n2,20,"3"\n',
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,10,2\n2023-11-16 18:15:48.6805900,20,3\n",
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.5+00:00,10,2\n2024-05-10 00:00:02.5+00:00,20,3\n",
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10T00:00:00Z,10,2\n2024-05-10T00:00:02Z,20,3\n",
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 02:00:00+02:00,10,2\n2024-05-10 00:00:02Z,20,3\n",
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-09 22:30:00.00 -0130,10,2\n2024-05-10 00:00:02,20,3\n",
        HEADER.replace("\n", "\r") + "0,10,2\r2,20,3\r",
    ],
    ids=["bom", "crlf", "blank", "floats", "reordered", "quoted", "azure-2023", "azure-2024", "iso"]
    + ["offsets", "behind", "cr"],
)
def test_ways_to_write_the_same_requests(tmp_path: Path, text: str) -> None:
    found = load.requests(_file(tmp_path, text))
    expected = Requests(np.array([0.0, 2.0]), np.array([10, 20]), np.array([2, 3]))
    assert _same(found, expected)


rows = st.lists(st.tuples(st.floats(0, 1e6), st.integers(1, 10**6), st.integers(1, 10**5)), min_size=1, max_size=30)


@given(rows)
@settings(max_examples=50)
def test_what_was_written_is_what_is_read(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple]) -> None:  # type: ignore[type-arg]
    path = tmp_path_factory.mktemp("trace") / "t.csv"
    rows = sorted(rows, key=lambda row: row[0])
    path.write_text(HEADER + "".join(f"{a!r},{i},{o}\n" for a, i, o in rows))
    found = load.requests(path)
    assert list(zip(found.arrival_s.tolist(), found.input_tokens, found.output_tokens, strict=True)) == rows


def test_lengths_alone_need_a_rate(tmp_path: Path) -> None:
    path = _file(tmp_path, "input_tokens,output_tokens\n" + "10,2\n" * 2000)
    with pytest.raises(InputError, match="no rate to draw arrivals at"):
        load.requests(path)
    one, other = load.requests(path, rate_per_s=5, seed=1), load.requests(path, rate_per_s=5, seed=2)
    assert one.rate_per_s == pytest.approx(5, rel=0.1)
    assert not _same(one, other)
    assert _same(one, load.requests(path, rate_per_s=5, seed=1))


def test_the_bad_cell_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _file(tmp_path, HEADER + "1.0,10,2\n" * 116 + "1.0,10,-3\n")
    with pytest.raises(InputError) as caught:
        load.requests("load.csv")
    assert (
        str(caught.value)
        == "load.csv line 118, column output_tokens: '-3' is not a positive whole number. Nothing was run."
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HEADER + "0,1,1\n2,1,1\n\n1,1,1\n3,1,1\n", "load.csv line 5, column arrival_s"),
        (STAMPED + "2024-01-01 00:00:02,1,1\n2024-01-01 00:00:01,1,1\n", "load.csv line 3, column timestamp"),
        (STAMPED + "2024-01-01 01:00:00,1,1\n2024-01-01 01:00:00.5+01:00,1,1\n", "line 3, column timestamp"),
    ],
    ids=["seconds", "timestamps", "offsets"],
)
def test_arrivals_that_fall_are_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        load.requests(_file(tmp_path, text))
    assert f"{said}: the request arrives before the one above it. Sort the lines by it. " in str(caught.value)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("arrival_ms,input_tokens,output_tokens", "unknown column 'arrival_ms'. Near: arrival_s"),
        ("arrival_s,timestamp,input_tokens,output_tokens", "has two columns of arrivals, arrival_s and timestamp"),
        ("timestamp,input_tokens,output_tokens,arrival_s", "has two columns of arrivals"),
        ("arrival_s,input_tokens,output_tokens,note", "unknown column 'note'. Near: model. Known: arrival_s"),
        ("arrival_s,input_tokens,output_tokens,first_token_s,finish_s", "unknown column 'first_token_s'"),
        ("arrival_s,input_tokens,output_tokens,rate", "unknown column 'rate'"),
        ("arrival_s,input_tokens,output_tokens,", "column 4 has no name"),
        (",arrival_s,input_tokens,output_tokens", "column 1 has no name"),
        ("arrival_s,input_tokens,output_tokens,INPUT_TOKENS", "the column input_tokens is given twice"),
        ("arrival_s,input_tokens,output_tokens,generatedtokens", "the column output_tokens is given twice"),
        ("arrival_s,input_tokens,output_tokens,Prefix_Group", "the column prefix_group needs a column prefix_tokens"),
        ("arrival_s,input_tokens,output_tokens,prefix_tokens", "the column prefix_tokens needs a column prefix_group"),
        ("arrival_s,input_tokens,output_tokens,think_s", "the column think_s needs a column session"),
    ],
)
def test_no_column_is_passed_over(tmp_path: Path, columns: str, said: str) -> None:
    """Every column of a file acts on the requests, or the file is refused."""
    row = ",".join(["1"] * (columns.count(",") + 1))
    with pytest.raises(InputError) as caught:
        load.requests(_file(tmp_path, f"{columns}\n{row}\n"), rate_per_s=1)
    assert f"load.csv line 1: {said}" in str(caught.value)


ENDS = st.sampled_from(["\n", "\r\n", "\r"])
BROKEN = st.sampled_from([None, "x", "-1", "1,1", '"1'])


@given(rows, ENDS, st.integers(1, 60), BROKEN, st.booleans())
@settings(max_examples=examples(150))
def test_where_blocks_end_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple], end: str, size: int, broken: str | None, last: bool
) -> None:  # type: ignore[type-arg]
    """A file read a few bytes at a time gives the same requests, or the same error, as one read at once."""
    path = tmp_path_factory.getbasetemp() / "blocks.csv"
    texts = [HEADER.strip(), *(f"{a!r},{i},{o}" for a, i, o in sorted(rows, key=lambda row: row[0]))]
    if broken is not None:
        texts.insert(1 + len(rows) // 2, f"0,{broken},3")
    path.write_bytes((end.join(texts) + (end if last else "")).encode())
    found = []
    for each in (files.MIB, size):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lines, "blocks", partial(files.blocks, size=each))
            try:
                found.append(load.requests(path))
            except InputError as error:
                found.append(str(error))
    assert type(found[0]) is type(found[1])
    assert found[0] == found[1] if isinstance(found[0], str) else _same(*found)


def _counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the blocks that are read from now on."""
    sizes: list[int] = []

    def blocks(path: Path, limit: int | None) -> Iterator[bytes]:
        for data in files.blocks(path, limit):
            sizes.append(len(data))
            yield data

    monkeypatch.setattr(lines, "blocks", blocks)
    return sizes


def test_only_the_lines_asked_for_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = HEADER + "".join(f"{n},10,5\n" for n in range(500_000))
    path = _file(tmp_path, text + "broken\n", "load.csv.gz")
    sizes = _counted(monkeypatch)
    found = load.requests(path, limit=10)
    assert found.arrival_s.tolist() == list(range(10))
    assert sum(sizes) <= files.MIB < len(text) // 2
    assert len(load.draw(ServingLoad(trace=str(path), requests=300_000))) == 300_000
    assert sum(sizes) < 2 * len(text)
    with pytest.raises(InputError, match=r"load\.csv\.gz line 500002, column arrival_s: 'broken'"):
        load.requests(path)
    cut = _file(tmp_path, HEADER + "0,1,1\n1,1,1\nbroken\n")
    assert len(load.requests(cut, limit=2)) == 2
    with pytest.raises(InputError, match="line 4"):
        load.requests(cut, limit=3)


def test_more_lines_than_are_kept_are_refused_before_any_is_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("parsed")

    path = tmp_path / "bomb.csv.gz"
    path.write_bytes(gzip.compress(HEADER.encode()) + gzip.compress(b"0,10,5\n" * 100_000) * 1400)  # 1 GB unpacked
    sizes = _counted(monkeypatch)
    monkeypatch.setattr(table, "_parse", never)
    with pytest.raises(InputError, match=r"bomb\.csv\.gz: has more than 10,000,000 lines"):
        load.requests(path)
    assert sum(sizes) < 100e6
    monkeypatch.undo()
    assert len(load.requests(path, limit=10)) == 10
    path.write_bytes(gzip.compress(HEADER.encode()) + gzip.compress(b"\n" * 1_000_000) * 20)
    with pytest.raises(InputError, match="has more than 10,000,000 lines"):
        load.requests(path, limit=10)


@pytest.mark.heavy
def test_memory_of_a_long_trace(tmp_path: Path) -> None:
    """A row takes the bytes of its numbers twice at most; the text is never there as a whole."""
    count = 400_000
    arrivals = np.arange(count) * 0.125
    text = "\n".join(map("{},512,64".format, arrivals.tolist()))
    path = _file(tmp_path, HEADER + text)
    tracemalloc.start()
    found = load.requests(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.array_equal(found.arrival_s, arrivals)
    assert peak < 2 * 24 * count + 16 * files.MIB


def test_a_trace_that_memory_cannot_hold_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def short(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(np, "loadtxt", short)
    monkeypatch.setattr(np, "concatenate", short)
    with pytest.raises(InputError, match=r"load\.csv: needs more memory than there is"):
        load.requests(_file(tmp_path, HEADER + "0,1,1\n"))


DRAWN = ServingLoad(rate_per_s=8, input_tokens=1024, output_tokens=256, requests=4000)


def test_drawn_loads() -> None:
    found = load.draw(DRAWN)
    assert len(found) == 4000
    assert found.rate_per_s == pytest.approx(8, rel=0.1)
    assert set(found.input_tokens) == {1024}
    assert set(found.output_tokens) == {256}
    assert found.arrival_s[0] == 0
    assert np.all(np.diff(found.arrival_s) >= 0)
    assert _same(found, load.draw(DRAWN))


def test_a_seed_decides_the_bytes() -> None:
    first = load.draw(ServingLoad(rate_per_s=1, input_tokens=1, output_tokens=1, requests=3, seed=7)).arrival_s
    gaps = np.random.Generator(np.random.PCG64(7)).standard_exponential(3)
    assert first.tolist() == [0.0, gaps[1], gaps[1] + gaps[2]]


def test_without_a_rate_all_come_at_once() -> None:
    assert not load.draw(ServingLoad(input_tokens=8, output_tokens=8, requests=10)).arrival_s.any()


@given(st.floats(0.01, 1e4), st.integers(2, 300))
def test_a_trace_is_stretched_to_the_rate(tmp_path_factory: pytest.TempPathFactory, rate: float, count: int) -> None:
    path = tmp_path_factory.getbasetemp() / "pattern.csv"
    if not path.exists():
        path.write_text(HEADER + "".join(f"{second},{10 + second},3\n" for second in (1, 2, 4, 8, 16, 32)))
    found = load.draw(ServingLoad(trace=str(path), rate_per_s=rate, requests=count))
    assert len(found) == count
    assert found.rate_per_s == pytest.approx(rate)
    assert np.all(np.diff(found.arrival_s) >= 0)
    assert found.input_tokens[0] == 11


def test_a_trace_is_cut_or_repeated(tmp_path: Path) -> None:
    path = str(_file(tmp_path, HEADER + "0,1,1\n1,2,2\n2,3,3\n"))
    assert len(load.draw(ServingLoad(trace=path, requests=0))) == 3
    assert load.draw(ServingLoad(trace=path, requests=2)).input_tokens.tolist() == [1, 2]
    again = load.draw(ServingLoad(trace=path, requests=7))
    assert again.input_tokens.tolist() == [1, 2, 3, 1, 2, 3, 1]
    assert again.arrival_s.tolist() == [0, 1, 2, 3, 4, 5, 6]


def test_a_burst_gets_drawn_arrivals_at_a_rate(tmp_path: Path) -> None:
    path = str(_file(tmp_path, HEADER + "5,1,1\n" * 500))
    found = load.draw(ServingLoad(trace=path, requests=0, rate_per_s=4))
    assert found.rate_per_s == pytest.approx(4, rel=0.2)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"input_tokens": None}, "--input: is missing"),
        ({"output_tokens": 0}, "--output: '0' is not a positive"),
        ({"rate_per_s": 0.0}, "--rate: '0' is not a rate"),
        ({"rate_per_s": 1e308}, "--rate: '1e+308' is not between 1e-06 and 1e+09 per second"),
        ({"rate_per_s": 1e-300}, "--rate: '1e-300' is not between 1e-06"),
        ({"rate_per_s": float("nan")}, "--rate: 'nan' is not a rate"),
        ({"requests": 0}, "--requests: '0' is not between"),
        ({"requests": 10**9}, "--requests: "),
        ({"requests": 10**8}, "--requests: '100000000' is not between 1 and 20,000,000"),
        ({"input_tokens": 10**19}, "--input: '10000000000000000000' is more than 100,000,000 tokens"),
        ({"output_tokens": 10**9}, "--output: '1000000000' is more than"),
        ({"seed": -1}, "--seed: "),
        ({"trace": "x.csv"}, "--input: a trace already gives the lengths"),
        ({"trace": "x.csv", "input_tokens": None, "output_tokens": None}, "x.csv: no such file"),
    ],
)
def test_loads_that_make_no_sense(change: dict[str, object], said: str) -> None:
    fields = {name: getattr(DRAWN, name) for name in ServingLoad.__dataclass_fields__} | change
    with pytest.raises(InputError) as caught:
        load.draw(ServingLoad(**fields))
    assert said in str(caught.value)


LATE = [(1e-6, 1000), (2e-6, 2000), (1e-5, 10_000), (1e-4, 100_000), (1e-3, 1_000_000)]


@pytest.mark.parametrize(("rate", "count"), LATE)
@pytest.mark.parametrize("rows", ["", "0,1,1\n", "0,1,1\n5,2,2\n", "0,1,1\n0,2,2\n"])
def test_no_load_goes_on_for_longer_than_a_trace_may(tmp_path: Path, rate: float, count: int, rows: str) -> None:
    """However its arrivals are made, the refusal names the least rate, and that rate is drawn."""
    if rows:
        path = str(_file(tmp_path, f"arrival_s,input_tokens,output_tokens\n{rows}"))
        late = ServingLoad(trace=path, rate_per_s=rate, requests=2 * count)
    else:
        late = ServingLoad(rate_per_s=rate, input_tokens=1, output_tokens=1, requests=2 * count)
    with pytest.raises(InputError, match=r"--rate: the last of .* at least") as caught:
        load.draw(late)
    least = float(re.search(r"at least (\S+),", str(caught.value))[1])  # type: ignore[index]
    assert 1.8 * rate < least < 2.2 * rate
    end_s = float(load.draw(dataclasses.replace(late, rate_per_s=least)).arrival_s[-1])
    assert 0.97e9 < end_s <= 1e9


def test_a_trace_is_not_repeated_beyond_that(tmp_path: Path) -> None:
    path = str(_file(tmp_path, "arrival_s,input_tokens,output_tokens\n0,1,1\n1e8,2,2\n"))
    with pytest.raises(InputError, match="--requests: the last of 30 requests would arrive after more than"):
        load.draw(ServingLoad(trace=path, requests=30))


def test_one_request_says_nothing_of_a_rate(tmp_path: Path) -> None:
    """Repeated it is a load of equal requests, drawn as any other; without a rate it cannot be repeated."""
    path = str(_file(tmp_path, "arrival_s,input_tokens,output_tokens\n7,100,10\n"))
    for count in (2, 20, 1000):
        with pytest.raises(InputError, match=r"has one request, which says nothing of the time to the next.*--rate"):
            load.draw(ServingLoad(trace=path, requests=count))
        for rate, seed in ((3.0, 0), (0.2, 5)):
            found = load.draw(ServingLoad(trace=path, rate_per_s=rate, requests=count, seed=seed))
            same = ServingLoad(input_tokens=100, output_tokens=10, rate_per_s=rate, requests=count, seed=seed)
            assert _same(found, load.draw(same))
    assert len(load.draw(ServingLoad(trace=path, requests=0))) == 1


def test_named_traces_need_the_measurements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNOMON_TRUTH", str(tmp_path))
    with pytest.raises(InputError, match="GNOMON_TRUTH"):
        load.requests("azure-conv")
    (tmp_path / "traces").mkdir()
    _file(tmp_path / "traces", HEADER + "0,1,1\n", "azure_llm_2023_conv.csv.gz")
    assert len(load.requests("azure-conv")) == 1
