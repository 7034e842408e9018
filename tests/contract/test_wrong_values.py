"""Every field of every public function, given what it cannot be: one clear error, no traceback, no silent default."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.contract.asking import say, without
from tests.contract.wrong_values import CALLS, PLAN, VALUES, WrongCall, calls

import gnomon
from gnomon.cli.app import build
from gnomon.errors import GnomonError


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("answer.json").write_text("{}")


@pytest.mark.battery(24)
@pytest.mark.parametrize("call", calls(), ids=str)
def test_a_wrong_value_is_refused_by_name(call: WrongCall) -> None:
    try:
        call.run()
    except GnomonError as error:
        assert error.message and "\n" not in str(error)
        return
    assert call.legitimate, f"{VALUES[call.value]!r} was taken"


def test_every_public_function_is_asked() -> None:
    named = {name.partition(".")[0] for name in CALLS} | {"GnomonError", "__version__", "techniques"}
    assert named == set(gnomon.__all__)


LINES = {
    "accuracy": "accuracy --quick",
    "calibrate": "calibrate --from absent.csv",
    "chips": "chips",
    "chips new": "chips new mine --out mine.yaml",
    "chips show": "chips show H100",
    "compare": f"compare {PLAN} {PLAN}",
    "explain": "explain answer.json",
    "export": f"export {PLAN}",
    "fit": "fit llama-3.2-1b --on H100",
    "history": "history",
    "import": "import 'vllm serve llama-3.2-1b' --on H100",
    "lab predict": "lab predict gptq",
    "lab run": "lab run gptq",
    "launch": f"launch {PLAN} --dry-run",
    "models": "models",
    "models show": "models show llama-3.2-1b",
    "ops": "ops absent.csv --on H100",
    "papers": "papers",
    "papers apply": f"papers apply {PLAN}",
    "papers cite": "papers cite gptq",
    "papers new": "papers new a-paper",
    "papers run": "papers run gptq",
    "papers search": "papers search offload",
    "papers show": "papers show gptq",
    "plan serve": "plan serve llama-3.2-1b --fleet H100:1 --rate 4 --input 100 --output 8 --requests 20",
    "plan train": "plan train llama-3.2-1b --cluster H100:4 --seq 512 --global-batch 16",
    "predict": "predict llama-3.2-1b --on H100",
    "simulate serve": "simulate serve llama-3.2-1b --on H100 --rate 4 --input 100 --output 8 --requests 20",
    "simulate train": "simulate train llama-3.2-1b --on H100:8 --seq 512 --global-batch 16",
    "sweep": "sweep sweep.yaml --out out.jsonl",
    "tune": f"tune {PLAN} --rate 4 --input 100 --output 8 --requests 20",
    "try": "try gptq --model llama-3.2-1b --on H100",
    "verify": f"verify {PLAN}",
}
"""A line of each command whose flags take values, but for those whose answer is another's."""


def empties() -> list[str]:
    """Each flag that takes a value, given an empty or a blank one."""
    found = []
    for command, path in commands(typer.main.get_command(build([]))):
        for param in command.params:
            option = param.param_type_name == "option" and not param.is_flag
            if " ".join(path) in LINES and option:
                flag = param.opts[0]
                base = without(LINES[" ".join(path)], flag)
                found += [f"{base} {flag} ''", f"{base} {flag} ' '"]
    return found


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[Any, tuple[str, ...]]]:
    yield command, path
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*path, name))


@pytest.mark.battery(8)
@pytest.mark.parametrize("line", empties())
def test_an_empty_value_of_a_flag_is_refused(line: str) -> None:
    Path("sweep.yaml").write_text("command: fit\nfixed: {model: llama-3.2-1b}\nover: {'on': [H100]}\n")
    said = say(line)
    flag = line.split()[-2] if line.endswith("''") else line.split()[-3]
    assert said.code == 2, said.out
    assert flag in said.err and said.err.count("\n") == 1


def test_every_command_with_values_has_a_line() -> None:
    """Else a flag that is added would not be asked."""
    taking = {
        " ".join(path)
        for command, path in commands(typer.main.get_command(build([])))
        if any(param.param_type_name == "option" and not param.is_flag for param in command.params)
    }
    assert taking <= set(LINES)
