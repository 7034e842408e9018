"""Every option and field changes an answer, is refused, or is listed in it under `not_modelled`."""

from __future__ import annotations

import functools
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.contract.asking import Said, say
from tests.contract.options import ANSWERING, FILES, Case, cases

from gnomon.api.predict_training import KNOWN
from gnomon.cli.app import build
from gnomon.engines.vllm.options import BY_NAME

EXAMPLES = Path(__file__).parents[2] / "examples"
ECHO = {"schema", "title", "inputs", "not_modelled", "plan", "label", "command", "goals", "router", "engine"} | {
    "resolved"
}
"""Parts of answers that repeat what was asked."""
SAMPLE = 9
"""Of so many cases one is run in a hurry."""
CASES = cases()


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the commands read."""
    monkeypatch.chdir(tmp_path)
    rows = [(100 + 7 * n % 50, 8 + n % 5) for n in range(20)]
    (tmp_path / "lengths.csv").write_text("input_tokens,output_tokens\n" + "".join(f"{i},{o}\n" for i, o in rows))
    timed = "".join(f"{0.05 * n},{i},{o}\n" for n, (i, o) in enumerate(rows))
    (tmp_path / "timed.csv").write_text(f"arrival_s,input_tokens,output_tokens\n{timed}")
    for name in ("ops.csv", "plan.yaml"):
        shutil.copy(EXAMPLES / name, tmp_path / name)
    unfit = (tmp_path / "plan.yaml").read_text().replace("{tp: 4}", "{tp: 1}").replace("dtype: fp8", "dtype: bf16", 1)
    (tmp_path / "unfit.yaml").write_text(unfit)


def figures(value: Any) -> Any:
    """An answer without what repeats the question."""
    if isinstance(value, dict):
        return {key: figures(item) for key, item in value.items() if key not in ECHO and key != "plan.yaml"}
    return [figures(item) for item in value] if isinstance(value, list) else value


@functools.cache
def base_answer(line: str) -> Said:
    """The answer that a change is compared with, or the refusal."""
    return say(f"{line} --json")


def outcome(case: Case) -> str:
    """`acts`, `refused`, `listed`, or `ignored`."""
    before = base_answer(case.base)
    if case.flag == "--json":
        return "acts" if say(case.base).out != before.out else "ignored"
    said = say(f"{case.line} --json")
    if before.code:
        assert before.code == 4 and case.flag == "--force", before.err
        return "acts" if said.code == 0 else "ignored"
    if said.code:
        assert said.err.startswith("error: "), said.err
        return "refused"
    if case.flag in FILES:
        return "acts" if Path(case.change.split()[1]).exists() else "ignored"
    if figures(said.answer) != figures(before.answer):
        return "acts"
    listed = [one["option"] for one in said.answer.get("not_modelled", ())]
    named = any(option == case.change or option.partition("=")[0] == case.option for option in listed)
    return "listed" if named else "ignored"


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.line)
def test_every_option_acts_is_refused_or_listed(case: Case) -> None:
    assert outcome(case) in ("acts", "refused", "listed")


@pytest.mark.battery(2)
@pytest.mark.parametrize("case", CASES[::SAMPLE], ids=lambda case: case.line)
def test_some_options_act_are_refused_or_listed(case: Case) -> None:
    assert outcome(case) in ("acts", "refused", "listed")


def flags_of(path: str) -> list[str]:
    """The flags of a command, as the program has them."""
    command: Any = typer.main.get_command(build([]))
    for word in path.split():
        command = command.commands[word]
    options = [param for param in command.params if param.param_type_name == "option"]
    return [(param.secondary_opts or param.opts)[0] for param in options]


@pytest.mark.parametrize("command", ANSWERING)
def test_every_flag_has_a_line(command: str) -> None:
    told = {case.flag for case in CASES if case.command == command}
    assert [flag for flag in flags_of(command) if flag not in {*told, "--set"}] == []


def test_every_setting_has_a_line_in_every_command_that_takes_settings() -> None:
    for command in ("predict", "fit", "simulate serve", "plan serve"):
        told = {case.option for case in CASES if case.command == command and case.flag == "--set"}
        assert [name for name in BY_NAME if name not in told] == [], command
    trained = {case.option for case in CASES if "--phase train" in case.base and case.flag == "--set"}
    assert [name for name in KNOWN if name not in trained] == []


def test_help_names_every_setting() -> None:
    for command in ("predict", "fit", "simulate serve", "plan serve"):
        text = say(f"{command} --help").out
        assert [name for name in BY_NAME if name not in re.sub(r"[\s│|]+", "", text)] == [], command


def test_there_are_many() -> None:
    assert len({(case.command, case.option) for case in CASES}) > 150
