"""Traces as files: what is read is what was written, priced alike; what is wrong names its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.engines.calls import call, traced

import gnomon
from gnomon.errors import GnomonError, InputError
from gnomon.load.tracing.trace_file import read_trace, write_trace
from gnomon.spec.traced import Storage, TensorSpec, Traced


def spec(storage: int, *shape: int) -> TensorSpec:
    stride = (*shape[1:], 1) if shape else ()
    return TensorSpec(shape=shape, stride=stride, dtype="bf16", item_bytes=2.0, storage=storage)


STEP = traced(
    call("mm", (spec(2, 64, 64),), self=spec(0, 64, 64), mat2=spec(1, 64, 64), module="a.b"),
    call("relu_", (spec(2, 64, 64),), self=spec(2, 64, 64), changed=("self",), pointwise=True),
    call("sum", (spec(3),), {"dim": [0, 1], "keepdim": False}, self=spec(2, 64, 64), phase="backward"),
    storages=(
        Storage(bytes=8192.0, born=0, died=None, role="inputs"),
        Storage(bytes=8192.0, born=0, died=None, role="parameters"),
        Storage(bytes=8192.0, born=0, died=3),
        Storage(bytes=2.0, born=2, died=None),
    ),
    phase="train",
)


@pytest.mark.parametrize("name", ["net.trace.json", "net.trace.json.gz"])
def test_a_trace_comes_back_as_it_was(name: str, tmp_path: Path) -> None:
    write_trace(STEP, tmp_path / name)
    first = (tmp_path / name).read_bytes()
    assert read_trace(tmp_path / name) == STEP
    write_trace(STEP, tmp_path / name)
    assert (tmp_path / name).read_bytes() == first


def test_a_file_is_priced_as_its_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnomon.api.trace.traced_module", lambda *_, **__: STEP)
    out = tmp_path / "net.trace.json"
    made = gnomon.trace(None, None, on="H200", phase="train", launch="graph", out=out)
    found = gnomon.predict(str(out), on="H200", settings={"launch": "graph"})
    assert found.time_s.value == made.time_s.value and found.memory_bytes.value == made.memory_bytes.value
    assert found.inputs["model"] == str(out)
    assert gnomon.predict(out, on="A100").time_s.value != made.time_s.value


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"batch": 7}, "7 is not what was traced: "),
        ({"dtype": "fp8"}, "fp8 is not what was traced"),
        ({"phase": "forward"}, "forward is not what was traced: train"),
        ({"tokens": 3}, "says nothing about a module"),
        ({"steps": 3}, "a training step is priced by itself"),
        ({"steps": 0}, "0 is below 1"),
        ({"settings": {"optimizer": "sgd"}}, "unknown setting 'optimizer'"),
        ({"settings": {"fused": "yes"}}, "'yes' is not true or false"),
        ({"on": "H200:2"}, "more than the one chip"),
    ],
)
def test_what_was_settled_when_it_was_traced_is_refused(asked: dict[str, Any], words: str, tmp_path: Path) -> None:
    write_trace(STEP, tmp_path / "net.trace.json")
    with pytest.raises(GnomonError, match=words):
        gnomon.predict(str(tmp_path / "net.trace.json"), **{"on": "H200"} | asked)


def test_another_ending_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"does not end in \.trace\.json"):
        write_trace(STEP, tmp_path / "net.json")
    with pytest.raises(InputError, match="no such file"):
        gnomon.predict(str(tmp_path / "none.trace.json"), on="H200")


def data(tmp_path: Path) -> dict[str, Any]:
    write_trace(STEP, tmp_path / "net.trace.json")
    found: dict[str, Any] = json.loads((tmp_path / "net.trace.json").read_text())
    return found


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (["schema"], "gnomon.trace/9", "'gnomon.trace/9' is not gnomon.trace/1"),
        (["phase"], "backward", "is not forward or train"),
        (["samples"], -1, "field samples"),
        (["layouts", 0, 0], [-4, 64], r"field layouts\[0\]"),
        (["layouts", 0, 1], [1], "one stride for each of 2 dimensions"),
        (["layouts", 0, 3], "wide", "a number of bytes"),
        (["storages", 0, 0], float("inf"), "a number of bytes"),
        (["storages", 2, 2], -3, "a call and a later one, or null"),
        (["storages", 0, 3], 99, "a number from 0 to"),
        (["calls", 0, "op"], 99, r"field calls\[0\]\.op"),
        (["calls", 0, "op"], True, r"field calls\[0\]\.op"),
        (["calls", 0, "results", 0], [0, 99], r"field calls\[0\]\.results\[0\]"),
        (["calls", 0, "tensors"], 3, r"field calls\[0\]\.tensors"),
        (["calls", 1, "phase"], "sideways", "is not one of forward, backward, optimizer"),
        (["calls", 2, "options"], {"dim": {"a": 1}}, "a mapping of numbers"),
        (["calls", 0, "colour"], "red", "unknown field"),
        (["ops", 0], 3, "is not a text"),
    ],
)
def test_a_broken_file_names_its_field(place: list[Any], value: Any, words: str, tmp_path: Path) -> None:
    broken = inner = data(tmp_path)
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    (tmp_path / "net.trace.json").write_text(json.dumps(broken))
    with pytest.raises(InputError, match=words) as problem:
        read_trace(tmp_path / "net.trace.json")
    assert "net.trace.json" in str(problem.value)


@pytest.mark.parametrize("text", ["", "[1, 2]", "{", "[" * 100_000, '{"schema": NaN}'])
def test_no_trace_at_all_is_said(text: str, tmp_path: Path) -> None:
    (tmp_path / "net.trace.json").write_text(text)
    with pytest.raises(InputError, match=r"net\.trace\.json"):
        read_trace(tmp_path / "net.trace.json")


@pytest.mark.heavy
def test_every_trace_that_ships_is_read() -> None:
    found = sorted((Path(gnomon.__file__).parent / "papers" / "index").glob("*/*.trace.json.gz"))
    assert found
    for file in found:
        step: Traced = read_trace(file)
        assert step.calls and step.samples > 0, file
