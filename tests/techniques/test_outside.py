"""Techniques of a folder that the environment names: used by name, and refused by file where one is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import gnomon
from gnomon.errors import InputError, UnknownNameError
from gnomon.techniques.outside import FOLDER

MINE = """
from gnomon.techniques.base import SERVING, Parameter, Technique, Trial


class Mine(Technique):
    work = (SERVING,)
    name, title, idea = "mine", "Mine", "It does nothing, and says so."
    parameters = (Parameter("much", "how much", default=1.0, high=2.0),)
    trials = (Trial(paper="gptq", words="mine"),)


TECHNIQUES = (Mine(),)
"""


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """What is found is kept for the whole process."""
    module = import_module("gnomon.techniques")
    caches = (module.techniques, module._by_any_name, module._named, module._parsed)
    for cached in caches:
        cached.cache_clear()
    yield
    for cached in caches:
        cached.cache_clear()


@pytest.mark.parametrize("name", ["mine.py", "a_paper/technique.py"])
def test_a_technique_of_a_folder_is_used_by_name(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(MINE)
    monkeypatch.setenv(FOLDER, str(tmp_path))
    assert "mine" in {one["name"] for one in gnomon.techniques().techniques}
    asked = {"on": "H100", "batch": 4, "context": 100}
    plain = gnomon.predict("llama-3.2-1b", **asked)
    assert gnomon.predict("llama-3.2-1b", techniques=["mine:much=2"], **asked).time_s.value == plain.time_s.value


def test_no_folder_is_looked_into_that_is_not_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(FOLDER, raising=False)
    with pytest.raises(UnknownNameError, match="unknown technique 'mine'"):
        gnomon.predict("llama-3.2-1b", on="H100", techniques=["mine"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "GNOMON_TECHNIQUES: '.*' is not a folder"),
        ("1 / 0", r"mine.py: cannot be loaded: ZeroDivisionError: division by zero\. Correct it, or unset"),
        ("TECHNIQUES = (5,)", r"mine.py, TECHNIQUES: 5 is not a technique"),
        (
            "from gnomon.techniques.kv_swap import TECHNIQUES",
            r"mine.py, TECHNIQUES: kv-swap is there already",
        ),
    ],
)
def test_a_folder_of_techniques_that_is_wrong(
    text: str | None, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if text is not None:
        (tmp_path / "mine.py").write_text(text)
    monkeypatch.setenv(FOLDER, str(tmp_path if text is not None else tmp_path / "absent"))
    with pytest.raises(InputError, match=message):
        gnomon.techniques()
    monkeypatch.delenv(FOLDER)
    assert "kv-swap" in {one["name"] for one in gnomon.techniques().techniques}
