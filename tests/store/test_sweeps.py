"""Files of answers: cut off anywhere they go on, and nothing is added to what belongs to somebody else."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import gnomon
from gnomon.errors import InputError, MissingExtraError
from gnomon.spec.sweep import Sweep, compact
from gnomon.store.sweeps import SweepPart, append, joined, opened, rows, to_parquet

SWEEP = Sweep(command="predict", fixed={"model": "m"}, axes=(({"batch": 1}, {"batch": 2}, {"batch": 3}),))
PART = SweepPart(sweep=SWEEP)


def line(index: int, sweep: Sweep = SWEEP) -> str:
    question = {"command": sweep.command} | sweep.question(index)
    return compact({"index": index, "question": question, "answer": {"schema": "a", "time_s": index / 2, "text": "é"}})


def filled(path: Path, count: int, part: SweepPart = PART) -> Path:
    with opened(path, part) as begun:
        for place in range(begun.done, begun.done + count):
            append(begun.file, line(part.index(place), part.sweep))
    return path


def count_of(path: Path, part: SweepPart = PART) -> int:
    with opened(path, part) as begun:
        return begun.done


def test_a_file_is_gone_on_with(tmp_path: Path) -> None:
    path = filled(tmp_path / "a.jsonl", 2)
    assert count_of(path) == 2
    assert count_of(filled(path, 1)) == 3
    assert path.read_text() == "".join(line(index) + "\n" for index in range(3))
    assert [row["index"] for row in rows(path)] == [0, 1, 2]


@pytest.mark.heavy
def test_cut_off_at_any_byte_it_comes_out_the_same(tmp_path: Path) -> None:
    whole = filled(tmp_path / "whole.jsonl", 3).read_bytes()
    for end in range(len(whole)):
        path = filled(tmp_path / f"{end}.jsonl", 3)
        path.write_bytes(whole[:end])
        done = count_of(path)
        assert done == whole[:end].count(b"\n")
        filled(path, 3 - done)
        assert path.read_bytes() == whole


def test_killed_before_the_first_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.touch()
    assert count_of(path) == 0
    path.with_name("a.jsonl.sweep").unlink()
    assert count_of(path) == 0


def test_another_sweeps_file_is_refused(tmp_path: Path) -> None:
    path = filled(tmp_path / "a.jsonl", 1)
    before = path.read_bytes()
    other = Sweep(command="predict", fixed={"model": "m"}, axes=(({"batch": 2}, {"batch": 1}, {"batch": 3}),))
    with pytest.raises(InputError, match=r"a\.jsonl: holds the answers of another sweep"):
        count_of(path, SweepPart(sweep=other))
    with pytest.raises(InputError, match="holds shard 1/1 of this sweep"):
        count_of(path, SweepPart(sweep=SWEEP, first=1, every=2))
    assert path.read_bytes() == before


def test_answers_of_another_version_are_not_mixed_with_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = filled(tmp_path / "a.jsonl", 1)
    monkeypatch.setattr(gnomon, "__version__", "99.0", raising=False)
    with pytest.raises(InputError, match=r"holds answers of Gnomon .*, and this is 99\.0"):
        count_of(path)


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        ({"t.csv": "a", "u.csv": "b"}, {"t.csv": "a", "u.csv": "c"}, "before 'u.csv' changed"),
        ({"t.csv": "a"}, {}, "before 't.csv' was deleted"),
        ({}, {"profiles/h100.yaml": "a"}, "before 'profiles/h100.yaml' was added"),
    ],
)
def test_answers_from_other_files_are_not_mixed_with_ours(
    tmp_path: Path, before: dict[str, str], now: dict[str, str], told: str
) -> None:
    path = filled(tmp_path / "a.jsonl", 1, replace(PART, files=before))
    assert count_of(path, replace(PART, files=before)) == 1
    with pytest.raises(InputError, match=rf"a\.jsonl: .*{told}.*--out"):
        count_of(path, replace(PART, files=now))
    first, second = shards(tmp_path, 2)
    with pytest.raises(InputError, match="was added"):
        joined([first, second], tmp_path / "all.jsonl", replace(PART, files={"t.csv": "a"}))


def fault(index: int, code: int = 3) -> str:
    question = {"command": SWEEP.command} | SWEEP.question(index)
    error = {"message": "oh", "where": "", "hint": "", "code": code}
    return compact({"index": index, "question": question, "error": error})


def test_faults_are_asked_again_in_their_places(tmp_path: Path) -> None:
    whole = filled(tmp_path / "whole.jsonl", 3).read_bytes()
    path = filled(tmp_path / "a.jsonl", 3)
    path.write_text("\n".join([fault(0), line(1), fault(2), line(2)[:9]]))
    asked: list[int] = []

    def again(places: Sequence[int]) -> Iterator[str]:
        for place in places:
            asked.append(place)
            yield line(place)

    with opened(path, PART, again) as begun:
        assert (begun.done, begun.repeated) == (3, 2)
    assert asked == [0, 2] and path.read_bytes() == whole
    with opened(path, PART, again) as begun:
        assert (begun.done, begun.repeated) == (3, 0)
    assert asked == [0, 2]


def test_killed_while_faults_are_asked_again_nothing_is_lost(tmp_path: Path) -> None:
    path = filled(tmp_path / "a.jsonl", 3)
    path.write_text("\n".join([fault(0), line(1), fault(2), ""]))
    before = path.read_bytes()

    def stopped(places: Sequence[int]) -> Iterator[str]:
        yield line(places[0])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        with opened(path, PART, stopped):
            pass
    assert path.read_bytes() == before
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a.jsonl", "a.jsonl.sweep"]


def test_refusals_are_final(tmp_path: Path) -> None:
    path = filled(tmp_path / "a.jsonl", 3)
    path.write_text("\n".join([fault(0, 2), line(1), fault(2, 4), ""]))
    with opened(path, PART, lambda _: pytest.fail("asked again")) as begun:
        assert (begun.done, begun.repeated) == (3, 0)


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    path.write_text("mine\n")
    with pytest.raises(InputError, match="is not the file of a sweep"):
        count_of(path)
    assert path.read_text() == "mine\n"


@pytest.mark.parametrize("place", [0, 1])
def test_a_damaged_line_is_named(tmp_path: Path, place: int) -> None:
    path = filled(tmp_path / "a.jsonl", 3)
    lines = path.read_text().splitlines(keepends=True)
    lines[place] = lines[place][:30] + "\n"
    path.write_text("".join(lines))
    with pytest.raises(InputError, match=f"line {place + 1}: is not the answer to this question of the sweep"):
        count_of(path)


def test_a_line_too_many_is_refused(tmp_path: Path) -> None:
    path = filled(tmp_path / "a.jsonl", 3)
    path.write_text(path.read_text() + line(2) + "\n")
    with pytest.raises(InputError, match="line 4"):
        count_of(path)


def test_two_sweeps_do_not_write_one_file(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with opened(path, PART):
        with pytest.raises(InputError, match="is being written by another sweep"):
            count_of(path)
    assert count_of(path) == 0


def shards(tmp_path: Path, count: int) -> list[Path]:
    parts = [SweepPart(sweep=SWEEP, first=first, every=count) for first in range(count)]
    return [filled(tmp_path / f"{part.first}.jsonl", len(part), part) for part in parts]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_shards_join_into_the_file_of_all(tmp_path: Path, count: int) -> None:
    files = shards(tmp_path, count)
    joined(files[::-1], tmp_path / "all.jsonl", PART)
    assert (tmp_path / "all.jsonl").read_bytes() == filled(tmp_path / "whole.jsonl", 3).read_bytes()
    assert count_of(tmp_path / "all.jsonl") == 3


def test_shards_that_do_not_make_a_whole(tmp_path: Path) -> None:
    first, second = shards(tmp_path, 2)
    with pytest.raises(InputError, match="is shard 1/2, and 1 files are joined"):
        joined([first], tmp_path / "all.jsonl", PART)
    with pytest.raises(InputError, match="is shard 1 of 2, and so is"):
        joined([first, first], tmp_path / "all.jsonl", PART)
    second.write_text("")
    with pytest.raises(InputError, match=r"has 0 of 1 answers.*--shard 2/2"):
        joined([first, second], tmp_path / "all.jsonl", PART)
    assert not (tmp_path / "all.jsonl").exists()


def test_lines_as_a_table(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    source = tmp_path / "a.jsonl"
    found = [
        {"index": 0, "question": {"batch": 1, "it's": None}, "answer": {"time_s": {"value": 1}, "ops": [1, "a"]}},
        {"index": 1, "question": {"batch": 2}, "answer": {"time_s": {"value": 0.5}, "fits": True, "empty": {}}},
        {"index": 2, "question": {"batch": "x"}, "error": {"message": "no", "where": "", "hint": ""}},
    ]
    source.write_text("".join(json.dumps(row) + "\n" for row in found))
    to_parquet(source, tmp_path / "a.parquet")
    table = duckdb.sql(f"SELECT * FROM '{tmp_path / 'a.parquet'}' ORDER BY \"index\"")
    assert dict(zip(table.columns, table.types, strict=True)) == {
        "index": "BIGINT", "question.batch": "VARCHAR", "question.it's": "VARCHAR", "answer.time_s.value": "DOUBLE",
        "answer.ops": "VARCHAR", "answer.fits": "BOOLEAN", "answer.empty": "VARCHAR", "error.message": "VARCHAR",
        "error.where": "VARCHAR", "error.hint": "VARCHAR",
    }  # fmt: skip
    assert table.fetchall() == [
        (0, "1", None, 1.0, '[1,"a"]', None, None, None, None, None),
        (1, "2", None, 0.5, None, True, "{}", None, None, None),
        (2, "x", None, None, None, None, None, "no", "", ""),
    ]
    first = (tmp_path / "a.parquet").read_bytes()
    to_parquet(source, tmp_path / "a.parquet")
    assert (tmp_path / "a.parquet").read_bytes() == first
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "a.parquet"]


def test_without_duckdb_its_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(MissingExtraError, match=r"gnomon\[parquet\]"):
        to_parquet(filled(tmp_path / "a.jsonl", 1), tmp_path / "a.parquet")
