"""A calibration killed anywhere goes on to the same profile; what is no table of ours is refused with the reason."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.calibrate.fake_bench import H200, HEAD, FakeBench, Killed, small

import gnomon
from gnomon.calibrate.collect import COLUMNS, Log
from gnomon.calibrate.measure import CalibrationRun
from gnomon.calibrate.measured import profile
from gnomon.calibrate.plan_file import plan_path
from gnomon.calibrate.shapes import Design, designs
from gnomon.errors import CalibrationError

KINDS = {"experts": "moe", "attention_decode": "attention_decode"}


def _designs() -> list[Design]:
    found = {design.name: design for design in designs(("attention", "moe"), vllm=False)}
    return [small(found[name], 24, 8) for name in ("attention.torch", "moe.torch")]


def _run(path: Path, last: int | None = None, budget_s: float = 1e9) -> dict[str, int]:
    log = Log.open(path, HEAD)
    return CalibrationRun(log=log, bench=FakeBench(KINDS, last), chip=H200, budget_s=budget_s).measure(_designs())


def _profile(path: Path) -> str:
    log = Log.open(path, HEAD)
    made = profile(path, H200, date=log.head["date"], versions=log.head["versions"])
    return yaml.safe_dump(made, sort_keys=False)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, str]:
    path = tmp_path_factory.mktemp("unbroken") / "t.csv"
    counts = _run(path)
    assert counts["measured"] > 60
    assert counts["skipped"] > 2
    return path.read_text(), plan_path(path).read_text(), _profile(path)


def _cut(path: Path, letters: int) -> None:
    path.write_text(path.read_text()[:-letters])


def _cut_plan(path: Path) -> None:
    """The head is on disk before the first row is measured."""
    if path.read_text().count("\n") > 1:
        _cut(path, 5)


HURTS: dict[str, Callable[[Path], None]] = {
    "between rows": lambda path: None,
    "within a row": lambda path: _cut(path, 9),
    "before the line's end": lambda path: _cut(path, 1),
    "within the plan": lambda path: _cut_plan(plan_path(path)),
}


@pytest.mark.slow
@pytest.mark.parametrize(("every", "hurt"), [(1, "within a row"), *((7, hurt) for hurt in HURTS), (30, "within a row")])
def test_killed_and_resumed(tmp_path: Path, unbroken: tuple[str, str, str], every: int, hurt: str) -> None:
    path = tmp_path / "t.csv"
    for _ in range(400):
        try:
            _run(path, last=every + (hurt != "between rows"))
            break
        except Killed:
            HURTS[hurt](path)
    else:
        raise AssertionError("never came to its end")
    table, _, made = unbroken
    assert path.read_text() == table
    assert _profile(path) == made


@pytest.mark.heavy
def test_time_that_is_used_up_stays_used_up(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole.csv", tmp_path / "broken.csv"
    counts = _run(whole, budget_s=5.0)
    assert counts["measured"] == 41
    assert counts["left"] > 10
    for last in (10, 10, None):
        try:
            _run(broken, last=last, budget_s=5.0)
        except Killed:
            continue
    assert broken.read_text() == whole.read_text()
    assert _run(broken, budget_s=1e9)["left"] == 0


@pytest.mark.heavy
def test_rounds_are_chosen_where_the_fit_is_in_doubt(unbroken: tuple[str, str, str]) -> None:
    lines = [json.loads(line) for line in unbroken[1].splitlines()]
    chosen = [line for line in lines if "design" in line]
    turns = [("attention.torch", 1), ("moe.torch", 1), ("attention.torch", 2), ("moe.torch", 2)]
    assert [(line["design"], line["round"]) for line in chosen] == turns
    assert all(len(line["tasks"]) == 8 for line in chosen)
    tasks = [json.dumps(task) for line in chosen for task in line["tasks"]]
    assert len(set(tasks)) == len(tasks)


def test_a_card_in_trouble_keeps_its_rows_and_stops(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    _run(path, budget_s=1.0)
    kept = path.read_text()
    bench = FakeBench(KINDS)
    bench.troubles = ("it is too hot",)
    log = Log.open(path, HEAD)
    with pytest.raises(CalibrationError, match="it is too hot") as refused:
        CalibrationRun(log=log, bench=bench, chip=H200, budget_s=9.0).measure(_designs())
    assert "--force" in refused.value.hint
    assert path.read_text() == kept
    CalibrationRun(log=log, bench=bench, chip=H200, budget_s=2.0, force=True).measure(_designs())
    assert Log.open(path, HEAD).forced == ["it is too hot"]
    assert len(path.read_text()) > len(kept)


FOREIGN = {
    "another table": ("a,b,c\n1,2,3\n", "holds another table"),
    "no table": ("{}", "holds something else"),
    "a newer table": (",".join((*COLUMNS, "humidity")) + "\n", "written by a newer Gnomon (columns humidity)"),
    "an older table": (",".join(COLUMNS[:28]) + "\n", "written by an older Gnomon"),
    "a short line": (",".join(COLUMNS) + "\ngemm,bf16\n", "line 2: has not as many fields"),
    "a quote": (",".join(COLUMNS) + '\n"gemm" x,' + "," * 31 + "\n", "is no table"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_other_tables_are_refused_and_left_alone(tmp_path: Path, name: str) -> None:
    text, reason = FOREIGN[name]
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(CalibrationError) as refused:
        Log.open(path, HEAD)
    assert reason in str(refused.value)
    assert path.read_text() == text


CHOICE = {"design": "gemm.bf16", "round": 1, "took_s": 0.5, "tasks": [["gemm", {"m": 1}]]}


def _plan(*lines: dict[str, Any], **head: Any) -> str:
    whole = [{"schema": "gnomon.calibration/1", **HEAD, **head}, *lines]
    return "".join(json.dumps(line) + "\n" for line in whole)


PLANS = {
    "newer": ('{"schema":"gnomon.calibration/9"}\n', "written by a newer Gnomon (gnomon.calibration/9, not /1)"),
    "foreign": ('{"schema":"gnomon.plan/1"}\n', "schema is 'gnomon.plan/1'"),
    "corrupt": ("{schema\n", "is not a measurement plan"),
    "a list": ("[1]\n", "is not a measurement plan"),
    "another chip": (json.dumps({"schema": "gnomon.calibration/1", **HEAD, "chip": "L4"}) + "\n", "begun with chip L4"),
    "another torch": (
        json.dumps({"schema": "gnomon.calibration/1", **HEAD, "versions": {"torch": "2.9"}}) + "\n",
        "begun with versions torch 2.9, and this is torch 2.11.0",
    ),
    "half a choice": (
        json.dumps({"schema": "gnomon.calibration/1", **HEAD}) + '\n{"design":"gemm.bf16"}\n',
        "line 2: is not a measurement plan",
    ),
    "deep": ("[" * 100_000 + "\n", "line 1: is not a measurement plan (not JSON)"),
    "a chip of numbers": (_plan(chip=5), "line 1: is not a measurement plan (no chip)"),
    "a date of numbers": (_plan(date=2026), "(no date)"),
    "versions of numbers": (_plan(versions={"torch": 2}), "(versions are not texts by name)"),
    "notes of letters": (_plan(notes="abc"), "(notes are not a list of texts)"),
    "forced letters": (_plan({"forced": "abc"}), "line 2: is not a measurement plan (forced is not a list of texts)"),
    "a reason of numbers": (_plan({"skipped": "a", "reason": 5}), "(skipped and reason are not texts)"),
    "a time of nan": (_plan(CHOICE | {"took_s": float("nan")}), "(took_s is not a time)"),
    "a negative time": (_plan(CHOICE, CHOICE | {"took_s": -1e9}), "line 3: is not a measurement plan (took_s"),
    "a round of words": (_plan(CHOICE | {"round": "1"}), "(round is not a whole number)"),
    "tasks of letters": (_plan(CHOICE | {"tasks": ["ab"]}), "(tasks are not a list of kernels with their shapes)"),
    "tasks of numbers": (_plan(CHOICE | {"tasks": [[5, 6]]}), "(tasks are not a list of kernels with their shapes)"),
    "nothing of ours": (_plan({}), "(no design, skipped or forced)"),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANS)
def test_other_plans_are_refused(tmp_path: Path, name: str) -> None:
    text, reason = PLANS[name]
    path = tmp_path / "t.csv"
    plan_path(path).write_text(text)
    with pytest.raises(CalibrationError) as refused:
        Log.open(path, HEAD)
    assert reason in str(refused.value)
    assert plan_path(path).read_text() == text


@pytest.mark.parametrize("name", [name for name, (_, reason) in PLANS.items() if "begun" not in reason])
def test_such_a_plan_beside_a_table_is_refused_as_well(tmp_path: Path, name: str) -> None:
    text, reason = PLANS[name]
    path = tmp_path / "t.csv"
    path.write_text(",".join(COLUMNS) + "\n")
    plan_path(path).write_text(text)
    with pytest.raises(CalibrationError) as refused:
        gnomon.calibrate(source=path)
    assert reason in str(refused.value)


def test_halves_of_a_calibration_are_refused_and_left_alone(tmp_path: Path, unbroken: tuple[str, str, str]) -> None:
    """Rows without their plan could be of any chip; a plan has chosen by rows, and is nothing without them."""
    table, plan, _ = unbroken
    alone = tmp_path / "table.csv"
    alone.write_text(table)
    for rest in (None, "", plan[:40]):
        if rest is not None:
            plan_path(alone).write_text(rest)
        with pytest.raises(CalibrationError, match=r"the plan beside it \(table.plan.jsonl\) is gone") as refused:
            Log.open(alone, HEAD)
        assert "--out" in refused.value.hint
        assert alone.read_text() == table
        assert (plan_path(alone).read_text() if plan_path(alone).exists() else None) == rest
    other = tmp_path / "plan.csv"
    plan_path(other).write_text(plan)
    for begun in (None, "", "op,dt"):
        if begun is not None:
            other.write_text(begun)
        with pytest.raises(CalibrationError, match=r"is a plan whose table \(plan.csv\) is gone"):
            Log.open(other, HEAD)
        assert plan_path(other).read_text() == plan
        assert (other.read_text() if other.exists() else None) == begun


def test_a_run_killed_before_its_first_row_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    Log.open(path, HEAD)
    for begun in ("", "op,dty"):
        path.write_text(begun)
        Log.open(path, HEAD)
        assert path.read_text() == ",".join(COLUMNS) + "\n"
    plan_path(path).write_text('{"schema":"gnomon.cal')
    assert Log.open(path, HEAD).head == HEAD


CELLS = [("took_s", "abc"), ("took_s", "nan"), ("took_s", "-5"), ("took_s", "1e300"), ("time_us", ""), ("time_us", "0")]


@pytest.mark.parametrize(("column", "value"), CELLS)
def test_broken_cells_are_found_before_more_is_measured(
    tmp_path: Path, unbroken: tuple[str, str, str], column: str, value: str
) -> None:
    path = tmp_path / "t.csv"
    lines = unbroken[0].splitlines()
    (cells,) = csv.reader([lines[3]])
    cells[COLUMNS.index(column)] = value
    file = io.StringIO()
    csv.writer(file, lineterminator="").writerow(cells)
    path.write_text("\n".join([*lines[:3], file.getvalue(), *lines[4:]]) + "\n")
    plan_path(path).write_text(unbroken[1])
    with pytest.raises(CalibrationError, match=f"line 4: a row of .* has {column} '{value}'"):
        Log.open(path, HEAD)
