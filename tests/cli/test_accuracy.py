"""`gnomon accuracy`: stored results on stdout, as JSON, as a page with lists, or as a web page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gnomon.cli.run import run


def test_stored_results_need_no_data(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GNOMON_TRUTH", str(tmp_path))
    assert run(["accuracy"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("Accuracy: predicted beside published and measured, computed 20")
    assert "| operator: gemm " in printed


def test_fresh_results_need_the_data(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GNOMON_TRUTH", str(tmp_path))
    assert run(["accuracy", "--fresh"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"error: GNOMON_TRUTH: the published measurements are not in {tmp_path}. Set GNOMON_TRUTH")


@pytest.mark.parametrize("words", [("--fresh", "--part", "run"), ("--part", "run"), ("--quick", "--part", "runs")])
def test_a_part_is_recomputed_whole_and_by_its_name(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["accuracy", *words]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("error: --part: ")


@pytest.mark.heavy
def test_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site, path = tmp_path / "site", tmp_path / "page.md"
    assert run(["accuracy", "--out", str(path), "--page", str(site), "--chip", "H200"]) == 0
    written = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert path in written
    assert site / "index.html" in written
    assert all(file.read_text(encoding="utf-8") for file in written)
    assert {file.name for file in written if file.parent == tmp_path / "page"} == {
        "operators.md", "steps.md", "deployments.md", "runs.md", "training.md",
    }  # fmt: skip
    assert "H100" not in (site / "families.svg").read_text(encoding="utf-8")


def test_saved_results_are_those_of_the_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "results.json"
    assert run(["accuracy", "--json", "--save", str(path)]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["schema"] == "gnomon.accuracy/1"
    assert json.loads(path.read_text(encoding="utf-8")) == answer


@pytest.mark.parametrize(
    ("flag", "value", "near"),
    [
        ("--chip", "Quadro-M4000", "chip"),
        ("--framework", "vlm", "framework"),
        ("--family", "gem_m", "family"),
        ("--dtype", "bf61", "number format"),
    ],
)
def test_unknown_names(flag: str, value: str, near: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["accuracy", flag, value]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"error: unknown {near} with results '{value}'")


def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["accuracy", "--out", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("error: --out: ")


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert run(["accuracy", "--page", str(tmp_path / "file")]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert run(["accuracy", *words]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    return err


@pytest.mark.parametrize("flag", ["--page", "--out", "--save", "--chip", "--framework", "--family", "--dtype"])
def test_nothing_is_no_value(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert refused([flag, ""], capsys).startswith(f"error: {flag}: ")


def test_no_file_takes_the_place_of_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, site = tmp_path / "page.md", tmp_path / "site"
    (tmp_path / "page").mkdir()
    site.mkdir()
    err = refused(["--out", str(page), "--save", str(page)], capsys)
    assert err == f"error: --save: '{page}' is also the file of --out\n"
    inside = tmp_path / "page" / "steps.md"
    err = refused(["--out", str(page), "--save", str(inside)], capsys)
    assert err.startswith(f"error: --save: '{inside}' is also the file of a list of --out")
    for name in ("index.html", "families.svg"):
        err = refused(["--save", str(site / name), "--page", str(site)], capsys)
        assert err.startswith(f"error: --save: '{site / name}' is also the file of --page")
    assert not list(tmp_path.rglob("*.*"))


def test_a_page_without_an_ending_has_no_name_left_for_its_lists(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    err = refused(["--out", str(tmp_path / "page")], capsys)
    assert "has no extension. Call it page.md" in err


def test_what_was_left_out_is_told_of_a_part(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["accuracy", "--chip", "B200", "--family", "gemm"]) == 0
    told = capsys.readouterr().out
    assert "Operator tables left out, and why:" in told
    assert "| B200-SXM-180GB vllm 0.24.0 gemm fp8-blocks | 3,456 | held back by the host" in told
    assert "| GB200 " not in told
    assert run(["accuracy"]) == 0
    assert "left out" not in capsys.readouterr().out


def test_nothing_left_is_no_answer(capsys: pytest.CaptureFixture[str]) -> None:
    err = refused(["--chip", "H200", "--family", "conv", "--framework", "sglang"], capsys)
    assert "--chip H200-SXM-141GB --framework sglang --family conv: nothing was compared" in err
    err = refused(["--chip", "B200", "--framework", "vllm", "--dtype", "fp8-blocks", "--family", "gemm"], capsys)
    assert "Left out: B200-SXM-180GB vllm 0.24.0 gemm fp8-blocks: held back by the host" in err


@pytest.mark.parametrize("words", [{}, {"chip": "H100", "family": "gemm"}, {"framework": "torch"}])
def test_the_answer_says_what_the_command_prints(words: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    from gnomon.accuracy import accuracy

    assert run(["accuracy", *(part for name, word in words.items() for part in (f"--{name}", word))]) == 0
    assert capsys.readouterr().out == f"{accuracy(**words)}\n"
