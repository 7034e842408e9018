"""Files are written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gnomon.cli.files import check_overwritten, keep_apart, output_file, output_folder, write_all
from gnomon.cli.output import one_line
from gnomon.errors import InputError
from gnomon.paths import written
from gnomon.spec.plan_dict import as_json


def names(folder: Path) -> list[str]:
    return [file.name for file in folder.iterdir()]


def test_a_failure_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("old")
    with pytest.raises(RuntimeError), written(path) as file:
        file.write("half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert names(tmp_path) == ["x.csv"]


def test_success_replaces_it(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("old")
    with written(path) as file:
        file.write("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert names(tmp_path) == ["x.csv"]


def test_a_link_keeps_pointing(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    with written(output_file(str(link), "--out")) as file:
        file.write("new")
    assert link.is_symlink()
    assert target.read_text() == "new"


@pytest.mark.parametrize("text", ["", " ", "a\0b", "no/such/folder/x", "x" * 300])
def test_impossible_paths(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="--out"):
        output_file(text, "--out")
    assert names(tmp_path) == []


def test_devices_are_written_directly() -> None:
    path = output_file("/dev/null", "--out")
    with written(path) as file:
        file.write("x")
    assert Path("/dev/null").is_char_device()


def test_folders(tmp_path: Path) -> None:
    folder = output_folder(str(tmp_path / "a" / "b"), "--out")
    write_all({"launch.sh": "#!/bin/sh\n", "plan.yaml": "x: 1\n"}, folder)
    assert os.access(folder / "launch.sh", os.X_OK)
    assert not os.access(folder / "plan.yaml", os.X_OK)
    with pytest.raises(InputError, match="is a file, not a folder"):
        output_folder(str(folder / "plan.yaml"), "--out")
    (folder / "plan.yaml").unlink()
    (folder / "plan.yaml").mkdir()
    (folder / "launch.sh").write_text("old")
    with pytest.raises(InputError, match=r"plan\.yaml: is a folder"):
        write_all({"launch.sh": "new", "plan.yaml": "x: 1\n"}, folder)
    assert (folder / "launch.sh").read_text() == "old"
    assert sorted(names(folder)) == ["launch.sh", "plan.yaml"]


def test_outputs_keep_off_the_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in.csv").write_text("x")
    Path("link.csv").symlink_to("in.csv")
    Path("hard.csv").hardlink_to("in.csv")
    for text in ("in.csv", "./in.csv", str(tmp_path / "in.csv"), "link.csv", "hard.csv"):
        with pytest.raises(InputError, match=r"--out: .* is also the file of --trace"):
            keep_apart({"--out": Path(text)}, "in.csv", "--trace")
    for source in (None, "other.csv", "~nobody-here/x", "a\0b"):
        keep_apart({"--out": Path("in.csv")}, source, "--trace")


def test_plain_values() -> None:
    assert as_json({"a": (1.0, float("nan"), float("inf"))}) == {"a": [1.0, None, None]}
    assert one_line("a\n b\tc\x07") == "a b c?"


def test_a_link_that_leads_nowhere_but_to_itself(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(InputError, match="--out"):
        output_file(str(loop), "--out")


def test_a_link_to_nowhere_is_a_file_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "run.sh").symlink_to(tmp_path / "elsewhere" / "run.sh")
    (tmp_path / "same.sh").write_text("x")
    (tmp_path / "plan.yaml").symlink_to(tmp_path / "same.sh")
    with pytest.raises(InputError, match=r"run\.sh' would be overwritten"):
        check_overwritten({"run.sh": "x"}, tmp_path, "--out")
    check_overwritten({"plan.yaml": "x", "new.sh": "x"}, tmp_path, "--out")
    with pytest.raises(InputError, match=r"plan\.yaml' would be overwritten"):
        check_overwritten({"plan.yaml": "y"}, tmp_path, "--out")
