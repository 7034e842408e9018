"""A traced step as an answer: parts that add up, bounds, launches. The trace is made by hand: no PyTorch needed."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.engines.calls import call, last, tensor, traced

import gnomon
from gnomon import catalog
from gnomon.engines.torch.eager.price import SPREAD
from gnomon.errors import GnomonError
from gnomon.load.profiles import profile_for
from gnomon.report import render
from gnomon.spec.answers import ModulePrediction
from gnomon.spec.traced import Call, Storage, Traced

WIDE = tensor(4096, 4096)


def product(module: str, phase: str = "forward", rows: int = 8192) -> Call:
    return call("mm", (tensor(rows, 4096),), self=tensor(rows, 4096), mat2=WIDE, module=module, phase=phase)


def pointwise(module: str, phase: str = "forward", size: int = 4096) -> Call:
    return call("relu", (tensor(size, 4096),), self=tensor(size, 4096), pointwise=True, module=module, phase=phase)


HELD = (
    Storage(bytes=2.0 * 4096**2, born=0, died=None, role="parameters"),
    Storage(bytes=2.0 * 8192 * 4096, born=1, died=None),
)
STEP = traced(
    product("blocks.0.up"), pointwise("blocks.0.act"), product("blocks.1.up"), pointwise(""),
    product("blocks.1.up", "backward"), pointwise("", "optimizer"), storages=HELD, phase="train",
)  # fmt: skip
SMALL = traced(*[pointwise("layer", size=1)] * 50, storages=HELD)


@pytest.fixture
def trace(monkeypatch: pytest.MonkeyPatch) -> Any:
    def run(made: Traced, **options: Any) -> ModulePrediction:
        monkeypatch.setattr("gnomon.api.trace.traced_module", lambda *_, **__: made)
        return gnomon.trace(None, None, **{"on": "H200"} | options)

    return run


def test_parts_add_up_to_the_whole(trace: Any) -> None:
    answer = trace(STEP)
    total = answer.time_s.value
    assert sum(line.time_s.value for line in answer.breakdown) == pytest.approx(total)
    share = sum(line.time_s.draws for line in answer.breakdown) / answer.time_s.draws
    assert np.median(share) == pytest.approx(1)
    assert np.max(share) == pytest.approx(1)  # a slow host shows in few draws, and has no line
    assert [line.op for line in answer.operators] == ["gemm", "pointwise"]
    assert sum(line.time_s.value for line in answer.operators) == pytest.approx(total)
    for key in ("flops", "bytes"):
        assert sum(getattr(line, key) for line in answer.breakdown) == pytest.approx(
            sum(getattr(line, key) for line in answer.operators)
        )
    assert answer.flops == 3 * 2.0 * 8192 * 4096 * 4096 and answer.kernels == 6
    names = {line.op for line in answer.breakdown}
    assert names == {"blocks.0.up", "blocks.0.act", "blocks.1.up", "(itself)", "blocks.1.up backward", "optimizer"}
    assert answer.tokens_per_s == pytest.approx(STEP.samples / total)
    assert answer.bound == "compute" and answer.unknown == ()


def test_bands_hold_the_estimate_and_sources_are_told_once(trace: Any) -> None:
    own, transferred = trace(STEP).time_s, trace(STEP, on="H100").time_s
    # Products are nearly all of it, and one shape errs as one; 32 draws have the quantiles of a sum to 5%.
    product_spread = profile_for(catalog.chip("H200")).family("gemm", "bf16", "torch").spread
    assert own.low < own.value < own.high < 1.05 * np.exp(2 * 1.645 * np.hypot(SPREAD, product_spread)) * own.low
    assert transferred.source.count("scaled by the data sheet of H100") == 1
    assert "scaled" not in own.source


def test_memory_and_what_it_is_for(trace: Any) -> None:
    answer = trace(STEP)
    assert answer.memory_bytes.value == sum(answer.memory_parts.values())
    assert answer.memory_parts["parameters"] == HELD[0].bytes
    assert answer.memory_parts["activations"] == HELD[1].bytes and answer.fits
    full = traced(pointwise("x"), storages=(Storage(bytes=2e11, born=0, died=None, role="parameters"),))
    assert not trace(full).fits
    assert "does not fit" in render(trace(full))


def test_small_kernels_wait_for_the_host_unless_they_are_captured(trace: Any) -> None:
    eager, graph = trace(SMALL), trace(SMALL, launch="graph")
    assert eager.bound == "host" and eager.time_s.value == pytest.approx(eager.host_s)
    assert any(line.kind == "host" for line in eager.breakdown)
    assert sum(line.time_s.value for line in eager.breakdown) == pytest.approx(eager.time_s.value)
    assert graph.time_s.value < 0.2 * eager.time_s.value and graph.bound == "latency"
    device = trace(STEP)
    assert device.time_s.value == trace(STEP, launch="graph").time_s.value > device.host_s


def test_a_sustained_step_gives_way_to_the_power_limit(trace: Any) -> None:
    burst, sustained = trace(STEP), trace(STEP, sustained=True)
    assert 1.02 * burst.time_s.value < sustained.time_s.value < 1.6 * burst.time_s.value
    assert sustained.energy_j.value <= 700 * sustained.time_s.value * 1.0001
    assert trace(SMALL, sustained=True).time_s.value == trace(SMALL).time_s.value


def test_convolutions_are_priced_from_the_data_sheet_or_a_fit(trace: Any) -> None:
    x, w = last(64, 256, 28, 28), last(256, 256, 3, 3)
    conv = call("convolution", (x,), {"transposed": False, "groups": 1}, input=x, weight=w, module="conv")
    answer = trace(traced(conv, storages=HELD))
    (line,) = answer.operators
    assert line.kind == "conv" and line.flops == answer.flops == 2.0 * 64 * 28 * 28 * 256 * 256 * 9
    assert 0.3 < line.flops / line.time_s.value / 989.4e12 < 0.95


def test_fp32_products_run_in_tf32_where_that_is_allowed(trace: Any) -> None:
    a = tensor(4096, 4096, dtype="fp32")
    wide = traced(call("mm", (a,), self=a, mat2=a), storages=HELD, dtype="fp32")
    exact, rounded = trace(wide), trace(wide, tf32=True)
    assert exact.inputs["arithmetic"] == "fp32" and rounded.inputs["arithmetic"] == "tf32"
    assert exact.time_s.value > 4 * rounded.time_s.value


def test_chips_without_tf32_convolve_in_fp32(trace: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from gnomon import catalog

    chip = catalog.chip("H200")
    old = replace(chip, rates_flops={name: rate for name, rate in chip.rates_flops.items() if name != "tf32"})
    monkeypatch.setattr("gnomon.load.fleet.catalog.chip", lambda _: old)
    x, w = tensor(4, 64, 28, 28, dtype="fp32"), tensor(64, 64, 3, 3, dtype="fp32")
    conv = call("convolution", (x,), {"transposed": False, "groups": 1}, input=x, weight=w)
    assert trace(traced(conv, storages=HELD, dtype="fp32")).inputs["arithmetic"] == "fp32"
    with pytest.raises(GnomonError, match="tf32: H200-SXM-141GB has no tf32"):
        trace(STEP, tf32=True)


def test_the_report_shows_kernels_and_modules(trace: Any) -> None:
    text = render(trace(STEP))
    assert "one training step of 4 samples" in text and "samples/s" in text and "J/sample" in text
    assert "where the time goes, by kernel" in text and "by module" in text
    assert "blocks.1.up backward" in text
    found = trace(STEP, phase="train")
    script = replace(found, inputs={**found.inputs, "model": "net.py:build"})
    assert "gnomon predict net.py:build --on H200 --phase train --set launch=graph" in render(script)


def test_deep_modules_are_shown_together(trace: Any) -> None:
    deep = traced(*[pointwise(f"body.{block}.{part}.{leaf}") for block in range(6) for part in "ab" for leaf in "xy"])
    text = render(trace(traced(*deep.calls, storages=HELD), launch="graph"))
    assert "body.5 " in text and "body.5.a" not in text


def test_draws_are_the_same_every_time(trace: Any) -> None:
    assert trace(STEP).to_dict() == trace(STEP).to_dict()
    assert np.array_equal(trace(STEP).time_s.draws, trace(STEP).time_s.draws)


def test_a_script_needs_pytorch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("gnomon.load.tracing.script_words.find_spec", lambda _: None)
    (tmp_path / "net.py").write_text("raise SystemExit('must not be run')\n")
    with pytest.raises(GnomonError, match=r"pip install 'gnomon\[torch\]'"):
        gnomon.predict(f"{tmp_path / 'net.py'}:build", on="H200")


@pytest.mark.parametrize("phase", [None, "forward", "train", "decode"])
def test_a_wrong_form_of_a_script_says_the_right_one(phase: str | None) -> None:
    for words in ("s.py", "s.py:", "s.py:ok:ok", "s.py:torch.nn.Linear"):
        with pytest.raises(GnomonError, match=rf"MODEL: '{words}' is not SCRIPT.py:FUNCTION"):
            gnomon.predict(words, on="H200", phase=phase)


def test_what_a_script_prints_is_talk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def seen(*_: Any, **__: Any) -> Traced:
        print("traced")
        return STEP

    monkeypatch.setattr("gnomon.api.trace.traced_module", seen)
    monkeypatch.setattr("gnomon.load.tracing.script_words.find_spec", lambda _: True)
    (tmp_path / "net.py").write_text("print('imported')\ndef build():\n    print('built')\n    return 1, 2\n")
    gnomon.predict(f"{tmp_path / 'net.py'}:build", on="H200")
    assert capsys.readouterr() == ("", "imported\nbuilt\ntraced\n")


def test_a_script_in_the_words_of_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: dict[str, Any] = {}

    def seen(*given: Any) -> Traced:
        asked.update(asdict(given[2]), given=given[:2])
        return STEP

    monkeypatch.setattr("gnomon.api.trace.traced_module", seen)
    monkeypatch.setattr("gnomon.load.tracing.script_words.find_spec", lambda _: True)
    (tmp_path / "net.py").write_text("def build(): return {'module': 1, 'inputs': 2, 'loss': len}\n")
    words = f"{tmp_path / 'net.py'}:build"
    answer = gnomon.predict(words, on="H200", phase="train", batch=8, dtype="bf16", settings={"optimizer": "sgd"})
    assert answer.inputs["model"] == words
    assert asked["given"] == (1, 2)
    assert {key: asked[key] for key in ("phase", "batch", "dtype", "loss", "optimizer")} == {
        "phase": "train", "batch": 8, "dtype": "bf16", "loss": len, "optimizer": "sgd",
    }  # fmt: skip
    for options, message in (
        ({"tp": 2}, r"--tp: says nothing"),
        ({"tokens": 64}, r"--tokens: says nothing"),
        ({"engine": "vllm"}, r"--engine: 'vllm' does not run modules"),
        ({"settings": {"lunch": "graph"}}, r"--set: unknown setting 'lunch'\. Near: launch"),
        ({"settings": {"tf32": "yes"}}, r"--set tf32: 'yes' is not true or false"),
        ({"phase": "decode"}, r"--phase: unknown phase 'decode'"),
    ):
        with pytest.raises(GnomonError, match=message):
            gnomon.predict(words, on="H200", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("launch", ["eager", "graph"])
def test_several_passes_take_as_long_as_each_of_them(trace: Any, launch: str) -> None:
    forward = traced(*[call for call in STEP.calls if call.phase == "forward"], storages=HELD)
    one, four = trace(forward, launch=launch), trace(forward, launch=launch, steps=4)
    assert four.time_s.value == pytest.approx(4 * one.time_s.value)
    assert four.host_s == pytest.approx(4 * one.host_s)
    assert four.flops == 4 * one.flops and four.kernels == 4 * one.kernels
    assert four.memory_bytes.value == one.memory_bytes.value
    assert four.tokens_per_s == pytest.approx(one.tokens_per_s / 4)
    assert "4 forward passes" in four.title
