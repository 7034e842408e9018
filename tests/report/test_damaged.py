"""Damaged answers: any field broken in any way is refused by file and field, or has no part in what is shown."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import gnomon
from gnomon.api.explain import explain
from gnomon.cli.run import run
from gnomon.errors import InputError
from gnomon.load.answers import answer_from_dict
from gnomon.report.opened import opened
from gnomon.spec.answers import AnswerNode, Prediction

ROOT = Path(__file__).parents[2]
MODEL = "llama-3.2-1b"
LOAD: dict[str, Any] = {"rate": 4, "input": 64, "output": 8, "requests": 20}
ANSWERS: dict[str, Any] = {
    "predict": lambda: gnomon.predict(MODEL, on="H100"),
    "predict, of an encoder": lambda: gnomon.predict("bert-base", on="H100", tokens=128),
    "predict, a training step": lambda: gnomon.predict(MODEL, on="H100", phase="train", tokens=512),
    "fit": lambda: gnomon.fit(MODEL, on="H100"),
    "simulate.serve": lambda: gnomon.simulate_serving(MODEL, on="H100", **LOAD),
    "simulate.serve, with a technique": lambda: gnomon.simulate_serving(
        MODEL, on="H100", techniques=["int4-weights"], **LOAD
    ),
    "plan.serve": lambda: gnomon.plan_serving(MODEL, fleet="H100:1", slo="ttft_p90=1s", **LOAD),
    "simulate.train": lambda: gnomon.simulate_training(
        MODEL, on="H100:4", seq=512, global_batch=8, pp=2, dp=2, tokens=1e9
    ),
    "simulate.train, a run with failures": lambda: gnomon.simulate_training(
        MODEL, on="H100:4", seq=512, global_batch=8, pp=2, dp=2, tokens=1e9, failures="default", spares=1
    ),
    "plan.train": lambda: gnomon.plan_training(MODEL, cluster="H100:2", seq=512, global_batch=8),
    "try": lambda: gnomon.try_idea("offload-optimizer", model=MODEL, on="H100:2", seq=512, global_batch=8),
    "try, in serving": lambda: gnomon.try_idea("int4-weights", model=MODEL, on="H100"),
    "verify": lambda: gnomon.verify(ROOT / "measurements/h200-2026-11-15/train-gpt-1.7b-2048-none.json"),
}
"""Real answers of every kind that can be opened."""
NO_NUMBER: tuple[Any, ...] = (math.inf, -math.inf, math.nan)
"""No field of any answer holds one of these."""
WRONG: tuple[Any, ...] = (1e300, -1e300, 10**400, -(10**400), -1.0, "x", True, [], [3], {}, {"value": 3})
"""What no number of an answer is, but for those of either sign, lists and mappings."""
SIGNED = ("error", "margin", "margin_bytes", "memory_saved_bytes", "shortage_bytes")
NO_TEXT: tuple[Any, ...] = (5, 1.5, True, [], {})
Path_ = tuple[Any, ...]


@cache
def text_of(name: str) -> str:
    return json.dumps(ANSWERS[name]().to_dict())


@cache
def step(*_: Any) -> Prediction:
    found = answer_from_dict(json.loads(text_of("predict")))
    assert isinstance(found, Prediction)
    return found


def nodes_of(answer: Any) -> tuple[AnswerNode, ...]:
    return opened(answer_from_dict(answer, "a.json"), lambda *_: step(), "a.json")


def places(value: Any, path: Path_ = ()) -> Iterator[Path_]:
    """Every value in an answer; of long lists the first two entries."""
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value[:2])
    for key, item in items:
        yield (*path, key)
        yield from places(item, (*path, key))


def at(answer: Any, path: Path_) -> Any:
    for key in path:
        answer = answer[key]
    return answer


def changed(answer: Any, path: Path_, value: Any) -> Any:
    broken = copy.deepcopy(answer)
    at(broken, path[:-1])[path[-1]] = value
    return broken


def field(path: Path_) -> str:
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path).lstrip(".")


def wrong(value: Any, path: Path_) -> tuple[Any, ...]:
    """What cannot stand in the place of a value."""
    if path[-2:-1] == ("settings",) and isinstance(value, (bool, int, float, str)):
        return (1e300, -(10**400), [], {})  # a setting may be a text, a number, true or false
    if isinstance(value, bool):
        return ("x", 1.5, [], {})
    if isinstance(value, (int, float)):
        signed = any(key in SIGNED for key in path)
        return tuple(each for each in WRONG if not (signed and each == -1.0))
    if isinstance(value, str):
        return NO_TEXT
    return (5, "x", True, {} if isinstance(value, list) else [])


def broken(name: str) -> Iterator[tuple[Path_, Any]]:
    answer = json.loads(text_of(name))
    for path in places(answer):
        if path != ("schema",) and at(answer, path) is not None:
            for value in (*NO_NUMBER, *wrong(at(answer, path), path)):
                yield path, value


def named(where: str, path: Sequence[Any], place: Sequence[Any]) -> bool:
    """Whether an error names the place; of a plan's own fields also the pools that repeat them."""
    repeats = "plan" in path[:-1] and where == f"a.json, field {field(path[: path.index('plan') + 1])}.pools"
    return repeats or where.startswith(f"a.json, field {field(place)}")


@pytest.mark.heavy
@pytest.mark.battery(12)
@pytest.mark.parametrize("name", ANSWERS)
def test_damage_is_refused_by_file_and_field_or_has_no_part_in_it(name: str, whole: bool) -> None:
    answer = json.loads(text_of(name))
    sound, refused, tried = nodes_of(answer), 0, 0
    for path, value in islice(broken(name), 0, None, 1 if whole else 7):
        tried += 1
        try:
            shown = nodes_of(changed(answer, path, value))
        except InputError as error:
            refused += 1
            assert named(error.where, path, path), (path, value, str(error))
            assert "\n" not in str(error)
            assert len(str(error)) < 300
        else:
            assert not (isinstance(value, float) and not math.isfinite(value)), path
            assert shown == sound, (path, value)
    assert refused > tried / 5
    assert tried > (300 if whole else 40)


@pytest.mark.parametrize("name", ANSWERS)
def test_what_is_missing_or_null_is_refused_by_file_and_field_or_can_be_done_without(name: str, whole: bool) -> None:
    answer = json.loads(text_of(name))
    refused = 0
    for path in islice(places(answer), 0, None, 1 if whole else 3):
        without = copy.deepcopy(answer)
        del at(without, path[:-1])[path[-1]]
        for damaged in (without, changed(answer, path, None)):
            try:
                nodes_of(damaged)
            except InputError as error:
                refused += 1
                assert named(error.where, path, path[:-1]), (path, str(error))
    assert refused >= (10 if whole else 3)


@pytest.mark.parametrize("name", ANSWERS)
def test_the_program_ends_with_two(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same by files and through the command line, a part of it."""
    monkeypatch.chdir(tmp_path)
    answer = json.loads(text_of(name))
    paths = [
        path for path in places(answer) if isinstance(at(answer, path), float) or path[-1] in ("count", "requests")
    ]
    for path in paths[:: max(1, len(paths) // 4)]:
        for value in (math.inf, math.nan):
            Path("a.json").write_text(json.dumps(changed(answer, path, value)))
            assert run(["explain", "a.json", "--json"]) == 2
            out, err = capsys.readouterr()
            assert f"a.json, field {field(path)}" in err
            assert err.count("\n") == 1
            assert json.loads(out)["error"]["where"] == f"a.json, field {field(path)}"


def test_negative_times_are_refused(tmp_path: Path) -> None:
    answer = json.loads(text_of("predict"))
    answer["time_s"]["value"] = -1
    (tmp_path / "a.json").write_text(json.dumps(answer))
    with pytest.raises(InputError, match=r"a\.json, field time_s\.value: -1 is not a number of zero or more"):
        explain(tmp_path / "a.json")


def test_a_damaged_run_is_named_by_its_id() -> None:
    answer = json.loads(text_of("fit"))
    del answer["kv_tokens"]
    id = gnomon.store.save("fit", answer)
    with pytest.raises(InputError, match=f"run {id}, field kv_tokens: is missing"):
        explain("last")


def test_code_that_an_answer_names_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("evil.py").write_text("open('ran', 'w')\n\n\ndef build(): ...\n")
    for name, path in (("simulate.serve", ("inputs", "model")), ("plan.serve", ("best", "plan", "model"))):
        answer = changed(json.loads(text_of(name)), path, "evil.py:build")
        Path("a.json").write_text(json.dumps(answer))
        assert explain("a.json").nodes
    assert not Path("ran").exists()


STEERS = ("\x1b[31mred", "\x1b]0;title\x07", "two\nlines", "\r over", "\x9b5m", "\u202e back", "\x00")


@pytest.mark.battery(6)
@pytest.mark.parametrize("name", ANSWERS)
def test_no_text_of_an_answer_steers_the_terminal(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = json.loads(text_of(name))
    Path("a.json").write_text(json.dumps(answer))
    assert run(["explain", "a.json"]) == 0
    lines = capsys.readouterr().out.count("\n")
    for path in [path for path in places(answer) if path[-1] in ("title", "op", "source", "label", "why", "what")][:12]:
        for text in STEERS:
            Path("a.json").write_text(json.dumps(changed(answer, path, text)))
            assert run(["explain", "a.json"]) == 0
            out = capsys.readouterr().out
            assert all(letter.isprintable() for letter in out.replace("\n", ""))
            assert out.count("\n") <= lines + 1


@pytest.mark.parametrize("name", ANSWERS)
def test_estimates_lie_between_their_low_and_high(name: str, tmp_path: Path) -> None:
    answer = json.loads(text_of(name))
    spots = [path[:-1] for path in places(answer) if path[-1] == "low" and "provenance" in at(answer, path[:-1])]
    for path in spots[:: max(1, len(spots) // 6)]:
        value = at(answer, path)["value"]
        for edge, wrong in (("low", 2 * value + 1), ("high", value / 2)):
            (tmp_path / "a.json").write_text(json.dumps(changed(answer, (*path, edge), wrong)))
            if wrong == value:
                continue
            with pytest.raises(InputError, match=r"is not between low .* and high .*The answer is damaged"):
                explain(tmp_path / "a.json")
