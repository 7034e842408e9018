"""Laws of every serving technique that is found, over deployments drawn at random under every engine."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from tests.techniques.texts import changes, name_of, texts

import gnomon
from gnomon.cost.lines import Steps
from gnomon.engines import Deployment, Engine, operations_of, serving_engines
from gnomon.engines.base import Case
from gnomon.errors import GnomonError, InputError
from gnomon.load import model as load_model
from gnomon.load import parse_pool
from gnomon.load.deployments import deploy
from gnomon.spec import Batch, EngineChoice, ServingLoad, Strategy
from gnomon.spec.drawing import draw
from gnomon.techniques import SERVING, applied

TEXTS = texts(SERVING)
MODELS = (
    "llama-3.2-1b",
    "llama-3.1-70b",
    "qwen1.5-moe-a2.7b",
    "deepseek-v2-lite",
    "gemma-2-9b",
    "jamba-52b",
    "gpt2-xl",
)
DENSE = ("llama-3.2-1b", "llama-3.1-70b", "gemma-2-9b", "gpt2-xl")
STARTED = tuple(name for name in serving_engines() if operations_of(name))
"""The other engines run static batches of dense networks."""
CHIPS = ("A100-80GB", "H100", "H200", "V100-32GB", "L4", "MI300X", "GB200", "GB10")
BATCHES = (Batch.decode(1, 100), Batch.decode(16, 4000), Batch.prefill(2, 300))
ROUNDING = 1e-9


def drawn(count: int) -> list[tuple[str, str, str, Strategy]]:
    """Model, chips, engine and degrees; some of them go together nowhere."""
    rng, found = np.random.default_rng(5), []
    for _ in range(count):
        tp, pp, dp = (int(rng.choice(few)) for few in ((1, 1, 2, 4, 3), (1, 1, 1, 2), (1, 1, 1, 2)))
        model, chip = str(rng.choice(MODELS)), str(rng.choice(CHIPS))
        strategy = Strategy(tp=tp, pp=pp, dp=dp, ep=tp * dp if rng.random() < 0.3 else 1)
        engines = serving_engines() if model in DENSE and strategy.dp == strategy.ep == 1 else STARTED
        found.append((model, f"{chip}:{tp * pp * dp}", str(rng.choice(engines)), strategy))
    return found


CASES = drawn(24)


@cache
def plain(place: int) -> tuple[Engine, Deployment] | None:
    """The deployment, where there is one."""
    model, on, engine, strategy = CASES[place]
    try:
        return deploy(load_model(model), parse_pool(on), strategy=strategy, engine=EngineChoice(name=engine))
    except GnomonError:
        return None


def using(place: int, *named: str) -> tuple[Engine, Deployment] | None:
    """The same with techniques; what refuses it gives a reason."""
    model, on, engine, strategy = CASES[place]
    strategy = replace(strategy, techniques=named)
    try:
        return deploy(load_model(model), parse_pool(on), strategy=strategy, engine=EngineChoice(name=engine))
    except GnomonError as error:
        assert isinstance(error, InputError) and "\n" not in str(error) and len(error.message) > 20
        return None


def test_enough_of_them_can_be_deployed() -> None:
    assert sum(plain(place) is not None for place in range(len(CASES))) >= len(CASES) // 2


@pytest.mark.battery(12)
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("place", range(len(CASES)))
def test_bytes_seconds_and_what_is_not_declared(place: int, text: str) -> None:
    found, before = using(place, text), plain(place)
    if found is None:
        return
    (engine, own), declared, chosen = found, changes(text), applied(SERVING, [text])
    use = engine.memory(own)
    assert all(np.isfinite(size) and size >= 0 for size in (*use.parts.values(), use.host_bytes, use.nvme_bytes))
    assert use.total_bytes == own.pool.chip.memory_bytes
    for batch in BATCHES:
        longer = 0.0
        for seconds in (1e-3, 1e-2, 0.1):
            steps = Steps(seconds=seconds, batch=batch, cached_bytes=1e9 * seconds)
            each = [one.waits(steps, own, values) for one, values in chosen.pairs]
            waits = min((float(np.asarray(wait.seconds)) for wait in each if wait is not None), default=0.0)
            assert waits >= 0 and seconds + waits >= longer * (1 - ROUNDING), "a longer step is not shorter with it"
            longer = seconds + waits
    if before is None:
        return
    _, without = before
    assert own.strategy.ranks == without.strategy.ranks
    conserved(engine, own, without, declared)


def conserved(engine: Engine, own: Deployment, without: Deployment, declared: set[str]) -> None:
    use, plain_use = engine.memory(own), engine.memory(without)
    for batch in BATCHES:
        flops = [float(engine.graph(one).flops(batch).sum()) for one in (own, without)]
        assert "flops" in declared or flops[0] == pytest.approx(flops[1], rel=1e-9)
    assert "parameters" in declared or own.model.parameters == without.model.parameters
    assert "precision" in declared or (own.dtype, own.kv_dtype) == (without.dtype, without.kv_dtype)
    assert "weight bytes" in declared or use.parts["weights"] == pytest.approx(plain_use.parts["weights"])
    assert "cache bytes" in declared or use.sequence_bytes(900, 1) == pytest.approx(plain_use.sequence_bytes(900, 1))
    if own.techniques and _simulated(engine, own):
        limits, usual = (_limits(engine, one) for one in (own, without))
        if limits is not None and usual is not None:
            assert "schedule" in declared or type(limits.policy) is type(usual.policy)


def _simulated(engine: Engine, own: Deployment) -> bool:
    try:
        engine.check_simulated(own)
    except InputError:
        return False
    return True


def _limits(engine: Engine, own: Deployment) -> Any:
    try:
        return engine.limits(own)
    except GnomonError as error:
        assert "\n" not in str(error)
        return None


@pytest.mark.parametrize("text", TEXTS)
def test_clients_send_as_many_requests_in_the_same_order(text: str) -> None:
    load = ServingLoad(input_tokens=500, output_tokens=50, rate_per_s=2.0, requests=40)
    stream = draw(load)
    case = Case(model=load_model("llama-3.2-1b"), pool=parse_pool("H100"))
    found = applied(SERVING, [text]).requests(stream, case)
    assert len(found) == len(stream) and (np.diff(found.arrival_s) >= 0).all()
    assert (found.input_tokens >= 1).all() and (found.output_tokens >= 1).all()
    assert "requests" in changes(text) or found.same(stream)


def test_without_techniques_everything_stays_as_it_is() -> None:
    nothing, thing = applied(SERVING, []), object()
    case: Any = None
    assert not nothing and not nothing.values and not nothing.routes and not nothing.asks_otherwise
    for kept in (nothing.memory, nothing.costs, nothing.kv_cache, nothing.limits, nothing.requests, nothing.router):
        assert kept(thing, case) is thing  # type: ignore[operator]
    assert nothing.passes(case) == () and nothing.waits(Steps(seconds=1.0), case) == {}
    assert nothing.rewrite(case) is case and nothing.metrics(None, case) == nothing.assumed(case) == {}


@pytest.mark.parametrize("text", TEXTS)
def test_values_at_both_ends_can_be_asked_for(text: str) -> None:
    """A step with them, or one line that says why not."""
    try:
        found = gnomon.predict("llama-3.2-1b", on="A100-80GB", batch=4, context=500, techniques=[text])
    except GnomonError as error:
        assert error.exit_code == 2 and name_of(text) in str(error) and "\n" not in str(error)
        return
    assert 0 < found.time_s.value < 1e6 and found.memory_bytes.value > 0
