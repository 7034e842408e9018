"""Answers read back from their JSON are the answers that were given, and showing one looks nothing up."""

from __future__ import annotations

import builtins
import io
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from types import FrameType
from typing import Any

import pytest
from tests.report import answers, kinds
from tests.report.test_damaged import ANSWERS, text_of

import gnomon
from gnomon import report
from gnomon.load.answers import KINDS, answer_from_dict
from gnomon.report.html import document, fragment
from gnomon.spec.answers import JsonAnswer, ModulePrediction, Prediction, Result

SOURCES = Path(gnomon.__file__).parent
LOOKUPS = tuple(str(SOURCES / name) for name in ("load", "catalog"))


def back(answer: Result) -> Result:
    return answer_from_dict(json.loads(json.dumps(answer.to_dict())), "a.json")


@pytest.mark.parametrize("name", ANSWERS)
def test_a_stored_answer_is_the_answer(name: str) -> None:
    fresh = answer_from_dict(json.loads(text_of(name)))
    assert type(fresh) is type(ANSWERS[name]()) is KINDS[name.partition(",")[0]]
    assert json.loads(json.dumps(fresh.to_dict())) == json.loads(text_of(name))


@pytest.mark.parametrize("case", [case for case in kinds.CASES if case[0] != "Explanation"], ids=" ".join)
def test_a_stored_answer_reads_as_a_fresh_one(case: tuple[str, str]) -> None:
    answer = kinds.made(*case)
    if answer.SCHEMA in KINDS:
        again = back(answer)
        assert type(again) is type(answer)
        assert (str(again), repr(again)) == (str(answer), repr(answer))
        assert again.to_html() == answer.to_html()


def test_a_module_is_told_from_a_model_by_its_kernels() -> None:
    assert type(back(kinds.module())) is ModulePrediction
    assert type(back(answers.prediction())) is Prediction


def test_other_answers_are_known_by_their_json() -> None:
    content = {"schema": "gnomon.chips/1", "chips": []}
    answer = answer_from_dict(content)
    assert isinstance(answer, JsonAnswer)
    assert (answer.schema, answer.to_dict()) == ("gnomon.chips/1", content)


def test_intervals_come_back_as_they_were_stored() -> None:
    stored = answers.estimate(0.0063)
    time = getattr(back(answers.prediction(time_s=stored)), "time_s")  # noqa: B009
    assert (time.value, time.low, time.high, time.source) == (stored.value, stored.low, stored.high, stored.source)
    assert time.draws.shape == stored.draws.shape


@contextmanager
def looked_up(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What is called of `load` and `catalog`, whose caches are emptied, and every file that is opened."""
    for name, module in list(sys.modules.items()):
        if name.startswith(("gnomon.load", "gnomon.catalog")):
            for value in vars(module).values():
                getattr(value, "cache_clear", lambda: None)()
    found: list[str] = []

    def called(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(LOOKUPS):
            found.append(f"{frame.f_code.co_filename}: {frame.f_code.co_name}")

    def opened(file: Any, *_: Any, **__: Any) -> Any:
        found.append(str(file))
        raise OSError(f"{file} is opened")

    with monkeypatch.context() as patched:
        patched.setattr(builtins, "open", opened)
        patched.setattr(io, "open", opened)
        sys.setprofile(called)
        try:
            yield found
        finally:
            sys.setprofile(None)


@pytest.mark.parametrize("case", kinds.CASES, ids=" ".join)
def test_nothing_is_looked_up_to_show_an_answer(case: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for module in walk_packages(report.__path__, "gnomon.report."):
        import_module(module.name)
    monkeypatch.setattr(gnomon, "__version__", "1.0", raising=False)  # the package's own, which pages name
    answer = kinds.made(*case)
    with looked_up(monkeypatch) as found:
        shown = [report.render(answer), report.in_a_line(answer), document(answer), fragment(answer)]
    assert found == []
    assert all(shown)


def test_a_lookup_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    from gnomon.load import model

    with looked_up(monkeypatch) as found, pytest.raises(Exception, match=r"."):
        model("llama-3.1-8b")
    assert found
