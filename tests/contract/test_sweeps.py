"""What scripts rely on of `gnomon sweep` and `gnomon compare`: flags, files, JSON and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.contract.asking import next_lines, say
from tests.contract.shapes import check, estimate, number, optional

import gnomon
from gnomon.cli.run import run

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "sweep.yaml"
SMALL = "command: predict\nfixed: {model: llama-3.2-1b, on: H100}\nover: {batch: [1, 2, 0]}\n"
SWEEP = {
    "schema": str,
    "title": str,
    "command": str,
    "questions": int,
    "answered": int,
    "refused": int,
    "out": str,
    "swept": [str],
    "figures": [{"figure": str, "unit": str}],
    "rows": [{"index": int, "values": dict, "figures": dict, "error": optional({"message": str})}],
    "extremes": dict,
    "errors": [{"message": str, "count": int, "first": int}],
    "best_question": dict,
}
COMPARED = {
    "schema": str,
    "title": str,
    "kind": str,
    "names": [str],
    "on": dict,
    "differs": [{"field": str, "values": list}],
    "rows": [{"figure": str, "unit": str, "values": list, "ratios": list}],
    "plans": list,
}


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("small.yaml").write_text(SMALL)
    return tmp_path


def test_a_line_an_answer() -> None:
    said = say("sweep small.yaml --out steps.jsonl --json")
    assert said.code == 0, said.err
    check(said.answer, SWEEP)
    assert said.answer["schema"] == "gnomon.sweep/1"
    rows = [json.loads(line) for line in Path("steps.jsonl").read_text().splitlines()]
    check(rows[:2], [{"index": int, "question": {"command": str, "batch": int}, "answer": {"time_s": estimate}}])
    check(rows[2], {"index": int, "question": dict, "error": {"message": str, "where": str, "hint": str}})
    assert gnomon.sweep("small.yaml", out="steps.jsonl").to_dict() == said.answer


@pytest.mark.heavy
def test_the_same_bytes_whoever_works_and_however_often() -> None:
    first = say("sweep small.yaml --out a.jsonl --json")
    say("sweep small.yaml --out b.jsonl --jobs 2 --json")
    assert Path("a.jsonl").read_bytes() == Path("b.jsonl").read_bytes()
    again = say("sweep small.yaml --out a.jsonl --json")
    assert again.out == first.out and again.err == "nothing to do: all 3 answers are in the file\n"


def test_what_it_proposes_next_answers() -> None:
    said = say("sweep small.yaml --out a.jsonl")
    (proposed,) = next_lines(said.out)
    assert say(proposed).code == 0, proposed


def test_shards_and_their_join() -> None:
    say("sweep small.yaml --out whole.jsonl")
    for part in "12":
        assert say(f"sweep small.yaml --shard {part}/2 --out part-{part}.jsonl").code == 0
    joined = ["--join", "part-1.jsonl", "--join", "part-2.jsonl"]
    assert run(["sweep", "small.yaml", *joined, "--out", "all.jsonl"]) == 0
    assert Path("all.jsonl").read_bytes() == Path("whole.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("line", "where"),
    [
        ("sweep absent.yaml --out a.jsonl", "absent.yaml"),
        ("sweep small.yaml --out a.csv", "--out"),
        ("sweep small.yaml --out nowhere/a.jsonl", "--out"),
        ("sweep small.yaml --out small.yaml", "--out"),
        ("sweep small.yaml --out a.jsonl --shard 5/4", "--shard"),
        ("sweep small.yaml --out a.jsonl --jobs 0", "--jobs"),
        ("sweep small.yaml --out a.jsonl --ray 127.0.0.1:1", "ray"),
        ("sweep small.yaml --out a.jsonl --join small.yaml", "small.yaml"),
        ("sweep small.yaml --out a.jsonl --join a.jsonl", "--out"),
        ("sweep small.yaml --out a.jsonl --join b.jsonl --jobs 2", "--jobs"),
        ("sweep small.yaml --out a.jsonl --join b.jsonl --shard 1/2", "--shard"),
        ("compare small.yaml", "PLAN"),
        ("compare small.yaml small.yaml", "small.yaml"),
        ("compare no-such-run no-such-run", "no-such-run"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_code_2(line: str, where: str) -> None:
    said = say(f"{line} --json")
    assert said.code == 2, said.err
    assert said.err.startswith("error: ") and said.err.count("\n") == 1 and where in said.err
    check(said.answer, {"error": {"message": str, "where": str, "hint": str}})


def test_an_answer_of_another_sweep_stays() -> None:
    say("sweep small.yaml --out a.jsonl")
    before = Path("a.jsonl").read_bytes()
    Path("small.yaml").write_text(SMALL.replace("[1, 2, 0]", "[1, 2]"))
    said = say("sweep small.yaml --out a.jsonl")
    assert said.code == 2 and "holds the answers of another sweep" in said.err
    assert Path("a.jsonl").read_bytes() == before


def test_a_page_of_it() -> None:
    assert say("sweep small.yaml --out a.jsonl --html page.html").code == 0
    text = Path("page.html").read_text()
    assert "<svg" in text and "gnomon sweep small.yaml" in text


def test_a_table_of_it() -> None:
    pytest.importorskip("duckdb")
    assert say("sweep small.yaml --out a.parquet").code == 0
    assert Path("a.parquet").read_bytes()[:4] == b"PAR1" and Path("a.jsonl").exists()


@pytest.mark.heavy
def test_the_example_runs() -> None:
    said = say(f"sweep {EXAMPLE} --out a.jsonl --jobs 2 --json")
    assert said.code == 0, said.err
    assert (said.answer["questions"], said.answer["refused"]) == (32, 0)


@pytest.mark.heavy
def test_plans_side_by_side() -> None:
    plan = (ROOT / "examples" / "plan.yaml").read_text()
    Path("one.yaml").write_text(plan)
    Path("other.yaml").write_text(plan.replace("{tp: 4}", "{tp: 2}"))
    said = say("compare one.yaml other.yaml --html page.html --json")
    assert said.code == 0, said.err
    check(said.answer, COMPARED)
    assert said.answer["schema"] == "gnomon.compare/1"
    assert said.answer["differs"] == [{"field": "strategy.tp", "values": [4, 2]}]
    for row in said.answer["rows"]:
        assert len(row["values"]) == len(row["ratios"]) == 2
        check(row["ratios"], [optional(number)])
    assert Path("page.html").exists()
    assert gnomon.compare("one.yaml", "other.yaml").to_dict() == said.answer
    text = say("compare one.yaml other.yaml")
    assert "strategy.tp" in text.out and say(next_lines(text.out)[0]).code == 0


def test_a_training_plan_and_a_serving_plan() -> None:
    say("simulate train llama-3.2-1b --on H100:8 --seq 512 --global-batch 16")
    said = say(f"compare last {ROOT / 'examples' / 'plan.yaml'}")
    assert said.code == 2 and "the first is a training plan" in said.err


def test_values_have_their_intervals() -> None:
    say("predict llama-3.2-1b --on H100 --batch 8 --context 100")
    said = say("compare last last --json")
    check(said.answer["rows"][0]["values"], [{"value": number, "low": number, "high": number}])
    assert said.answer["differs"] == []
