"""`gnomon export` and its files: nothing is overwritten unasked, and errors name what was wrong."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from tests.cli.test_launch import PLAN

from gnomon import store
from gnomon.cli.run import run
from gnomon.load import write_plan

OTHER = ["launch.sh", "plan.yaml", "deployment.yaml"]


@pytest.fixture
def plan(tmp_path: Path) -> str:
    write_plan(PLAN, tmp_path / "given.yaml")
    return str(tmp_path / "given.yaml")


@pytest.mark.parametrize("name", OTHER)
def test_files_with_another_content_are_kept(
    name: str, plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "deploy"
    out.mkdir()
    (out / name).write_text("keep\n")
    words = ["export", plan, "--to", "kubernetes" if name == "deployment.yaml" else "vllm", "--out", str(out)]
    assert run(words) == 2
    said = capsys.readouterr().err
    assert f"--out: '{out / name}' would be overwritten" in said
    assert "--force" in said
    assert (out / name).read_text() == "keep\n"
    assert [file.name for file in out.iterdir()] == [name]
    assert run([*words, "--force"]) == 0
    assert (out / name).read_text() != "keep\n"


def test_the_same_files_may_be_written_again(plan: str, tmp_path: Path) -> None:
    out = tmp_path / "deploy"
    for _ in range(2):
        assert run(["export", plan, "--out", str(out)]) == 0
    assert (out / "launch.sh").stat().st_mode & stat.S_IXUSR


def test_what_is_not_a_plan_is_named_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["export"], ["launch", "--dry-run"]):
        assert run([*command, "NOSUCH"]) == 2
        assert "error: PLAN: unknown run 'NOSUCH'" in capsys.readouterr().err
    assert run(["export", "NOSUCH", "--to", "nowhere"]) == 2
    assert "error: --to: unknown export target 'nowhere'" in capsys.readouterr().err


def test_last_is_the_newest_answer_for_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", "train", "llama-3.2-1b", "--on", "H100:8", "--seq", "1024", "--global-batch", "8"]) == 0
    load = ["--rate", "1", "--input", "64", "--output", "4", "--requests", "10"]
    assert run(["simulate", "serve", "qwen3-8b", "--on", "H100:2", *load]) == 0
    capsys.readouterr()
    assert run(["export", "last"]) == 0
    assert "vllm serve Qwen/Qwen3-8B --tensor-parallel-size 2" in capsys.readouterr().out
    assert run(["launch", "last", "--dry-run", "--json"]) == 0
    assert "Qwen/Qwen3-8B" in json.loads(capsys.readouterr().out)["commands"][0]
    assert run(["explain", "last", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["id"] == store.entry("last").id
    assert run(["predict", "dit-xl-2-256", "--on", "H100", "--batch", "2"]) == 0
    capsys.readouterr()
    for command in (["export", "last"], ["launch", "last", "--dry-run"], ["verify", "last"]):
        assert run(command) == 2
        assert f"the last answer, {store.entry('last').id}, is of `gnomon predict`" in capsys.readouterr().err


def test_a_plan_that_does_not_fit_is_exit_code_4(plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    large = Path(plan).read_text().replace("llama-3.1-8b", "llama-3.1-70b")
    (tmp_path / "large.yaml").write_text(large)
    words = ["export", str(tmp_path / "large.yaml")]
    assert run([*words, "--json"]) == 4
    assert "it does not fit" in json.loads(capsys.readouterr().out)["error"]["message"]
    assert run([*words, "--force", "--out", str(tmp_path / "forced")]) == 0
    assert "warning: it does not fit" in capsys.readouterr().err
    assert "# WARNING: it does not fit" in (tmp_path / "forced" / "launch.sh").read_text()


def test_a_checkpoint_by_its_flag(plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    narrow = tmp_path / "narrow.yaml"
    narrow.write_text(Path(plan).read_text().replace("dtype: bf16", "dtype: int4", 1))
    assert run(["export", str(narrow)]) == 2
    assert "--checkpoint" in capsys.readouterr().err
    assert run(["export", str(narrow), "--checkpoint", "org/name"]) == 0
    answer = capsys.readouterr()
    assert "vllm serve org/name " in answer.out
    assert "not in these files: the weights of org/name" in answer.err
    assert run(["export", str(narrow), "--checkpoint", " "]) == 2
    assert "--checkpoint: is empty" in capsys.readouterr().err
