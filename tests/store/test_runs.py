"""The history: what was saved comes back by any of its names, and nothing about it can stop an answer."""

from __future__ import annotations

import gzip
import json
import os
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gnomon import load, store
from gnomon.errors import InputError, UnknownNameError
from gnomon.paths import write_text
from gnomon.spec import EngineChoice, Goal, Plan, Strategy
from gnomon.spec.plan_dict import plan_to_dict
from gnomon.store import runs

PLAN = Plan(
    model="llama-3.1-8b",
    chip="H100-SXM-80GB",
    replicas=1,
    strategy=Strategy(),
    dtype="bf16",
    kv_dtype="bf16",
    engine=EngineChoice(version="0.24.0"),
    goals=(Goal("ttft", "p90", 1.0), Goal("e2e", "mean", 2.0)),
)


@pytest.fixture(autouse=True)
def _quiet_so_far() -> None:
    runs._warn.cache_clear()


def test_what_was_saved_comes_back() -> None:
    payload = {"schema": "gnomon.predict/1", "time_s": {"value": 0.1}, "list": [1, None, "x"]}
    id = store.save("predict", payload)
    assert id.startswith("predict-")
    assert len(id.partition("-")[2]) == 8
    for ref in (id, "last", id[:11], id.partition("-")[2], id.partition("-")[2][:4]):
        assert store.load(ref) == payload


@given(
    st.dictionaries(st.text(max_size=5), st.none() | st.integers() | st.floats(allow_nan=False) | st.text(), max_size=4)
)
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_payload_comes_back(payload: dict[str, object]) -> None:
    assert store.load(store.save("x", payload)) == payload


def test_an_id_is_its_content() -> None:
    one, other = store.save("predict", {"a": 1, "b": 2}), store.save("predict", {"b": 2, "a": 1})
    assert one == other
    assert store.save("predict", {"a": 2}) != one
    assert len(store.history()) == 2


def test_the_newest_first() -> None:
    ids = [store.save("predict", {"n": n}) for n in range(5)]
    assert [entry.id for entry in store.history()] == ids[::-1]
    assert [entry.id for entry in store.history(2)] == ids[:2:-1]
    store.save("predict", {"n": 0})
    assert store.entry("last").id == ids[0]
    assert store.entry("last").saved_s > 1.7e9


def test_the_last_of_a_kind() -> None:
    store.save("plan.serve", {"n": 1})
    store.save("predict", {"n": 2})
    assert store.load("last", kind="plan") == {"n": 1}
    with pytest.raises(InputError, match="no 'fit' run in the history"):
        store.load("last", kind="fit")


def test_the_history_does_not_grow_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "KEEP", 3)
    ids = [store.save("predict", {"n": n}) for n in range(6)]
    assert [entry.id for entry in store.history()] == ids[:2:-1]


def test_results_and_arrays_are_kept() -> None:
    id = store.save("predict", {"draws": np.arange(3), "value": np.float64(1.5), "path": Path("x")})
    assert store.load(id) == {"draws": [0, 1, 2], "value": 1.5, "path": "x"}


@pytest.mark.parametrize("ref", ["", "nothing", "predict-00000000", "\0", "../x"])
def test_an_unknown_run(ref: str) -> None:
    store.save("predict", {})
    with pytest.raises(UnknownNameError, match="unknown run"):
        store.load(ref)


def test_a_beginning_of_two_runs() -> None:
    store.save("predict", {"n": 1})
    store.save("predict", {"n": 2})
    with pytest.raises(InputError, match="begins more than one run"):
        store.load("predict")


def test_nothing_yet() -> None:
    assert store.history() == ()
    with pytest.raises(InputError, match="no run in the history"):
        store.load("last")
    with pytest.raises(UnknownNameError):
        store.load("predict-1")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"schema": "gnomon.run/1"}', '{"schema": 3, "payload": {}}'])
def test_a_damaged_run(own_history: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = store.save("predict", {"n": 1}), store.save("predict", {"n": 2})
    next((own_history / "runs").glob(f"*{bad}*")).write_bytes(gzip.compress(text.encode()))
    assert [entry.id for entry in store.history()] == [good]
    assert store.load("last") == {"n": 1}
    assert capsys.readouterr().err.count("is a damaged run") == 1
    with pytest.raises(InputError, match="is a damaged run"):
        store.load(bad)


def test_strangers_in_the_folder(own_history: Path) -> None:
    store.save("predict", {"n": 1})
    (own_history / "runs" / "notes.txt").write_text("hello")
    (own_history / "runs" / ".new-abc").write_text("{")
    assert len(store.history()) == 1


@pytest.mark.parametrize("place", ["file", "file/inside", "/proc/gnomon", "/dev/null/x"])
def test_a_history_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GNOMON_HOME", place)
    ids = {store.save("predict", {"n": 1}), store.save("predict", {"n": 1})}
    assert len(ids) == 1
    assert store.history() == ()
    assert capsys.readouterr().err.count("not kept in the history") == 1


def test_a_whole_file_or_none(own_history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    store.save("predict", {"n": 1})
    monkeypatch.setattr(Path, "replace", full)
    store.save("predict", {"n": 2})
    assert len(list((own_history / "runs").iterdir())) == 1


def test_plans_by_any_name(tmp_path: Path) -> None:
    load.write_plan(PLAN, tmp_path / "plan.yaml")
    written = plan_to_dict(PLAN)
    whole = store.save("plan", written)
    best = store.save("plan.serve", {"best": {"plan": written, "usd_h": 3.0}})
    held = store.save("x", {"plan": written})
    for ref in (tmp_path / "plan.yaml", str(tmp_path / "plan.yaml"), whole, best, held, held[:6], "last"):
        assert store.resolve_plan(ref) == PLAN


def test_last_is_the_newest_answer_whether_it_holds_a_plan_or_not() -> None:
    best = store.save("plan.serve", {"best": plan_to_dict(PLAN)})
    assert store.resolve_plan("last") == PLAN
    other = store.save("predict", {"n": 1})
    for ref, said in (("last", f"the last answer, {other}, is of `gnomon predict`"), (other, f"the run '{other}'")):
        with pytest.raises(InputError, match=f"{said}.* holds no plan. The newest run that holds one is {best}"):
            store.resolve_plan(ref)
    assert store.resolve_plan(best) == PLAN
    assert store.entry("last").id == other


def test_no_plan_to_be_found(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no run in the history"):
        store.resolve_plan("last")
    store.save("papers", {"n": 1})
    with pytest.raises(InputError, match=r"`gnomon papers` and holds no plan. `gnomon plan`.* make one"):
        store.resolve_plan("last")
    with pytest.raises(InputError, match="no such file"):
        store.resolve_plan(str(tmp_path / "x.yaml"))
    for ref in ("nothing", "", "a\0b", "~nobody-here", "x" * 5000):
        with pytest.raises(InputError):
            store.resolve_plan(ref)


def test_a_damaged_plan_names_its_run() -> None:
    id = store.save("plan.serve", {"best": plan_to_dict(PLAN) | {"replicas": 0}})
    with pytest.raises(InputError, match=f"run {id}, field best.replicas|run {id}, field replicas"):
        store.resolve_plan(id)


def _record(folder: Path, id: str) -> dict[str, object]:
    """What the file of an entry holds."""
    file = next((folder / "runs").glob(f"*{id}.json.gz"))
    return dict(json.loads(gzip.decompress(file.read_bytes())))


def test_the_file_is_packed_json(own_history: Path) -> None:
    id = store.save("predict", {"n": 1})
    record = _record(own_history, id)
    assert (record["schema"], record["id"], record["payload"]) == ("gnomon.run/1", id, {"n": 1})


def test_plain_files_of_earlier_versions_are_read_and_replaced(own_history: Path) -> None:
    id = store.save("predict", {"n": 1})
    packed = next((own_history / "runs").glob("*.json.gz"))
    packed.with_suffix("").write_text(json.dumps(_record(own_history, id)))
    packed.unlink()
    assert store.load(id) == store.load("last") == {"n": 1}
    assert store.save("predict", {"n": 1}) == id
    assert [file.suffix for file in (own_history / "runs").iterdir()] == [".gz"]


def test_long_lists_are_kept_small(own_history: Path) -> None:
    """A plan of a hundred thousand ranks was seven megabytes."""
    ranks = [{"rank": rank, "peak_memory_bytes": 6.4e10 + rank % 16} for rank in range(100_000)]
    id = store.save("plan.train", {"best": {"ranks": ranks}})
    assert sum(file.stat().st_size for file in (own_history / "runs").iterdir()) < 1_000_000
    assert store.load(id) == {"best": {"ranks": ranks}}


def test_the_history_is_bounded_in_bytes(own_history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest go first; the newest stays, however large."""
    source = random.Random(0)
    payloads = [{"n": n, "noise": source.randbytes(3000).hex()} for n in range(8)]
    ids = [store.save("predict", payload) for payload in payloads]
    each = max(file.stat().st_size for file in (own_history / "runs").iterdir())
    monkeypatch.setattr(runs, "KEEP_BYTES", 3 * each)
    ids.append(store.save("predict", {"n": 8, "noise": source.randbytes(3000).hex()}))
    assert [entry.id for entry in store.history()] == ids[:-4:-1]
    monkeypatch.setattr(runs, "KEEP_BYTES", 10)
    last = store.save("predict", {"n": 9, "noise": source.randbytes(3000).hex()})
    assert [entry.id for entry in store.history()] == [last]


def test_an_answer_too_large_for_the_history(
    own_history: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runs, "MAX_BYTES", 1000)
    store.save("predict", {"n": "x" * 2000})
    assert store.history() == ()
    assert "not kept in the history: it is larger than" in capsys.readouterr().err


def test_what_killed_writers_left_is_cleared(own_history: Path) -> None:
    store.save("predict", {"n": 1})
    folder = own_history / "runs"
    old, new = (
        folder / ".00.predict-1.json.gz.77.0123abcd.partial",
        folder / ".00.predict-2.json.gz.78.0123abcd.partial",
    )
    kept = [
        folder / name for name in ("notes.partial", ".notes.partial", ".a.77.0123abc.partial", "a.77.0123abcd.partial")
    ]
    for file in (old, new, *kept):
        file.write_text("{")
        os.utime(file, (1, 1))
    os.utime(new)
    store.save("predict", {"n": 2})
    assert not old.exists()
    assert all(file.exists() for file in (new, *kept))


def test_a_file_written_again_clears_its_own_leftovers(tmp_path: Path) -> None:
    mine, other = tmp_path / ".out.csv.77.0123abcd.partial", tmp_path / ".in.csv.77.0123abcd.partial"
    for file in (mine, other):
        file.write_text("half")
        os.utime(file, (1, 1))
    write_text(tmp_path / "out.csv", "all")
    assert sorted(path.name for path in tmp_path.iterdir()) == [other.name, "out.csv"]


def test_two_that_tidy_up_at_once(own_history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that another process has just removed costs nothing."""
    monkeypatch.setattr(runs, "KEEP", 2)
    for n in range(3):
        store.save("predict", {"n": n})
    listed = runs._sorted
    gone = own_history / "runs" / "00000000000000000001.predict-00000000.json.gz"
    monkeypatch.setattr(runs, "_sorted", lambda folder: [*listed(folder), gone])
    store.save("predict", {"n": 3})
    monkeypatch.undo()
    monkeypatch.setenv("GNOMON_HOME", str(own_history))
    assert [entry.payload["n"] for entry in store.history()] == [3, 2]


def test_the_usual_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GNOMON_HOME")
    assert store.home().name == "gnomon"


@pytest.mark.parametrize("saved", ["NaN", "Infinity", "-1", "1e300", "1" + "0" * 400, "null", '"soon"'])
def test_an_entry_from_no_time(own_history: Path, saved: str) -> None:
    good, bad = store.save("predict", {"n": 1}), store.save("predict", {"n": 2})
    record = {"schema": "gnomon.run/1", "id": bad, "kind": "predict", "saved_s": 0, "payload": {}}
    file = next((own_history / "runs").glob(f"*{bad}*"))
    file.write_bytes(gzip.compress(json.dumps(record).replace('"saved_s": 0', f'"saved_s": {saved}').encode()))
    assert [entry.id for entry in store.history()] == [good]
    with pytest.raises(InputError, match="is a damaged run"):
        store.load(bad)


def test_a_pipe_among_the_runs(own_history: Path) -> None:
    good, bad = store.save("predict", {"n": 1}), store.save("predict", {"n": 2})
    file = next((own_history / "runs").glob(f"*{bad}*"))
    file.unlink()
    os.mkfifo(file)
    assert [entry.id for entry in store.history()] == [good]
    assert store.load("last") == {"n": 1}


@pytest.mark.parametrize("limit", [-1, 10**20])
def test_impossible_lengths(limit: int) -> None:
    with pytest.raises(InputError, match="cannot be listed"):
        store.history(limit)


@pytest.mark.parametrize("digits", ["09999999999999999999", "99999999999999999999", "999999999999999999999", "0" * 20])
def test_the_newest_answer_is_last_whatever_names_are_there(digits: str) -> None:
    first = store.save("predict", {"a": 1})
    (file,) = (store.home() / "runs").iterdir()
    file.rename(file.with_name(f"{digits}.{first}.json.gz"))
    for number in range(3):
        newest = store.save("predict", {"b": number})
        assert store.entry("last").id == newest == store.history()[0].id
    assert len(store.history()) == 4


def test_a_name_without_a_time_is_the_oldest() -> None:
    strange, plain = store.save("predict", {"a": 1}), store.save("predict", {"a": 2})
    for file in (store.home() / "runs").iterdir():
        if strange in file.name:
            file.rename(file.with_name(f"x.{strange}.json.gz"))
    assert [entry.id for entry in store.history()] == [plain, strange]
    assert store.save("predict", {"a": 3}) == store.entry("last").id
