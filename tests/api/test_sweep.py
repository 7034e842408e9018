"""Sweeps: one answer a line, the same bytes however the work is shared."""

from __future__ import annotations

import json
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

import gnomon
from gnomon.api import sweep as module
from gnomon.api.sweep import sweep
from gnomon.errors import InputError, MissingExtraError
from gnomon.runner import WorkerDiedError, WorkerStartError
from gnomon.store import sweep_summary

STEPS = {
    "command": "predict",
    "fixed": {"model": "llama-3.2-1b", "on": "H100"},
    "over": {"dtype": ["bf16", "fp8"], "batch": [1, 8, 0, 64]},
}
"""Two of the questions are refused: there is no batch of zero."""


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def steps(tmp_path: Path) -> Path:
    sweep(STEPS, out=tmp_path / "steps.jsonl")
    return tmp_path / "steps.jsonl"


def test_each_line_is_the_answer_to_its_question(steps: Path) -> None:
    found = lines(steps)
    assert [row["index"] for row in found] == list(range(8))
    for row in found:
        question = dict(row["question"])
        assert question.pop("command") == "predict"
        if question["batch"]:
            assert row["answer"] == gnomon.predict(**question).to_dict()
            assert list(row) == ["index", "question", "answer"]
        else:
            told = {"message": "0 is below 1", "where": "--batch", "hint": "", "code": 2}
            assert row["error"] == told and "answer" not in row


@pytest.mark.heavy
def test_processes_write_the_same_bytes(steps: Path, tmp_path: Path) -> None:
    report = sweep(STEPS, out=tmp_path / "jobs.jsonl", jobs=3)
    assert (tmp_path / "jobs.jsonl").read_bytes() == steps.read_bytes()
    assert (report.questions, report.answered, report.refused, report.found) == (8, 6, 2, 0)


def test_a_finished_sweep_is_not_run_again(steps: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = steps.read_bytes(), steps.stat().st_mtime_ns
    monkeypatch.setattr(module, "ordered", None)
    report = sweep(STEPS, out=steps)
    assert report.found == report.questions == 8
    assert (steps.read_bytes(), steps.stat().st_mtime_ns) == before


def test_a_stopped_sweep_asks_only_what_is_left(steps: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = steps.read_bytes()
    steps.write_bytes(whole[: whole.index(b"\n", whole.index(b"\n") + 1) + 7])  # two lines, and a bit of the third
    asked, real = [], module.answer
    monkeypatch.setattr(module, "answer", lambda command, one: asked.append(one[0]) or real(command, one))
    told: list[tuple[int, int]] = []
    assert sweep(STEPS, out=steps, progress=lambda *done: told.append(done)).found == 2
    assert asked == [2, 3, 4, 5, 6, 7]
    assert told == [(done, 8) for done in range(3, 9)]
    assert steps.read_bytes() == whole


def test_interrupted_it_keeps_what_was_answered(steps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = module.answer

    def interrupted(command: str, one: tuple[int, Any]) -> str:
        if one[0] == 3:
            raise KeyboardInterrupt
        return real(command, one)

    monkeypatch.setattr(module, "answer", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sweep(STEPS, out=tmp_path / "b.jsonl")
    assert len(lines(tmp_path / "b.jsonl")) == 3
    monkeypatch.setattr(module, "answer", real)
    sweep(STEPS, out=tmp_path / "b.jsonl")
    assert (tmp_path / "b.jsonl").read_bytes() == steps.read_bytes()


def test_a_worker_that_dies_is_a_row_like_any_other() -> None:
    row = json.loads(module._lost("predict", (7, {"batch": 3})))
    assert row["index"] == 7 and row["question"] == {"command": "predict", "batch": 3}
    assert row["error"]["message"] == WorkerDiedError({"batch": 3}).message
    assert row["error"]["code"] == 3


def test_a_fault_of_ours_is_a_row_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(**_: Any) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(gnomon, "fit", broken, raising=False)
    row = json.loads(module.answer("fit", (0, {"model": "m"})))
    assert row["error"] == {"message": "ZeroDivisionError: oh", "where": "", "hint": "Please report it.", "code": 3}


def test_what_it_comes_to(steps: Path) -> None:
    report = sweep(STEPS, out=steps)
    assert report.swept == ("dtype", "batch")
    assert [row["values"] for row in report.rows[:2]] == [
        {"dtype": "bf16", "batch": 1}, {"dtype": "bf16", "batch": 8},
    ]  # fmt: skip
    times = {row["index"]: row["answer"]["time_s"]["value"] for row in lines(steps) if "answer" in row}
    best = min(times, key=lambda index: times[index])
    assert report.extremes["step time"]["best"] == {"index": best, "value": times[best]}
    assert report.extremes["step time"]["worst"]["value"] == max(times.values())
    assert report.best_question == {key: lines(steps)[best]["question"][key] for key in report.best_question}
    assert report.errors == ({"message": "0 is below 1", "count": 2, "first": 2, "code": 2},)


SMALL: dict[str, dict[str, Any]] = {
    "fit": {"model": "llama-3.2-1b", "on": "H100"},
    "simulate serve": {
        "model": "llama-3.2-1b", "on": "H100", "rate": 20, "input": 100, "output": 8, "requests": 20,
    },
    "simulate train": {"model": "llama-3.2-1b", "on": "H100:8", "seq": 512, "global_batch": 16},
    "plan serve": {
        "model": "llama-3.2-1b", "fleet": "H100:1", "rate": 4, "input": 100, "output": 8, "requests": 20,
        "slo": "ttft_p90=1s", "dtypes": ["bf16"], "settings": {"max_num_seqs": 64, "max_num_batched_tokens": 2048},
    },
    "plan train": {"model": "llama-3.2-1b", "cluster": "H100:4", "seq": 512, "global_batch": 16},
    "try": {"name": "gptq", "model": "llama-3.2-1b", "on": "H100"},
}  # fmt: skip
OVER = {"fit": "context", "simulate serve": "seed", "simulate train": "micro_batch", "plan serve": "seed",
        "plan train": "tokens", "try": "context"}  # fmt: skip


@pytest.mark.parametrize("command", SMALL)
def test_any_question_can_be_swept(command: str, tmp_path: Path) -> None:
    name = OVER[command]
    asked = {"command": command, "fixed": SMALL[command], "over": {name: [1, 2]}}
    report = sweep(asked, out=tmp_path / "a.jsonl")
    assert report.refused == 0, report.errors
    schema = f"gnomon.{command.replace(' ', '.')}/1"
    assert [row["answer"]["schema"] for row in lines(tmp_path / "a.jsonl")] == [schema, schema]
    assert report.rows[0]["figures"] and set(report.rows[0]["figures"]) <= {one["figure"] for one in report.figures}
    assert command in str(report) and report.to_html().count("<h1>") == 1


def test_a_question_without_an_answer_is_told_by_its_code(tmp_path: Path) -> None:
    asked = {
        "command": "plan train",
        "fixed": {"seq": 2048, "global_batch": 8, "cluster": "H100:1"},
        "over": {"model": ["llama-3.1-70b", "llama-9"]},
    }
    sweep(asked, out=tmp_path / "a.jsonl")
    assert [row["error"]["code"] for row in lines(tmp_path / "a.jsonl")] == [4, 2]


def test_shards_joined_are_the_whole(steps: Path, tmp_path: Path) -> None:
    parts = [tmp_path / f"part-{number}.jsonl" for number in (1, 2, 3)]
    for number, part in enumerate(parts, 1):
        sweep(STEPS, out=part, shard=f"{number}/3")
    assert [row["index"] for row in lines(parts[1])] == [1, 4, 7]
    report = sweep(STEPS, out=tmp_path / "all.jsonl", join=parts)
    assert (tmp_path / "all.jsonl").read_bytes() == steps.read_bytes()
    assert report.questions == 8


@pytest.mark.parametrize("shard", ["0/3", "4/3", "x", "1/9", "1", "1/0", "-1/3"])
def test_no_such_shard(shard: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--shard"):
        sweep(STEPS, out=tmp_path / "a.jsonl", shard=shard)


def test_a_table_is_made_of_the_lines(steps: Path, tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    sweep(STEPS, out=tmp_path / "table.parquet")
    assert (tmp_path / "table.jsonl").read_bytes() == steps.read_bytes()
    where = f"'{tmp_path / 'table.parquet'}'"
    times = duckdb.sql(f'SELECT "answer.time_s.value" FROM {where} WHERE "question.batch" = 8 ORDER BY "index"')
    found = [row["answer"]["time_s"]["value"] for row in lines(steps) if row["question"]["batch"] == 8]
    assert [row[0] for row in times.fetchall()] == found
    (tmp_path / "table.parquet").unlink()
    sweep(STEPS, out=tmp_path / "table.parquet")
    assert (tmp_path / "table.parquet").exists()


def test_another_ending_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"ends in neither \.jsonl nor \.parquet"):
        sweep(STEPS, out=tmp_path / "a.csv")


def test_without_ray_its_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"gnomon\[ray\]"):
        sweep(STEPS, out=tmp_path / "a.jsonl", ray="local")


def test_a_large_sweep_is_shown_thinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_summary, "MOST_ROWS", 3)
    report = sweep(STEPS, out=tmp_path / "a.jsonl")
    assert [row["index"] for row in report.rows] == [0, 3, 7]
    assert (report.questions, report.errors[0]["count"]) == (8, 2)


@pytest.mark.parametrize(
    "rest",
    [
        '"x":1}', '"answer":null}', '"answer":[]}', '"answer":{"time_s":1}}', '"answer":{"schema":"a","b":NaN}}',
        '"error":5}', '"error":{}}', "[" * 100_000,
    ],
    ids=range(8),
)  # fmt: skip
def test_a_damaged_line_is_no_answer(steps: Path, rest: str) -> None:
    first, *others = steps.read_text().splitlines(keepends=True)
    cut = first.index('"answer"')
    steps.write_text("".join([first[:cut] + rest + "\n", *others]))
    with pytest.raises(InputError, match="line 1: is not the answer"):
        sweep(STEPS, out=steps)


def test_a_device_keeps_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").symlink_to("/dev/full")
    with pytest.raises(InputError, match="is not a regular file"):
        sweep(STEPS, out=tmp_path / "a.jsonl")


def test_files_of_a_sweep_take_the_place_of_no_other(steps: Path, tmp_path: Path, capsys: Any) -> None:
    from gnomon.cli.run import run

    sweep_file = tmp_path / "own.jsonl.sweep"
    sweep_file.write_text("command: predict\nfixed: {model: llama-3.1-8b, batch: 1}\nover: {'on': [H100, H200]}\n")
    assert run(["sweep", str(sweep_file), "--out", str(tmp_path / "own.jsonl")]) == 2
    for out, page in (("t.parquet", "t.jsonl"), ("t.jsonl", "t.jsonl.sweep")):
        assert run(["sweep", str(sweep_file), "--out", str(tmp_path / out), "--html", str(tmp_path / page)]) == 2
    assert sweep_file.read_text().startswith("command")
    (tmp_path / "b.jsonl.sweep").write_text('{"mine": 1}')
    with pytest.raises(InputError, match="is not a file of a sweep"):
        sweep(STEPS, out=tmp_path / "b.jsonl")


def test_a_table_of_another_is_made_anew(steps: Path) -> None:
    pytest.importorskip("duckdb")
    table = steps.with_suffix(".parquet")
    table.write_text("precious")
    sweep(STEPS, out=table)
    assert table.read_bytes().startswith(b"PAR1")


LENGTHS = "input_tokens,output_tokens\n"


@pytest.mark.heavy
def test_a_sweep_is_not_resumed_over_files_that_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNOMON_HOME", str(tmp_path / "home"))
    trace, out = tmp_path / "t.csv", tmp_path / "a.jsonl"
    trace.write_text(LENGTHS + "100,8\n" * 20)
    fixed = {"model": "llama-3.2-1b", "on": "H100", "trace": str(trace), "rate": 20}
    asked = {"command": "simulate serve", "fixed": fixed, "over": {"seed": [1, 2, 3]}}
    sweep(asked, out=out)
    whole = out.read_bytes()
    out.write_bytes(b"".join(whole.splitlines(keepends=True)[:1]))
    before = trace.read_text()
    trace.write_text(LENGTHS + "100,9\n" * 20)
    with pytest.raises(InputError, match=rf"before '{trace}' changed.*a new --out, or put the file back"):
        sweep(asked, out=out)
    trace.write_text(before)
    own = tmp_path / "home" / "profiles" / "h100-sxm-80gb.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("calibrated meanwhile")
    with pytest.raises(InputError, match=r"'profiles/h100-sxm-80gb.yaml' was added"):
        sweep(asked, out=out)
    own.unlink()
    sweep(asked, out=out)
    assert out.read_bytes() == whole


def test_a_file_that_changes_while_it_runs_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace, real = tmp_path / "t.csv", module.answer
    trace.write_text(LENGTHS + "100,8\n" * 20)

    def meddled(command: str, one: tuple[int, Any]) -> str:
        trace.write_text(LENGTHS + f"100,{one[0] + 8}\n" * 20)
        return real(command, one)

    monkeypatch.setattr(module, "answer", meddled)
    fixed = {"model": "llama-3.2-1b", "on": "H100", "trace": str(trace), "rate": 20}
    asked = {"command": "simulate serve", "fixed": fixed, "over": {"seed": [1, 2]}}
    with pytest.raises(InputError, match="changed while the sweep ran"):
        sweep(asked, out=tmp_path / "a.jsonl")


def test_faults_are_asked_again_and_cost_the_exit_code(
    steps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from gnomon.cli.run import run

    file, out = tmp_path / "sweep.yaml", tmp_path / "b.jsonl"
    file.write_text(json.dumps(STEPS))
    real = gnomon.predict

    @wraps(real)
    def broken(**given: Any) -> Any:
        if given["batch"] == 8:
            raise ZeroDivisionError("oh")
        return real(**given)

    monkeypatch.setattr(gnomon, "predict", broken, raising=False)
    assert run(["sweep", str(file), "--out", str(out)]) == 3
    said = capsys.readouterr()
    assert said.err.startswith(f"error: {out}: 2 of 8 questions ended in a fault of Gnomon.")
    assert "4 answered, 2 refused, 2 failed" in said.out and "failed: 2 questions, the first is #1: ZeroD" in said.out
    assert sum("failed" in line for line in said.out.splitlines() if line.strip()[:1].isdigit()) == 3
    monkeypatch.setattr(gnomon, "predict", real, raising=False)
    told: list[tuple[int, int]] = []
    report = sweep(STEPS, out=out, progress=lambda *done: told.append(done))
    assert (report.faults, report.found, told) == (0, 6, [(1, 2), (2, 2)])
    assert out.read_bytes() == steps.read_bytes()
    assert run(["sweep", str(file), "--out", str(out)]) == 0


def test_what_does_not_fit_is_marked_and_never_the_best(tmp_path: Path) -> None:
    fixed = {"model": "llama-3.1-8b", "on": "H100:8", "seq": 4096, "global_batch": 64}
    report = sweep({"command": "simulate train", "fixed": fixed, "over": {"tp": [1, 4]}}, out=tmp_path / "a.jsonl")
    assert [row["fits"] for row in report.rows] == [False, True]
    quickest = min(report.rows, key=lambda row: row["figures"]["step time"]["value"])
    assert quickest["index"] == 0 and report.best_question["tp"] == 4
    head, first, second = (line.split() for line in str(report).splitlines()[3:6])
    assert (head[-1], first[-1], second[-1]) == ("fits", "no", "yes")
    assert "does not fit" in report.to_html()


def test_a_row_whose_workers_never_start_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dead(*_: Any, **__: Any) -> Any:
        raise WorkerStartError((5, {"batch": 3}))
        yield

    monkeypatch.setattr(module, "ordered", dead)
    with pytest.raises(WorkerStartError, match=r"question #5, \{'batch': 3\}.*fewer jobs"):
        sweep(STEPS, out=tmp_path / "a.jsonl", jobs=2)
