"""What the command line refuses whatever the command: a flag given twice, and how long an error may be."""

from __future__ import annotations

import json
from typing import Any

import pytest
import typer

from gnomon.cli.app import COMMANDS, build
from gnomon.cli.run import run
from gnomon.errors import LONGEST_TEXT

REPEATED = {
    "--set",
    "--with",
    "--slo",
    "verify --rate",
    "lab run --size",
    "lab predict --size",
    "lab predict --rates",
    "sweep --join",
    "simulate serve --pool",
}
"""Flags that may be given several times: their values are gathered."""


def commands() -> list[tuple[str, Any]]:
    """Every command with its path: `plan serve`."""
    found: list[tuple[str, Any]] = []
    waiting: list[tuple[str, Any]] = [("", typer.main.get_command(build([])))]
    while waiting:
        path, command = waiting.pop()
        inner = getattr(command, "commands", None)
        waiting += [(f"{path} {name}".strip(), each) for name, each in (inner or {}).items()]
        found += [] if inner else [(path, command)]
    return found


@pytest.mark.heavy
def test_every_flag_of_every_command_is_refused_twice(capsys: pytest.CaptureFixture[str]) -> None:
    gathered, tried = set(), 0
    for path, command in commands():
        options = [param for param in command.params if param.param_type_name == "option" and not param.is_flag]
        several = {option.opts[0] for option in options if option.multiple}
        gathered |= {flag if flag in REPEATED else f"{path} {flag}" for flag in several}
        for flag in (option.opts[0] for option in options if not option.multiple):
            needed = [
                word for other in command.params if other.required and flag not in other.opts for word in _some(other)
            ]
            assert run([*path.split(), *needed, flag, "1", flag, "2"]) == 2
            assert capsys.readouterr().err == f"error: {flag}: is given twice. Give it once.\n", path
            tried += 1
    assert gathered == REPEATED
    assert tried > 100


def _some(param: Any) -> list[str]:
    return ["1"] if param.param_type_name == "argument" else [param.opts[0], "1"]


@pytest.mark.parametrize(
    "words",
    [
        ["predict", "m" * 70_000, "--on", "H100"],
        ["predict", "llama-3.1-8b", "--on", "H" * 70_000],
        ["predict", "llama-3.1-8b", "--on", "H100", "--set", f"max_num_seqs={'9' * 70_000}"],
        ["predict", "llama-3.1-8b", "--on", "H100", "--batch", "9" * 70_000],
        ["plan", "serve", "llama-3.1-8b", "--fleet", "H100", "--slo", "a b " * 20_000],
        ["export", "x" * 70_000],
    ],
    ids=lambda words: words[-1][:20],
)
def test_no_error_is_longer_than_a_screen(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*words, "--json"]) == 2
    out, err = capsys.readouterr()
    assert err.count("\n") == 1
    assert len(err) < 3 * LONGEST_TEXT
    assert all(len(text) <= LONGEST_TEXT for text in json.loads(out)["error"].values())


def test_commands_are_all_found() -> None:
    assert {path.split()[0] for path, _ in commands()} == set(COMMANDS)
