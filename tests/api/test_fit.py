"""Does it fit, and if not, do the changes it names make it fit?"""

from __future__ import annotations

import json
from typing import Any

import pytest

import gnomon
from gnomon.catalog import model_names
from gnomon.engines.vllm.launch import no_weights
from gnomon.errors import DoesNotFitError, InputError
from gnomon.load import model as load_model
from gnomon.load import parse_settings
from gnomon.planning.steps.network import KINDS
from gnomon.spec import EngineChoice, Plan, Strategy
from gnomon.spec.answers import Change, Fit

NOT_FITTING: dict[str, dict[str, Any]] = {
    "70b on one": {"model": "llama-3.1-70b", "on": "H100"},
    "70b on one H200": {"model": "llama-3.1-70b", "on": "H200"},
    "70b on two": {"model": "llama-3.1-70b", "on": "H100:2"},
    "little memory": {"model": "llama-3.1-8b", "on": "H100", "settings": {"gpu_memory_utilization": 0.3}},
    "experts": {"model": "qwen3-30b-a3b", "on": "H100", "settings": {"gpu_memory_utilization": 0.7}},
    "70b in fp8": {"model": "llama-3.1-70b", "on": "H100", "dtype": "fp8"},
}


def applied(asked: dict[str, Any], change: Change) -> Fit:
    """The same question with a change's flags."""
    flags = dict(change.flags)
    settings = dict(asked.get("settings") or {}) | parse_settings([flags.pop("set")] if "set" in flags else [])
    return gnomon.fit(**asked | flags | {"settings": settings})


def test_what_fits() -> None:
    found = gnomon.fit("llama-3.1-8b", on="H100")
    assert found.fits
    assert found.changes == ()
    assert found.kv_tokens == found.kv_blocks * 16
    assert found.max_context == 131072
    assert found.max_batch == found.kv_tokens // 131072
    assert sum(found.parts.values()) == pytest.approx(found.usable_bytes)
    assert found.usable_bytes < found.total_bytes


@pytest.mark.parametrize("name", NOT_FITTING)
def test_what_does_not_fit_is_told_what_would(name: str) -> None:
    asked = NOT_FITTING[name]
    found = gnomon.fit(**asked)
    assert not found.fits
    assert found.max_batch == 0
    assert found.max_context < 131072
    assert found.changes


@pytest.mark.parametrize("name", NOT_FITTING)
def test_changes_really_fit(name: str) -> None:
    asked = NOT_FITTING[name]
    for change in gnomon.fit(**asked).changes:
        after = applied(asked, change)
        assert after.fits, change.what
        assert after.kv_tokens == change.kv_tokens
        assert after.parts["kv"] == pytest.approx(change.kv_bytes)


@pytest.mark.parametrize("name", ["70b on one", "70b in fp8"])
def test_changes_are_the_smallest(name: str) -> None:
    asked = NOT_FITTING[name]
    for change in gnomon.fit(**asked).changes:
        chip, _, count = change.flags.get("on", "").partition(":")
        if int(count or 1) > 1:
            fewer = asked | {"on": f"{chip}:{int(count) // 2}", "dtype": change.flags["dtype"]}
            assert not gnomon.fit(**fewer).fits


def test_fitting_agrees_with_serving() -> None:
    """What fits is served; what does not is refused."""
    load: dict[str, Any] = {"input": 100, "output": 10, "requests": 3}
    for on, dtype, fits in (("H100:4", "bf16", True), ("H100:2", "bf16", False), ("H100:2", "fp8", True)):
        assert gnomon.fit("llama-3.1-70b", on=on, dtype=dtype).fits == fits
        if fits:
            assert gnomon.simulate_serving("llama-3.1-70b", on=on, dtype=dtype, **load).requests == 3
        else:
            with pytest.raises(DoesNotFitError, match="gnomon fit"):
                gnomon.simulate_serving("llama-3.1-70b", on=on, dtype=dtype, **load)


def test_a_shorter_context_fits_sooner() -> None:
    assert not gnomon.fit("llama-3.1-70b", on="H100:2").fits
    short = gnomon.fit("llama-3.1-70b", on="H100:2", context=2048)
    assert short.fits
    assert short.inputs["context"] == 2048
    assert short.max_batch == short.kv_tokens // 2048


def test_batches_never_exceed_what_the_engine_runs() -> None:
    found = gnomon.fit("llama-3.1-8b", on="H200", context=16, settings={"max_num_seqs": 100})
    assert found.max_batch == 100


DECODERS = [name for name in model_names() if load_model(name).kind not in KINDS]


@pytest.mark.battery(8)
@pytest.mark.parametrize("name", DECODERS)
def test_every_decoder_has_a_memory(name: str) -> None:
    """Whether or not its operators are priced: parts add up, and what is said to fit is held."""
    model = load_model(name)
    dtype = "bf16" if model.dtype == "fp32" else None
    found = gnomon.fit(name, on="B200:1", dtype=dtype, context=min(2048, model.max_context))
    assert found.parts["weights"] > 0
    taken = sum(size for part, size in found.parts.items() if part != "kv")
    if found.fits:
        assert taken + found.parts["kv"] == pytest.approx(found.usable_bytes)
        assert found.max_batch >= 1
        assert found.kv_tokens >= found.inputs["context"]
        assert found.margin_bytes >= 0
    else:
        assert found.changes
        assert found.margin_bytes < 0


def test_degrees() -> None:
    """A stage holds fewer layers, an expert rank fewer experts; data parallel ranks of a dense model are copies."""
    whole = gnomon.fit("llama-3.1-70b", on="H200:2", tp=1, pp=2)
    assert whole.parts["weights"] == pytest.approx(gnomon.fit("llama-3.1-70b", on="H200:2").parts["weights"], rel=0.02)
    one = gnomon.fit("llama-3.1-8b", on="H200")
    assert gnomon.fit("llama-3.1-8b", on="H200:4", dp=4).parts["weights"] == one.parts["weights"]
    dealt = gnomon.fit("qwen3-235b-a22b", on="H200:8", tp=1, dp=8, ep=8)
    assert dealt.fits
    assert dealt.parts["weights"] < 0.2 * gnomon.fit("qwen3-235b-a22b", on="H200").parts["weights"]
    assert {name: dealt.inputs[name] for name in ("tp", "ep", "dp")} == {"tp": 1, "ep": 8, "dp": 8}
    copied, split = (gnomon.fit("llama-3.1-8b", on="H200:16", tp=16, cp=cp) for cp in (1, 2))
    assert split.kv_tokens > 1.9 * copied.kv_tokens
    for words in ({"on": "H100", "tp": 1, "cp": 8}, {"on": "H100:4", "tp": 4, "ep": 2}):
        with pytest.raises(InputError):
            gnomon.fit("llama-3.1-8b" if "cp" in words else "mixtral-8x7b", **words)


def test_too_close_to_call() -> None:
    """At the edge the estimate says that the engine may find it the other way; away from it it does not."""

    def share(of: float) -> Fit:
        return gnomon.fit("llama-3.1-8b", on="H200", settings={"gpu_memory_utilization": of})

    assert share(0.2314).close
    assert share(0.2314).fits
    assert share(0.2311).close
    assert not share(0.2311).fits
    for clear in (0.2259, 0.2384):
        assert not share(clear).close
    wide = gnomon.fit("qwen3-30b-a3b", on="H200")
    assert wide.slack_bytes > share(0.3).slack_bytes


def test_narrow_weights_are_among_the_changes() -> None:
    changes = gnomon.fit("llama-3.1-70b", on="A100").changes
    said = [change.what.partition(",")[0] + "," + change.what.partition(",")[2] for change in changes]
    assert any("1 GPU, int4 weights" in what for what in said)
    assert any("2 GPUs, TP 2, max_model_len" in what for what in said)
    assert all(bool(change.note) == ("weights" in change.what) for change in changes)
    chips = [int(change.flags["on"].partition(":")[2]) for change in changes]
    assert chips == sorted(chips)


@pytest.mark.parametrize("name", [*NOT_FITTING, "unquantised"])
def test_a_change_says_what_export_would_ask_for(name: str) -> None:
    """A format that vLLM does not make while it loads needs a checkpoint, in the words that launches are refused by."""
    asked = NOT_FITTING.get(name, {"model": "llama-3.1-405b", "on": "H100:4"})
    network = load_model(asked["model"])
    for change in gnomon.fit(**asked).changes:
        dtype = change.flags.get("dtype", network.dtype)
        plan = Plan(
            model=asked["model"],
            chip="H100",
            dtype=dtype,
            replicas=1,
            strategy=Strategy(),
            engine=EngineChoice(name="vllm"),
        )
        lacking = no_weights(plan, network)
        assert ("make a checkpoint" in change.note) == (lacking is not None)
        if lacking is not None:
            assert f"a checkpoint in {dtype} (GPTQModel, AutoAWQ or llm-compressor)" in change.note
            assert f"a checkpoint in {dtype} (GPTQModel, AutoAWQ or llm-compressor)" in lacking.hint


def test_more_room() -> None:
    def tokens(**words: Any) -> int:
        return gnomon.fit("llama-3.1-8b", **{"on": "H100"} | words).kv_tokens

    assert tokens() < tokens(dtype="fp8") < tokens(dtype="fp8", kv_dtype="fp8")
    assert tokens() < tokens(on="H200") < tokens(on="H200:2")
    assert tokens(settings={"gpu_memory_utilization": 0.8}) < tokens()


def test_json() -> None:
    answer = json.loads(json.dumps(gnomon.fit("llama-3.1-70b", on="H100").to_dict(), allow_nan=False))
    assert answer["schema"] == "gnomon.fit/1"
    assert {"fits", "usable_bytes", "parts", "max_context", "max_batch", "changes"} <= set(answer)
    assert set(answer["parts"]) == {"weights", "activations", "runtime", "kv"}
    assert {"what", "kv_tokens", "kv_bytes", "flags"} <= set(answer["changes"][0])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"context": 0}, "--context: 0"),
        ({"context": -5}, "--context: -5"),
        ({"context": 131073}, "--context: 131,073"),
        ({"context": 8192, "settings": {"max_model_len": 4096}}, "max_model_len|--context"),
        ({"on": "H100:3"}, "--on"),
        ({"tp": 2}, "--on"),
        ({"tp": 0}, "tp"),
        ({"tp": -1}, "tp"),
        ({"settings": {"max_num_seqs": "lots"}}, "max_num_seqs"),
    ],
)
def test_refusals(words: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        gnomon.fit("llama-3.1-8b", **{"on": "H100"} | words)
