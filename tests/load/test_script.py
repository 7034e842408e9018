"""`script.py:function`: what is run, what it may give, and whose line is to blame. No PyTorch needed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gnomon.errors import GnomonError
from gnomon.load.tracing import built, is_script


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "beside.py").write_text("SIZE = 3\n")
    path = tmp_path / "net.py"
    path.write_text(
        "import beside\n"
        "def pair(): return 'module', beside.SIZE\n"
        "def named(): return {'module': 1, 'inputs': 2, 'loss': len}\n"
        "def lacking(): return {'module': 1}\n"
        "def odd(): return {'module': 1, 'inputs': 2, 'losses': 3}\n"
        "def one(): return 7\n"
        "def broken():\n    raise ValueError('no such\\nthing')\n"
        "def leaves(): raise SystemExit(1)\n"
        "NUMBER = 4\n"
        "def stops(): raise GeneratorExit\n"
    )
    return path


@pytest.mark.parametrize("words", ["a.py:f", "dir/a.py:build_2", "C:\\x\\a.py:f", "../a b.py:f"])
def test_the_form(words: str) -> None:
    assert is_script(words)


@pytest.mark.parametrize("words", ["llama-3.1-8b", "a.yaml:f", "org/model", ":f", "net.pyc:f"])
def test_other_words_are_no_script(words: str) -> None:
    assert not is_script(words)


@pytest.mark.parametrize("tail", ["", ":", ":2f", ":pair g", ":pair:pair", ":torch.nn.Linear"])
def test_a_wrong_form_runs_nothing_and_says_the_right_one(script: Path, tail: str) -> None:
    script.write_text("raise ValueError('it ran')\n")
    words = f"{script}{tail}"
    assert is_script(words)
    with pytest.raises(
        GnomonError, match=r"MODEL: '.*' is not SCRIPT\.py:FUNCTION\. Name one function .* net\.py:build"
    ):
        built(words)


def test_a_folder_is_no_script(tmp_path: Path) -> None:
    (tmp_path / "model.py").mkdir()
    assert not is_script(str(tmp_path / "model.py"))


def test_what_a_function_gives(script: Path) -> None:
    before = list(sys.path)
    assert built(f"{script}:pair") == {"module": "module", "inputs": 3}
    assert built(f"{script}:named") == {"module": 1, "inputs": 2, "loss": len}
    assert sys.path == before


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("lacking", r"net.py:lacking: gives no inputs\. Return \(module, inputs\)"),
        ("odd", r"net.py:odd: unknown key 'losses'\. Near: loss"),
        ("one", r"net.py:one: gives int, not a module"),
        ("broken", r"net.py line 8: fails: ValueError: no such$"),
        ("leaves", r"net.py line 9: fails: SystemExit: 1"),
        ("stops", r"net.py line 11: fails: GeneratorExit$"),
        ("NUMBER", r"unknown function 'NUMBER'"),
        ("pear", r"unknown function 'pear'\. Near: pair"),
    ],
)
def test_what_cannot_be_used_says_why(script: Path, name: str, message: str) -> None:
    with pytest.raises(GnomonError, match=message):
        built(f"{script}:{name}")


def test_files_that_cannot_be_run(tmp_path: Path) -> None:
    with pytest.raises(GnomonError, match=r"none.py: no such file"):
        built(f"{tmp_path / 'none.py'}:f")
    (tmp_path / "wrong.py").write_text("x = 1\nimport\n")
    with pytest.raises(GnomonError, match=r"wrong.py line 2: fails: SyntaxError"):
        built(f"{tmp_path / 'wrong.py'}:f")
