"""vLLM behind the engine contract: versions, limits, padding, host time, draws."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnomon.engines import Deployment, Engine, engine, serving_engines
from gnomon.engines.vllm import ENGINE
from gnomon.engines.vllm.captures import captured_sizes
from gnomon.errors import InputError, UnknownNameError
from gnomon.load import model as load_model
from gnomon.load import parse_pool
from gnomon.load.deployments import deploy
from gnomon.sim.serving import saturation_rps
from gnomon.spec import Batch, Requests, Strategy
from gnomon.spec.estimate import DRAWS

MEASURED = Path(__file__).parents[2] / "measurements/h200-2026-11-15"


def deployed(
    name: str = "llama-3.1-8b", kv_dtype: str = "bf16", strategy: Strategy | None = None, **settings: Any
) -> tuple[Engine, Deployment]:
    chosen = strategy or Strategy()
    given = {"max_model_len": 16384} | settings
    pool = parse_pool(f"H200:{chosen.ranks}")
    return deploy(load_model(name), pool, strategy=chosen, kv_dtype=kv_dtype, settings=given)


@pytest.mark.parametrize("name", serving_engines())
def test_every_engine_answers_to_its_name(name: str) -> None:
    found = engine(name)
    assert found.name == name
    assert engine(f"{name}@{found.version}") == found


@pytest.mark.parametrize("label", ["vllm", "vllm@", "vllm@0.24", "vllm@0.24.0"])
def test_versions_are_completed(label: str) -> None:
    assert engine(label).version == "0.24.0"


@pytest.mark.parametrize("label", ["vllm@0.23.0", "vllm@0.240", "vllm@0.24.1", "vllm@latest", "vllm@0.3"])
def test_unknown_versions_name_the_known(label: str) -> None:
    with pytest.raises(UnknownNameError, match=rf"unknown version of vllm '{label[5:]}'.*{ENGINE.versions[0]}"):
        engine(label)


@pytest.mark.parametrize("label", ["vlm", "", "lmdeploy", "vllm 0.24"])
def test_unknown_engines_name_the_known(label: str) -> None:
    with pytest.raises(UnknownNameError, match=r"unknown engine.*vllm"):
        engine(label)


def test_unknown_settings_name_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="max_num_seqs"):
        deployed(max_num_sequences=3)


@pytest.mark.parametrize("name", ["llama-3.1-8b", "qwen3-30b-a3b"])
def test_captured_sizes_are_those_vllm_reported(name: str) -> None:
    reported = json.loads((MEASURED / f"verify-{name}.json").read_text())["settings"]["capture_sizes"]
    assert captured_sizes(deployed(name)[1].settings) == sorted(reported)


def test_limits() -> None:
    chosen, deployment = deployed(max_num_seqs=64, block_size=32)
    limits = chosen.limits(deployment)
    assert limits.kv_blocks == chosen.memory(deployment).kv_blocks
    assert (limits.block_tokens, limits.max_sequences, limits.max_step_tokens) == (32, 64, 8192)
    assert (limits.max_context, limits.lookahead) == (16384, 1)
    for latency in (limits.ingress_s, limits.egress_s, limits.idle_start_s):
        assert 1e-4 < latency < 0.02
    plain = deployed(async_scheduling=False)
    assert plain[0].limits(plain[1]).lookahead == 0


def test_the_front_end_that_is_asked_for_takes_requests_in() -> None:
    (chosen, http), (_, inside) = deployed(), deployed(front_end="in_process")
    over, within = chosen.limits(http), chosen.limits(inside)
    assert over.request_s > 2 * within.request_s > 1e-4
    assert over.output_s > within.output_s > 0
    assert within.idle_launch > 1
    assert over.tokenize_s > 1e-6 > within.tokenize_s == 0
    (_, drawn), *_ = list(chosen.drawn(http, 2))[1:]
    factor = drawn.request_s / over.request_s
    assert factor != 1
    assert drawn.output_s / over.output_s == pytest.approx(factor)
    assert drawn.idle_launch == over.idle_launch
    short = Requests(np.zeros(64), np.full(64, 16), np.full(64, 10))
    cost = chosen.step_cost(http, 64)
    assert saturation_rps(short, cost, over) < min(1 / over.request_s, saturation_rps(short, cost, within))
    with pytest.raises(InputError, match="one of http, in_process"):
        deployed(front_end="grpc")


def padded_tokens(batch: Batch, **settings: Any) -> int:
    chosen, deployment = deployed(**settings)
    return int(chosen.host(deployment).steps(batch).padded.tokens[0])


@pytest.mark.parametrize(
    ("tokens", "padded"), [(1, 1), (2, 2), (3, 4), (5, 8), (9, 16), (255, 256), (257, 272), (512, 512), (513, 513)]
)
def test_steps_are_padded_to_captured_sizes(tokens: int, padded: int) -> None:
    assert padded_tokens(Batch.decode(tokens, 100)) == padded
    assert padded_tokens(Batch.step([], [(tokens, 0)])) == padded
    assert padded_tokens(Batch.step([7], [(tokens - 1, 0)] if tokens > 1 else [])) == padded
    assert padded_tokens(Batch.decode(tokens, 100), enforce_eager=True) == tokens


def test_padding_adds_tokens_and_nothing_else() -> None:
    chosen, deployment = deployed()
    batch = Batch.step([100, 200], [(7, 30)])
    padded = chosen.host(deployment).steps(batch).padded
    assert padded.tokens[0] == 16
    for name in ("decodes", "decode_context", "prefills", "prefill_pairs", "prefill_context", "logit_rows"):
        assert getattr(padded, name).tolist() == getattr(batch, name).tolist()


def test_host_time_by_kind_of_step() -> None:
    chosen, deployment = deployed()
    decode, captured, eager = (
        chosen.host(deployment).steps(batch)
        for batch in (Batch.decode(8, 100), Batch.prefill(1, 512), Batch.prefill(1, 513))
    )
    assert 0 < decode.host_s < captured.host_s < eager.host_s < 0.1
    assert 0 < decode.gap_s < 1e-3
    many = chosen.host(deployment).steps(Batch.decode(800, 100))
    assert many.host_s > decode.host_s
    assert many.gap_s > decode.gap_s
    assert "vLLM 0.24.0" in chosen.host(deployment).source


def test_launches_are_those_of_the_step_cost() -> None:
    chosen, deployment = deployed("qwen3-30b-a3b")
    cost = chosen.step_cost(deployment)
    for tokens in (1, 300, 512, 513, 4000):
        steps = chosen.host(deployment).steps(Batch.prefill(1, tokens))
        assert cost.launch(tokens, 1) == pytest.approx(steps.host_s, rel=1e-12)


@pytest.mark.parametrize("kv_dtype", ["bf16", "fp8"])
def test_draws_of_a_step_spread_around_it(kv_dtype: str) -> None:
    chosen, deployment = deployed(kv_dtype=kv_dtype)
    central = chosen.step_cost(deployment).decode_curve(128).seconds[-1]
    first, *drawn = (cost.decode_curve(128).seconds[-1] for cost, _ in chosen.drawn(deployment, DRAWS))
    assert first == central
    assert [cost.decode_curve(128).seconds[-1] for cost, _ in chosen.drawn(deployment, 4)] == [first, *drawn[:4]]
    assert len(set(drawn)) == DRAWS
    # 32 draws of a wide spread: none of the cache's format is fitted, so its operator may be off by a third.
    assert np.median(drawn) == pytest.approx(central, rel=0.05 if kv_dtype == "bf16" else 0.08)
    assert min(drawn) < central < max(drawn)


@pytest.mark.parametrize("kv_dtype", ["bf16", "fp8"])
def test_the_same_operator_has_the_same_draws_anywhere(kv_dtype: str) -> None:
    """A step's draws are those a prediction shows for its operators, but that no operator of a prediction is quicker
    than its chip can be."""
    import gnomon

    chosen, deployment = deployed(kv_dtype=kv_dtype)
    shown = gnomon.predict("llama-3.1-8b", on="H200", batch=128, context=16383, kv_dtype=kv_dtype).time_s
    _, *drawn = (cost.decode_curve(128).seconds[-1] for cost, _ in chosen.drawn(deployment, DRAWS))
    assert np.median(np.asarray(drawn) / shown.draws) == pytest.approx(1.0, rel=1e-9)
    assert np.all(np.asarray(drawn) <= shown.draws * (1 + 1e-9))


def test_deployments_with_one_key_have_one_cost() -> None:
    first, again, other = (deployed(max_num_seqs=n)[1] for n in (64, 64, 128))
    found: Any = engine("vllm")
    assert found.cost_key(first) == found.cost_key(again) != found.cost_key(other)
    hash(found.cost_key(first))
