"""Techniques of serving by hand: bytes, streams and seconds that they must come to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import gnomon
from gnomon.cli.run import run
from gnomon.engines import Deployment, Engine
from gnomon.engines.techniques import NO_TECHNIQUES
from gnomon.errors import InputError
from gnomon.execution.measured_serving import measure
from gnomon.graph.ops import Elementwise, Gemm
from gnomon.load import model as load_model
from gnomon.load import parse_pool
from gnomon.load.deployments import deploy
from gnomon.spec import Batch, EngineChoice, Plan, Strategy

SMALL = "llama-3.2-1b"
MATRICES = 16 * (2048 * (2048 + 2 * 512 + 2048) + 3 * 2048 * 8192)
"""Weights of its layers that formats are for."""
ROWS = 16 * (2048 + 2 * 512 + 2048 + 2 * 8192 + 2048)
DECODE = Batch.decode(4, 100)


def made(on: str, *techniques: str, model: str = SMALL, **words: Any) -> tuple[Engine, Deployment]:
    return deploy(load_model(model), parse_pool(on), strategy=Strategy(techniques=techniques), **words)


def weights(on: str, *techniques: str) -> float:
    engine, deployment = made(on, *techniques)
    return engine.memory(deployment).parts["weights"]


def decode_s(on: str, *techniques: str, model: str = SMALL, **words: Any) -> float:
    found = gnomon.predict(model, on=on, phase="decode", batch=4, context=100, techniques=techniques, **words)
    return found.time_s.value


def test_four_bits_are_the_format_of_that_name() -> None:
    (engine, by_idea), (_, by_word) = made("H200", "int4-weights"), made("H200", dtype="int4")
    assert by_idea.model == by_word.model
    assert engine.graph(by_idea) == engine.graph(by_word)
    assert engine.memory(by_idea).parts == engine.memory(by_word).parts


@pytest.mark.parametrize(
    ("text", "bits", "scales"),
    [
        ("int4-weights", 4, MATRICES / 128),
        ("int4-weights:bits=3", 3, MATRICES / 128),
        ("int4-weights:bits=3,group=0", 3, ROWS),
        ("dequantize-on-the-fly", 4, ROWS),
        ("dequantize-on-the-fly:bits=8", 8, ROWS),
    ],
)
def test_bytes_of_narrow_weights(text: str, bits: int, scales: float) -> None:
    saved = MATRICES * (2 - bits / 8) - 2 * scales
    assert weights("H200") - weights("H200", text) == pytest.approx(saved)


def test_three_bits_are_read_in_fewer_bytes() -> None:
    wide, four, three = (decode_s("A100", *applied) for applied in ((), ("int4-weights",), ("int4-weights:bits=3",)))
    assert three < four < wide
    with pytest.raises(InputError, match="experts in 3 bits are not priced"):
        made("H200", "int4-weights:bits=3", model="mixtral-8x7b")
    with pytest.raises(InputError, match="is not an integer"):
        made("H200", "int4-weights:group=12.5")


def test_unpacked_weights_are_written_and_read_again() -> None:
    (engine, narrow), (_, wide) = made("H200", "dequantize-on-the-fly"), made("H200")
    graph, plain = engine.graph(narrow), engine.graph(wide)
    streams = [op for op in graph.ops if op.name.endswith(".unpack")]
    assert {op.name.removesuffix(".unpack") for op in streams} == {
        op.name for op in plain.ops if isinstance(op, Gemm) and not op.name.startswith("head")
    }
    assert tuple(op for op in graph.ops if op not in streams) == plain.ops
    values = sum(op.count * float(op.bytes(DECODE)[0]) for op in streams)
    assert values == pytest.approx(MATRICES * (0.5 + 2 / 128 + 2))
    assert all(isinstance(op, Elementwise) for op in streams)


@pytest.mark.parametrize("on", ["A100", "H200", "V100-32GB", "RTX-3090"])
def test_unpacked_weights_save_memory_and_cost_time(on: str) -> None:
    assert weights(on, "dequantize-on-the-fly") < 0.6 * weights(on)
    large = "llama-3.1-8b"  # a small one waits for the host on quick chips
    assert decode_s(on, "dequantize-on-the-fly", model=large) > 1.3 * decode_s(on, model=large)


def test_the_largest_matrix_needs_room_while_it_is_wide() -> None:
    engine, deployment = made("H200", "dequantize-on-the-fly")
    plain = engine.memory(replace(deployment, techniques=NO_TECHNIQUES)).parts
    more = engine.memory(deployment).parts["activations"] - plain["activations"]
    assert more == 2 * 2048 * 2 * 8192, "gate and up side by side"


def test_chips_without_kernels_for_narrow_weights_take_unpacked_ones_alone() -> None:
    with pytest.raises(InputError, match="Marlin"):
        made("V100-32GB", "int4-weights")
    assert made("V100-32GB", "dequantize-on-the-fly")[1].dtype == "int4"


def test_a_format_asked_for_beside_is_no_second_choice() -> None:
    with pytest.raises(InputError, match="dtype is set to fp8, not int4"):
        made("H200", "int4-weights", dtype="fp8")
    assert made("H200", "int4-weights", dtype="int4")[1].dtype == "int4"
    with pytest.raises(InputError, match="unknown number format of weights 'int3'"):
        made("H200", dtype="int3")
    with pytest.raises(InputError, match="the techniques set the weight format to int4"):
        gnomon.plan_serving(
            SMALL, fleet="H200:1", rate=1, input=64, output=8, dtypes=["bf16", "fp8"], techniques=["int4-weights"]
        )


def test_a_switch_is_two_copies_over_the_link() -> None:
    pool, tokens = parse_pool("A100"), 4001
    assert pool.host is not None
    each = tokens * load_model("yi-34b").kv_bytes_per_token(2)
    switch = 2 * each / pool.host.link.bandwidth_bytes_s
    found = gnomon.predict("yi-34b", on="A100", phase="decode", context=tokens - 1, techniques=["kv-swap:turn=100"])
    wait = next(line for line in found.breakdown if line.op == "kv-swap")
    assert wait.time_s.value == pytest.approx(switch / 100)
    plain = gnomon.predict("yi-34b", on="A100", phase="decode", context=tokens - 1).time_s.value
    assert found.time_s.value - plain == pytest.approx(switch / 100)


def test_sessions_that_there_is_room_for() -> None:
    found = gnomon.fit("yi-34b", on="A100", context=4096, techniques=["kv-swap:link_gb_s=20"])
    facts = found.techniques["kv-swap"]
    each = 4096 * load_model("yi-34b").kv_bytes_per_token(2)
    host = parse_pool("A100").host
    assert host is not None
    assert facts["sessions_in_cache"] == found.max_batch
    assert facts["sessions_on_host"] == 0.9 * host.memory_bytes // each
    assert facts["switch_s"] == pytest.approx(2 * each / 20e9)
    assert not gnomon.fit("yi-34b", on="A100", context=4096).techniques


def test_sessions_have_the_room_that_weights_leave_on_the_host() -> None:
    plain, beside = (
        gnomon.fit("yi-34b", on="A100", context=4096, techniques=["kv-swap", *more])
        for more in ([], ["streamed-layers"])
    )
    each = 4096 * load_model("yi-34b").kv_bytes_per_token(2)
    fewer = plain.techniques["kv-swap"]["sessions_on_host"] - beside.techniques["kv-swap"]["sessions_on_host"]
    assert beside.host_bytes > each and fewer == pytest.approx(beside.host_bytes / each, abs=1)


def test_fit_shows_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fit", "yi-34b", "--on", "A100", "--context", "4096", "--with", "kv-swap"]) == 0
    out = capsys.readouterr().out
    assert "kv-swap: sessions in cache 8, sessions on host 1,966, switch 63.9 ms" in out
    assert "--with kv-swap" in out and "simulate serve" not in out, "a load with it is not simulated"


def test_prompts_wait_for_no_switch() -> None:
    words: dict[str, Any] = {"on": "A100", "phase": "prefill", "tokens": 500}
    plain = gnomon.predict(SMALL, **words).time_s.value
    assert gnomon.predict(SMALL, **words, techniques=["kv-swap"]).time_s.value == plain


@pytest.mark.heavy
def test_a_search_puts_it_into_every_plan() -> None:
    found = gnomon.plan_serving(
        SMALL, fleet="A100:1", rate=1, input=64, output=8, requests=50, techniques=["dequantize-on-the-fly"]
    )
    assert found.best.plan.strategy.techniques == ("dequantize-on-the-fly",)
    assert found.best.plan.dtype == "int4"
    assert "with dequantize-on-the-fly" in found.title
    with pytest.raises(InputError, match="kv-swap cannot be simulated under load"):
        gnomon.plan_serving(SMALL, fleet="A100:1", rate=1, input=64, output=8, techniques=["kv-swap"])


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("qwen2.5-vl-7b", {"phase": "decode"}),
        (SMALL, {"phase": "train", "tokens": 128}),
        ("net.py:build", {}),
    ],
)
def test_what_techniques_are_not_applied_to(model: str, words: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="--with: int4-weights is not applied to"):
        gnomon.predict(model, on="H200", techniques=["int4-weights"], **words)


def test_only_what_the_engine_runs_can_be_verified() -> None:
    plan = Plan(
        model=SMALL, chip="H200", replicas=1, strategy=Strategy(techniques=("dequantize-on-the-fly",)), dtype="int4",
        engine=EngineChoice(),
    )  # fmt: skip
    with pytest.raises(InputError, match="vLLM does not know the technique dequantize-on-the-fly"):
        measure(plan)
    with pytest.raises(InputError, match="does not make weights in int4 itself"):
        measure(replace(plan, strategy=Strategy()))
