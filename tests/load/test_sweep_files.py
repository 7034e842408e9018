"""Which files answers of a sweep depend on: those its questions name, and the user's own."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from gnomon.load.sweep_files import changed_file, named_files
from gnomon.spec.sweep import Sweep

ROOT = Path(__file__).parents[2]


def sweep(**values: Any) -> Sweep:
    """Half of the values fixed, half swept."""
    names = list(values)
    fixed = {name: values[name] for name in names[::2]}
    return Sweep(command="predict", fixed=fixed, axes=tuple(({name: values[name]},) for name in names[1::2]))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GNOMON_HOME", str(tmp_path / "home"))
    return tmp_path


def write(path: str, text: str) -> str:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)
    return hashlib.sha256(text.encode()).hexdigest()


def test_names_of_the_catalog_are_no_files() -> None:
    assert named_files(sweep(model="llama-3.1-8b", on="H100:4", fleet="H100:8,L4:2", trace=None)) == {}


def test_each_field_has_its_files() -> None:
    cluster = "schema: gnomon.cluster/1\nchip: mine.yaml\ncount: 8\n"
    expected = {
        "t.csv": write("t.csv", "arrival_s\n"),
        "model/config.json": write("model/config.json", "{}"),
        "model/hf_quant_config.json": write("model/hf_quant_config.json", "{} "),
        "net/c.yaml": write("net/c.yaml", cluster),
        "net/mine.yaml": write("net/mine.yaml", "name: mine"),
        "chip.yaml": write("chip.yaml", "name: other"),
        "other.yaml": write("other.yaml", "broken: ["),
        "profiles/h100-sxm-80gb.yaml": write("home/profiles/h100-sxm-80gb.yaml", "p"),
        "chips/own.yaml": write("home/chips/own.yaml", "c"),
        "overheads/vllm.yaml": write("home/overheads/vllm.yaml", "o"),
    }
    asked = sweep(trace="t.csv", model="model", cluster="net/c.yaml", fleet="H100:4,chip.yaml:2", on="other.yaml")
    assert named_files(asked) == dict(sorted(expected.items()))


def test_a_script_and_shapes_are_files_too() -> None:
    script, shapes = write("net.py", "def f(): ..."), write("net.yaml", "layers: 1")
    assert named_files(sweep(model="net.py:f")) == {"net.py": script}
    assert named_files(sweep(model="./net.yaml")) == {"net.yaml": shapes}


def test_what_became_of_a_file() -> None:
    assert changed_file({"a": "1"}, {"a": "1"}) is None
    assert changed_file({"a": "1"}, {"a": "2"}) == ("a", "changed")
    assert changed_file({"a": "1"}, {}) == ("a", "was deleted")
    assert changed_file({}, {"a": "1"}) == ("a", "was added")
